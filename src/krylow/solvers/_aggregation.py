r"""Coarser graphs: nodes joined to aggregates around a maximal independent set, and the Laplacian between these.

With $P_{i a} = v_i / \|v_a\|$ for a node i of aggregate a, where v is the null vector of L (constant for D - W), the
columns of P are orthonormal and $P^\top L P$ is the Laplacian of the aggregates, with the same components. A vector of
low frequency is nearly a multiple of v on each aggregate, so that the lowest frequencies of the small matrix, prolonged
and smoothed, are those of the large one to within a few parts in a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from krylow import _kernels
from krylow._memory import arrays, empty
from krylow.operators import SparseOperator

#: Neighbours are near if their weight is at least this part of the geometric mean of the largest weights of both.
STRONG = 0.1
#: Graphs between so few aggregates are added up as a dense matrix.
FEW = 256


@dataclass(frozen=True)
class Aggregation:
    """One step of coarsening.

    Attributes
    ----------
    labels
        ``(n,)`` the aggregate of each node, in integers of any length.
    fine
        ``(n,)`` float64, the null vector on the finer graph. Its entries may share their room if they are all the same.
    coarse
        P^T L P in float64.
    vector
        ``(aggregates,)`` the null vector on the coarse graph: the lengths of the finer one on the aggregates.
    alone
        The share of nodes that are aggregates by themselves: large where weights differ by orders of magnitude.
    """

    labels: Tensor
    fine: Tensor
    coarse: SparseOperator
    vector: Tensor
    alone: float

    @property
    def weights(self) -> Tensor:
        """``(n,)`` float64 entries of P, one a row."""
        return self.fine / self.vector[self.labels.long()]

    def prolong(self, Z: Tensor, out: Tensor | None = None) -> Tensor:
        """Return P Z ``(n, s)``, written to ``out``, whose dtype may be another, if that is given."""
        if out is None:
            out = empty(self.labels.numel(), Z.shape[1], dtype=Z.dtype, device=Z.device)
        if Z.device.type == "cpu" and _kernels.available():
            _kernels.graph.prolong(*self._host(), Z.to(out.dtype).contiguous().numpy(), out.numpy())
            return out
        return out.copy_(Z[self.labels.long()] * self.weights.to(Z.dtype)[:, None])

    def subtract_(self, X: Tensor, Z: Tensor) -> Tensor:
        """Subtract P Z ``(n, s)`` from X, and return that."""
        if X.device.type == "cpu" and X.is_contiguous() and _kernels.available():
            _kernels.graph.subtract(*self._host(), Z.to(X.dtype).contiguous().numpy(), X.numpy())
            return X
        return X.sub_(Z.to(X.dtype)[self.labels.long()] * self.weights.to(X.dtype)[:, None])

    def then(self, other: Aggregation) -> Aggregation:
        """Return this step and one of its coarse graph as one step."""
        labels = other.labels[self.labels.long()]
        return Aggregation(labels, self.fine, other.coarse, other.vector, _share_alone(labels, other.coarse.n))

    def restrict(self, X: Tensor) -> Tensor:
        """Return P^T X ``(aggregates, s)`` in float64."""
        total = torch.zeros(self.coarse.n, X.shape[1], dtype=torch.float64, device=X.device)
        if X.device.type == "cpu" and _kernels.available():
            _kernels.graph.restrict(*self._host(), X.contiguous().numpy(), total.numpy())
            return total
        return total.index_add_(0, self.labels.long(), X * self.weights[:, None])

    def _host(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return aggregates, and the null vectors whose ratios are the entries of P."""
        return self.labels.numpy(), self.fine.numpy(), self.vector.numpy()


def aggregate(L: SparseOperator, vector: Tensor, bound: float = 0.0) -> Aggregation:
    """Return a coarser graph for L in float64, given its null vector ``(n,)``, nowhere zero.

    A node that is tied to the root of its aggregate by less than ``bound``, its edge and the ways of two edges inside
    the aggregate in all, is an aggregate by itself: a vector that is not constant on aggregates then has a frequency of
    about ``bound`` at least, for a smoother to remove.
    """
    crow, col = L.host_indices()
    return joined(L, vector, *_labels(crow, col, L.values.detach().cpu().numpy(), bound))


