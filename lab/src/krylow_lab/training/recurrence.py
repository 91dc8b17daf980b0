r"""The relaxed Lanczos recurrence on known spectra, forward and backward, one compiled loop an item.

The step of :func:`krylow.refine.lanczos.relaxed_step` on $\Lambda$, with the same rules for breakdowns, and its adjoint
from the last step to the first:

$$\bar r_j = \bar v_{j+1} / \beta_j + \bar\beta_j v_{j+1}, \quad
\bar\beta_j \mathrel{-}= \bar v_{j+1}^\top v_{j+1} / \beta_j, \quad
\bar\alpha_j \mathrel{-}= \gamma^{(1)}_j \bar r_j^\top v_j, \quad
\bar\beta_{j-1} \mathrel{-}= \gamma^{(2)}_j \bar r_j^\top v_{j-1},$$

$$\bar v_j \mathrel{+}= \Lambda \bar r_j - \gamma^{(1)}_j \alpha_j \bar r_j + 2 \bar\alpha_j \Lambda v_j, \quad
\bar v_{j-1} \mathrel{-}= \gamma^{(2)}_j \beta_{j-1} \bar r_j .$$
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from krylow.operators import DiagonalOperator
from krylow.refine.lanczos import NOISE_EPS, Krylov, breakdown_threshold, lanczos
from krylow_lab.training import kernels

EPS = float(np.finfo(np.float64).eps)


def diagonal_lanczos(L: DiagonalOperator, v: Tensor, m: int, gamma1: Tensor, gamma2: Tensor) -> Krylov:
    """Return what :func:`krylow.refine.lanczos.lanczos` returns, to rounding; without numba it is called.

    Parameters
    ----------
    L
        The eigenvalues, ``(*batch, n)``.
    v
        ``(*batch, n, 1)`` start; the gammas may have dimensions that it has not.
    m
        Number of steps.
    gamma1, gamma2
        Relaxation factors, broadcastable to ``(*batch, m)``.
    """
    lam = L.eigenvalues
    shape = torch.broadcast_shapes(v.shape[:-2], gamma1.shape[:-1], gamma2.shape[:-1])
    v = v.expand(*shape, *v.shape[-2:])
    if not kernels.compiled_for(lam, v, gamma1, gamma2) or L.mask is not None:
        return lanczos(L, v, m, gamma1=gamma1, gamma2=gamma2)
    L.products += m
    L.passes += m
    rows = (t.expand(*shape, m) for t in (gamma1, gamma2))
    limits = torch.stack([breakdown_threshold(L), L.norm_bound()], dim=-1).expand(*shape, 2)
    V, alpha, beta, residual, steps = _DiagonalLanczos.apply(lam.expand(*shape, L.n), v[..., 0], *rows, limits, m)
    return Krylov(V.mT, alpha, beta, residual[..., None], steps, gamma1, gamma2)


class _DiagonalLanczos(torch.autograd.Function):
    """V is kept by rows, one vector after the other, as the loops read it."""

    @staticmethod
    def forward(ctx: Any, lam: Tensor, v: Tensor, gamma1: Tensor, gamma2: Tensor, limits: Tensor, m: int) -> Any:
        lam_, v_, g1, g2, limits_ = map(kernels.items, (lam, v, gamma1, gamma2, limits))
        count, n = v_.shape
        V, residual = np.empty((count, m, n)), np.empty((count, n))
        alpha, beta = np.empty((count, m)), np.empty((count, m))
        sizes, steps = np.empty(count), np.empty(count, dtype=np.int64)
        _forward(lam_, v_, g1, g2, limits_, V, alpha, beta, residual, sizes, steps)
        ctx.saved = (lam_, g1, g2, V, alpha, beta, residual, sizes, steps)
        shape = v.shape[:-1]
        out = [torch.from_numpy(t).reshape(*shape, *t.shape[1:]) for t in (V, alpha, beta, residual, steps)]
        ctx.mark_non_differentiable(out[-1])
        return tuple(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        lam, g1, g2, V, A, B, residual, sizes, steps = ctx.saved
        shape = grads[1].shape[:-1]
        V_bar = np.array(grads[0].reshape(V.shape).numpy(), order="C")  # a copy: the kernel adds to it
        A_bar, B_bar, residual_bar = map(kernels.items, grads[1:4])
        v_bar, g1_bar, g2_bar = np.zeros_like(residual_bar), np.zeros_like(g1), np.zeros_like(g2)
        _backward(
            *(lam, g1, g2, V, A, B, residual, sizes, steps),
            *(V_bar, A_bar, B_bar, residual_bar, v_bar, g1_bar, g2_bar),
        )
        out = [torch.from_numpy(t).reshape(*shape, -1) for t in (v_bar, g1_bar, g2_bar)]
        return None, *out, None, None


def _forward(
    lam: Any, start: Any, g1: Any, g2: Any, limits: Any, V: Any, A: Any, B: Any, residual: Any, sizes: Any, steps: Any
) -> None:
    count, m, n = V.shape
    for i in range(count):
        tiny, norm = limits[i, 0], limits[i, 1]
        square = 0.0
        for e in range(n):
            square += start[i, e] * start[i, e]
        size = np.sqrt(square)
        sizes[i] = size
        scale = size if size > 0.0 else 1.0
        for e in range(n):
            V[i, 0, e] = start[i, e] / scale
        alive = size > 0.0
        steps[i] = 1 if alive else 0
        smallest, beta = np.inf, 0.0
        for j in range(m):
            alpha = 0.0
            for e in range(n):
                alpha += lam[i, e] * V[i, j, e] * V[i, j, e]
            here, before = g1[i, j] * alpha, g2[i, j] * beta
            square = 0.0
            for e in range(n):
                r = (lam[i, e] - here) * V[i, j, e]
                if j > 0:
                    r -= before * V[i, j - 1, e]
                residual[i, e] = r
                square += r * r
            beta = np.sqrt(square)
            A[i, j] = alpha
            if j + 1 < m:
                noise = max(tiny, NOISE_EPS * EPS * norm * (norm / smallest))
                alive = alive and beta > noise and beta < norm / EPS and j + 1 < n
                if alive:
                    smallest = min(smallest, beta)
                    steps[i] += 1
                    for e in range(n):
                        V[i, j + 1, e] = residual[i, e] / beta
                else:
                    beta = 0.0
                    for e in range(n):
                        V[i, j + 1, e] = 0.0
            B[i, j] = beta


def _backward(
    lam: Any,
    g1: Any,
    g2: Any,
    V: Any,
    A: Any,
    B: Any,
    residual: Any,
    sizes: Any,
    steps: Any,
    V_bar: Any,
    A_bar: Any,
    B_bar: Any,
    residual_bar: Any,
    start_bar: Any,
    g1_bar: Any,
    g2_bar: Any,
) -> None:
    count, m, n = V.shape
    r_bar = np.empty(n)
    for i in range(count):
        if steps[i] == 0:
            continue
        beta_bar = 0.0  # what the step after has to say about this one's beta
        for j in range(min(m, steps[i]) - 1, -1, -1):
            beta = B[i, j]
            if j + 1 == m:
                own = B_bar[i, j] / beta if beta > 0.0 else 0.0
                for e in range(n):
                    r_bar[e] = residual_bar[i, e] + own * residual[i, e]
            elif j + 1 < steps[i]:
                along = 0.0
                for e in range(n):
                    along += V_bar[i, j + 1, e] * V[i, j + 1, e]
                own = beta_bar + B_bar[i, j] - along / beta
                for e in range(n):
                    r_bar[e] = V_bar[i, j + 1, e] / beta + own * V[i, j + 1, e]
            else:  # the recurrence broke down here: what follows is zero whatever came before
                for e in range(n):
                    r_bar[e] = 0.0
            here, before = 0.0, 0.0
            for e in range(n):
                here += r_bar[e] * V[i, j, e]
            if j > 0:
                for e in range(n):
                    before += r_bar[e] * V[i, j - 1, e]
                g2_bar[i, j] = -B[i, j - 1] * before
            g1_bar[i, j] = -A[i, j] * here
            beta_bar = -g2[i, j] * before
            alpha_bar = A_bar[i, j] - g1[i, j] * here
            shift = g1[i, j] * A[i, j]
            for e in range(n):
                V_bar[i, j, e] += (lam[i, e] - shift) * r_bar[e] + 2.0 * alpha_bar * lam[i, e] * V[i, j, e]
            if j > 0:
                factor = g2[i, j] * B[i, j - 1]
                for e in range(n):
                    V_bar[i, j - 1, e] -= factor * r_bar[e]
        along = 0.0
        for e in range(n):
            along += V_bar[i, 0, e] * V[i, 0, e]
        for e in range(n):
            start_bar[i, e] = (V_bar[i, 0, e] - along * V[i, 0, e]) / sizes[i]


if kernels.njit is not None:
    _forward, _backward = kernels.compiled(_forward), kernels.compiled(_backward)
