r"""Coarsening by aggregation: disjoint groups of nodes, transfer between the grids, and the Galerkin coarse operator.

With $P_{i a} = v_i / \|v_a\|$ for a node i of aggregate a, where v is the null vector of L (constant for D - W), the
columns of P are orthonormal and $P^\top L P$ is the Laplacian of the aggregates, with the same components. A vector of
low frequency is nearly a multiple of v on each aggregate, so that the lowest frequencies of the coarse operator,
prolonged and smoothed, are those of the fine one to within a few parts in a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from krylow import _native
from krylow._memory import empty
from krylow._reduce import summed
from krylow.operators import SparseOperator
from krylow.operators.distributed import LocalRows, Rows, local_rows


@dataclass(frozen=True)
class Aggregation:
    """One step of coarsening."""

    labels: Tensor  #: ``(n,)`` the aggregate of each node, in integers of any length
    fine: Tensor  #: ``(n,)`` float64, the null vector on the fine graph, perhaps one number expanded
    coarse: SparseOperator | LocalRows  #: the Galerkin operator P^T L P in float64
    vector: Tensor  #: ``(aggregates,)`` the null vector on the coarse graph: norms of the fine one on the aggregates
    singletons: float  #: share of nodes that are aggregates of one node: large where weights differ by orders

    @property
    def weights(self) -> Tensor:
        """``(n,)`` float64 entries of P, one a row."""
        return self.fine / self.vector[self.labels.long()]

    def prolong(self, Z: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the prolongation P Z ``(n, s)``, written to ``out``, perhaps of another dtype, if that is given."""
        X = empty(self.labels.numel(), Z.shape[1], dtype=Z.dtype, device=Z.device) if out is None else out
        if X.device.type == "cpu":
            _native.prolong(*self._host(), Z.to(X.dtype).contiguous().numpy(), X.numpy())
            return X
        return X.copy_(self._gathered(Z, X.dtype))

    def subtract_(self, X: Tensor, Z: Tensor) -> Tensor:
        """Subtract P Z ``(n, s)`` from X in place, and return that."""
        if X.device.type == "cpu":
            _native.subtract(*self._host(), Z.to(X.dtype).contiguous().numpy(), X.numpy())
            return X
        return X.sub_(self._gathered(Z, X.dtype))

    def restrict(self, X: Tensor) -> Tensor:
        """Return the restriction P^T X ``(aggregates, s)`` in float64."""
        total = torch.zeros(self.coarse.rows, X.shape[1], dtype=torch.float64, device=X.device)
        if X.device.type == "cpu":
            _native.restrict(*self._host(), X.contiguous().numpy(), total.numpy())
            return total
        return total.index_add_(0, self.labels.long(), X * self.weights[:, None])

    def then(self, other: Aggregation) -> Aggregation:
        """Return this step and one of its coarse graph as one step."""
        labels = other.labels[self.labels.long()]
        return Aggregation(labels, self.fine, other.coarse, other.vector, _singletons(labels, other.coarse.rows))

    def inner(self, Y: Tensor, Z: Tensor) -> Tensor:
        """Return the inner products Y^T Z of coarse blocks."""
        product = Y.mT @ Z
        return summed(product)[0] if isinstance(self.coarse, LocalRows) else product

    def total(self, Z: Tensor) -> Tensor:
        """Return the sums ``(1, s)`` of a coarse block's columns."""
        sums = Z.sum(-2, keepdim=True)
        return summed(sums)[0] if isinstance(self.coarse, LocalRows) else sums

    def _gathered(self, Z: Tensor, dtype: torch.dtype) -> Tensor:
        return Z.to(dtype)[self.labels.long()] * self.weights.to(dtype)[:, None]

    def _host(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.labels.numpy(), self.fine.numpy(), self.vector.numpy()


@dataclass(frozen=True)
class Replicated(Aggregation):
    """A step of coarsening that ranks share, to a coarse graph that each of them has whole."""

    local: Aggregation  #: the same step to each rank's own rows
    first: int  #: where this rank's aggregates begin

    @classmethod
    def of(cls, level: Aggregation) -> Replicated:
        """Return a step of coarsening with its coarse graph on every rank."""
        L = level.coarse
        assert isinstance(L, LocalRows)
        ranks = L.ranks
        counts = ranks.gather(np.array([L.rows]))
        first = int(counts[: ranks.rank].sum())
        names = np.arange(first, first + L.rows)
        names = np.concatenate([names, L.halo.copy(names)])
        W = L.local_matrix.tocoo()
        parts = [ranks.gather(part) for part in (names[W.row], names[W.col], W.data)]
        whole = csr_array((parts[2], (parts[0], parts[1])), shape=(L.n, L.n))
        rows = (torch.from_numpy(part) for part in (whole.indptr, whole.indices, whole.data))
        coarse = SparseOperator(*rows, psd=L.psd)
        coarse.narrow(*L.gershgorin())
        vector = torch.from_numpy(ranks.gather(level.vector.numpy()))
        return cls(level.labels, level.fine, coarse, vector, level.singletons, level, first)

    def prolong(self, Z: Tensor, out: Tensor | None = None) -> Tensor:
        """Return this rank's rows of P Z."""
        return self.local.prolong(self._own(Z), out)

    def subtract_(self, X: Tensor, Z: Tensor) -> Tensor:
        """Subtract this rank's rows of P Z from X in place, and return that."""
        return self.local.subtract_(X, self._own(Z))

    def restrict(self, X: Tensor) -> Tensor:
        """Return the restriction of all ranks' rows, on every rank."""
        assert isinstance(self.local.coarse, LocalRows)
        return torch.from_numpy(self.local.coarse.ranks.gather(self.local.restrict(X).numpy()))

    def _own(self, Z: Tensor) -> Tensor:
        return Z[self.first : self.first + self.local.coarse.rows]


def aggregate(L: SparseOperator | LocalRows, vector: Tensor, bound: float = 0.0, strong: float = 0.1) -> Aggregation:
    r"""Aggregate L in float64 around a maximal independent set of strongly connected nodes; v is its null vector.

    Neighbours are strong if $|w_{ij}|$ is at least ``strong`` times the geometric mean of the largest weights of both.
    Nodes become roots by falling degree, and their strong neighbours join them. A node connected to its root by less
    than ``bound``, its edge and the paths of two edges inside the aggregate together, is an aggregate of its own.
    Vectors that are not constant on aggregates then have frequencies of about ``bound`` at least, which a smoother
    removes. Where ranks share the rows, aggregates are of one rank's nodes each.
    """
    if isinstance(L, LocalRows):
        return _aggregate_rows(L, vector, bound, strong)
    crow, col = L.host_indices()
    labels, count = _native.aggregate(crow, col, L.values.detach().cpu().numpy(), strong, bound)
    return galerkin(L, vector, labels, count)


def galerkin(L: SparseOperator, vector: Tensor, labels: np.ndarray, count: int) -> Aggregation:
    """Return the coarsening by ``count`` given aggregates; L and its null vector as in :func:`aggregate`."""
    crow, col = L.host_indices()
    v, sums = vector.cpu().numpy(), np.zeros(count)
    _native.add_squares(labels, v, sums)
    norms = np.sqrt(sums)
    rows = _native.coarsen(crow, col, L.values.detach().cpu().numpy(), labels, v, norms)
    coarse = SparseOperator(*(torch.from_numpy(part).to(L.device) for part in rows), psd=L.psd)
    coarse.narrow(*L.gershgorin())  # the columns of P are orthonormal
    place = torch.from_numpy(labels).to(L.device)
    return Aggregation(place, vector, coarse, torch.from_numpy(norms).to(L.device), _singletons(place, count))


def _aggregate_rows(L: LocalRows, vector: Tensor, bound: float, strong: float) -> Aggregation:
    """Return a coarsening by aggregates inside ranks; the coarse rows lie where their nodes do."""
    ranks, inner = L.ranks, L.diagonal_block
    (crow, col), values = inner.host_indices(), inner.values.numpy()
    labels, count = _native.aggregate(crow, col, values, strong, bound) if L.rows else (np.zeros(0, np.int32), 0)
    v, sums = np.ascontiguousarray(vector.numpy()), np.zeros(count)
    _native.add_squares(labels, v, sums)
    norms = np.sqrt(sums)
    counts = ranks.gather(np.array([count]))
    starts = np.cumsum(counts) - counts
    own = csr_array((count, count))
    if count:
        rows, columns, entries = _native.coarsen(crow, col, values, labels, v, norms)
        own = csr_array((entries, columns, rows), shape=(count, count))
    own = own.tocoo()
    first = int(starts[ranks.rank])
    names = labels.astype(np.int64) + first
    there = L.halo.copy(np.stack([names.astype(np.float64), v / norms[labels]], axis=1))  # exact up to 2^53
    crow, col = L.outer.host_indices()
    row = np.repeat(np.arange(L.outer.n), np.diff(crow)) + L.rows - L.boundary
    far = there[col - L.boundary]
    weights = L.outer.values.numpy() * (v / norms[labels])[row] * far[:, 1]
    places = np.concatenate([own.row, labels[row]]), np.concatenate([own.col + first, far[:, 0].astype(np.int64)])
    whole = csr_array((np.concatenate([own.data, weights]), places), shape=(count, int(counts.sum())))
    coarse, order = local_rows(ranks, Rows(whole.indptr, whole.indices, whole.data, starts), whole.shape[1], psd=L.psd)
    low, high = coarse.bounds  # the columns of P are orthonormal
    coarse.bounds = max(low, L.bounds[0]), min(high, L.bounds[1])
    place = np.empty(count, dtype=labels.dtype)
    place[order] = np.arange(count)
    found = torch.from_numpy(place[labels])
    return Aggregation(found, vector, coarse, torch.from_numpy(norms[order]), _singletons(found, count))


def _singletons(labels: Tensor, count: int) -> float:
    single = float((torch.bincount(labels, minlength=count) == 1).sum())
    single, nodes = summed(torch.tensor([single, float(labels.numel())], dtype=torch.float64))[0].tolist()
    return float(single / nodes)
