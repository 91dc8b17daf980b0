r"""Coarser graphs: nodes joined to aggregates around a maximal independent set, and the Laplacian between these.

With $P_{i a} = v_i / \|v_a\|$ for a node i of aggregate a, where v is the null vector of L (constant for D - W), the
columns of P are orthonormal and $P^\top L P$ is the Laplacian of the aggregates, with the same components. A vector of
low frequency is nearly a multiple of v on each aggregate, so that the lowest frequencies of the small matrix, prolonged
and smoothed, are those of the large one to within a few parts in a thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from krylow.operators import SparseOperator

#: A neighbour is near if its weight is at least this part of the node's largest.
STRONG = 0.1


@dataclass(frozen=True)
class Aggregation:
    """One step of coarsening.

    Attributes
    ----------
    labels
        ``(n,)`` the aggregate of each node.
    weights
        ``(n,)`` float64 entries of P, one a row.
    coarse
        P^T L P in float64.
    vector
        ``(aggregates,)`` the null vector on the coarse graph.
    """

    labels: Tensor
    weights: Tensor
    coarse: SparseOperator
    vector: Tensor

    def prolong(self, Z: Tensor) -> Tensor:
        """Return P Z ``(n, s)``."""
        return Z[self.labels] * self.weights.to(Z.dtype)[:, None]

    def restrict(self, X: Tensor) -> Tensor:
        """Return P^T X ``(aggregates, s)``."""
        total = torch.zeros(self.coarse.n, X.shape[1], dtype=X.dtype, device=X.device)
        return total.index_add_(0, self.labels, X * self.weights.to(X.dtype)[:, None])


def aggregate(L: SparseOperator, vector: Tensor) -> Aggregation:
    """Return a coarser graph for L in float64, given its null vector ``(n,)``, nowhere zero."""
    crow, col = L.host_indices()
    values = L.values.detach().cpu().numpy()
    rows = np.repeat(np.arange(L.n), np.diff(crow))
    labels, count = _labels(crow, col, np.where(rows == col, 0.0, np.abs(values)))
    v = vector.cpu().numpy()
    sizes = np.sqrt(np.bincount(labels, weights=v**2, minlength=count))
    weights = v / sizes[labels]
    entries = values * weights[rows] * weights[col]
    coarse = csr_array(coo_array((entries, (labels[rows], labels[col])), shape=(count, count)))
    parts = (torch.from_numpy(part).to(L.device) for part in (coarse.indptr, coarse.indices, coarse.data))
    place = torch.from_numpy(labels.astype(np.int64)).to(L.device)
    return Aggregation(
        place,
        torch.from_numpy(weights).to(L.device),
        SparseOperator(*parts, psd=L.psd),
        torch.from_numpy(sizes).to(L.device),
    )


def _labels(crow: np.ndarray, col: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the aggregate of each node and their number; compiled where numba is installed."""
    kernel = _compiled()
    if kernel is not None:
        labels = kernel(crow, col, weights, STRONG)
        return labels, int(labels.max(initial=-1)) + 1
    largest = np.zeros(len(crow) - 1)
    rows = np.repeat(np.arange(len(crow) - 1), np.diff(crow))
    np.maximum.at(largest, rows, weights)
    near = (weights > 0) & (weights >= STRONG * np.minimum(largest[rows], largest[col]))
    return _independent_set(rows[near], col[near], len(crow) - 1)


def _independent_set(rows: np.ndarray, cols: np.ndarray, n: int) -> tuple[np.ndarray, int]:
    """Luby's rounds: nodes of the largest random number within two steps become roots, all near ones join them."""
    number = np.random.default_rng(0).permutation(n) + 1
    labels = np.full(n, -1)
    count = 0
    while (number > 0).any():
        reach = number.copy()
        np.maximum.at(reach, rows, number[cols])
        far = reach.copy()
        np.maximum.at(far, rows, reach[cols])
        roots = np.flatnonzero((number > 0) & (number == far))
        labels[roots] = count + np.arange(roots.size)
        count += roots.size
        join = (labels[cols] >= 0) & np.isin(cols, roots) & (labels[rows] < 0)
        labels[rows[join]] = labels[cols[join]]
        number[labels >= 0] = 0
        touching = np.zeros(n, dtype=bool)
        touching[rows[labels[cols] >= 0]] = True
        number[touching] = 0
    while True:
        join = (labels[rows] < 0) & (labels[cols] >= 0)
        if not join.any():
            break
        labels[rows[join]] = labels[cols[join]]
    alone = np.flatnonzero(labels < 0)
    labels[alone] = count + np.arange(alone.size)
    return labels, count + alone.size


@cache
def _compiled() -> Callable[..., np.ndarray] | None:
    try:
        import numba
    except ImportError:
        return None
    return numba.njit(cache=True)(_greedy)


def _greedy(crow: np.ndarray, col: np.ndarray, weights: np.ndarray, strong: float) -> np.ndarray:
    """Nodes in their order: one without a joined near neighbour becomes a root; the others join the nearest."""
    n = len(crow) - 1
    largest = np.zeros(n)
    for i in range(n):
        for q in range(crow[i], crow[i + 1]):
            largest[i] = max(largest[i], weights[q])
    labels = np.full(n, -1)
    count = 0
    for i in range(n):
        free = labels[i] < 0
        q = crow[i]
        while free and q < crow[i + 1]:
            j = col[q]
            if weights[q] > 0 and weights[q] >= strong * min(largest[i], largest[j]) and labels[j] >= 0:
                free = False
            q += 1
        if free:
            labels[i] = count
            for q in range(crow[i], crow[i + 1]):
                j = col[q]
                if weights[q] > 0 and weights[q] >= strong * min(largest[i], largest[j]):
                    labels[j] = count
            count += 1
    late = labels.copy()
    for i in range(n):
        best = 0.0
        if labels[i] < 0:
            for q in range(crow[i], crow[i + 1]):
                if labels[col[q]] >= 0 and weights[q] > best:
                    best = weights[q]
                    late[i] = labels[col[q]]
            if late[i] < 0:
                late[i] = count
                count += 1
    return late
