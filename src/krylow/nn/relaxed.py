r"""The relaxed recurrence on small matrices, with a backward pass of its own.

For a small matrix A and a unit vector $c_1$, in rows:

$$w_j = A c_j, \quad \alpha_j = c_j^\top w_j, \quad
r_j = w_j - \gamma^{(1)}_j \alpha_j c_j - \gamma^{(2)}_j \beta_{j-1} c_{j-1}, \quad
\beta_j = \|r_j\|, \quad c_{j+1} = r_j / \beta_j .$$

What :func:`krylow.refine.lanczos.lanczos` computes, without a tape: on matrices this small the time goes into the
number of operations, and a tape has several times as many. On a processor with numba there is one operation in all
(:mod:`krylow.nn.relaxed_kernels`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from krylow.nn import relaxed_kernels
from krylow.operators.compiled import compiled
from krylow.refine.lanczos import BREAKDOWN_EPS, NOISE_EPS, Krylov


def relaxed_recurrence(
    A: Tensor, start: Tensor, gamma1: Tensor, gamma2: Tensor, live: Tensor, *, longest: Tensor | None = None
) -> Krylov:
    """Return m relaxed steps on ``A``.

    Parameters
    ----------
    A
        ``(batch, s, s)``, symmetric.
    start
        ``(batch, s, 1)`` of norm 1, or 0 where nothing lives.
    gamma1, gamma2
        ``(m,)``.
    live
        ``(batch, s)`` booleans, False for rows and columns of A that only fill it up. The relaxed recurrence does not
        end by itself where the space closes: it is ended after as many steps as rows live.
    longest
        ``(batch,)``: end it after this many steps instead, or where a residual is no more than what rounding has left.
    """
    sizes = live.sum(-1) if longest is None else torch.where(live.any(-1), longest, 0)
    limits = _limits(A, noise=longest is not None)
    forward = compiled(relaxed_kernels.forward) if A.device.type == "cpu" else None
    recurrence = _Relaxed if forward is None else _CompiledRelaxed
    C, alpha, beta, steps = recurrence.apply(A, start.mT, gamma1, gamma2, sizes, limits)
    return Krylov(C.mT, alpha, beta, torch.zeros_like(C[:, :1]).mT, steps, gamma1, gamma2)


class _Relaxed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, A: Tensor, start: Tensor, gamma1: Tensor, gamma2: Tensor, sizes: Tensor, limits: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        batch, s, _ = A.shape
        m = gamma1.shape[0]
        tiny, huge, noise = limits[..., None, None].unbind(1)
        C = A.new_zeros(batch, m, s)
        alpha, beta = A.new_zeros(batch, m, 1), A.new_zeros(batch, m, 1)
        alive = (sizes > 0)[:, None, None]
        c, c_previous, b = start, torch.zeros_like(start), A.new_zeros(batch, 1, 1)
        smallest = torch.full_like(b, torch.inf)
        lives = [alive]
        for j in range(m):
            C[:, j : j + 1] = c
            w = torch.bmm(c, A)
            a = _dot(c, w)
            alpha[:, j : j + 1] = a
            if j + 1 == m:
                break
            r = w - gamma1[j] * a * c - gamma2[j] * b * c_previous
            b = torch.linalg.vector_norm(r, dim=-1, keepdim=True)
            alive = alive & (b > tiny) & (b > noise / smallest) & (b < huge) & (j + 1 < sizes[:, None, None])
            smallest = torch.where(alive, torch.minimum(smallest, b), smallest)
            b = torch.where(alive, b, 0)
            c_previous, c = c, torch.where(alive, r / b, 0)
            beta[:, j : j + 1] = b
            lives.append(alive)
        alpha, beta, steps = alpha[..., 0], beta[..., 0], torch.cat(lives, 1)[..., 0].sum(-1)
        ctx.save_for_backward(A, gamma1, gamma2, C, alpha, beta)
        ctx.mark_non_differentiable(steps)
        return C, alpha, beta, steps

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_C: Tensor, grad_alpha: Tensor, grad_beta: Tensor, _: Tensor
    ) -> tuple[Tensor | None, ...]:
        A, gamma1, gamma2, C, alpha, beta = ctx.saved_tensors
        W = torch.bmm(C, A)  # every w_j
        alpha, beta = alpha[..., None], beta[..., None]
        inverse = torch.where(beta > 0, 1 / beta, 0)  # a dead step passes nothing on
        C_previous, beta_previous = (torch.nn.functional.pad(t[:, :-1], (0, 0, 1, 0)) for t in (C, beta))
        scaled_beta = gamma2[:, None] * beta_previous
        r_bars, w_bars = torch.zeros_like(C), torch.zeros_like(C)
        c_next = c_bar = carried = torch.zeros_like(C[:, :1])  # beyond the last step there is nothing
        b_bar = torch.zeros_like(beta[:, :1])
        for j in range(C.shape[1] - 1, -1, -1):
            here = slice(j, j + 1)
            c = C[:, here]
            r_bar = (c_bar - _dot(c_next, c_bar) * c_next) * inverse[:, here] + b_bar * c_next
            a_bar = grad_alpha[:, here, None] - gamma1[j] * _dot(c, r_bar)
            w_bar = r_bar + a_bar * c
            c_bar = grad_C[:, here] + carried + a_bar * W[:, here] - gamma1[j] * alpha[:, here] * r_bar
            c_bar = torch.baddbmm(c_bar, w_bar, A)
            carried = -scaled_beta[:, here] * r_bar
            if j:
                b_bar = grad_beta[:, j - 1 : j, None] - gamma2[j] * _dot(C_previous[:, here], r_bar)
            c_next = c
            r_bars[:, here], w_bars[:, here] = r_bar, w_bar
        grad_gamma1 = -(alpha * _dot(C, r_bars)).sum((0, 2))
        grad_gamma2 = -(beta_previous * _dot(C_previous, r_bars)).sum((0, 2))
        grad_A = torch.bmm(w_bars.mT, C)
        return (grad_A + grad_A.mT) / 2, c_bar, grad_gamma1, grad_gamma2, None, None


class _CompiledRelaxed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, A: Tensor, start: Tensor, gamma1: Tensor, gamma2: Tensor, sizes: Tensor, limits: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        batch, s, _ = A.shape
        m = gamma1.shape[0]
        given = [t.detach().contiguous() for t in (A, start[:, 0], gamma1, gamma2, sizes)]
        C, alpha, beta = A.new_zeros(batch, m, s), A.new_zeros(batch, m), A.new_zeros(batch, m)
        steps = torch.empty_like(sizes)
        _call(relaxed_kernels.forward, *given, limits, C, alpha, beta, steps)
        ctx.save_for_backward(given[0], given[2], given[3], C, alpha, beta, steps)
        ctx.mark_non_differentiable(steps)
        return C, alpha, beta, steps

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_C: Tensor, grad_alpha: Tensor, grad_beta: Tensor, _: Tensor
    ) -> tuple[Tensor | None, ...]:
        A, gamma1, gamma2, C = ctx.saved_tensors[:4]
        work = grad_C.clone(memory_format=torch.contiguous_format)
        out = [torch.zeros_like(t) for t in (A, C[:, 0], gamma1, gamma2)]
        given = (*ctx.saved_tensors, work, grad_alpha.contiguous(), grad_beta.contiguous())
        _call(relaxed_kernels.backward, *given, *out)
        return out[0], out[1][:, None], out[2], out[3], None, None


def _call(kernel: Callable[..., None], *tensors: Tensor) -> None:
    run = compiled(kernel)
    assert run is not None
    run(*(t.detach().numpy() for t in tensors))


def _limits(A: Tensor, *, noise: bool) -> Tensor:
    """Return the residuals between which the recurrence goes on, as in Lanczos's, ``(batch, 3)``.

    The least, the largest, and what a residual times the smallest one before must exceed: 0 without ``noise``.
    """
    bound = A.detach().abs().sum(-1).amax(-1)
    eps = torch.finfo(A.dtype).eps
    rounding = NOISE_EPS * eps * bound.square() if noise else torch.zeros_like(bound)
    return torch.stack([BREAKDOWN_EPS * A.shape[-1] ** 0.5 * eps * bound, bound / eps, rounding], -1)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the products of rows, ``(batch, rows, 1)``."""
    return (a * b).sum(-1, keepdim=True)
