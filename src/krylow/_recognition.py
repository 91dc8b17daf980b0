r"""Every form in which a graph comes, and whether a bare matrix can be a Laplacian.

An adjacency becomes a checked dense tensor, rows of scipy, or a list of edges. A bare matrix M is taken for a Laplacian
where one of the kinds of :func:`krylow.laplacian` explains it, so that an adjacency is not:

- combinatorial: every row sums to zero, whatever the signs;
- generalized: no positive entry off the diagonal, and no row sums to less than zero (the sums are the self-loops);
- normalized: entries within [-1, 1] and a positive vector s with M s = 0, the roots of the degrees. Without positive
  entries off the diagonal, 1 is then the Perron eigenvalue of I - M >= 0; with some (negative weights), s is looked for
  in the null space of every component of at most 1024 nodes, and |M_ij| s_j summed over j != i is at most s_i.

A matrix without entries off the diagonal is its own Laplacian. One whose diagonal alone is zero is refused: it may be
the Laplacian of a signed graph in balance, but then it is an adjacency just as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from krylow import _checks, _native
from krylow._checks import InputError, in_range, not_two_by_two
from krylow._objects import library_of, rows_of
from krylow.io.columns import known_ends

#: What a row may sum to instead of zero, relative to the sum of its moduli: entries may have been rounded to a few
#: digits in a file, and an adjacency is far from it.
BALANCE = 1e-4


@dataclass(frozen=True)
class Edges:
    """A sparse matrix as coordinates: both directions of every edge, in any order, some perhaps several times."""

    row: Tensor
    col: Tensor
    values: Tensor
    n: int

    @property
    def plain(self) -> bool:
        """Whether scipy can take over: on the host, and without a gradient."""
        return self.values.device.type == "cpu" and not self.values.requires_grad

    def to_scipy(self) -> Any:
        """Return the matrix in rows, with parallel edges added up, without its gradient."""
        row, col, values = (part.detach().cpu().numpy() for part in (self.row, self.col, self.values))
        return scipy.sparse.csr_array((values, (row, col)), shape=(self.n, self.n))


def is_graph(L: Any) -> bool:
    """Whether an object is a graph, not a matrix: its Laplacian is meant."""
    return (
        library_of(L) is not None
        or hasattr(L, "edge_index")
        or (isinstance(L, tuple) and len(L) == 2)
        or is_edge_index(L, None)
    )


def is_table(W: list[Any]) -> bool:
    """Whether a list holds rows of numbers: a matrix or an edge_index, not several graphs."""
    return bool(W) and all(isinstance(row, (list, tuple)) and row and isinstance(row[0], Number) for row in W)


def name_of(graph: Any) -> str:
    if hasattr(graph, "edge_index"):
        return f"a PyG {type(graph).__name__}"
    if isinstance(graph, (tuple, list, Tensor, np.ndarray)):
        return "the graph of an edge_index"
    return f"a {(library_of(graph) or '').partition('.')[0]} {type(graph).__name__}"


def read(
    W: Any, num_nodes: int | None, what: str = "W", weight: str | None = None, *, directed: bool = False
) -> Tensor | Edges | scipy.sparse.csr_array:
    """Return the adjacency as a checked dense tensor, as checked edges, or in rows with sorted, unique entries."""
    library = library_of(W)
    if library is not None:
        return _read_scipy(rows_of(W, library, weight, directed=directed), what)
    if hasattr(W, "edge_index"):
        return _read_edge_index(W.edge_index, _edge_weight(W, weight), W.num_nodes if num_nodes is None else num_nodes)
    if weight is not None:
        raise InputError(f"weight names an attribute of the edges of a graph object, got {type(W).__name__}.")
    if isinstance(W, tuple) and len(W) == 2:
        return _read_edge_index(W[0], W[1], num_nodes)
    if scipy.sparse.issparse(W):
        return _read_scipy(W, what)
    if known_ends(getattr(W, "columns", ())):
        raise InputError(f"{what} must be a graph, got a table of edges: pass krylow.data.read_graph({what}).")
    if not isinstance(W, Tensor):
        W = _array(W, what)
    if num_nodes is None:
        not_two_by_two(W, what)
    if is_edge_index(W, num_nodes):
        return _read_edge_index(W, None, num_nodes)
    if not isinstance(W, Tensor):
        W = _from_numpy(W, what)
    if W.layout != torch.strided:
        if W.ndim == 2:
            return _read_torch_sparse(W, what)
        W = W.to_dense()
    return _checks.finite(_checks.square(_checks.floating(W, what), what), what)


def _edge_weight(data: Any, weight: str | None) -> Tensor | None:
    """Return the weights of a PyG graph: ``edge_weight``, or the attribute that is named, of one column."""
    values = getattr(data, weight or "edge_weight", None)
    if weight is None or values is None:
        if weight is not None:
            raise InputError(f"weight must name an attribute of the edges, got {weight!r}, which the graph has not.")
        return values
    values = torch.as_tensor(values)
    return values.reshape(-1) if values.numel() == data.edge_index.shape[1] else values


def _array(W: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(W)
    except (TypeError, ValueError):  # rows of different lengths
        raise InputError(f"{what} must be a matrix of numbers, got a {type(W).__name__} that is none.") from None


def _from_numpy(array: np.ndarray, what: str) -> Tensor:
    if array.dtype == object or array.dtype.kind not in "fiubc":
        raise InputError(
            f"{what} must be a matrix of numbers, a sparse matrix, a networkx graph or a PyG Data, "
            f"got an object of dtype {array.dtype}."
        )
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        raise InputError(f"{what} must be float32 or float64, got {array.dtype}: convert it with .astype(float).")
    wanted = np.dtype(np.float64) if array.dtype.kind in "iub" else array.dtype.newbyteorder("=")
    return _checks.tensor_of(np.asarray(array, dtype=wanted, order="C"))


def is_edge_index(W: Any, num_nodes: int | None) -> bool:
    """Tell an edge list ``(2, e)`` from a matrix. Two columns may be either: a matrix, unless nodes are counted."""
    if not isinstance(W, (Tensor, np.ndarray)):
        if not isinstance(W, list) or len(W) != 2 or not all(isinstance(row, list) for row in W):
            return False
        try:
            W = np.asarray(W)
        except ValueError:
            return False
    if isinstance(W, Tensor):
        numbers = W.is_floating_point() or W.is_complex() or W.dtype == torch.bool or W.layout != torch.strided
    else:
        numbers = W.dtype.kind not in "iu"
    return not numbers and W.ndim == 2 and W.shape[0] == 2 and (W.shape[1] != 2 or num_nodes is not None)


def _read_scipy(W: Any, what: str) -> scipy.sparse.csr_array:
    if W.ndim != 2 or W.shape[0] != W.shape[1] or W.shape[0] == 0:
        raise InputError(f"{what} must be square with at least one node, got shape {W.shape}.")
    rows = scipy.sparse.csr_array(W)  # the entries themselves where W is in rows, as a dense matrix is taken as it is
    if not rows.has_canonical_format or not all(part.flags.writeable for part in (rows.data, rows.indices)):
        rows = rows.copy()
        rows.sum_duplicates()  # networkx writes a self-loop as 2 w and -w
    data, indices = rows.data[: rows.nnz], rows.indices[: rows.nnz]  # scipy's arrays may be longer than what they hold
    values = _checks.finite(_checks.floating(_from_numpy(data, what), what), what)
    return scipy.sparse.csr_array((values.numpy(), indices, rows.indptr), shape=rows.shape)


def _read_torch_sparse(W: Tensor, what: str) -> Edges:
    if W.shape[0] != W.shape[1] or W.shape[0] == 0:
        raise InputError(f"{what} must be square with at least one node, got shape {tuple(W.shape)}.")
    coo = (W if W.layout == torch.sparse_coo else W.to_sparse_coo()).coalesce()
    row, col = coo.indices()
    return Edges(row, col, _checks.finite(_checks.floating(coo.values(), what), what), W.shape[0])


def _read_edge_index(edge_index: Any, weight: Any, num_nodes: int | None) -> Edges:
    edge_index = _as_tensor(edge_index, "an edge_index")
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.is_floating_point() or edge_index.is_complex():
        raise InputError(
            f"an edge_index must be integer (2, e), got {edge_index.dtype} of shape {tuple(edge_index.shape)}."
        )
    low, high = (int(i) for i in edge_index.aminmax()) if edge_index.numel() else (0, -1)
    n = high + 1 if num_nodes is None else num_nodes
    if low < 0 or high >= n or n < 1:
        raise InputError(f"an edge_index must hold nodes 0 to {n - 1}, got {low} to {high}: pass num_nodes.")
    if weight is None:
        weight = torch.ones(edge_index.shape[1], device=edge_index.device)
    else:
        weight = _checks.untransformed(_as_tensor(weight, "edge_weight"), "edge_weight")
        weight = _checks.finite(_checks.floating(weight, "edge_weight"), "edge_weight")
    if weight.shape != edge_index.shape[1:]:
        raise InputError(f"edge_weight must be ({edge_index.shape[1]},), got shape {tuple(weight.shape)}.")
    return Edges(edge_index[0].long(), edge_index[1].long(), weight, n)


def _as_tensor(x: Any, what: str) -> Tensor:
    try:
        return torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} must be a tensor or an array of numbers, got {type(x).__name__} ({error}).") from None


def check_symmetry(W: Any, what: str) -> None:
    """Compare the matrix with its transpose, entry by entry, unless hashes of both triangles' entries sum to the same.

    In one pass over the entries in their order, where a comparison jumps through memory; sums of matrices that differ
    agree in one case of 10^19.
    """
    bits = W.data.astype(np.float64).view(np.uint64)
    if W.nnz and _native.mirror_balance(W.indptr, W.indices, bits):
        gap, size = abs(W - W.T).max(), abs(W.data).max()
        if gap > _checks.SYMMETRY_EPS * np.finfo(W.dtype).eps * size:
            raise _checks.asymmetric(float(gap), what)


def check_laplacian(M: Any) -> None:
    """Refuse a symmetric matrix, a tensor ``(*batch, n, n)`` or scipy's in rows, that no kind of Laplacian explains.

    Parameters
    ----------
    M
        Finite and symmetric; sparse rows have sorted, unique entries.
    """
    if isinstance(M, Tensor):
        M = M.detach()
        if not _checks.traced() and not _balanced(M):
            M = M.cpu().numpy().reshape(-1, *M.shape[-2:])
            _check_sizes(M, M)
            _check_each(M, np.diagonal(M, axis1=-2, axis2=-1), M.sum(-1))
        return
    _check_sizes(M, M.data)
    diagonal, sums = M.diagonal(), M @ np.ones(M.shape[0], dtype=M.dtype)
    # Nearly always: rows that sum to zero relative to the diagonal alone, which is less than the moduli of a row.
    if not ((np.abs(sums) <= BALANCE * np.abs(diagonal)).all() and diagonal.any()):
        _check_each(M, diagonal, sums)


def _balanced(M: Tensor) -> bool:
    """Whether all rows sum to zero relative to their diagonal, which has no zero, and no sum is near an overflow."""
    share = (M.sum(-1) / M.diagonal(dim1=-2, dim2=-1)).abs().max()  # NaN where there is an isolated node
    return float(share) <= BALANCE and math.isfinite(torch.linalg.vector_norm(M))


def _check_sizes(M: Any, entries: np.ndarray) -> None:
    """Refuse rows whose sums may overflow."""
    limit = np.finfo(M.dtype).max / 2
    if entries.size and not np.abs(entries).max() <= limit / M.shape[-1]:
        with np.errstate(over="ignore"):
            largest = float(abs(M).sum(axis=-1).max())
        in_range(largest, torch.from_numpy(entries).dtype, "L")


def _check_each(M: Any, diagonal: np.ndarray, sums: np.ndarray) -> None:
    """Refuse the first matrix of a batch that none of the three kinds explains."""
    sparse = scipy.sparse.issparse(M)
    sizes, eps = abs(M).sum(axis=-1), np.finfo(M.dtype).eps
    counts = np.diff(M.indptr) if sparse else np.full(sums.shape, M.shape[-1])
    entries = M.data[None] if sparse else M.reshape(len(M), -1)
    positive = (entries > 0).sum(-1) > (diagonal > 0).sum(-1)  # some entry off the diagonal
    noise = np.minimum(BALANCE + 2 * counts * eps, 0.1) * sizes  # a tenth at most is rounding of a long row
    edges = (sizes - np.abs(diagonal) > 4 * eps * sizes).any(-1)
    explained = (np.abs(sums) <= noise).all(-1) | (~positive & (sums >= -noise).all(-1))
    known = ~edges | (diagonal.any(-1) & explained)
    for i in np.flatnonzero(~known):
        one, d, s = (M, diagonal, sums) if sparse else (M[i], diagonal[i], sums[i])
        if not d.any() or not _normalized(one, d, bool(positive[i])):
            raise _refused(d, s, sparse)


def _normalized(M: Any, diagonal: np.ndarray, positive: bool) -> bool:
    """Whether one matrix is the normalised Laplacian of some graph."""
    largest = 1 + BALANCE
    if max(abs(M.max()), abs(M.min())) > largest:
        return False
    if positive or (diagonal < 0).any():
        return _positive_null_vector(scipy.sparse.csr_array(M))
    x = np.ones(M.shape[-1])
    for _ in range(16):  # power iteration: its Rayleigh quotients only grow
        x = x + (x - M @ x)  # I + (I - M), which has no negative eigenvalue where M is a normalised Laplacian
        x /= x.max()
    image = x - M @ x
    return bool(x @ image <= largest * (x @ x) and (image >= (1 - BALANCE) * x).any())


def _positive_null_vector(M: Any) -> bool:
    """Whether every component has a positive vector s with M s = 0 and |M - diag M| s <= s."""
    from scipy.optimize import linprog

    count, labels = scipy.sparse.csgraph.connected_components(M, directed=False)
    if np.bincount(labels).max() > 1024:
        return False
    for which in range(count):
        nodes = np.flatnonzero(labels == which)
        if len(nodes) == 1:
            continue
        part = M[nodes][:, nodes].toarray()
        values, vectors = np.linalg.eigh(part.astype(np.float64))
        null = vectors[:, np.abs(values) <= 64 * np.sqrt(len(nodes)) * np.finfo(M.dtype).eps]
        if null.shape[1] == 0:
            return False
        # With negative weights a null space may have several dimensions: N c >= 1 and |M - diag M| N c <= N c.
        excess = np.abs(part - np.diag(np.diagonal(part))) @ null - (1 + BALANCE) * null
        limits = np.r_[-np.ones(len(nodes)), np.zeros(len(nodes))]
        found = linprog(np.zeros(null.shape[1]), np.r_[-null, excess], limits, bounds=(None, None))
        if found.status != 0:
            return False
    return True


def _refused(diagonal: np.ndarray, sums: np.ndarray, sparse: bool) -> InputError:
    if not diagonal.any():
        came = "a matrix with a zero diagonal: that is an adjacency"
    else:
        worst = sums[np.abs(sums).argmax()]
        came = f"a matrix whose rows sum to up to {worst:.3g}, as in an adjacency, and no kind of Laplacian explains it"
    line = "SparseOperator.from_matrix(L)" if sparse else "DenseOperator(L)"
    return InputError(
        f"L must be a Laplacian, got {came}. Pass krylow.laplacian(W); or, for a matrix that is "
        f"meant as it is, krylow.operators.{line}."
    )
