r"""The paper's probe on known spectra, forward and backward, one compiled loop an item.

With $q(\lambda) = 1 + \sum_t a_t \lambda^t$ it is p times: normalise, then so many conjugate-gradient steps on
$\mathrm{diag}(q) x = b$. A step of the iteration, and its adjoint (bars denote derivatives of the loss, $\bar x$ is the
same at every step since $x' = x + s p$):

===================================  ===============================================================================
$c = p^\top q p, \; s = \rho / c$    $\bar s = \bar x^\top p - \bar r'^\top q p, \; \bar\rho \mathrel{+}= \bar s / c,
                                     \; \bar c = -\bar s s / c$
$x' = x + s p, \; r' = r - s q p$    $\bar p \mathrel{+}= s \bar x + 2 \bar c q p - s q \bar r', \;
                                     \bar q \mathrel{+}= \bar c p^2 - s \bar r' p$
$\rho' = r'^\top r'$                 $\bar r' \mathrel{+}= 2 \bar\rho' r'$
$p' = r' + (\rho' / \rho) p$         $\bar\beta = \bar p'^\top p, \; \bar r' \mathrel{+}= \bar p', \;
                                     \bar p = \beta \bar p', \; \bar\rho' \mathrel{+}= \bar\beta / \rho, \;
                                     \bar\rho = -\bar\beta \beta / \rho$
===================================  ===============================================================================

The vectors of one graph fit the cache, which operations on whole tensors do not use. So does all that the adjoint needs
to know of them, if they are computed again: a second forward pass is cheaper than memory for the first. Without numba
the tensor form is used, to the same effect.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

njit: Any
try:
    from numba import njit
except ImportError:  # an extra; training is slower without it
    njit = None


def diagonal_probe(a: Tensor, lam: Tensor, z: Tensor, power: int, steps: int) -> Tensor:
    r"""Return the unit vector along $q(\Lambda)^{-p} z$, ``(*batch, n)``, by truncated conjugate gradients.

    The same iteration as :func:`krylow.linalg.cg.conjugate_gradients`, to rounding. Differentiable in a and z.

    Parameters
    ----------
    a
        ``(*batch, T)`` coefficients, not negative.
    lam, z
        ``(*batch, n)`` eigenvalues, not negative, and the vector.
    power, steps
        p, and the steps of each solve.
    """
    if not compiled_for(lam, z, a):
        q = polynomial(a, lam)
        for _ in range(power):
            z = tensor_cg(q, unit(z), steps)
        return unit(z)
    shape = torch.broadcast_shapes(a.shape[:-1], lam.shape[:-1], z.shape[:-1])
    return _DiagonalProbe.apply(*(t.expand(*shape, t.shape[-1]) for t in (a, lam, z)), power, steps)


def compiled_for(lam: Tensor, *others: Tensor) -> bool:
    """Whether the compiled loops can be used: numba is there, and all is float64 on the CPU with fixed eigenvalues."""
    plain = all(t.dtype == torch.float64 and t.device.type == "cpu" for t in (lam, *others))
    return njit is not None and plain and not lam.requires_grad


def polynomial(a: Tensor, lam: Tensor) -> Tensor:
    r"""Return $q(\lambda) = 1 + \sum_t a_t \lambda^t$ by Horner's rule."""
    q = torch.zeros_like(lam)
    for t in range(a.shape[-1] - 1, -1, -1):
        q = (q + a[..., t, None]) * lam
    return 1 + q


def unit(v: Tensor) -> Tensor:
    """Return vectors ``(*batch, n)`` over their norms."""
    return v / v.norm(dim=-1, keepdim=True)


def tensor_cg(q: Tensor, b: Tensor, steps: int) -> Tensor:
    """Return what ``steps`` conjugate-gradient steps from 0 make of diag(q) x = b, ``(*batch, n)``; q positive."""
    x, r, p = torch.zeros_like(b), b, b
    rho = torch.linalg.vecdot(r, r)[..., None]
    for _ in range(steps):
        qp = q * p
        c = torch.linalg.vecdot(p, qp)[..., None]
        s = rho / torch.where(c > 0, c, 1.0)  # 0 / 1 once the residual is exactly zero
        x = torch.addcmul(x, s, p)
        r = torch.addcmul(r, s, qp, value=-1)
        following = torch.linalg.vecdot(r, r)[..., None]
        p = torch.addcmul(r, following / torch.where(rho > 0, rho, 1.0), p)
        rho = following
    return x


def items(t: Tensor) -> Any:
    """Return the last dimension's vectors as rows of a contiguous array."""
    return np.ascontiguousarray(t.detach().reshape(-1, t.shape[-1]).numpy())


