r"""Breadth-first search, and orders of the nodes in which neighbours are near in memory.

Breadth-first search puts a node's neighbours within a few level sets of it, as reverse Cuthill-McKee does: on graphs
with a geometry (k-NN, grids, roads) a product of the reordered matrix is several times faster. Graphs that are covered
in a few steps have no such order; the share of entries far from the diagonal and the largest level set show it. Where
they have communities, a wide block is still twice as fast with those one after the other, and knowing them is a good
start (:mod:`krylow.solvers._communities`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from krylow import _native
from krylow._memory import arrays, empty
from krylow._threads import thread_count
from krylow.operators.sparse import SparseOperator


@dataclass(frozen=True)
class Search:
    """A breadth-first search of a whole graph, component by component.

    Attributes
    ----------
    order
        ``(n,)``: the nodes as they are met from a node at the far end of each component (Cuthill-McKee but for ties).
    labels
        ``(n,)``: the component of each node.
    components
        Their number, an isolated node being one.
    width
        The size of the largest level set as a share of all nodes.
    """

    order: np.ndarray
    labels: np.ndarray
    components: int
    width: float


@dataclass(frozen=True)
class Reordered:
    r"""An operator with its nodes in another order.

    Attributes
    ----------
    operator
        $P L P^\top$, with counters of its own that start at zero.
    order
        ``(n,)``: the old number of each new node, in integers of any length.
    communities
        ``(n,)``: the community of each new node, counted from zero, where the order is by these.
    """

    operator: SparseOperator
    order: Tensor
    communities: Tensor | None = None

    def back(self, X: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the rows of a contiguous block ``(n, s)`` of the new order in the old one, in ``out`` where given."""
        return _scattered(X, self.order, out)

    def there(self, X: Tensor) -> Tensor:
        """Return the rows of a contiguous block ``(n, s)`` of the old order in the new one."""
        return _scattered(X, self._places)

    @cached_property
    def _places(self) -> Tensor:
        """``(n,)``: the new number of each old node."""
        places = torch.empty_like(self.order)
        places[self.order.long()] = torch.arange(self.order.numel(), dtype=self.order.dtype)
        return places


