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
from torch import Tensor

from krylow import _native
from krylow._memory import empty
from krylow.operators import SparseOperator


@dataclass(frozen=True)
class Aggregation:
    """One step of coarsening."""

    labels: Tensor  #: ``(n,)`` the aggregate of each node, in integers of any length
    fine: Tensor  #: ``(n,)`` float64, the null vector on the fine graph, perhaps one number expanded
    coarse: SparseOperator  #: the Galerkin operator P^T L P in float64
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
        total = torch.zeros(self.coarse.n, X.shape[1], dtype=torch.float64, device=X.device)
        if X.device.type == "cpu":
            _native.restrict(*self._host(), X.contiguous().numpy(), total.numpy())
            return total
        return total.index_add_(0, self.labels.long(), X * self.weights[:, None])

    def then(self, other: Aggregation) -> Aggregation:
        """Return this step and one of its coarse graph as one step."""
        labels = other.labels[self.labels.long()]
        return Aggregation(labels, self.fine, other.coarse, other.vector, _singletons(labels, other.coarse.n))

    def _gathered(self, Z: Tensor, dtype: torch.dtype) -> Tensor:
        return Z.to(dtype)[self.labels.long()] * self.weights.to(dtype)[:, None]

    def _host(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.labels.numpy(), self.fine.numpy(), self.vector.numpy()


def aggregate(L: SparseOperator, vector: Tensor, bound: float = 0.0, strong: float = 0.1) -> Aggregation:
    r"""Aggregate L in float64 around a maximal independent set of strongly connected nodes; v is its null vector.

    Neighbours are strong if $|w_{ij}|$ is at least ``strong`` times the geometric mean of the largest weights of both.
    Nodes become roots by falling degree, and their strong neighbours join them. A node connected to its root by less
    than ``bound``, its edge and the paths of two edges inside the aggregate together, is an aggregate of its own.
    Vectors that are not constant on aggregates then have frequencies of about ``bound`` at least, which a smoother
    removes.
    """
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


def _singletons(labels: Tensor, count: int) -> float:
    return float((torch.bincount(labels, minlength=count) == 1).sum()) / labels.numel()
