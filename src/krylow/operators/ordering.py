r"""Nodes in an order in which neighbours are near, so that a product finds them in the cache.

A breadth-first walk puts a node's neighbours within a few levels of it (:mod:`krylow.operators.walks`). On graphs with
a geometry (k-NN, grids, roads) a product of the reordered matrix is several times faster. Graphs that a walk covers in
a few steps have no such order, and two cheap looks say so: how far entries are from the diagonal now, and how wide the
walk's levels are. If they have communities, a wide block is still twice as fast with those one after the other, and
knowing them is a good start (:mod:`krylow.solvers._communities`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from krylow.operators.sparse import FEW_FAR, SparseOperator, far_share, sample
from krylow.operators.walks import Walk, communities, move_rows, permuted_rows

#: Fewer nodes fit a cache in any order.
LEAST_NODES = 8192
#: The share of all nodes that is too wide for a level of the walk.
WIDE = 0.1
#: An order is taken if it leaves at most this part of the far entries.
NEARER = 0.75
#: Communities are looked for if this share of the entries is far.
MOST_FAR = 0.3


@dataclass(frozen=True)
class Reordered:
    r"""An operator with its nodes in another order.

    Attributes
    ----------
    operator
        $P L P^\top$, with counters of its own that start at zero: whoever uses it adds them to those of L.
    order
        ``(n,)``: the old number of each new node, in integers of any length.
    communities
        ``(n,)``: the community of each new node, counted from zero, where the order is by these.
    """

    operator: SparseOperator
    order: Tensor
    communities: Tensor | None = None

    def back_(self, X: Tensor) -> Tensor:
        """Put the rows of a contiguous block ``(n, s)`` of the new order back in the old one, in place; return it."""
        move_rows(X.numpy(), self.order.numpy())
        return X


def permuted(L: SparseOperator, order: Tensor, dtype: torch.dtype | None = None) -> Reordered:
    """Return L with the nodes in a given order, ``order[new] = old``, its entries kept in a ``dtype`` or their own."""
    numbers = torch.empty(0, dtype=dtype or L.dtype).numpy().dtype
    rows = permuted_rows(*L.host_indices(), L.values.detach().cpu().numpy(), order.numpy(), numbers)
    vector = None if L.null_vector is None else L.null_vector.detach()[order.long()]
    operator = SparseOperator(*(torch.from_numpy(part) for part in rows), psd=L.psd, null_vector=vector)
    operator.inherit(L)
    return Reordered(operator, order)


def reordered_if_it_pays(
    L: SparseOperator, search: Callable[[], Walk], dtype: torch.dtype | None = None
) -> Reordered | None:
    """Return L in the order of a breadth-first search, or None where the present order is as good or none is near.

    In a ``dtype``, or its own; ``search`` is asked for only if the present order is not good.
    """
    if L.n < LEAST_NODES or L.device.type != "cpu":
        return None
    far = far_share(L)
    if far <= FEW_FAR or search().widest > WIDE:
        return None
    other = permuted(L, torch.from_numpy(search().order), dtype)
    return other if far_share(other.operator) <= NEARER * far else None


def grouped_if_it_pays(L: SparseOperator, dtype: torch.dtype | None = None) -> Reordered | None:
    """Return L with its communities one after the other; None where there are none, and without numba.

    In a ``dtype``, or its own.
    """
    if L.n < LEAST_NODES or L.device.type != "cpu" or far_share(L) < MOST_FAR:
        return None
    labels = communities(L)
    if labels is None:
        return None
    rows, col = sample(L)
    sizes = torch.bincount(labels)
    if float((labels[rows] == labels[col]).double().mean()) < 1 / 2 or int(sizes.max()) > WIDE * L.n:
        return None
    sizes, numbers = sizes[sizes > 0], (sizes > 0).cumsum(0) - 1
    short = numbers[labels].numpy().astype(np.min_scalar_type(sizes.numel()))
    order = np.argsort(short, kind="stable")  # by counting where integers are short
    named = torch.arange(sizes.numel()).repeat_interleave(sizes)
    return replace(permuted(L, torch.from_numpy(order), dtype), communities=named)