def _scattered(X: Tensor, places: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the rows of X, each at its place."""
    out = empty(*X.shape, dtype=X.dtype) if out is None else out
    _native.scatter_rows(X.numpy(), places.numpy(), out.numpy(), thread_count())
    return out


@dataclass(frozen=True)
class _Settings:
    """When an order pays: below ``least_nodes`` all of a block is in the cache."""

    least_nodes: int = 8192
    near: int = 4096  # rows from the diagonal: as many of 32 float32 are half a megabyte
    sample: int = 5000  # entries that are looked at
    few_far: float = 0.05  # share of far entries with which hardly a product misses the cache
    nearer: float = 0.75  # an order is taken that leaves at most this part of the far entries
    broad: float = 0.25  # share of a component in one level set beyond which it is not searched from its far end
    largest: float = 0.1  # share of all nodes in a level set, or a community, beyond which its order is of no use
    most_far: float = 0.3  # communities are looked for beyond this share of far entries
    rounds: int = 6  # of label propagation, which ends sooner where this share of the nodes agrees with its neighbours
    agreed: float = 0.9


_settings = _Settings()


def breadth_first_search(L: SparseOperator) -> Search:
    """Search the graph of L's entries that are not zero, on the host."""
    return _search(*L.host_indices(), L.values.detach().cpu().numpy())


def components_of(L: SparseOperator) -> tuple[np.ndarray, int]:
    """Return the component ``(n,)`` of each node, and their number, at half the cost of a whole search."""
    found = _search(*L.host_indices(), L.values.detach().cpu().numpy(), back=False)
    return found.labels, found.components


def components_of_rows(crow: np.ndarray, col: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the component of each node of a symmetric pattern in rows, and their number."""
    found = _search(crow, col, None, back=False)
    return found.labels, found.components


def _search(crow: np.ndarray, col: np.ndarray, values: np.ndarray | None, *, back: bool = True) -> Search:
    """Search from any node to one that is far away, and ``back`` from there; without that only labels are of use."""
    order, labels, components, largest = _native.search(crow, col, values, back, _settings.broad)
    labels = labels.astype(np.int64) if components > 1 else np.broadcast_to(np.int64(0), order.size)
    return Search(order, labels, int(components), int(largest) / (crow.size - 1))


def permuted(L: SparseOperator, order: Tensor, dtype: torch.dtype | None = None) -> Reordered:
    """Return L with the nodes in a given order, ``order[new] = old``, its entries kept in a ``dtype`` or their own."""
    (crow, col), values = L.host_indices(), L.values.detach().cpu().numpy()
    kind = torch.empty(0, dtype=dtype or L.dtype).numpy().dtype
    rows, columns, entries = arrays((crow.size, crow.dtype), (col.size, col.dtype), (values.size, kind))
    _native.permute(crow, col, values, order.numpy(), rows, columns, entries, thread_count())
    vector = None if L.null_vector is None else L.null_vector.detach()[order.long()]
    parts = (torch.from_numpy(part) for part in (rows, columns, entries))
    operator = SparseOperator(*parts, psd=L.psd, null_vector=vector)
    operator.inherit(L)
    return Reordered(operator, order)


def reordered_if_it_pays(
    L: SparseOperator, search: Callable[[], Search], dtype: torch.dtype | None = None
) -> Reordered | None:
    """Return L in the order of a breadth-first search, or None where the present order is as good or none is near.

    In a ``dtype``, or its own; ``search`` is asked for only if the present order is not good.
    """
    if L.n < _settings.least_nodes or L.device.type != "cpu":
        return None
    far = far_share(L)
    if far <= _settings.few_far or search().width > _settings.largest:
        return None
    other = permuted(L, torch.from_numpy(search().order), dtype)
    return other if far_share(other.operator) <= _settings.nearer * far else None


def grouped_if_it_pays(L: SparseOperator, dtype: torch.dtype | None = None) -> Reordered | None:
    """Return L with its communities one after the other, in a ``dtype`` or its own; None where there are none.

    Label propagation: every node begins with a label of its own, and takes the one that most of its neighbours have,
    until most nodes agree with most of their neighbours. Weights do not count.
    """
    if L.n < _settings.least_nodes or L.device.type != "cpu" or far_share(L) < _settings.most_far:
        return None
    crow, col = L.host_indices()
    found = _native.propagate(crow, col, _settings.rounds, _settings.agreed)
    labels = torch.from_numpy(found).long()
    rows, columns = _sample(L)
    sizes = torch.bincount(labels)
    alike = float((labels[rows] == labels[columns]).double().mean())
    if alike < 1 / 2 or int(sizes.max()) > _settings.largest * L.n:
        return None
    sizes, numbers = sizes[sizes > 0], (sizes > 0).cumsum(0) - 1
    short = numbers[labels].numpy().astype(np.min_scalar_type(sizes.numel()))
    order = np.argsort(short, kind="stable")  # by counting where integers are short
    named = torch.arange(sizes.numel()).repeat_interleave(sizes)
    return replace(permuted(L, torch.from_numpy(order), dtype), communities=named)


def far_share(L: SparseOperator, near: int = _settings.near) -> float:
    """Return the share of entries that are more than ``near`` rows from the diagonal, from a sample of them."""
    if L.col.numel() == 0:
        return 0.0
    rows, columns = _sample(L)
    return float(((rows - columns).abs() > near).double().mean())


def _sample(L: SparseOperator) -> tuple[Tensor, Tensor]:
    """Return rows and columns of some of the entries."""
    count = L.col.numel()
    places = torch.arange(0, count, max(1, count // _settings.sample), device=L.device)
    return torch.searchsorted(L.crow, places.to(L.crow.dtype), right=True) - 1, L.col[places].long()
