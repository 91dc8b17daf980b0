r"""Nodes in an order in which neighbours are near, so that a product finds them in the cache.

Reverse Cuthill-McKee walks the graph breadth first, neighbours of small degree first. On graphs with a geometry
(k-NN, grids, roads) a row's neighbours are then within a few levels of it, and a product of the reordered matrix is
several times faster. On graphs that a walk covers in a few steps (SBM, power law) no order helps, and two cheap looks
say so: how far entries are from the diagonal now, and how wide the walk's levels are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from krylow.operators.sparse import SparseOperator

#: An entry this many rows from the diagonal is near: 4096 rows of 32 float32 are half a megabyte.
NEAR = 4096
#: Fewer nodes fit a cache in any order.
LEAST_NODES = 8192
#: A share of far entries that is small enough to leave the order alone.
FEW_FAR = 0.05
#: Levels of a walk that are looked at, and the share of all nodes that is too wide for one.
LEVELS, WIDE = 48, 0.1
#: Entries that are looked at.
SAMPLE = 200_000


@dataclass(frozen=True)
class Reordered:
    r"""An operator with its nodes in another order.

    Attributes
    ----------
    operator
        $P L P^\top$, with counters of its own that start at zero: whoever uses it adds them to those of L.
    order
        ``(n,)``: the old number of each new node.
    """

    operator: SparseOperator
    order: Tensor

    def forward(self, X: Tensor) -> Tensor:
        """Return a block ``(n, s)`` or vector ``(n,)`` of the old order in the new one."""
        return X[self.order]

    def back(self, X: Tensor) -> Tensor:
        """Return a block or vector of the new order in the old one."""
        old = torch.empty_like(X)
        old[self.order] = X
        return old


def far_share(L: SparseOperator, near: int = NEAR) -> float:
    """Return the share of entries that are more than ``near`` rows from the diagonal, from a sample of them."""
    count = L.col.numel()
    if count == 0:
        return 0.0
    places = torch.arange(0, count, max(1, count // SAMPLE), device=L.device)
    rows = torch.searchsorted(L.crow, places.to(L.crow.dtype), right=True) - 1
    return float(((rows - L.col[places]).abs() > near).double().mean())


def widest_level(L: SparseOperator) -> float:
    """Return the widest level of a breadth-first walk's first levels, over the number of nodes.

    No order has a bandwidth much below the width of the levels: where they are wide, there is no near order. The walk
    starts at the middle node; where its component is small, the answer is that of this component.
    """
    crow, col = L.host_indices()
    seen = np.zeros(L.n, dtype=bool)
    level = np.array([L.n // 2])
    seen[level] = True
    widest = 1
    for _ in range(LEVELS):
        counts = (crow[level + 1] - crow[level]).astype(np.int64)
        starts = np.repeat(crow[level] - (np.cumsum(counts) - counts), counts)
        following = col[starts + np.arange(counts.sum())]
        level = np.unique(following[~seen[following]]).astype(np.int64)
        seen[level] = True
        widest = max(widest, level.size)
        if not level.size or widest > WIDE * L.n:
            break
    return widest / L.n


def reordered(L: SparseOperator) -> Reordered:
    """Return L with its nodes in reverse Cuthill-McKee order. No gradient, on the host."""
    crow, col = L.host_indices()
    pattern = csr_array((np.empty(col.size, dtype=np.int8), col, crow), shape=(L.n, L.n), copy=False)
    order = torch.from_numpy(np.ascontiguousarray(reverse_cuthill_mckee(pattern, symmetric_mode=True))).long()
    return permuted(L, order)


def permuted(L: SparseOperator, order: Tensor) -> Reordered:
    """Return L with the nodes in a given order, ``order[new] = old``; rows keep their columns ascending."""
    crow, col = (torch.from_numpy(part) for part in L.host_indices())
    new = torch.empty(L.n, dtype=col.dtype)
    new[order] = torch.arange(L.n, dtype=col.dtype)
    counts = crow.diff()[order]
    pointers = torch.zeros_like(crow)
    torch.cumsum(counts, 0, dtype=crow.dtype, out=pointers[1:])
    starts = torch.repeat_interleave(crow[:-1][order].long() - pointers[:-1].long(), counts.long())
    source = starts + torch.arange(col.numel())
    values, columns = L.values.detach().cpu()[source].numpy(), new[col[source].long()].numpy()
    matrix = csr_array((values, columns, pointers.numpy()), shape=(L.n, L.n), copy=False)
    matrix.sort_indices()
    vector = None if L.null_vector is None else L.null_vector.detach()[order]
    operator = SparseOperator(
        *(torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data)),
        psd=L.psd,
        null_vector=vector,
    )
    return Reordered(operator, order)


def reordered_if_it_pays(L: SparseOperator) -> Reordered | None:
    """Return L in reverse Cuthill-McKee order, or None where the present order is as good or no order is near."""
    if L.n < LEAST_NODES or L.device.type != "cpu":
        return None
    far = far_share(L)
    if far <= FEW_FAR or widest_level(L) > WIDE:
        return None
    other = reordered(L)
    return other if far_share(other.operator) <= far / 2 else None
