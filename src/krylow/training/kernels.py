r"""Truncated conjugate gradients on diagonal systems, forward and backward, one compiled loop an item.

A step of the iteration on $\mathrm{diag}(q) x = b$, and its adjoint (bars denote derivatives of the loss, $\bar x$ is
the same at every step since $x' = x + s p$):

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

A vector of a graph with some hundred nodes fits the first-level cache, which operations on whole tensors do not use:
the loop is several times faster than they are. Without numba the tensor form is used, to the same effect.
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


def diagonal_cg(q: Tensor, b: Tensor, steps: int) -> Tensor:
    """Return what ``steps`` conjugate-gradient steps from 0 make of diag(q) x = b, ``(*batch, n)``, differentiable.

    The same iteration as :func:`krylow.linalg.cg.conjugate_gradients`, to rounding; q must be positive.
    """
    if njit is None or q.dtype != torch.float64 or q.device.type != "cpu":
        return tensor_cg(q, b, steps)
    shape = torch.broadcast_shapes(q.shape, b.shape)
    return _DiagonalCG.apply(q.expand(shape), b.expand(shape), steps)


def tensor_cg(q: Tensor, b: Tensor, steps: int) -> Tensor:
    """Return the same from operations on whole tensors."""
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


class _DiagonalCG(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, b: Tensor, steps: int) -> Tensor:
        n = q.shape[-1]
        flat_q, flat_b = (np.ascontiguousarray(t.detach().reshape(-1, n).numpy()) for t in (q, b))
        items = len(flat_q)
        x = np.empty((items, n))
        P, R = np.empty((items, steps, n)), np.empty((items, steps, n))
        scalars = np.zeros((items, steps, 4))  # s, c, rho and beta of each step; zero where it was not taken
        _forward(flat_q, flat_b, x, P, R, scalars)
        ctx.tape = (flat_q, flat_b, P, R, scalars)
        return torch.from_numpy(x).reshape(q.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        q, b, P, R, scalars = ctx.tape
        x_bar = np.ascontiguousarray(grad.reshape(q.shape).numpy())
        q_bar, b_bar = np.empty_like(q), np.empty_like(b)
        _backward(q, b, P, R, scalars, x_bar, q_bar, b_bar)
        return torch.from_numpy(q_bar).reshape(grad.shape), torch.from_numpy(b_bar).reshape(grad.shape), None


def _forward(q: Any, b: Any, x: Any, P: Any, R: Any, scalars: Any) -> None:
    items, steps, n = P.shape
    for i in range(items):
        rho = 0.0
        for a in range(n):
            x[i, a] = 0.0
            P[i, 0, a] = b[i, a]
            rho += b[i, a] * b[i, a]
        for j in range(steps):
            c = 0.0
            for a in range(n):
                c += q[i, a] * P[i, j, a] * P[i, j, a]
            if not (rho > 0.0 and c > 0.0):
                break
            s = rho / c
            following = 0.0
            for a in range(n):
                r = (b[i, a] if j == 0 else R[i, j - 1, a]) - s * q[i, a] * P[i, j, a]
                x[i, a] += s * P[i, j, a]
                R[i, j, a] = r
                following += r * r
            beta = following / rho
            scalars[i, j, 0], scalars[i, j, 1], scalars[i, j, 2], scalars[i, j, 3] = s, c, rho, beta
            if j + 1 < steps:
                for a in range(n):
                    P[i, j + 1, a] = R[i, j, a] + beta * P[i, j, a]
            rho = following


def _backward(q: Any, b: Any, P: Any, R: Any, scalars: Any, x_bar: Any, q_bar: Any, b_bar: Any) -> None:
    items, steps, n = P.shape
    for i in range(items):
        p_bar, r_bar = np.zeros(n), np.zeros(n)
        rho_bar = 0.0
        for a in range(n):
            q_bar[i, a] = 0.0
        for j in range(steps - 1, -1, -1):
            s, c, rho, beta = scalars[i, j, 0], scalars[i, j, 1], scalars[i, j, 2], scalars[i, j, 3]
            if rho == 0.0:  # a step that was not taken
                continue
            beta_bar = 0.0
            for a in range(n):
                beta_bar += p_bar[a] * P[i, j, a]
            following_bar = rho_bar + beta_bar / rho
            s_bar = 0.0
            for a in range(n):
                r_bar[a] += p_bar[a] + 2.0 * following_bar * R[i, j, a]
                s_bar += x_bar[i, a] * P[i, j, a] - r_bar[a] * q[i, a] * P[i, j, a]
            rho_bar = -beta_bar * beta / rho + s_bar / c
            c_bar = -s_bar * s / c
            for a in range(n):
                p = P[i, j, a]
                q_bar[i, a] += c_bar * p * p - s * r_bar[a] * p
                p_bar[a] = beta * p_bar[a] + s * x_bar[i, a] + q[i, a] * (2.0 * c_bar * p - s * r_bar[a])
        for a in range(n):
            b_bar[i, a] = r_bar[a] + p_bar[a] + 2.0 * rho_bar * b[i, a]


if njit is not None:
    compiled = njit(cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")
    _forward, _backward = compiled(_forward), compiled(_backward)
