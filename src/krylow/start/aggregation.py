r"""Coarser graphs: nodes joined to aggregates around a maximal independent set, and the Laplacian between these.

With $P_{i a} = v_i / \|v_a\|$ for a node i of aggregate a, where v is the null vector of L (constant for D - W), the
columns of P are orthonormal and $P^\top L P$ is the Laplacian of the aggregates, with the same components. A vector of
low frequency is nearly a multiple of v on each aggregate, so that the lowest frequencies of the small matrix, prolonged
and smoothed, are those of the large one to within a few parts in a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from krylow._memory import arrays, empty
from krylow.operators import SparseOperator
from krylow.operators.compiled import compiled

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
        kernel = compiled(_spread) if Z.device.type == "cpu" else None
        if kernel is not None:
            kernel(*self._host(), Z.to(out.dtype).contiguous().numpy(), out.numpy())
            return out
        return out.copy_(Z[self.labels.long()] * self.weights.to(Z.dtype)[:, None])

    def subtract_(self, X: Tensor, Z: Tensor) -> Tensor:
        """Subtract P Z ``(n, s)`` from X, and return that."""
        kernel = compiled(_subtract) if X.device.type == "cpu" else None
        if kernel is not None and X.is_contiguous():
            kernel(*self._host(), Z.to(X.dtype).contiguous().numpy(), X.numpy())
            return X
        return X.sub_(Z.to(X.dtype)[self.labels.long()] * self.weights.to(X.dtype)[:, None])

    def then(self, other: Aggregation) -> Aggregation:
        """Return this step and one of its coarse graph as one step."""
        labels = other.labels[self.labels.long()]
        return Aggregation(labels, self.fine, other.coarse, other.vector, _share_alone(labels, other.coarse.n))

    def restrict(self, X: Tensor) -> Tensor:
        """Return P^T X ``(aggregates, s)`` in float64."""
        total = torch.zeros(self.coarse.n, X.shape[1], dtype=torch.float64, device=X.device)
        kernel = compiled(_add) if X.device.type == "cpu" else None
        if kernel is not None:
            kernel(*self._host(), X.contiguous().numpy(), total.numpy())
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
    kernel, total = compiled(_add_squares), np.zeros(count)
    if kernel is not None:
        kernel(labels, v, total)
        return np.sqrt(total)
    return np.sqrt(np.bincount(labels, weights=v**2, minlength=count))


def _share_alone(labels: Tensor, count: int) -> float:
    return float((torch.bincount(labels, minlength=count) == 1).sum()) / labels.numel()


def _labels(crow: np.ndarray, col: np.ndarray, values: np.ndarray, bound: float) -> tuple[np.ndarray, int]:
    """Return the aggregate of each node and their number; compiled where numba is installed."""
    kernel, n = compiled(_greedy), len(crow) - 1
    if kernel is not None:
        labels, count = kernel(crow, col, values, STRONG, bound, *arrays(((5, n), np.int32), ((2, n), np.float64)))
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
    few = compiled(_join_few) if count <= FEW else None
    if few is not None:
        coarse = csr_array(few(crow, col, values, labels, v, sizes))
        return coarse.indptr, coarse.indices, coarse.data
    kernel = compiled(_join)
    if kernel is not None:  # in rooms whose pages come as they are touched: few of them are
        return kernel(crow, col, values, labels, v, sizes, np.empty(col.size, col.dtype), np.empty(col.size))
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


def _greedy(crow: Any, col: Any, values: Any, strong: float, bound: float, places: Any, numbers: Any) -> Any:
    """By falling degree: a node without a joined near neighbour becomes a root; the others join the nearest.

    Roots of many neighbours make fewer aggregates, and more even ones. They are numbered in the order of the nodes.
    ``places`` and ``numbers`` are room for five and two of them a node.
    """
    n = len(crow) - 1
    order, labels, roots, late, joined = places[0], places[1], places[2], places[3], places[4]
    scale, tie = numbers[0], numbers[1]
    most = 0
    for i in range(n):
        most = max(most, crow[i + 1] - crow[i])
    place = np.zeros(most + 2, dtype=np.int64)  # where nodes of a degree begin
    for i in range(n):
        place[most - (crow[i + 1] - crow[i]) + 1] += 1
    for d in range(most + 1):
        place[d + 1] += place[d]
    for i in range(n):
        d = most - (crow[i + 1] - crow[i])
        order[place[d]] = i
        place[d] += 1
    for i in range(n):
        found = 0.0
        for q in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
            found = max(found, abs(values[q]) if col[q] != i else 0.0)
        scale[i], tie[i], labels[i] = np.sqrt(strong * found), 0.0, -1  # tie: the edge to the root
    count = 0
    for visited in range(n):
        i = int(order[visited])
        free = labels[i] < 0
        q = crow[i]
        while free and q < crow[i + 1]:
            j = col[q]
            if labels[j] >= 0 and j != i and abs(values[q]) > 0 and abs(values[q]) >= scale[i] * scale[j]:
                free = False
            q += 1
        if free:
            labels[i] = count
            roots[count] = i
            for q in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
                j = col[q]
                if j != i and abs(values[q]) > 0 and abs(values[q]) >= scale[i] * scale[j]:
                    labels[j] = count
                    tie[j] = abs(values[q])
            count += 1
    for i in range(n):
        late[i] = labels[i]
    for i in range(n):
        best = 0.0
        if labels[i] < 0:
            for q in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
                j, size = col[q], abs(values[q])
                if labels[j] >= 0 and size > best and size >= scale[i] * scale[j]:
                    best = size
                    late[i] = labels[j]
            if late[i] < 0:
                late[i] = count
                roots[count] = i
                count += 1
            for q in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
                if col[q] == roots[late[i]] and col[q] != i:
                    tie[i] = abs(values[q])
    for i in range(n):
        joined[i] = late[i]
    for i in range(n):
        tied, q = tie[i], crow[i]
        while tied < bound and q < crow[i + 1]:
            if col[q] != i and joined[col[q]] == joined[i]:
                tied += min(abs(values[q]), tie[col[q]])
            q += 1
        if tied < bound and roots[joined[i]] != i:
            late[i] = count
            count += 1
    number, named = np.full(count, -1, np.int32), 0
    for i in range(n):
        if number[late[i]] < 0:
            number[late[i]] = named
            named += 1
        late[i] = number[late[i]]
    return late, named


def _join(crow: Any, col: Any, values: Any, labels: Any, v: Any, sizes: Any, met: Any, sums: Any) -> Any:
    """Add up the rows of each aggregate's nodes, then mirror what was found, so that columns ascend.

    ``met`` and ``sums`` are room for as many columns and sums as there are entries.
    """
    n, count = len(crow) - 1, sizes.size
    first = np.zeros(count + 1, dtype=np.int64)
    for i in range(n):
        first[labels[i] + 1] += 1
    for a in range(count):
        first[a + 1] += first[a]
    nodes, filled = np.empty(n, dtype=labels.dtype), first.copy()
    for i in range(n):
        nodes[filled[labels[i]]] = i
        filled[labels[i]] += 1
    rows = np.zeros(count + 1, dtype=crow.dtype)
    place = np.full(count, -1, dtype=np.int64)  # of a column's entry, if at or after the row's start
    end = 0
    for a in range(count):
        start = end
        for q in range(first[a], first[a + 1]):
            i = nodes[q]
            for p in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
                j = col[p]
                b = labels[j]
                if place[b] < start:
                    place[b] = end
                    met[end] = b
                    sums[end] = 0.0
                    end += 1
                sums[place[b]] += values[p] * v[i] * v[j]
        rows[a + 1] = end
    columns, entries, following = np.empty(end, dtype=col.dtype), np.empty(end), rows[:-1].copy()
    for a in range(count):
        for p in range(rows[a], rows[a + 1]):
            q = following[met[p]]
            columns[q], entries[q] = a, sums[p] / (sizes[a] * sizes[met[p]])
            following[met[p]] += 1
    return rows, columns, entries


def _join_few(crow: Any, col: Any, values: Any, labels: Any, v: Any, sizes: Any) -> Any:
    """Return P^T L P, which is dense: most entries of a row are in its own aggregate."""
    total = np.zeros((sizes.size, sizes.size))
    for i in range(len(crow) - 1):
        a, own = labels[i], 0.0
        for p in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
            j = col[p]
            part = values[p] * v[j]
            if labels[j] == a:
                own += part
            else:
                total[a, labels[j]] += v[i] * part
        total[a, a] += v[i] * own
    return total / sizes / sizes[:, None]


def _add_squares(labels: Any, v: Any, total: Any) -> None:
    """Add the squares of v on each aggregate to ``total``."""
    for i in range(labels.size):
        total[labels[i]] += v[i] * v[i]


def _add(labels: Any, v: Any, sizes: Any, X: Any, total: Any) -> None:
    """Add P^T X to ``total``."""
    for i in range(labels.size):
        a = labels[i]
        w = v[i] / sizes[a]
        for j in range(X.shape[1]):
            total[a, j] += w * X[i, j]


def _spread(labels: Any, v: Any, sizes: Any, Z: Any, X: Any) -> None:
    """Write P Z to X."""
    for i in range(labels.size):
        a = labels[i]
        w = X.dtype.type(v[i] / sizes[a])
        for j in range(Z.shape[1]):
            X[i, j] = w * Z[a, j]


def _subtract(labels: Any, v: Any, sizes: Any, Z: Any, X: Any) -> None:
    """Subtract P Z from X."""
    for i in range(labels.size):
        a = labels[i]
        w = X.dtype.type(v[i] / sizes[a])
        for j in range(X.shape[1]):
            X[i, j] -= w * Z[a, j]
