r"""From an adjacency, in whatever form it comes, to its Laplacian as an operator.

The Laplacians of a weighted undirected graph with adjacency W and degrees $D_{ii} = \sum_j W_{ij}$:

=============  ==========================================  ==================================================
kind           definition                                  note
=============  ==========================================  ==================================================
combinatorial  $L = D - W$                                 self-loops cancel
generalized    $\mathcal{L} = D - W + \mathrm{diag}(W)$    the paper's choice as soon as there are self-loops
normalized     $\bar D^{-1/2} (D - W) \bar D^{-1/2}$       $\bar D_{ii} = \sum_j |W_{ij}|$; isolated nodes: 0
random_walk    $\bar D^{-1} (D - W)$                      similar to the normalized one; not symmetric
magnetic       $D_s - W_s \odot e^{i \Theta}$              of a directed graph; complex Hermitian
=============  ==========================================  ==================================================

With non-negative weights all are positive semidefinite; with negative ones the first four may be indefinite.
What each one means is on the page :doc:`/laplacians`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow._kinds import CHARGE, degrees, magnetic, random_walk
from krylow._recognition import (
    Edges,
    check_laplacian,
    check_symmetry,
    is_graph,
    is_table,
    name_of,
    read,
)
from krylow.operators import (
    DenseOperator,
    Operator,
    SparseOperator,
)
from krylow.operators.function import from_linear_operator
from krylow.operators.similar import refuse_similar

#: The real symmetric Laplacians, and those that are similar to one.
KINDS = ("combinatorial", "generalized", "normalized")
SIMILAR_KINDS = ("random_walk", "magnetic")
#: A normalised Laplacian does not depend on the weights' unit: in this one, a power of two, no degree overflows.
_UNIT = 2.0**40


def laplacian(
    W: Any,
    kind: str | None = None,
    *,
    num_nodes: int | None = None,
    weight: str | None = None,
    charge: float | None = None,
) -> Operator:
    r"""Return the Laplacian of a graph, or of a batch of graphs, as an :class:`~krylow.operators.Operator`.

    $$L = D - W, \qquad D_{ii} = \sum_j W_{ij}$$

    and its generalised, normalised, random-walk and magnetic forms (:doc:`/laplacians`).

    Parameters
    ----------
    W
        The symmetric adjacency: a numpy array or torch tensor ``(*batch, n, n)``, a torch sparse (COO, CSR) or scipy
        sparse matrix, rows of numbers, a networkx, igraph or rustworkx graph, a PyG ``Data``, what
        :func:`krylow.data.read_graph` returns, an ``edge_index`` ``(2, e)``, a pair
        ``(edge_index, edge_weight)``, or a list of any of these, which becomes one padded batch with a mask. Integers
        and booleans are taken as floating point. Torch input stays differentiable.
    kind
        "combinatorial", "generalized", "normalized", "random_walk", or "magnetic", for which W may be directed. None:
        combinatorial, or generalized where there are self-loops.
    num_nodes
        Number of nodes of an ``edge_index`` whose last nodes are isolated.
    weight
        The edge attribute that holds the weights of a networkx, igraph or rustworkx graph (None: ``weight``, where
        there is one; numbers as data of rustworkx' edges are weights) or of a PyG ``Data`` (None: ``edge_weight``,
        where there is one; ``edge_attr``, which may be types of bonds, is never taken unless it is named).
    charge
        For "magnetic": the turn, in parts of a whole one, that an edge of weight 1 in one direction gives (None: 1/4).

    Returns
    -------
    Operator
        Sparse for one sparse graph, dense for the rest. "random_walk" and "magnetic" give a
        :class:`~krylow.operators.RandomWalkOperator` or :class:`~krylow.operators.MagneticOperator`, which
        :func:`~krylow.subspace`, :func:`~krylow.lowpass`, :func:`~krylow.filter` and
        :func:`~krylow.diffusion_distance` take, and others refuse.

    Examples
    --------
    >>> import numpy as np
    >>> laplacian(np.array([[0.0, 1, 0], [1, 0, 2], [0, 2, 0]])).to_dense()
    tensor([[ 1., -1.,  0.],
            [-1.,  3., -2.],
            [ 0., -2.,  2.]], dtype=torch.float64)
    """
    if kind is not None:
        kind = _checks.choice(
            kind.replace("ised", "ized") if isinstance(kind, str) else kind, (*KINDS, *SIMILAR_KINDS), "kind"
        )
    if charge is not None and kind != "magnetic":
        raise InputError(f"charge is for kind='magnetic', got kind={kind!r}.")
    if num_nodes is not None:
        num_nodes = _checks.count(num_nodes, "num_nodes", 1, 2**62)
    if weight is not None and not isinstance(weight, str):
        raise InputError(f"weight must be the name of an edge attribute, got {weight!r}.")
    if isinstance(W, Operator):
        raise InputError("W must be an adjacency, got an operator: it is a Laplacian already.")
    if kind == "magnetic":
        if isinstance(W, list) and not is_table(W):
            raise InputError("a magnetic Laplacian is of one graph, or of a tensor (*batch, n, n), got a list.")
        return magnetic(read(W, num_nodes, weight=weight, directed=True), CHARGE if charge is None else charge)
    if isinstance(W, list) and not is_table(W):
        return _ragged([read(item, None, weight=weight) for item in W], kind)
    return _of_adjacency(read(W, num_nodes, weight=weight), kind)


def _of_adjacency(adjacency: Tensor | Edges | scipy.sparse.csr_array, kind: str | None) -> Operator:
    if kind == "random_walk":
        return random_walk(_of_adjacency(adjacency, "normalized"), degrees(adjacency))
    if isinstance(adjacency, Tensor):
        return _dense_laplacian(_checks.symmetric(adjacency, "W"), kind)
    if isinstance(adjacency, Edges) and not adjacency.plain:
        return _laplacian_of_edges(adjacency, kind)
    return _laplacian_of_rows(adjacency.to_scipy() if isinstance(adjacency, Edges) else adjacency, kind)


def batched_laplacian(
    edge_index: Tensor, weight: Tensor, sizes: Tensor, kind: str | None = None
) -> tuple[Operator, Tensor]:
    """Return the Laplacians of the graphs that a PyG batch joins, as one padded batch, differentiable in the weights.

    Parameters
    ----------
    edge_index, weight
        ``(2, e)`` and ``(e,)``: the edges of all graphs, whose nodes are numbered through.
    sizes
        ``(graphs,)`` nodes of each.

    Returns
    -------
    tuple
        The operator, ``(graphs, n, n)``, and ``(nodes,)`` the place of each node among the graphs * n of the batch.
    """
    n, device = int(sizes.max()), weight.device
    graph = torch.repeat_interleave(torch.arange(sizes.numel(), device=device), sizes)
    first = sizes.cumsum(0) - sizes
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < graph.numel():
        raise InputError(f"an edge_index must hold nodes 0 to {graph.numel() - 1}, got others.")
    if bool((graph[edge_index[0]] != graph[edge_index[1]]).any()):
        raise InputError("an edge must join nodes of one graph of the batch, got one between two graphs.")
    place = torch.arange(graph.numel(), device=device) + (n * torch.arange(sizes.numel(), device=device) - first)[graph]
    row, col = place[edge_index]
    weight = _checks.finite(_checks.floating(weight, "edge_weight"), "edge_weight")
    W = weight.new_zeros(sizes.numel() * n * n).index_add(0, row * n + col % n, weight).reshape(-1, n, n)
    return _dense_laplacian(_checks.symmetric(W, "W"), kind, mask=_mask(sizes.tolist(), device)), place


def as_operator(L: Any) -> Operator:
    """Return ``L`` as an operator: an operator as it is, a plain symmetric matrix (torch, numpy, scipy) wrapped.

    A graph (networkx, PyG, an edge_index), or a list of them, becomes its Laplacian. A
    ``scipy.sparse.linalg.LinearOperator`` becomes a :class:`~krylow.operators.FunctionOperator`. A matrix that is no
    Laplacian of any kind, such as an adjacency, is refused.
    """
    refuse_similar(L)
    return operator_and_note(L)[0]


def operator_and_note(L: Any) -> tuple[Operator, str]:
    """Return what :func:`as_operator` does, and which Laplacian was taken of what, "" where nothing was done."""
    if isinstance(L, Operator):
        return L, ""
    if isinstance(L, scipy.sparse.linalg.LinearOperator):
        return from_linear_operator(L), ""
    if is_graph(L):
        adjacency = read(L, None)
        return _of_adjacency(adjacency, None), f"the {_default_kind([adjacency])} Laplacian of {name_of(L)}"
    if not isinstance(L, list) or not L:
        return _given(L), ""
    graphs = [is_graph(item) for item in L]
    if all(graphs):
        adjacencies = [read(item, None) for item in L]
        return _ragged(adjacencies, None), f"the {_default_kind(adjacencies)} Laplacians of {len(L)} graphs"
    if any(graphs) and not all(isinstance(item, list) for item in L):
        raise InputError(
            "a list must hold graphs only, or Laplacians only, got both: for graphs and adjacencies, pass "
            "krylow.laplacian(list)."
        )
    if all(isinstance(item, (Tensor, np.ndarray, Operator)) or scipy.sparse.issparse(item) for item in L):
        return _padded([as_operator(item) for item in L]), ""
    return _given(L), ""


def _given(L: Any) -> Operator:
    """Return a bare matrix, which has to be a Laplacian, as an operator."""
    matrix = read(L, None, what="L")
    if not isinstance(matrix, Tensor):
        rows = matrix.to_scipy() if isinstance(matrix, Edges) else matrix
        check_symmetry(rows, "L")
        check_laplacian(rows)
        if isinstance(matrix, Edges) and not matrix.plain:
            return SparseOperator.from_coo(matrix.row, matrix.col, matrix.values, matrix.n)
        return _operator(rows)
    _checks.symmetric(matrix, "L")
    check_laplacian(matrix)
    return DenseOperator(matrix)


def _default_kind(adjacencies: list[Any]) -> str:
    for part in adjacencies:
        loops = part.values[part.row == part.col] if isinstance(part, Edges) else torch.from_numpy(part.diagonal())
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
    mask = _mask([part.n for part in parts], matrices[0].device)
    return DenseOperator(torch.stack(matrices), mask=mask, psd=all(part.psd for part in parts))


def _mask(sizes: list[int], device: torch.device) -> Tensor | None:
    """Return which nodes of a padded batch are real, None where all are."""
    n = torch.tensor(sizes, device=device)
    return None if min(sizes) == max(sizes) else torch.arange(max(sizes), device=device) < n[:, None]


def _operator(L: Any, *, psd: bool = False, null_vector: Tensor | None = None) -> SparseOperator:
    parts = (torch.from_numpy(part) for part in (L.indptr, L.indices, L.data))
    return SparseOperator(*parts, psd=psd, null_vector=null_vector)


def _laplacian_of_rows(W: Any, kind: str | None) -> SparseOperator:
    """Return the Laplacian of a scipy CSR matrix with sorted, unique entries: several times faster than from edges."""
    check_symmetry(W, "W")
    psd, dtype = not (W.data < 0).any(), torch.from_numpy(W.data).dtype
    # Sums in float64, so that an entry in float32 is rounded once.
    with np.errstate(over="ignore"):  # seen below
        size = (W if psd else abs(W)).sum(axis=1, dtype=np.float64)
    if kind == "normalized" and not size.max() <= torch.finfo(dtype).max / 2:
        W = (W / _UNIT).astype(W.dtype)
        size = abs(W).sum(axis=1, dtype=np.float64)
    _checks.in_range(float(size.max()), dtype, "W")
    degree, loops = size if psd else W.sum(axis=1, dtype=np.float64), W.diagonal()
    looped = bool(loops.any())
    if looped:
        off = scipy.sparse.csr_array(W - scipy.sparse.diags_array(loops))
        _checks.not_a_laplacian(*(torch.from_numpy(x) for x in (loops, off.data[off.data != 0], degree)))
    kind = kind or ("generalized" if looped else "combinatorial")
    # Before W is taken away, which takes the self-loops along.
    diagonal = degree + loops if kind == "generalized" else degree
    if looped and kind != "generalized":  # a heavy loop would leave nothing of a sum of light edges
        W, diagonal = off, off.sum(axis=1, dtype=np.float64)
    L = scipy.sparse.diags_array(diagonal.astype(W.dtype), format="csr") - W
    null_vector = None
    if kind == "normalized":
        null_vector = torch.from_numpy(np.sqrt(np.where(size > 0, size, 1.0)))
        scale = _inverse_root(torch.from_numpy(size))
        L = L.tocoo()
        row, col = (scale[torch.from_numpy(part).long()] for part in (L.row, L.col))
        L.data = _scaled(torch.from_numpy(L.data), row, col, scale).to(dtype).numpy()
    operator = _operator(scipy.sparse.csr_array(L), psd=psd, null_vector=null_vector)
    operator.closed = kind != "generalized" or not looped
    return operator


def _laplacian_of_edges(edges: Edges, kind: str | None) -> SparseOperator:
    """Return the Laplacian of a list of edges, differentiable in their weights, on their device."""
    check_symmetry(edges.to_scipy(), "W")
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
    off = -weight[~loop]
    # Not degree - loops: a heavy loop would leave nothing of a sum of light edges.
    diagonal = degree if kind == "generalized" else weight.new_zeros(n).index_add(0, row[~loop], -off)
    if kind == "normalized":
        scale = _inverse_root(size)
        diagonal = _scaled(diagonal, scale, scale, scale)
        off = _scaled(off, scale[row[~loop]], scale[col[~loop]], scale)
    nodes, psd = torch.arange(n, device=weight.device), bool((weight >= 0).all())
    rows, columns = torch.cat([row[~loop], nodes]), torch.cat([col[~loop], nodes])
    return SparseOperator.from_coo(rows, columns, torch.cat([off, diagonal]), n, psd=psd)


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


def _ragged(adjacencies: list[Any], kind: str | None) -> Operator:
    """Pad graphs of different sizes with isolated nodes to one batch, and remember which nodes are real."""
    if not adjacencies:
        raise InputError("a list of graphs must hold at least one graph, got an empty list.")
    parts = [_as_edges(part) if scipy.sparse.issparse(part) else part for part in adjacencies]
    shapes = [tuple(part.shape) if isinstance(part, Tensor) else (part.n, part.n) for part in parts]
    if any(len(shape) != 2 for shape in shapes):
        raise InputError(f"a list must hold single graphs, got one of shape {max(shapes, key=len)}.")
    dtypes = {part.dtype if isinstance(part, Tensor) else part.values.dtype for part in parts}
    if len(dtypes) > 1:
        raise InputError(f"the graphs of a list must have one dtype, got {', '.join(sorted(map(str, dtypes)))}.")
    sizes = [shape[0] for shape in shapes]
    padded = _checks.symmetric(_scattered(parts, max(sizes)), "W")
    if kind == "random_walk":
        return random_walk(_dense_laplacian(padded, "normalized", _mask(sizes, padded.device)), degrees(padded))
    return _dense_laplacian(padded, kind, mask=_mask(sizes, padded.device))


def _as_edges(W: Any) -> Edges:
    coo = W.tocoo()
    row, col = (torch.from_numpy(part.astype(np.int64)) for part in (coo.row, coo.col))
    return Edges(row, col, torch.from_numpy(coo.data), W.shape[0])


def _scattered(parts: list[Tensor | Edges], n: int) -> Tensor:
    """Return the adjacencies as one batch ``(graphs, n, n)``; all edge lists are written at once."""
    edges = [part for part in parts if not isinstance(part, Tensor)]
    if len(edges) < len(parts):
        dense = [part if isinstance(part, Tensor) else _scattered([part], part.n)[0] for part in parts]
        if any(W.requires_grad for W in dense):
            return torch.stack([torch.nn.functional.pad(W, (0, n - W.shape[-1]) * 2) for W in dense])
        padded = dense[0].new_zeros(len(dense), n, n)
        for place, W in zip(padded, dense, strict=True):
            place[: len(W), : len(W)] = W
        return padded
    row, col, values = (torch.cat([getattr(part, name) for part in edges]) for name in ("row", "col", "values"))
    counts = torch.tensor([part.col.numel() for part in edges], device=row.device)
    graph = torch.repeat_interleave(torch.arange(len(parts), device=row.device), counts)
    return values.new_zeros(len(parts), n, n).index_put((graph, row, col), values, accumulate=True)