class _DiagonalProbe(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, lam: Tensor, z: Tensor, power: int, steps: int) -> Tensor:
        a_, lam_, z_ = items(a), items(lam), items(z)
        v = np.empty_like(z_)
        _forward(a_, lam_, z_, power, steps, v)
        ctx.saved = (a_, lam_, z_, power, steps)
        return torch.from_numpy(v).reshape(z.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, lam, z, power, steps = ctx.saved
        a_bar, z_bar = np.empty_like(a), np.empty_like(z)
        _backward(a, lam, z, power, steps, items(grad), a_bar, z_bar)
        shape = grad.shape[:-1]
        return (
            torch.from_numpy(a_bar).reshape(*shape, -1),
            None,
            torch.from_numpy(z_bar).reshape(grad.shape),
            None,
            None,
        )


def _horner(a: Any, lam: Any, q: Any) -> None:
    for e in range(len(lam)):
        value = 0.0
        for t in range(len(a) - 1, -1, -1):
            value = (value + a[t]) * lam[e]
        q[e] = 1.0 + value


def _normalize(v: Any, b: Any) -> float:
    square = 0.0
    for e in range(len(v)):
        square += v[e] * v[e]
    size = np.sqrt(square)
    for e in range(len(v)):
        b[e] = v[e] / size
    return size


def _solve(q: Any, b: Any, x: Any, P: Any, R: Any, scalars: Any) -> None:
    """Solve diag(q) x = b; directions, residuals and scalars of the steps stay, with rho = 0 where none was taken."""
    n, steps = len(q), len(P)
    rho = 0.0
    for e in range(n):
        x[e] = 0.0
        P[0, e] = b[e]
        rho += b[e] * b[e]
    for j in range(steps):
        scalars[j, 2] = 0.0
    for j in range(steps):
        c = 0.0
        for e in range(n):
            c += q[e] * P[j, e] * P[j, e]
        if not (rho > 0.0 and c > 0.0):
            break
        s = rho / c
        following = 0.0
        for e in range(n):
            r = (b[e] if j == 0 else R[j - 1, e]) - s * q[e] * P[j, e]
            x[e] += s * P[j, e]
            R[j, e] = r
            following += r * r
        beta = following / rho
        scalars[j, 0], scalars[j, 1], scalars[j, 2], scalars[j, 3] = s, c, rho, beta
        if j + 1 < steps:
            for e in range(n):
                P[j + 1, e] = R[j, e] + beta * P[j, e]
        rho = following


def _solve_adjoint(q: Any, b: Any, P: Any, R: Any, scalars: Any, x_bar: Any, q_bar: Any, b_bar: Any) -> None:
    """Add to q_bar, and set b_bar."""
    n, steps = len(q), len(P)
    p_bar, r_bar = np.zeros(n), np.zeros(n)
    rho_bar = 0.0
    for j in range(steps - 1, -1, -1):
        s, c, rho, beta = scalars[j, 0], scalars[j, 1], scalars[j, 2], scalars[j, 3]
        if rho == 0.0:  # a step that was not taken
            continue
        beta_bar = 0.0
        for e in range(n):
            beta_bar += p_bar[e] * P[j, e]
        following_bar = rho_bar + beta_bar / rho
        s_bar = 0.0
        for e in range(n):
            r_bar[e] += p_bar[e] + 2.0 * following_bar * R[j, e]
            s_bar += x_bar[e] * P[j, e] - r_bar[e] * q[e] * P[j, e]
        rho_bar = -beta_bar * beta / rho + s_bar / c
        c_bar = -s_bar * s / c
        for e in range(n):
            p = P[j, e]
            q_bar[e] += c_bar * p * p - s * r_bar[e] * p
            p_bar[e] = beta * p_bar[e] + s * x_bar[e] + q[e] * (2.0 * c_bar * p - s * r_bar[e])
    for e in range(n):
        b_bar[e] = r_bar[e] + p_bar[e] + 2.0 * rho_bar * b[e]


def _forward(a: Any, lam: Any, z: Any, power: int, steps: int, out: Any) -> None:
    n = lam.shape[1]
    q, b, x = np.empty(n), np.empty(n), np.empty(n)
    P, R, scalars = np.empty((steps, n)), np.empty((steps, n)), np.empty((steps, 4))
    for i in range(len(lam)):
        _horner(a[i], lam[i], q)
        _normalize(z[i], b)
        for _ in range(power):
            _solve(q, b, x, P, R, scalars)
            _normalize(x, b)
        out[i] = b


def _backward(a: Any, lam: Any, z: Any, power: int, steps: int, out_bar: Any, a_bar: Any, z_bar: Any) -> None:
    n = lam.shape[1]
    q, x = np.empty(n), np.empty(n)
    B, sizes = np.empty((power + 1, n)), np.empty(power + 1)
    P, R, scalars = np.empty((power, steps, n)), np.empty((power, steps, n)), np.empty((power, steps, 4))
    q_bar, x_bar, b_bar = np.empty(n), np.empty(n), np.empty(n)
    for i in range(len(lam)):
        _horner(a[i], lam[i], q)
        sizes[0] = _normalize(z[i], B[0])
        for g in range(power):
            _solve(q, B[g], x, P[g], R[g], scalars[g])
            sizes[g + 1] = _normalize(x, B[g + 1])
        q_bar[:] = 0.0
        b_bar[:] = out_bar[i]
        for g in range(power, -1, -1):  # the adjoint of the normalisation, and of the solve before it
            along = 0.0
            for e in range(n):
                along += B[g, e] * b_bar[e]
            for e in range(n):
                x_bar[e] = (b_bar[e] - along * B[g, e]) / sizes[g]
            if g > 0:
                _solve_adjoint(q, B[g - 1], P[g - 1], R[g - 1], scalars[g - 1], x_bar, q_bar, b_bar)
        z_bar[i] = x_bar
        for t in range(a.shape[1]):
            total = 0.0
            for e in range(n):
                q_bar[e] *= lam[i, e]
                total += q_bar[e]
            a_bar[i, t] = total


if njit is not None:
    compiled = njit(cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")
    _horner, _normalize, _solve, _solve_adjoint, _forward, _backward = map(
        compiled, (_horner, _normalize, _solve, _solve_adjoint, _forward, _backward)
    )
