"""What one pass over the rows of a sparse matrix tells, without room for more than the answer.

Compiled where numba is installed, done by scipy elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from krylow import _kernels

#: Units of eps, beside the number of a row's entries, that L x may be off from zero, relative to |L| |x|.
ROUNDING = 8.0


class Rows(NamedTuple):
    """Gershgorin's bounds, which rows sum to zero, and whether an entry off the diagonal is positive."""

    low: float
    high: float
    flat: np.ndarray
    positive: bool


def look(crow: np.ndarray, col: np.ndarray, values: np.ndarray, eps: float) -> Rows:
    """Return what one pass tells of a matrix; rows add up to zero but for rounding (:func:`null_rows`)."""
    if _kernels.available():
        _, low, high, _, flat, positive = _kernels.csr.look(crow, col, values, ROUNDING, eps)
        return Rows(low, high, flat, positive)
    n, values = crow.size - 1, values.astype(np.float64)
    L, sizes = (csr_array((data, col, crow), shape=(n, n), copy=False) for data in (values, np.abs(values)))
    diagonal = L.diagonal()
    radius = sizes @ np.ones(n) - sizes.diagonal()
    low, high = float((diagonal - radius).min()), float((diagonal + radius).max())
    return Rows(low, high, *null_rows(crow, col, values, np.ones(n), eps))


def null_rows(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, x: np.ndarray, eps: float
) -> tuple[np.ndarray, bool]:
    """Return where L x is zero but for rounding, and whether L has a positive entry off its diagonal; x is positive.

    Rounding is ``eps`` times the sum of the sizes, times ``ROUNDING`` plus the number of entries.
    """
    if _kernels.available():
        return _kernels.csr.null_rows(crow, col, values, x, ROUNDING, eps)
    n = crow.size - 1
    # Not abs(L), which would join entries at the same place in the matrix's own arrays.
    L, sizes = (csr_array((data, col, crow), shape=(n, n), copy=False) for data in (values, np.abs(values)))
    within = np.abs(L @ x) <= (ROUNDING + np.diff(crow)) * eps * (sizes @ x)
    rows = np.repeat(np.arange(n), np.diff(crow))
    return within, bool(((values > 0) & (rows != col)).any())
