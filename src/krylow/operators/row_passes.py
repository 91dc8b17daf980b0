"""What one pass over the rows of a sparse matrix tells, without room for more than the answer.

Compiled where numba is installed, done by scipy elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from krylow.operators.compiled import compiled


def bounds(crow: np.ndarray, col: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return the diagonal, and Gershgorin's lower and upper bound."""
    kernel = compiled(_bounds)
    if kernel is not None:
        return kernel(crow, col, values)
    n = crow.size - 1
    L = csr_array((values, col, crow), shape=(n, n), copy=False)
    diagonal = L.diagonal()
    radius = abs(L) @ np.ones(n, dtype=values.dtype) - np.abs(diagonal)
    return diagonal, float((diagonal - radius).min()), float((diagonal + radius).max())


def null_rows(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, x: np.ndarray, slack: float, eps: float
) -> tuple[np.ndarray, bool]:
    """Return where L x is zero but for rounding, and whether L has a positive entry off its diagonal; x is positive.

    Rounding is ``eps`` times the sum of the sizes, times ``slack`` plus the number of entries.
    """
    kernel = compiled(_null_rows)
    if kernel is not None:
        return kernel(crow, col, values, x, bool((x == 1).all()), slack, eps)
    n = crow.size - 1
    L = csr_array((values, col, crow), shape=(n, n), copy=False)
    within = np.abs(L @ x) <= (slack + np.diff(crow)) * eps * (abs(L) @ x)
    rows = np.repeat(np.arange(n), np.diff(crow))
    return within, bool(((values > 0) & (rows != col)).any())


def _bounds(crow: Any, col: Any, values: Any) -> Any:
    diagonal = np.empty(crow.size - 1, values.dtype)
    low, high = np.inf, -np.inf
    for i in range(crow.size - 1):
        own, radius = 0.0, 0.0
        for p in range(crow[i], crow[i + 1]):
            if col[p] == i:
                own += values[p]
            else:
                radius += abs(values[p])
        diagonal[i] = own
        low, high = min(low, own - radius), max(high, own + radius)
    return diagonal, low, high


def _null_rows(crow: Any, col: Any, values: Any, x: Any, flat: bool, slack: float, eps: float) -> Any:
    n = crow.size - 1
    within, positive = np.empty(n, np.bool_), False
    for i in range(n):
        total, size = 0.0, 0.0
        for p in range(crow[i], crow[i + 1]):
            part = values[p] if flat else values[p] * x[col[p]]
            total += part
            size += abs(part)
            positive = positive or (part > 0 and col[p] != i)
        within[i] = abs(total) <= (slack + crow[i + 1] - crow[i]) * eps * size
    return within, positive
