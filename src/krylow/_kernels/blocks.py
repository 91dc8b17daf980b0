"""Orthonormal bases of batches of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from krylow._kernels._compile import kernel


@kernel
def gram_schmidt(X: Any, Q: Any, R: Any, alive: Any, tiny: float) -> None:
    batch, k, n = X.shape
    for i in range(batch):
        for j in range(k):
            q = Q[i, j]
            q[:] = X[i, j]
            for _ in range(2):
                for before in range(j):
                    along = X.dtype.type(0)
                    for e in range(n):
                        along += Q[i, before, e] * q[e]
                    R[i, before, j] += along
                    for e in range(n):
                        q[e] -= along * Q[i, before, e]
            square = X.dtype.type(0)
            for e in range(n):
                square += q[e] * q[e]
            size = np.sqrt(square)
            alive[i, j] = size > tiny
            if alive[i, j]:
                R[i, j, j] = size
                for e in range(n):
                    q[e] /= size
            else:
                q[:] = 0
