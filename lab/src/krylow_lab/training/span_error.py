r"""The subspace error of a Krylov basis on known spectra, forward and backward, one compiled loop an item.

What :func:`krylow.extract.ritz` and :func:`krylow.metrics.subspace_error` compute in the eigenbasis, where the exact
subspace is that of the first k coordinates: with $S = Y \Theta Y^\top$, $X = V D Y_k = Q R$ and $A = Q_{1:k}$,

$$E = \tfrac1k \| M \|_F^2, \quad M = I_{n,k} - Q A^\top, \qquad
\bar X = -\tfrac2k (I - Q Q^\top) M A R^{-\top}, \quad \bar V = \bar X (D Y_k)^\top, \quad
\bar S = Y \big( (Y^\top D V^\top \bar X) \circ \tfrac{1}{\theta_i - \theta_j} \big) Y_k^\top .$$
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from krylow.extract import ritz, symmetrized_matrix
from krylow.linalg.eigenspace import GAP_EPS
from krylow.metrics import subspace_error
from krylow.refine.lanczos import Krylov
from krylow_lab.training import kernels

EPS = float(np.finfo(np.float64).eps)
TINY = float(np.finfo(np.float64).tiny)
#: As in :mod:`krylow.extract`: an entry of Y below eps is rounding, and is not blown up.
CEILING = -math.log(EPS)
#: Sweeps of the QL iteration; two a value are usual.
SWEEPS = 60


def span_error(krylov: Krylov, k: int) -> Tensor:
    """Return the subspace errors ``(*batch,)`` of the k lowest Ritz vectors, in the basis of the eigenvectors."""
    V = krylov.V
    if k >= krylov.alpha.shape[-1] or not kernels.compiled_for(V.detach(), krylov.alpha, krylov.beta):
        basis = ritz(krylov, k)[1]
        return subspace_error(basis, torch.eye(V.shape[-2], k, dtype=V.dtype, device=V.device).expand(*basis.shape))
    S, log_d = symmetrized_matrix(krylov)
    diagonal, off = (S.diagonal(offset, -2, -1) for offset in (0, 1))
    return _SpanError.apply(diagonal, off, log_d, V.mT, krylov.steps, k)


class _SpanError(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, diagonal: Tensor, off: Tensor, log_d: Tensor, V: Tensor, steps: Tensor, k: int) -> Tensor:
        m, n = V.shape[-2:]
        d, o, s = map(kernels.items, (diagonal, off, log_d))
        rows = np.ascontiguousarray(V.detach().reshape(-1, m, n).numpy())
        live = np.ascontiguousarray(steps.reshape(-1).numpy())
        error = np.empty(len(d))
        bars = (np.empty_like(d), np.empty_like(o), np.empty_like(s), np.empty_like(rows))
        wanted = any(ctx.needs_input_grad)
        _error(d, o, s, rows, live, k, wanted, error, *bars)
        ctx.bars = bars if wanted else None
        ctx.shapes = (diagonal.shape, off.shape, log_d.shape, V.shape)
        return torch.from_numpy(error).reshape(diagonal.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        out = []
        for bar, shape in zip(ctx.bars, ctx.shapes, strict=True):
            bar = torch.from_numpy(bar).reshape(shape)
            out.append(bar * grad.reshape(*grad.shape, *[1] * (bar.ndim - grad.ndim)))
        return *out, None, None


def _eigen(d: Any, o: Any, Y: Any) -> None:
    """Decompose a symmetric tridiagonal matrix by implicit QL: d becomes the values, ascending, Y the vectors' rows."""
    m = len(d)
    for a in range(m):
        for b in range(m):
            Y[a, b] = 1.0 if a == b else 0.0
    o[m - 1] = 0.0
    for low in range(m):
        for _ in range(SWEEPS):
            end = low
            while end < m - 1 and abs(o[end]) > EPS * (abs(d[end]) + abs(d[end + 1])):
                end += 1
            if end == low:
                break
            # Wilkinson's shift: the eigenvalue of the leading two rows that is nearer to the first.
            half = (d[low + 1] - d[low]) / (2.0 * o[low])
            root = np.sqrt(half * half + 1.0)
            x = d[end] - d[low] + o[low] / (half + (root if half >= 0.0 else -root))
            sine, cosine, shifted = 1.0, 1.0, 0.0
            whole = True
            for a in range(end - 1, low - 1, -1):
                bulge, y = sine * o[a], cosine * o[a]
                size = np.hypot(bulge, x)
                o[a + 1] = size
                if size == 0.0:  # the matrix falls apart here
                    d[a + 1] -= shifted
                    o[end] = 0.0
                    whole = False
                    break
                sine, cosine = bulge / size, x / size
                x = d[a + 1] - shifted
                turn = (d[a] - x) * sine + 2.0 * cosine * y
                shifted = sine * turn
                d[a + 1] = x + shifted
                x = cosine * turn - y
                for b in range(m):
                    upper, lower = Y[a, b], Y[a + 1, b]
                    Y[a + 1, b] = sine * upper + cosine * lower
                    Y[a, b] = cosine * upper - sine * lower
            if whole:
                d[low] -= shifted
                o[low] = x
                o[end] = 0.0
    for a in range(m - 1):  # put them in order
        best = a
        for b in range(a + 1, m):
            if d[b] < d[best]:
                best = b
        if best != a:
            d[a], d[best] = d[best], d[a]
            for b in range(m):
                Y[a, b], Y[best, b] = Y[best, b], Y[a, b]