def joined(L: SparseOperator, vector: Tensor, labels: np.ndarray, count: int) -> Aggregation:
    """Return the coarser graph whose nodes are ``count`` given aggregates; L and its null vector as above."""
    crow, col = L.host_indices()
    values = L.values.detach().cpu().numpy()
    v = vector.cpu().numpy()
    sizes = _sizes(labels, v, count)
    parts = (torch.from_numpy(part).to(L.device) for part in _joined_rows(crow, col, values, labels, v, sizes))
    coarse = SparseOperator(*parts, psd=L.psd)
    coarse.narrow(*L.gershgorin())  # the columns of P are orthonormal
    place = torch.from_numpy(labels).to(L.device)
    return Aggregation(place, vector, coarse, torch.from_numpy(sizes).to(L.device), _share_alone(place, count))


def _sizes(labels: np.ndarray, v: np.ndarray, count: int) -> np.ndarray:
    """Return the length of v on each aggregate; compiled where numba is installed."""
    if _kernels.available():
        total = np.zeros(count)
        _kernels.graph.add_squares(labels, v, total)
        return np.sqrt(total)
    return np.sqrt(np.bincount(labels, weights=v**2, minlength=count))


def _share_alone(labels: Tensor, count: int) -> float:
    return float((torch.bincount(labels, minlength=count) == 1).sum()) / labels.numel()


def _labels(crow: np.ndarray, col: np.ndarray, values: np.ndarray, bound: float) -> tuple[np.ndarray, int]:
    """Return the aggregate of each node and their number; compiled where numba is installed."""
    n = len(crow) - 1
    if _kernels.available():
        workspace = arrays(((5, n), np.int32), ((2, n), np.float64))
        labels, count = _kernels.graph.aggregate(crow, col, values, STRONG, bound, *workspace)
        return labels.copy(), count  # the room is several times theirs
    rows = np.repeat(np.arange(n), np.diff(crow))
    weights = np.where(rows == col, 0.0, np.abs(values))
    largest = np.zeros(n)
    np.maximum.at(largest, rows, weights)
    near = (weights > 0) & (weights**2 >= STRONG**2 * largest[rows] * largest[col])
    labels, roots = _independent_set(rows[near], col[near], n)
    inside, below_root = labels[rows] == labels[col], col == roots[labels[rows]]
    tie = np.bincount(rows, weights=weights * below_root, minlength=n)  # the edge to the root
    ways = np.minimum(weights, tie[col]) * (inside & ~below_root)
    tied = tie + np.bincount(rows, weights=ways, minlength=n)
    weak = (tied < bound) & (roots[labels] != np.arange(n))
    labels[weak] = roots.size + np.arange(weak.sum())
    used, labels = np.unique(labels, return_inverse=True)
    return labels, used.size


def _joined_rows(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, labels: np.ndarray, v: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of P^T L P; compiled where numba is installed."""
    count = sizes.size
    if count <= FEW and _kernels.available():
        coarse = csr_array(_kernels.graph.coarsen_dense(crow, col, values, labels, v, sizes))
        return coarse.indptr, coarse.indices, coarse.data
    if _kernels.available():  # in buffers whose pages come as they are touched: few of them are
        workspace = np.empty(col.size, col.dtype), np.empty(col.size)
        return _kernels.graph.coarsen(crow, col, values, labels, v, sizes, *workspace)
    rows = np.repeat(np.arange(len(crow) - 1), np.diff(crow))
    weights = v / sizes[labels]
    entries = values * weights[rows] * weights[col]
    coarse = csr_array(coo_array((entries, (labels[rows], labels[col])), shape=(count, count)))
    return coarse.indptr, coarse.indices, coarse.data


def _independent_set(rows: np.ndarray, cols: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Luby's rounds: nodes of the largest random number within two steps become roots, all near ones join them.

    Returns the aggregate of each node, and the root of each aggregate.
    """
    number = np.random.default_rng(0).permutation(n) + 1
    labels = np.full(n, -1)
    found: list[np.ndarray] = []
    count = 0
    while (number > 0).any():
        reach = number.copy()
        np.maximum.at(reach, rows, number[cols])
        far = reach.copy()
        np.maximum.at(far, rows, reach[cols])
        roots = np.flatnonzero((number > 0) & (number == far))
        labels[roots] = count + np.arange(roots.size)
        count += roots.size
        found.append(roots)
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
    return labels, np.concatenate([*found, alone])
