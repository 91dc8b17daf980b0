"""What one pass over the rows of a sparse matrix tells, without room for more than the answer.

Compiled where numba is installed, done by scipy elsewhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from krylow.operators.compiled import compiled

#: The largest whole number that is small: in a byte, with its sign.
SMALL = 127
#: Units of eps, beside the number of a row's entries, that L x may be off from zero, relative to |L| |x|.
ROUNDING = 8.0


class Rows(NamedTuple):
    """What a pass tells of a matrix.

    The diagonal, Gershgorin's bounds, whether all entries are small whole numbers, as are those of the diagonal where
    they are sums, which rows add up to zero, and whether an entry off the diagonal is positive.
    """

    diagonal: np.ndarray
    low: float
    high: float
    whole: bool
    flat: np.ndarray
    positive: bool


def look(crow: np.ndarray, col: np.ndarray, values: np.ndarray, eps: float) -> Rows:
    """Return what one pass tells of a matrix; rows add up to zero but for rounding (:func:`null_rows`)."""
    kernel = compiled(_look)
    if kernel is not None:
        return Rows(*kernel(crow, col, values, ROUNDING, eps))
    n, values = crow.size - 1, values.astype(np.float64)
    L, sizes = (csr_array((data, col, crow), shape=(n, n), copy=False) for data in (values, np.abs(values)))
    diagonal = L.diagonal()
    radius = sizes @ np.ones(n) - sizes.diagonal()
    low, high = float((diagonal - radius).min()), float((diagonal + radius).max())
    whole = bool(((np.abs(values) <= SMALL) & (np.floor(values) == values)).all() and (np.abs(diagonal) <= SMALL).all())
    return Rows(diagonal, low, high, whole, *null_rows(crow, col, values, np.ones(n), eps))


def null_rows(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, x: np.ndarray, eps: float
) -> tuple[np.ndarray, bool]:
    """Return where L x is zero but for rounding, and whether L has a positive entry off its diagonal; x is positive.

    Rounding is ``eps`` times the sum of the sizes, times ``ROUNDING`` plus the number of entries.
    """
    kernel = compiled(_null_rows)
    if kernel is not None:
        return kernel(crow, col, values, x, ROUNDING, eps)
    n = crow.size - 1
    # Not abs(L), which would join entries at the same place in the matrix's own arrays.
    L, sizes = (csr_array((data, col, crow), shape=(n, n), copy=False) for data in (values, np.abs(values)))
    within = np.abs(L @ x) <= (ROUNDING + np.diff(crow)) * eps * (sizes @ x)
    rows = np.repeat(np.arange(n), np.diff(crow))
    return within, bool(((values > 0) & (rows != col)).any())


def _look(crow: Any, col: Any, values: Any, slack: float, eps: float) -> Any:
    n = crow.size - 1
    diagonal, flat, positive = np.empty(n), np.empty(n, np.bool_), False
    low, high, whole = np.inf, -np.inf, True
    for i in range(n):
        own, others, radius = 0.0, 0.0, 0.0
        for p in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
            whole = whole and abs(values[p]) <= SMALL and np.floor(values[p]) == values[p]
            if col[p] == i:
                own += values[p]
            else:
                others += values[p]
                radius += abs(values[p])
                positive = positive or values[p] > 0
        diagonal[i] = own
        whole = whole and abs(own) <= SMALL
        low, high = min(low, own - radius), max(high, own + radius)
        flat[i] = abs(own + others) <= (slack + crow[i + 1] - crow[i]) * eps * (abs(own) + radius)
    return diagonal, low, high, whole, flat, positive


def _null_rows(crow: Any, col: Any, values: Any, x: Any, slack: float, eps: float) -> Any:
    n = crow.size - 1
    within, positive = np.empty(n, np.bool_), False
    for i in range(n):
        total, size = 0.0, 0.0
        for p in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
            part = values[p] * x[col[p]]
            total += part
            size += abs(part)
            positive = positive or (part > 0 and col[p] != i)
        within[i] = abs(total) <= (slack + crow[i + 1] - crow[i]) * eps * size
    return within, positive
