"""The loops of :mod:`krylow.krylov.relaxed`, one small matrix at a time, which numba compiles.

A matrix of twenty rows fits the nearest cache: what takes the time in operations on whole tensors is their number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krylow._kernels._compile import kernel


@kernel
def forward(
    A: Any, start: Any, gamma1: Any, gamma2: Any, sizes: Any, limits: Any, C: Any, alpha: Any, beta: Any, steps: Any
) -> None:
    """Fill ``C`` ``(batch, m, s)``, ``alpha``, ``beta`` ``(batch, m)``, all zero before, and ``steps`` ``(batch,)``.

    ``limits`` ``(batch, 3)`` are the sizes of a residual at or below and above which the recurrence ends, and that of
    its product with the smallest one before.
    """
    batch, m, s = C.shape
    w = np.empty(s, A.dtype)
    for i in range(batch):
        C[i, 0] = start[i]
        steps[i] = min(1, sizes[i])
        smallest = A.dtype.type(np.inf)
        for j in range(m if sizes[i] > 0 else 0):
            c = C[i, j]
            w[:] = 0
            for e in range(s):
                for f in range(s):
                    w[f] += c[e] * A[i, e, f]
            a = w.dtype.type(0)
            for e in range(s):
                a += c[e] * w[e]
            alpha[i, j] = a
            if j + 1 == m:
                break
            here = gamma1[j] * a
            for e in range(s):
                w[e] -= here * c[e]
            if j > 0:
                before = gamma2[j] * beta[i, j - 1]
                for e in range(s):
                    w[e] -= before * C[i, j - 1, e]
            square = w.dtype.type(0)
            for e in range(s):
                square += w[e] * w[e]
            b = np.sqrt(square)
            if not (limits[i, 0] < b < limits[i, 1] and limits[i, 2] < b * smallest and j + 1 < sizes[i]):
                break
            smallest = min(smallest, b)
            beta[i, j] = b
            steps[i] += 1
            for e in range(s):
                C[i, j + 1, e] = w[e] / b


@kernel
def backward(
    A: Any,
    gamma1: Any,
    gamma2: Any,
    C: Any,
    alpha: Any,
    beta: Any,
    steps: Any,
    C_bar: Any,
    alpha_bar: Any,
    beta_bar: Any,
    A_bar: Any,
    start_bar: Any,
    gamma1_bar: Any,
    gamma2_bar: Any,
) -> None:
    """Add the gradients to the last four, all zero before, and use ``C_bar`` for work."""
    batch, _m, s = C.shape
    w, r_bar, w_bar = np.empty(s, A.dtype), np.empty(s, A.dtype), np.empty(s, A.dtype)
    for i in range(batch):
        b_bar = w.dtype.type(0)
        for j in range(steps[i] - 1, -1, -1):
            c = C[i, j]
            r_bar[:] = 0  # a step after which it ended passes nothing on
            if j + 1 < steps[i]:
                along = w.dtype.type(0)
                for e in range(s):
                    along += C[i, j + 1, e] * C_bar[i, j + 1, e]
                inverse = 1 / beta[i, j]
                own = beta_bar[i, j] + b_bar - along * inverse
                for e in range(s):
                    r_bar[e] = C_bar[i, j + 1, e] * inverse + own * C[i, j + 1, e]
            w[:] = 0
            for e in range(s):
                for f in range(s):
                    w[f] += c[e] * A[i, e, f]
            here = w.dtype.type(0)
            for e in range(s):
                here += c[e] * r_bar[e]
            gamma1_bar[j] -= alpha[i, j] * here
            a_bar = alpha_bar[i, j] - gamma1[j] * here
            shift = gamma1[j] * alpha[i, j]
            for e in range(s):
                w_bar[e] = r_bar[e] + a_bar * c[e]
                C_bar[i, j, e] += a_bar * w[e] - shift * r_bar[e]
            for e in range(s):
                for f in range(s):
                    C_bar[i, j, f] += w_bar[e] * A[i, e, f]
                    A_bar[i, e, f] += (w_bar[e] * c[f] + c[e] * w_bar[f]) / 2
            b_bar = w.dtype.type(0)
            if j > 0:
                before = w.dtype.type(0)
                for e in range(s):
                    before += C[i, j - 1, e] * r_bar[e]
                    C_bar[i, j - 1, e] -= gamma2[j] * beta[i, j - 1] * r_bar[e]
                gamma2_bar[j] -= beta[i, j - 1] * before
                b_bar = -gamma2[j] * before
        start_bar[i] = C_bar[i, 0]
