r"""From an adjacency, in whatever form it comes, to its Laplacian as an operator.

Three Laplacians of a weighted undirected graph with adjacency W and degrees $D_{ii} = \sum_j W_{ij}$:

=============  ==========================================  ==================================================
kind           definition                                  note
=============  ==========================================  ==================================================
combinatorial  $L = D - W$                                 self-loops cancel
generalized    $\mathcal{L} = D - W + \mathrm{diag}(W)$    the paper's choice as soon as there are self-loops
normalized     $\bar D^{-1/2} (D - W) \bar D^{-1/2}$       $\bar D_{ii} = \sum_j |W_{ij}|$; isolated nodes: 0
=============  ==========================================  ==================================================

With non-negative weights all three are positive semidefinite; with negative ones they may be indefinite.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from krylow import _checks, _kernels
from krylow._checks import InputError
from krylow._recognition import check_laplacian
from krylow.operators import DenseOperator, FunctionOperator, Operator, SparseOperator

KINDS = ("combinatorial", "generalized", "normalized")
#: A normalised Laplacian does not depend on the weights' unit: in this one, a power of two, no degree overflows.
_UNIT = 2.0**40


@dataclass(frozen=True)
class _Edges:
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


def laplacian(W: Any, kind: str | None = None, *, num_nodes: int | None = None, weight: str | None = None) -> Operator:
    r"""Return the Laplacian of a graph, or of a batch of graphs, as an :class:`~krylow.operators.Operator`.

    $$L = D - W, \qquad D_{ii} = \sum_j W_{ij}$$

    and its generalised and normalised forms (see the module's table).

    Parameters
    ----------
    W
        The symmetric adjacency: a numpy array or torch tensor ``(*batch, n, n)``, a torch sparse (COO, CSR) or scipy
        sparse matrix, rows of numbers, a networkx graph, a PyG ``Data``, an ``edge_index`` ``(2, e)``, a pair
        ``(edge_index, edge_weight)``, or a list of any of these, which becomes one padded batch with a mask. Integers
        and booleans are taken as floating point. Torch input stays differentiable.
    kind
        "combinatorial", "generalized" or "normalized". None: combinatorial, or generalized where there are self-loops.
    num_nodes
        Number of nodes of an ``edge_index`` whose last nodes are isolated.
    weight
        The edge attribute that holds the weights of a networkx graph (None: ``weight``, where there is one) or of a
        PyG ``Data`` (None: ``edge_weight``, where there is one; ``edge_attr``, which may be types of bonds, is never
        taken unless it is named).

    Returns
    -------
    Operator
        Sparse for one sparse graph, dense for the rest.

    Examples
    --------
    >>> import numpy as np
    >>> laplacian(np.array([[0.0, 1, 0], [1, 0, 2], [0, 2, 0]])).to_dense()
    tensor([[ 1., -1.,  0.],
            [-1.,  3., -2.],
            [ 0., -2.,  2.]], dtype=torch.float64)
    """
    if kind is not None:
        kind = _checks.choice(kind.replace("ised", "ized") if isinstance(kind, str) else kind, KINDS, "kind")
    if num_nodes is not None:
        num_nodes = _checks.count(num_nodes, "num_nodes")
    if weight is not None and not isinstance(weight, str):
        raise InputError(f"weight must be the name of an edge attribute, got {weight!r}.")
    if isinstance(W, Operator):
        raise InputError("W must be an adjacency, got an operator: it is a Laplacian already.")
    if isinstance(W, list) and not _is_table(W):
        return _ragged(W, kind, weight)
    return _of_adjacency(_read(W, num_nodes, weight=weight), kind)


def _of_adjacency(adjacency: Tensor | _Edges | scipy.sparse.csr_array, kind: str | None) -> Operator:
    if isinstance(adjacency, _Edges):
        return (
            _laplacian_of_rows(adjacency.to_scipy(), kind) if adjacency.plain else _laplacian_of_edges(adjacency, kind)
        )
    if scipy.sparse.issparse(adjacency):
        return _laplacian_of_rows(adjacency, kind)
    return _dense_laplacian(_checks.symmetric(adjacency, "W"), kind)


def as_operator(L: Any) -> Operator:
    """Return ``L`` as an operator: an operator as it is, a plain symmetric matrix (torch, numpy, scipy) wrapped.

    A graph (networkx, PyG, an edge_index), or a list of them, becomes its Laplacian. A
    ``scipy.sparse.linalg.LinearOperator`` becomes a :class:`~krylow.operators.FunctionOperator`. A matrix that is no
    Laplacian of any kind, such as an adjacency, is refused.
    """
    return operator_and_note(L)[0]


def operator_and_note(L: Any) -> tuple[Operator, str]:
    """Return what :func:`as_operator` does, and which Laplacian was taken of what, "" where nothing was done."""
    if isinstance(L, Operator):
        return L, ""
    if isinstance(L, scipy.sparse.linalg.LinearOperator):
        return _from_linear_operator(L), ""
    if isinstance(L, list) and L and all(_is_graph(item) for item in L) and not _is_edge_index(L, None):
        adjacencies = [_read(item, None) for item in L]
        return laplacian(L), f"the {_default_kind(adjacencies)} Laplacians of {len(L)} graphs"
    if _is_graph(L):
        adjacency = _read(L, None)
        return _of_adjacency(adjacency, None), f"the {_default_kind([adjacency])} Laplacian of {_name(L)}"
    if isinstance(L, list) and any(_is_graph(item) for item in L) and not all(isinstance(x, list) for x in L):
        raise InputError(
            "a list must hold graphs only, or Laplacians only, got both: for graphs and adjacencies, pass "
            "krylow.laplacian(list)."
        )
    if isinstance(L, list) and L and all(isinstance(x, (Tensor, np.ndarray, Operator)) or _is_sparse(x) for x in L):
        return _padded([as_operator(item) for item in L]), ""
    return _given(L), ""


def _given(L: Any) -> Operator:
    """Return a bare matrix, which has to be a Laplacian, as an operator."""
    matrix = _read(L, None, what="L")
    if not isinstance(matrix, Tensor):
        rows = matrix.to_scipy() if isinstance(matrix, _Edges) else matrix
        _check_symmetry(rows, "L")
        check_laplacian(rows)
        if isinstance(matrix, _Edges) and not matrix.plain:
            return SparseOperator.from_coo(matrix.row, matrix.col, matrix.values, matrix.n)
        return _operator(rows)
    _checks.symmetric(matrix, "L")
    check_laplacian(matrix)
    return DenseOperator(matrix)


def _is_graph(L: Any) -> bool:
    """Whether an object is a graph, not a matrix: its Laplacian is meant."""
    networkx = sys.modules.get("networkx")
    return (
        (networkx is not None and isinstance(L, networkx.Graph))
        or hasattr(L, "edge_index")
        or (isinstance(L, tuple) and len(L) == 2)
        or _is_edge_index(L, None)
    )


def _is_table(W: list[Any]) -> bool:
    """Whether a list holds rows of numbers: a matrix or an edge_index, not several graphs."""
    return bool(W) and all(isinstance(row, (list, tuple)) and row and isinstance(row[0], Number) for row in W)


def _is_sparse(L: Any) -> bool:
    return bool(scipy.sparse.issparse(L))


def _name(graph: Any) -> str:
    if hasattr(graph, "edge_index"):
        return f"a PyG {type(graph).__name__}"
    if isinstance(graph, (tuple, list, Tensor, np.ndarray)):
        return "the graph of an edge_index"
    return f"a networkx {type(graph).__name__}"


def _default_kind(adjacencies: list[Any]) -> str:
    for part in adjacencies:
        loops = part.values[part.row == part.col] if isinstance(part, _Edges) else torch.from_numpy(part.diagonal())
        if bool(loops.any()):
            return "generalized"
    return "combinatorial"


def _padded(parts: list[Operator]) -> Operator:
    """Return Laplacians of several sizes as one batch with a mask."""
    if any(part.batch_shape for part in parts):
        raise InputError("a list must hold single Laplacians, got a batch: pass the batch itself.")
    if len({part.dtype for part in parts}) > 1:
        raise InputError("the Laplacians of a list must have one dtype, got float32 and float64.")
    n = max(part.n for part in parts)
    matrices = [torch.nn.functional.pad(part.to_dense(), (0, n - part.n) * 2) for part in parts]
    sizes = torch.tensor([part.n for part in parts], device=matrices[0].device)
    mask = torch.arange(n, device=sizes.device) < sizes[:, None]
    psd = all(part.psd for part in parts)
    return DenseOperator(torch.stack(matrices), mask=None if bool(mask.all()) else mask, psd=psd)


def _from_linear_operator(L: Any) -> Operator:
    if L.shape[0] != L.shape[1]:
        raise InputError(f"L must be square, got a LinearOperator of shape {L.shape}.")
    if L.dtype is not None and L.dtype.kind == "c":
        raise InputError(f"L must be real, got a LinearOperator of dtype {L.dtype}: pass its real part.")
    dtype = torch.float32 if L.dtype == np.float32 else torch.float64
    return FunctionOperator(
        lambda X: torch.from_numpy(np.asarray(L.matmat(X.numpy()))).to(dtype), L.shape[0], dtype=dtype
    )


def _read(
    W: Any, num_nodes: int | None, what: str = "W", weight: str | None = None
) -> Tensor | _Edges | scipy.sparse.csr_array:
    """Return the adjacency as a checked dense tensor, as checked edges, or in rows with sorted, unique entries."""
    networkx = sys.modules.get("networkx")  # an object of it can only come where it is imported already
    if networkx is not None and isinstance(W, networkx.Graph):
        return _read_scipy(_networkx_rows(W, weight, networkx), what)
    if hasattr(W, "edge_index"):
        return _read_edge_index(W.edge_index, _edge_weight(W, weight), W.num_nodes if num_nodes is None else num_nodes)
    if weight is not None:
        raise InputError(f"weight names an attribute of networkx and PyG graphs, got {type(W).__name__}.")
    if isinstance(W, tuple) and len(W) == 2:
        return _read_edge_index(torch.as_tensor(W[0]), W[1], num_nodes)
    if scipy.sparse.issparse(W):
        return _read_scipy(W, what)
    if not isinstance(W, Tensor):
        W = _array(W, what)
    if _is_edge_index(W, num_nodes):
        return _read_edge_index(torch.as_tensor(W), None, num_nodes)
    if not isinstance(W, Tensor):
        W = _from_numpy(W, what)
    if W.layout != torch.strided:
        if W.ndim == 2:
            return _read_torch_sparse(W, what)
        W = W.to_dense()
    return _checks.finite(_checks.square(_checks.floating(W, what), what), what)


def _networkx_rows(G: Any, weight: str | None, networkx: Any) -> Any:
    """Return the adjacency of a networkx graph, whose edges without the attribute weigh 1."""
    if G.is_directed():
        raise InputError("W must be undirected, got a directed networkx graph: pass W.to_undirected().")
    if len(G) == 0:
        raise InputError("W must be square with at least one node, got a networkx graph without nodes.")
    if weight is not None and not any(weight in data for _, _, data in G.edges(data=True)):
        raise InputError(f"weight must name an attribute of the edges, got {weight!r}, which no edge has.")
    try:
        return networkx.to_scipy_sparse_array(G, weight=weight or "weight", format="coo", dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"the weights of a networkx graph must be numbers, got others ({error}).") from None


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
    return torch.from_numpy(np.asarray(array, dtype=wanted, order="C"))


def _is_edge_index(W: Any, num_nodes: int | None) -> bool:
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


def _read_torch_sparse(W: Tensor, what: str) -> _Edges:
    if W.shape[0] != W.shape[1] or W.shape[0] == 0:
        raise InputError(f"{what} must be square with at least one node, got shape {tuple(W.shape)}.")
    coo = (W if W.layout == torch.sparse_coo else W.to_sparse_coo()).coalesce()
    row, col = coo.indices()
    return _Edges(row, col, _checks.finite(_checks.floating(coo.values(), what), what), W.shape[0])


def _read_edge_index(edge_index: Tensor, weight: Tensor | None, num_nodes: int | None) -> _Edges:
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.is_floating_point():
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
        weight = _checks.finite(_checks.floating(torch.as_tensor(weight), "edge_weight"), "edge_weight")
    if weight.shape != edge_index.shape[1:]:
        raise InputError(f"edge_weight must be ({edge_index.shape[1]},), got shape {tuple(weight.shape)}.")
    return _Edges(edge_index[0].long(), edge_index[1].long(), weight, n)


def _check_symmetry(W: Any, what: str) -> None:
    """Compare the matrix with its transpose, entry by entry, unless hashes of both triangles' entries sum to the same.

    In one pass over the entries in their order, where a comparison jumps through memory; sums of matrices that differ
    agree in one case of 10^19.
    """
    bits = W.data.astype(np.float64).view(np.uint64)
    if W.nnz and int(_kernels.graph.mirror_balance(W.indptr, W.indices, bits)):
        gap, size = abs(W - W.T).max(), abs(W.data).max()
        if gap > _checks.SYMMETRY_EPS * np.finfo(W.dtype).eps * size:
            raise _checks.asymmetric(float(gap), what)


def _operator(L: Any, *, psd: bool = False, null_vector: Tensor | None = None, closed: bool = False) -> SparseOperator:
    crow, col = (torch.from_numpy(part) for part in (L.indptr, L.indices))
    operator = SparseOperator(crow, col, torch.from_numpy(L.data), psd=psd, null_vector=null_vector)
    operator.closed = closed
    return operator


def _laplacian_of_rows(W: Any, kind: str | None) -> SparseOperator:
    """Return the Laplacian of a scipy CSR matrix with sorted, unique entries: several times faster than from edges."""
    _check_symmetry(W, "W")
    psd, dtype = not (W.data < 0).any(), torch.from_numpy(W.data).dtype
    # Sums in float64, so that an entry in float32 is rounded once.
    with np.errstate(over="ignore"):  # seen below
        size = (W if psd else abs(W)).sum(axis=1, dtype=np.float64)
    if kind == "normalized" and not size.max() <= torch.finfo(dtype).max / 2:
        W = (W / _UNIT).astype(W.dtype)
        size = abs(W).sum(axis=1, dtype=np.float64)
    _checks.in_range(float(size.max()), dtype, "W")
    degree, loops = size if psd else W.sum(axis=1, dtype=np.float64), W.diagonal()
    if loops.any():
        off = W - scipy.sparse.diags_array(loops)
        _checks.not_a_laplacian(*(torch.from_numpy(x) for x in (loops, off.data[off.data != 0], degree)))
    kind = kind or ("generalized" if loops.any() else "combinatorial")
    # Before W is taken away, which takes the self-loops along.
    diagonal = degree + loops if kind == "generalized" else degree
    L = scipy.sparse.diags_array(diagonal.astype(W.dtype), format="csr") - W
    null_vector = None
    if kind == "normalized":
        null_vector = torch.from_numpy(np.sqrt(np.where(size > 0, size, 1.0)))
        scale = _inverse_root(torch.from_numpy(size))
        L = L.tocoo()
        row, col = (scale[torch.from_numpy(part).long()] for part in (L.row, L.col))
        L.data = _scaled(torch.from_numpy(L.data), row, col, scale).to(dtype).numpy()
    closed = kind != "generalized" or not loops.any()
    return _operator(scipy.sparse.csr_array(L), psd=psd, null_vector=null_vector, closed=closed)


def _laplacian_of_edges(edges: _Edges, kind: str | None) -> SparseOperator:
    """Return the Laplacian of a list of edges, differentiable in their weights, on their device."""
    _check_symmetry(edges.to_scipy(), "W")
    W = SparseOperator.from_coo(edges.row, edges.col, edges.values, edges.n)
    row, col, weight, n = W.row, W.col, W.values, W.n
    loop = row == col
    size = weight.new_zeros(n).index_add(0, row, weight.abs())
    if kind == "normalized" and not math.isfinite(size.detach().max()):
        weight = weight / _UNIT
        size = weight.new_zeros(n).index_add(0, row, weight.abs())
    _checks.in_range(float(size.detach().max()), size.dtype, "W")
    degree = weight.new_zeros(n).index_add(0, row, weight)
    loops = weight.new_zeros(n).index_add(0, row[loop], weight[loop])
    with torch.no_grad():
        _checks.not_a_laplacian(loops, weight[~loop & (weight != 0)], degree)
    kind = kind or ("generalized" if bool((loops != 0).any()) else "combinatorial")
    diagonal = degree if kind == "generalized" else degree - loops
    off = -weight[~loop]
    if kind == "normalized":
        scale = _inverse_root(size)
        diagonal = _scaled(diagonal, scale, scale, scale)
        off = _scaled(off, scale[row[~loop]], scale[col[~loop]], scale)
    nodes = torch.arange(n, device=weight.device)
    return SparseOperator.from_coo(
        torch.cat([row[~loop], nodes]),
        torch.cat([col[~loop], nodes]),
        torch.cat([off, diagonal]),
        n,
        psd=bool((weight >= 0).all()),
    )


def _dense_laplacian(W: Tensor, kind: str | None, mask: Tensor | None = None) -> DenseOperator:
    psd, degree = bool(W.detach().min() >= 0), W.sum(-1)
    size = W.abs().sum(-1) if kind == "normalized" or not psd else degree
    largest = float(size.detach().max())
    if kind == "normalized" and not math.isfinite(largest):
        W = W / torch.where(size.detach().amax(-1).isfinite(), 1.0, _UNIT)[..., None, None]
        degree, size = W.sum(-1), W.abs().sum(-1)
        largest = float(size.detach().max())
    _checks.in_range(largest, W.dtype, "W")
    loops = W.diagonal(dim1=-2, dim2=-1)
    looped = bool((loops != 0).any())
    if looped:
        with torch.no_grad():
            _checks.not_a_laplacian(loops, W - torch.diag_embed(loops), degree)
    kind = kind or ("generalized" if looped else "combinatorial")
    L = 0 - W  # not -W, which has negative zeros
    L.diagonal(dim1=-2, dim2=-1).copy_(degree if kind == "generalized" else degree - loops)
    if kind == "normalized":
        scale = _inverse_root(size)
        L = _scaled(L, scale[..., :, None], scale[..., None, :], scale)
    return DenseOperator(L, mask=mask, psd=psd)


def _inverse_root(degree: Tensor) -> Tensor:
    """Return degree^-1/2, and 0 for isolated nodes."""
    alone = degree == 0
    root = torch.where(alone, torch.ones_like(degree), degree).sqrt()
    # Not rsqrt, whose gradient is made of degree^-3/2 and overflows for degrees of 1e-26 in single precision.
    return torch.where(alone, torch.zeros_like(degree), root.reciprocal())


def _scaled(entries: Tensor, row: Tensor, col: Tensor, scale: Tensor) -> Tensor:
    """Return the entries of D^-1/2 L D^-1/2, mirror images equal to the last bit."""
    largest = float(scale.detach().max())
    if largest * largest <= torch.finfo(scale.dtype).max:
        return entries * (row * col)
    return entries * torch.maximum(row, col) * torch.minimum(row, col)  # degrees so small that their product is zero


def _ragged(graphs: list[Any], kind: str | None, weight: str | None = None) -> DenseOperator:
    """Pad graphs of different sizes with isolated nodes to one batch, and remember which nodes are real."""
    if not graphs:
        raise InputError("a list of graphs must hold at least one graph, got an empty list.")
    parts = [
        _as_edges(part) if scipy.sparse.issparse(part) else part
        for part in (_read(W, None, weight=weight) for W in graphs)
    ]
    shapes = [tuple(part.shape) if isinstance(part, Tensor) else (part.n, part.n) for part in parts]
    if any(len(shape) != 2 for shape in shapes):
        raise InputError(f"a list must hold single graphs, got one of shape {max(shapes, key=len)}.")
    dtypes = {part.dtype if isinstance(part, Tensor) else part.values.dtype for part in parts}
    if len(dtypes) > 1:
        raise InputError(f"the graphs of a list must have one dtype, got {', '.join(sorted(map(str, dtypes)))}.")
    n = max(shape[0] for shape in shapes)
    padded = _scattered(parts, n)
    sizes = torch.tensor([shape[0] for shape in shapes], device=padded.device)
    mask = torch.arange(n, device=padded.device) < sizes[:, None]
    return _dense_laplacian(_checks.symmetric(padded, "W"), kind, mask=None if bool(mask.all()) else mask)


def _as_edges(W: Any) -> _Edges:
    coo = W.tocoo()
    row, col = (torch.from_numpy(part.astype(np.int64)) for part in (coo.row, coo.col))
    return _Edges(row, col, torch.from_numpy(coo.data), W.shape[0])


def _scattered(parts: list[Tensor | _Edges], n: int) -> Tensor:
    """Return the adjacencies as one batch ``(graphs, n, n)``; all edge lists are written at once."""
    edges = [part for part in parts if not isinstance(part, Tensor)]
    if len(edges) < len(parts):
        dense = [part if isinstance(part, Tensor) else _scattered([part], part.n)[0] for part in parts]
        return torch.stack([torch.nn.functional.pad(W, (0, n - W.shape[-1]) * 2) for W in dense])
    row, col, values = (torch.cat([getattr(part, name) for part in edges]) for name in ("row", "col", "values"))
    counts = torch.tensor([part.col.numel() for part in edges], device=row.device)
    graph = torch.repeat_interleave(torch.arange(len(parts), device=row.device), counts)
    return values.new_zeros(len(parts), n, n).index_put((graph, row, col), values, accumulate=True)