def _orthonormalize(X: Any, Q: Any, R: Any, sizes: Any) -> None:
    """Orthonormalise the rows of X: X[j] / sizes[j] = sum_i R[i, j] Q[i]; a dependent row leaves Q zero and R one."""
    k, n = X.shape
    for j in range(k):
        square = 0.0
        for e in range(n):
            square += X[j, e] * X[j, e]
        sizes[j] = np.sqrt(square) if square > 0.0 else 1.0
        for e in range(n):
            Q[j, e] = X[j, e] / sizes[j]
        for i in range(k):
            R[i, j] = 0.0
        for _ in range(2):
            for i in range(j):
                along = 0.0
                for e in range(n):
                    along += Q[i, e] * Q[j, e]
                R[i, j] += along
                for e in range(n):
                    Q[j, e] -= along * Q[i, e]
        square = 0.0
        for e in range(n):
            square += Q[j, e] * Q[j, e]
        size = np.sqrt(square)
        if size > n * EPS:
            R[j, j] = size
            for e in range(n):
                Q[j, e] /= size
        else:
            R[j, j] = 0.0
            for e in range(n):
                Q[j, e] = 0.0


def _error(
    diagonal: Any,
    off: Any,
    log_d: Any,
    V: Any,
    steps: Any,
    k: int,
    wanted: bool,
    error: Any,
    diagonal_bar: Any,
    off_bar: Any,
    log_d_bar: Any,
    V_bar: Any,
) -> None:
    count, m, n = V.shape
    theta, o, Y = np.empty(m), np.empty(m), np.empty((m, m))
    scale, Z, X, Q = np.empty((k, m)), np.empty((k, m)), np.empty((k, n)), np.empty((k, n))
    R, sizes, M = np.empty((k, k)), np.empty(k), np.empty((k, n))
    Z_bar, W = np.empty((k, m)), np.empty((k, m))
    for i in range(count):
        top = 0.0
        for a in range(m):
            theta[a], o[a] = diagonal[i, a], off[i, a] if a < m - 1 else 0.0
            row = abs(theta[a]) + abs(o[a]) + (abs(o[a - 1]) if a > 0 else 0.0)
            top = max(top, row)
        for a in range(steps[i], m):  # dead steps are decoupled: above every live value they come last
            theta[a] += 2.0 * top if top > 0.0 else 1.0
        _eigen(theta, o, Y)
        for c in range(k):
            shift = -np.inf
            for a in range(m):
                shift = max(shift, log_d[i, a] + np.log(max(abs(Y[c, a]), TINY)))
            for a in range(m):
                scale[c, a] = np.exp(min(log_d[i, a] - shift, CEILING))
                Z[c, a] = Y[c, a] * scale[c, a]
            for e in range(n):
                X[c, e] = 0.0
            for a in range(m):
                factor = Z[c, a]
                for e in range(n):
                    X[c, e] += factor * V[i, a, e]
        _orthonormalize(X, Q, R, sizes)
        total = 0.0
        for c in range(k):  # M's columns: the exact vectors less their projections
            for e in range(n):
                M[c, e] = 0.0
            M[c, c] = 1.0
            for b in range(k):
                factor = Q[b, c]
                for e in range(n):
                    M[c, e] -= factor * Q[b, e]
            for e in range(n):
                total += M[c, e] * M[c, e]
        error[i] = total / k
        if not wanted:
            continue
        for b in range(k):  # X's gradient, column by column of Q, less what lies in the span
            for e in range(n):
                X[b, e] = 0.0
            if R[b, b] > 0.0:
                for c in range(k):
                    factor = -2.0 / k * Q[b, c]
                    for e in range(n):
                        X[b, e] += factor * M[c, e]
                for c in range(k):
                    along = 0.0
                    for e in range(n):
                        along += X[b, e] * Q[c, e]
                    for e in range(n):
                        X[b, e] -= along * Q[c, e]
        for b in range(k - 1, -1, -1):  # times R^-T from the right
            if R[b, b] > 0.0:
                for c in range(b + 1, k):
                    if R[c, c] > 0.0:
                        for e in range(n):
                            X[b, e] -= R[b, c] * X[c, e]
                for e in range(n):
                    X[b, e] /= R[b, b]
        for b in range(k):
            for e in range(n):
                X[b, e] /= sizes[b]
        for a in range(m):
            log_d_bar[i, a] = 0.0
            for e in range(n):
                V_bar[i, a, e] = 0.0
            for c in range(k):
                along = 0.0
                factor = Z[c, a]
                for e in range(n):
                    V_bar[i, a, e] += factor * X[c, e]
                    along += V[i, a, e] * X[c, e]
                Z_bar[c, a] = along * scale[c, a]
                if scale[c, a] < 1.0 / EPS:
                    log_d_bar[i, a] += along * Z[c, a]
            diagonal_bar[i, a] = 0.0
        spread = 0.0
        for a in range(m):
            spread = max(spread, abs(theta[a]))
        for c in range(k):
            for a in range(m):
                W[c, a] = 0.0
            for b in range(k, m):
                gap = theta[c] - theta[b]
                if abs(gap) > GAP_EPS * EPS * spread:
                    along = 0.0
                    for a in range(m):
                        along += Y[b, a] * Z_bar[c, a]
                    for a in range(m):
                        W[c, a] += along / gap * Y[b, a]
        for a in range(m - 1):
            off_bar[i, a] = 0.0
        for c in range(k):
            for a in range(m):
                diagonal_bar[i, a] += W[c, a] * Y[c, a]
            for a in range(m - 1):
                off_bar[i, a] += W[c, a] * Y[c, a + 1] + W[c, a + 1] * Y[c, a]


if kernels.njit is not None:
    _eigen, _orthonormalize, _error = map(kernels.compiled, (_eigen, _orthonormalize, _error))
