r"""One walk over a graph, breadth first, and what it tells: an order of the nodes, the components, and a width.

Each component is walked twice, unless it has no geometry: from any node to one that is far away, and back from there.
Its nodes in the order of the second walk are near their neighbours (Cuthill and McKee's order, but for ties); the
widest level tells a geometry, where a front is a line or a surface, from a graph without one, where half of the nodes
are met at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee
from torch import Tensor

from krylow import _kernels
from krylow._memory import arrays
from krylow.operators.sparse import SparseOperator

#: Most rounds in which nodes take their neighbours' names; one in which so many agree with most of those is the last.
ROUNDS, AGREED = 6, 0.9


@dataclass(frozen=True)
class Walk:
    """What a walk over the whole graph tells.

    Attributes
    ----------
    order
        ``(n,)``: the nodes one after the other, component by component.
    labels
        ``(n,)``: the component of each node; they share their room if there is one.
    components
        Their number, an isolated node being one.
    widest
        The most nodes that are equally far from a component's first node, over the number of all nodes.
    """

    order: np.ndarray
    labels: np.ndarray
    components: int
    widest: float


def walk(L: SparseOperator) -> Walk:
    """Return the walk over the graph of L's entries that are not zero. On the host."""
    return _walk(*L.host_indices(), L.values.detach().cpu().numpy())


def components_of(L: SparseOperator) -> tuple[np.ndarray, int]:
    """Return the component ``(n,)`` of each node, and their number, without the way back of a whole walk."""
    found = _walk(*L.host_indices(), L.values.detach().cpu().numpy(), back=False)
    return found.labels, found.components


def components_of_rows(crow: np.ndarray, col: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the component of each node of a symmetric pattern in rows, and their number."""
    walk = _walk(crow, col, np.ones(col.size, np.bool_), back=False)
    return walk.labels, walk.components


def _walk(crow: np.ndarray, col: np.ndarray, values: np.ndarray, *, back: bool = True) -> Walk:
    """Return the walk; without the way ``back`` its order and width are of no use."""
    if _kernels.available():
        order, labels, components, widest = _kernels.graph.search(crow, col, values, not values.all(), back)
        labels = labels.astype(np.int64) if components > 1 else np.broadcast_to(np.int64(0), order.size)
        return Walk(order, labels, int(components), int(widest) / (crow.size - 1))
    n = crow.size - 1
    zeros = not values.all()  # entries that are there but zero join nothing; to drop them writes into the indices
    linked = csr_array((values != 0, col, crow), shape=(n, n), copy=zeros)
    if zeros:
        linked.eliminate_zeros()
    components, labels = connected_components(linked, directed=True, connection="strong")  # L is symmetric
    order = np.ascontiguousarray(reverse_cuthill_mckee(linked, symmetric_mode=True))[::-1].copy()
    order = order[np.argsort(labels[order], kind="stable")]
    return Walk(order.astype(np.int64), labels.astype(np.int64), int(components), _widest(linked, order, labels) / n)


def _widest(linked: Any, order: np.ndarray, labels: np.ndarray) -> int:
    """Return the widest level of walks from each component's first node, all components at once, each on its own."""
    crow, col = linked.indptr, linked.indices
    seen = np.zeros(labels.size, dtype=bool)
    _, firsts = np.unique(labels[order], return_index=True)
    level = order[firsts]
    seen[level] = True
    widest = 1
    while level.size:
        widest = max(widest, int(np.bincount(labels[level]).max()))
        counts = (crow[level + 1] - crow[level]).astype(np.int64)
        places = np.repeat(crow[level] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        following = col[places]
        level = np.unique(following[~seen[following]]).astype(np.int64)
        seen[level] = True
    return widest


def communities(L: SparseOperator) -> Tensor | None:
    """Return the community of each node as its neighbours name it, or None without numba. On the host.

    Label propagation: every node begins with a name of its own, and takes the one that most of its neighbours have,
    until most nodes agree with most of their neighbours. Weights do not count.
    """
    if not _kernels.available():
        return None
    crow, col = L.host_indices()
    tally = np.zeros(L.n, np.int32 if (ROUNDS + 1) * col.size < 2**31 else np.int64)
    return torch.from_numpy(_kernels.graph.propagate(crow, col, tally, ROUNDS, AGREED)).long()


def mirrored(crow: np.ndarray, col: np.ndarray, values: np.ndarray) -> bool:
    """Return whether each entry has a mirror image equal to the last bit; False also where that is not known.

    A number is drawn from place and value of each entry by a hash, and those above the diagonal are compared with those
    below by their sum: two matrices of the same sum are the same, but for one case in 10^19. One pass over the entries
    in their order, where a comparison jumps through memory. False without numba.
    """
    if not _kernels.available():
        return False
    bits = np.asarray(values, dtype=np.float64).view(np.uint64)
    return int(_kernels.graph.mirror_balance(crow, col, bits)) == 0


def permuted_rows(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, order: np.ndarray, dtype: Any = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of a matrix whose nodes are put in an order, ``order[new] = old``; its columns are in none.

    Its values are of a ``dtype``, or as they are.
    """
    if _kernels.available():
        rows, columns, entries = arrays(
            (crow.size, crow.dtype), (col.size, col.dtype), (values.size, dtype or values.dtype)
        )
        _kernels.graph.permute(crow, col, values, order, rows, columns, entries)
        return rows, columns, entries
    n = order.size
    matrix = csr_array((values, col, crow), shape=(n, n), copy=False)[order]
    new = np.empty(n, dtype=col.dtype)
    new[order] = np.arange(n)
    return matrix.indptr.astype(crow.dtype), new[matrix.indices], matrix.data.astype(dtype or values.dtype, copy=False)


def move_rows(X: np.ndarray, order: np.ndarray) -> None:
    """Move row i of a contiguous block to place ``order[i]``, for all rows at once, without room for another block."""
    if _kernels.available():
        _kernels.graph.move_rows(X, order)
    else:
        X[order] = X.copy()
