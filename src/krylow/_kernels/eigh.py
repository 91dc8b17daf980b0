"""The lowest eigenpairs of small dense symmetric matrices, one at a time.

Reduction to tridiagonal T, bisection for its lowest values, inverse iteration for their vectors, and the
back-transformation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from krylow._kernels._compile import available, kernel
from krylow._kernels.rank2 import vector_pass

#: Residuals, in eps times the norm of T, that end the inverse iteration, and that are accepted when it ends without
#: them. An item beyond the latter is left to ``torch.linalg.eigh``.
WANTED = 4.0
ACCEPTED = 16.0

#: An off-diagonal of T, whose norm is about 1, that is set to zero: blocks that it joins would be told apart badly.
NEGLIGIBLE = 2 * float(np.finfo(np.float64).eps)

#: Stands for a squared off-diagonal of T, whose norm is about 1, that is zero or far below eps.
TINY = 1e-36

#: Sums may be reordered and contracted, but NaN, infinity and signs keep their meaning.
REORDER = {"reassoc", "contract", "nsz"}


def _plain_pass(A: Any, u: Any, w: Any, v: Any, p: Any, rows: int, width: int) -> None:
    r"""Update $A \leftarrow A - u w^\top - w u^\top$ and fill $p = A v$, touching the lower triangle of A once.

    This is the meaning; :mod:`krylow._kernels.rank2` is what runs. That one may use and update up to three more
    rows, where u, w and v are zero, and leaves alone what is above the diagonal blocks.
    """
    A[:rows, :rows] -= np.outer(u[:rows], w[:rows]) + np.outer(w[:rows], u[:rows])
    p[:width] = 0
    p[:rows] = A[:rows, :rows] @ v[:rows]


_pass: Any = vector_pass() if available() else _plain_pass


@kernel(fastmath=REORDER)
def _reflector(A: Any, i: int, width: int, u: Any, w: Any, v: Any, tiny: float) -> tuple[Any, Any, Any]:
    r"""Bring row i up to date; return $A_{ii}, \beta, \tau$ with $(I - \tau v v^\top) A_{i, :i} = \beta e_{i-1}$."""
    u_i, w_i = u[i], w[i]
    for j in range(width):
        v[j] = A[i, j] - u_i * w[j] - w_i * u[j]
    u[i] = w[i] = 0
    diagonal, alpha = v[i], v[i - 1]
    for j in range(i - 1, width):
        v[j] = 0
    size = A.dtype.type(0)
    for j in range(width):
        size += v[j] * v[j]
    beta, tau, scale = alpha, A.dtype.type(0), A.dtype.type(0)
    if size > tiny:
        beta = A.dtype.type(-math.copysign(math.sqrt(alpha * alpha + size), alpha))
        tau, scale = (beta - alpha) / beta, A.dtype.type(1) / (alpha - beta)
    for j in range(width):
        v[j] *= scale
    v[i - 1] = 1
    for j in range(width):
        A[i, j] = v[j]
    return diagonal, beta, tau


@kernel(fastmath=REORDER)
def _tridiagonalize(A: Any, n: int, d: Any, e: Any, tau: Any, work: Any, tiny: float) -> None:
    """Overwrite the rows of A by the reflectors, from the last to the first; d and e get the two diagonals."""
    u, w, v, p = work[0], work[1], work[2], work[3]
    for j in range(work.shape[1]):
        u[j] = w[j] = 0
    for i in range(n - 1, 0, -1):
        width = (i + 16) // 16 * 16
        d[i], e[i - 1], t = _reflector(A, i, width, u, w, v, tiny)
        tau[i] = t
        _pass(A, u, w, v, p, i, width)
        for j in range(i, width):
            p[j] = 0
        s = A.dtype.type(0)
        for j in range(width):
            s += p[j] * v[j]
        s *= t * A.dtype.type(-0.5)
        for j in range(width):
            p[j] = t * (p[j] + s * v[j])
        u, w, v, p = v, p, u, w
    d[0] = A[0, 0] - 2 * u[0] * w[0]


@kernel(fastmath={"contract"})
def _count_below(d: Any, f: Any, x: Any, lanes: int, last: Any, before: Any, count: Any) -> None:
    r"""Count the eigenvalues of T below each shift: sign changes of $q_i = (d_i - x) q_{i-1} - e_{i-1}^2 q_{i-2}$.

    Four rows at a time. A minor that is exactly zero counts as positive; its two neighbours then differ in sign, so
    that the count is the same either way. Rescaling keeps the minors in range.
    """
    for j in range(lanes):
        last[j], before[j], count[j] = 1.0, 0.0, 0.0
    for i in range(0, len(d), 4):
        d0, d1, d2, d3 = d[i], d[i + 1], d[i + 2], d[i + 3]
        f0, f1, f2, f3 = f[i], f[i + 1], f[i + 2], f[i + 3]
        for j in range(lanes):
            q = last[j]
            q0 = (d0 - x[j]) * q - f0 * before[j]
            q1 = (d1 - x[j]) * q0 - f1 * q
            q2 = (d2 - x[j]) * q1 - f2 * q0
            q3 = (d3 - x[j]) * q2 - f3 * q1
            changes = int((q < 0) != (q0 < 0)) + int((q0 < 0) != (q1 < 0))
            changes += int((q1 < 0) != (q2 < 0)) + int((q2 < 0) != (q3 < 0))
            count[j] += changes
            size = max(abs(q2), abs(q3))
            scale = 2.0**300 if size < 2.0**-300 else (2.0**-300 if size > 2.0**300 else 1.0)
            last[j], before[j] = q3 * scale, q2 * scale


@kernel
def _bisect(d: Any, f: Any, k: int, lanes: int, tol: float, work: Any) -> None:
    """Fill ``work[0]`` with the k lowest eigenvalues of T, which lie in [-1, 1], to within tol.

    Shifts whose brackets agree are spread over the bracket, and every count narrows every bracket.
    """
    low, high, x, count = work[0], work[1], work[2], work[3]
    for j in range(lanes):
        low[j], high[j], x[j] = -1.0, 1.0, 1.0
    width = 2.0
    while width > tol:
        j = 0
        while j < k:
            same = 1
            while j + same < k and low[j + same] == low[j] and high[j + same] == high[j]:
                same += 1
            step = (high[j] - low[j]) / (same + 1)
            for i in range(same):
                x[j + i] = low[j] + (i + 1) * step
            j += same
        _count_below(d, f, x, lanes, work[4], work[5], count)
        for i in range(k):
            x_i, c_i = x[i], count[i]
            for j in range(lanes):
                high[j] = x_i if j < c_i and x_i < high[j] else high[j]
                low[j] = x_i if j >= c_i and x_i > low[j] else low[j]
        width = 0.0
        for j in range(k):
            width = max(width, high[j] - low[j])
    for j in range(lanes):
        low[j] = 0.5 * (low[min(j, k - 1)] + high[min(j, k - 1)])


@kernel(fastmath={"contract"})
def _factor(d: Any, e: Any, n: int, theta: Any, lanes: int, floor: float, LU: Any, a: Any, b: Any) -> None:
    r"""Factor $P (T - \theta_j) = L U$ with partial pivoting for every j; a and b hold the row that is at work.

    LU holds 1 / diagonal, first and second superdiagonal of U, the multiplier, and 1 where rows were exchanged.
    """
    for j in range(lanes):
        a[j], b[j] = d[0] - theta[j], e[0]
    for i in range(n):
        # Beyond the last row e is 0 and d is any number.
        e_i, d_next, e_next = e[i], d[i + 1], e[i + 1] if i + 1 < n else 0.0
        inverse, first, second, multiplier, exchanged = LU[0, i], LU[1, i], LU[2, i], LU[3, i], LU[4, i]
        for j in range(lanes):
            diagonal = d_next - theta[j]
            swap = abs(a[j]) < abs(e_i)
            pivot = e_i if swap else a[j]
            pivot = pivot if abs(pivot) > floor else floor
            r = 1.0 / pivot
            u1 = diagonal if swap else b[j]
            u2 = e_next if swap else 0.0
            m = (a[j] if swap else e_i) * r
            a[j] = (b[j] if swap else diagonal) - m * u1
            b[j] = (0.0 if swap else e_next) - m * u2
            inverse[j], first[j], second[j], multiplier[j] = r, u1, u2, m
            exchanged[j] = 1.0 if swap else 0.0


@kernel(fastmath={"contract"})
def _solve(LU: Any, n: int, lanes: int, X: Any, steps: int) -> None:
    """Overwrite X by the solutions of L U x = P X, or, without the n - 1 steps of elimination, of U x = X.

    X is ``(n + 2, lanes)`` with two rows of zeros at its end.
    """
    for i in range(steps):
        here, below, multiplier, exchanged = X[i], X[i + 1], LU[3, i], LU[4, i]
        for j in range(lanes):
            swap = exchanged[j] > 0
            top = below[j] if swap else here[j]
            below[j] = (here[j] if swap else below[j]) - multiplier[j] * top
            here[j] = top
    for i in range(n - 1, -1, -1):
        here, below, next_below = X[i], X[i + 1], X[i + 2]
        inverse, first, second = LU[0, i], LU[1, i], LU[2, i]
        for j in range(lanes):
            here[j] = (here[j] - first[j] * below[j] - second[j] * next_below[j]) * inverse[j]


@kernel(fastmath=REORDER)
def _orthonormalize(Z: Any, k: int, n: int) -> float:
    """Orthonormalise the rows of Z in order; return the least part of a squared length that was left of a row."""
    least = 1.0
    for j in range(k):
        largest = 0.0
        for i in range(n):
            largest = max(largest, abs(Z[j, i]))
        scale, before = 1.0 / largest, 0.0
        for i in range(n):
            Z[j, i] *= scale
            before += Z[j, i] * Z[j, i]
        for h in range(j):
            s = 0.0
            for i in range(n):
                s += Z[h, i] * Z[j, i]
            for i in range(n):
                Z[j, i] -= s * Z[h, i]
        after = 0.0
        for i in range(n):
            after += Z[j, i] * Z[j, i]
        least = min(least, after / before)
        scale = 1.0 / math.sqrt(after)
        for i in range(n):
            Z[j, i] *= scale
    return least


@kernel(fastmath=REORDER)
def _residual(d: Any, e: Any, n: int, theta: Any, k: int, Z: Any) -> float:
    r"""Return the largest $\| T z_j - \theta_j z_j \|$ over the rows of Z."""
    worst = 0.0
    for j in range(k):
        r = (d[0] - theta[j]) * Z[j, 0]
        if n > 1:
            r += e[0] * Z[j, 1]
        total = r * r
        for i in range(1, n - 1):
            r = (d[i] - theta[j]) * Z[j, i] + e[i] * Z[j, i + 1] + e[i - 1] * Z[j, i - 1]
            total += r * r
        if n > 1:
            r = (d[n - 1] - theta[j]) * Z[j, n - 1] + e[n - 2] * Z[j, n - 2]
            total += r * r
        if not total <= worst:  # also where it is NaN
            worst = total
    return math.sqrt(worst)


@kernel
def _inverse_iteration(
    d: Any, e: Any, n: int, k: int, lanes: int, start: Any, work: Any, LU: Any, X: Any, Z: Any, eps: float
) -> bool:
    """Fill the rows of Z with orthonormal eigenvectors of T for the values ``work[0]``; say whether they passed."""
    theta = work[0]
    _factor(d, e, n, theta, lanes, 1.1e-16, LU, work[1], work[2])
    for i in range(n):
        for j in range(lanes):
            X[i, j] = start[i, j]
    for trial in range(6):
        _solve(LU, n, lanes, X, (n - 1) * (trial > 0))
        if trial == 0:
            continue
        for j in range(k):
            for i in range(n):
                Z[j, i] = X[i, j]
        left = 0.0
        for _ in range(4):
            left = _orthonormalize(Z, k, n)
            if left > 0.5:
                break
        if left > 0.5 and _residual(d, e, n, theta, k, Z) <= (WANTED if trial < 5 else ACCEPTED) * eps:
            return True
        for j in range(k):
            for i in range(n):
                X[i, j] = Z[j, i]
    return False


@kernel(fastmath=REORDER)
def _back(A: Any, n: int, tau: Any, Y: Any) -> None:
    """Apply the reflections to the rows of Y, four at a time; their number is a multiple of four."""
    for j in range(0, Y.shape[0], 4):
        for i in range(2, n):
            s0 = s1 = s2 = s3 = Y.dtype.type(0)
            width = (i + 15) // 16 * 16
            for h in range(width):
                a = A[i, h]
                s0 += a * Y[j, h]
                s1 += a * Y[j + 1, h]
                s2 += a * Y[j + 2, h]
                s3 += a * Y[j + 3, h]
            s0, s1, s2, s3 = s0 * tau[i], s1 * tau[i], s2 * tau[i], s3 * tau[i]
            for h in range(width):
                Y[j, h] -= s0 * A[i, h]
            for h in range(width):
                Y[j + 1, h] -= s1 * A[i, h]
            for h in range(width):
                Y[j + 2, h] -= s2 * A[i, h]
            for h in range(width):
                Y[j + 3, h] -= s3 * A[i, h]


@kernel(fastmath=REORDER)
def lowest(
    S: Any,
    values: Any,
    vectors: Any,
    failed: Any,
    start: Any,
    A: Any,
    rows: Any,
    Y: Any,
    T: Any,
    lane: Any,
    LU: Any,
    X: Any,
    Z: Any,
    eps: float,
) -> None:
    """Fill values and vectors, item by item; an item that does not pass is marked as failed."""
    n, k, lanes, dtype = S.shape[1], values.shape[1], lane.shape[1], S.dtype.type
    tiny = dtype(1e-30) if eps > 1e-10 else dtype(1e-280)
    d, e, f = T[0], T[1], T[2]
    tau = rows[4]
    for item in range(S.shape[0]):
        failed[item] = True
        total = dtype(0)
        for i in range(n):
            for j in range(n):
                total += abs(S[item, i, j])
        if not total < math.inf:
            continue
        exponent = math.frexp(total)[1]
        scale = dtype(math.ldexp(1.0, -exponent))
        for i in range(n):
            for j in range(n):
                A[i, j] = S[item, i, j] * scale
        _tridiagonalize(A, n, d, e, tau, rows, tiny)
        bound = 0.0
        for i in range(n):
            bound = max(bound, abs(d[i]) + abs(e[i]) + (abs(e[i - 1]) if i > 0 else 0.0))
        stretch = math.frexp(bound)[1]
        unit = math.ldexp(1.0, -stretch)
        for i in range(n):
            d[i] *= unit
            e[i] = e[i] * unit if abs(e[i] * unit) > NEGLIGIBLE else 0.0
            f[i + 1] = max(e[i] * e[i], TINY)
        _bisect(d, f, k, lanes, max(0.06 * eps, 4.5e-16), lane)
        if not _inverse_iteration(d, e, n, k, lanes, start, lane, LU, X, Z, eps):
            continue
        for j in range(k):
            for i in range(n):
                Y[j, i] = Z[j, i]
        _back(A, n, tau, Y)
        for i in range(n):
            for j in range(k):
                vectors[item, i, j] = Y[j, i]
        for j in range(k):
            values[item, j] = math.ldexp(lane[0, j], exponent + stretch) if bound > 0 else 0.0
        failed[item] = False
