r"""Eigenvalues below a number, counted by the inertia of a factor so that rounding cannot change the count.

By Sylvester's law $A - \sigma I$ and D of a factor $L D L^\top$ have as many negative eigenvalues. The factor is one of
a matrix nearby, $L D L^\top = A - \sigma I + F$, with an a posteriori bound (Higham, 2002, theorems 9.3 and 11.4)

$$|F| \le \gamma \, |L| |D| |L^\top|, \qquad b_i = \sum_j |F|_{ij}, \qquad -\mathrm{diag}(b) \preceq F \preceq
\mathrm{diag}(b) .$$

So the matrix that is factorised is moved beforehand by a diagonal S: where $S \ge \mathrm{diag}(b)$ shows afterwards,

$$L D L^\top = A - \sigma I - S + F \preceq A - \sigma I$$

has at least as many negative eigenvalues as $A - \sigma I$, and with + S at most as many. Either is a theorem about A.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from scipy.sparse import coo_array, csc_array, csr_array
from scipy.sparse.linalg import splu

from krylow import _native
from krylow.linalg.elimination import SUPERLU, minimum_degree, superlu_order

#: Unit roundoff of float64.
UNIT = float(np.finfo(np.float64).eps) / 2


class Factored(NamedTuple):
    """Negative eigenvalues of a factor, row sums of its rounding, and solves with it."""

    negative: int
    rounding: np.ndarray
    solve: Callable[[np.ndarray], np.ndarray]


class Count(NamedTuple):
    """A bound of the number of eigenvalues below a number, and approximate solves with A less that number."""

    below: int
    solve: Callable[[np.ndarray], np.ndarray]


class EigenvalueCounter(ABC):
    """Counts the eigenvalues of one symmetric matrix in float64 below numbers.

    Attributes
    ----------
    n
        Its size.
    sums
        ``(n,)`` row sums of absolute entries.
    longest
        Entries of the longest row.
    low
        Gershgorin's lower bound of the eigenvalues.
    """

    n: int
    low: float
    sums: np.ndarray
    longest: int

    @abstractmethod
    def _factor(self, moved: np.ndarray) -> Factored | None:
        """Return the factor of A - diag(moved), None where there is none."""

    @abstractmethod
    def multiply(self, X: np.ndarray) -> np.ndarray:
        """Return A X."""

    def at_most(self, sigma: float) -> Count | None:
        """Return a number that at most as many eigenvalues as are below ``sigma``; None where rounding covers it."""
        return self._bounded(sigma, 1.0)

    def at_least(self, sigma: float) -> Count | None:
        """Return a number such that at least as many eigenvalues are below ``sigma``, or None."""
        return self._bounded(sigma, -1.0)

    def _bounded(self, sigma: float, side: float) -> Count | None:
        size = self.sums + abs(sigma)
        slack = 64 * UNIT * (16 + self.n**0.5) * size
        for _ in range(3):
            found = self._factor(sigma + side * slack)
            if found is None or not np.isfinite(found.rounding).all():
                return None
            bound = found.rounding + 8 * UNIT * (size + slack)  # of the diagonal itself
            if (bound <= slack).all():
                return Count(found.negative, found.solve)
            slack = 2 * np.maximum(bound, slack)
        return None


class SparseCounter(EigenvalueCounter):
    """Counts by sparse factors, all in one order.

    Parameters
    ----------
    A
        A symmetric ``csr_array`` in float64.

    Attributes
    ----------
    entries, work
        Entries of one triangular factor, and the multiplications that it takes, counted before any is made.
    """

    def __init__(self, A: Any) -> None:
        self.n, own = A.shape[0], np.arange(A.shape[0])
        coo = coo_array(A)
        rows, columns = np.r_[coo.row, own], np.r_[coo.col, own]  # with a diagonal, even where that is zero
        A = csr_array((np.r_[coo.data, np.zeros(self.n)], (rows, columns)), shape=A.shape)
        A.sort_indices()
        self.matrix, self.sums, self.longest = A, abs(A).sum(axis=1), int(np.diff(A.indptr).max(initial=1))
        self.low = _gershgorin(A.diagonal(), self.sums)
        found = minimum_degree(A.indptr, A.indices)
        position = superlu_order(csc_array(A)) if found is None else found[0]
        self._node = np.empty_like(position)
        self._node[position] = own
        _, counts = _native.tree_and_counts(A.indptr, A.indices, position, self._node)
        self.entries = int(counts.sum()) + self.n
        self.work = float(np.square(counts.astype(np.float64)).sum())
        self._ordered = csc_array(A[self._node][:, self._node])
        self._ordered.sort_indices()
        self._diagonal = np.flatnonzero(self._ordered.indices == np.repeat(own, np.diff(self._ordered.indptr)))

    def multiply(self, X: np.ndarray) -> np.ndarray:
        """Return A X."""
        return np.asarray(self.matrix @ X)

    def _factor(self, moved: np.ndarray) -> Factored | None:
        shifted = self._ordered.copy()
        shifted.data[self._diagonal] -= moved[self._node]
        try:
            lu = splu(shifted, **{**SUPERLU, "permc_spec": "NATURAL"})
        except RuntimeError:  # a pivot is exactly zero
            return None
        if not np.array_equal(lu.perm_r, lu.perm_c):  # pivots off the diagonal: no LDL^T
            return None
        L, U = lu.L, csr_array(lu.U)
        D = U.diagonal()
        if not D.all() or not np.isfinite(D).all():
            return None
        scaled = csr_array(L.T)
        scaled.data = scaled.data * np.repeat(D, np.diff(scaled.indptr))
        off = abs(U - scaled).sum(axis=1)  # U is D L^T but for rounding
        np.abs(L.data, out=L.data)
        terms = 2.0 * (np.bincount(L.indices, minlength=self.n) + 4) * UNIT
        sums = terms / (1 - terms) * (L @ abs(U).sum(axis=1)) + L @ off
        rounding = np.empty(self.n)
        rounding[self._node] = 1.01 * sums[lu.perm_r]

        def solve(X: np.ndarray) -> np.ndarray:
            Y = np.empty_like(X)
            Y[self._node] = lu.solve(np.asfortranarray(X[self._node]))
            return Y

        return Factored(int((D < 0).sum()), rounding, solve)


class DenseCounter(EigenvalueCounter):
    """Counts by dense factors with Bunch and Kaufman's pivots (LAPACK).

    Parameters
    ----------
    A
        A symmetric array in float64.
    """

    def __init__(self, A: np.ndarray) -> None:
        self.matrix, self.n, self.sums = A, len(A), np.abs(A).sum(axis=1)
        self.longest, self.low = self.n, _gershgorin(A.diagonal(), self.sums)

    def multiply(self, X: np.ndarray) -> np.ndarray:
        """Return A X."""
        return self.matrix @ X

    def _factor(self, moved: np.ndarray) -> Factored | None:
        shifted = self.matrix - np.diag(moved)
        L, D, order = scipy.linalg.ldl(shifted, check_finite=False)
        if not np.isfinite(L).all() or not np.isfinite(D).all():
            return None
        diagonal, beside = D.diagonal(), D.diagonal(-1)
        twos = np.flatnonzero(beside)
        single = np.ones(self.n, dtype=bool)
        single[twos] = single[twos + 1] = False
        if (diagonal[single] == 0).any():
            return None
        blocks = np.stack([D[twos, twos], beside[twos], beside[twos], D[twos + 1, twos + 1]], axis=-1)
        pairs = np.linalg.eigvalsh(blocks.reshape(-1, 2, 2))
        size = np.abs(L)
        sums = size @ (np.abs(D) @ size.sum(axis=0))
        terms = (4 * self.n + 40) * UNIT
        rounding = terms / (1 - terms) * 1.01 * (sums + np.abs(shifted).sum(axis=1))

        def solve(X: np.ndarray) -> np.ndarray:
            inner = scipy.linalg.solve_triangular(L[order], X[order], lower=True, unit_diagonal=True)
            banded = np.zeros((3, self.n))
            banded[0, 1:], banded[1], banded[2, :-1] = beside, diagonal, beside
            inner = scipy.linalg.solve_banded((1, 1), banded, inner)
            Y = np.empty_like(inner)
            Y[order] = scipy.linalg.solve_triangular(L[order], inner, lower=True, trans="T", unit_diagonal=True)
            return Y

        return Factored(int((diagonal[single] < 0).sum() + (pairs < 0).sum()), rounding, solve)


def _gershgorin(diagonal: np.ndarray, sums: np.ndarray) -> float:
    return float((diagonal + np.abs(diagonal) - sums).min(initial=0.0))
