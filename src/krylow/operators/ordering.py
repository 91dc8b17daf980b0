r"""Nodes in an order in which neighbours are near, so that a product finds them in the cache.

A breadth-first walk puts a node's neighbours within a few levels of it (:mod:`krylow.operators.walks`). On graphs with
a geometry (k-NN, grids, roads) a product of the reordered matrix is several times faster. On graphs that a walk covers
in a few steps (SBM, power law) no order helps, and two cheap looks say so: how far entries are from the diagonal now,
and how wide the walk's levels are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from krylow._memory import empty
from krylow.operators.sparse import SparseOperator
from krylow.operators.walks import permuted_rows, walk

#: An entry this many rows from the diagonal is near: 4096 rows of 32 float32 are half a megabyte.
NEAR = 4096
#: Fewer nodes fit a cache in any order.
LEAST_NODES = 8192
#: A share of far entries that is small enough to leave the order alone.
FEW_FAR = 0.05
#: The share of all nodes that is too wide for a level of the walk.
WIDE = 0.1
#: Entries that are looked at.
SAMPLE = 20_000


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
        place = torch.empty_like(self.order)
        place[self.order] = torch.arange(self.order.numel())
        return torch.index_select(X, 0, place, out=empty(*X.shape, dtype=X.dtype, device=X.device))


def far_share(L: SparseOperator, near: int = NEAR) -> float:
    """Return the share of entries that are more than ``near`` rows from the diagonal, from a sample of them."""
    count = L.col.numel()
    if count == 0:
        return 0.0
    places = torch.arange(0, count, max(1, count // SAMPLE), device=L.device)
    rows = torch.searchsorted(L.crow, places.to(L.crow.dtype), right=True) - 1
    return float(((rows - L.col[places]).abs() > near).double().mean())


def reordered(L: SparseOperator) -> Reordered:
    """Return L with its nodes in the order of a walk. No gradient, on the host."""
    return permuted(L, torch.from_numpy(walk(L).order))


def permuted(L: SparseOperator, order: Tensor) -> Reordered:
    """Return L with the nodes in a given order, ``order[new] = old``."""
    rows = permuted_rows(*L.host_indices(), L.values.detach().cpu().numpy(), order.numpy())
    vector = None if L.null_vector is None else L.null_vector.detach()[order]
    operator = SparseOperator(*(torch.from_numpy(part) for part in rows), psd=L.psd, null_vector=vector)
    operator.inherit(L)
    return Reordered(operator, order)


def reordered_if_it_pays(L: SparseOperator) -> Reordered | None:
    """Return L in the order of a walk, or None where the present order is as good or no order is near."""
    if L.n < LEAST_NODES or L.device.type != "cpu":
        return None
    far = far_share(L)
    if far <= FEW_FAR or walk(L).widest > WIDE:
        return None
    other = reordered(L)
    return other if far_share(other.operator) <= far / 2 else None
