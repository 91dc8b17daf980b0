r"""The relaxed recurrence on an orthonormal Krylov basis.

The recurrence commutes with an orthonormal change of basis. Let $L Q = Q H + f e_m^\top$ be m classical steps with full
reorthogonalisation. Relaxed vectors are then $V = Q C$, where the columns of C are the recurrence's on the small matrix
H from $e_1$. H is tridiagonal, so C is upper triangular: with every gamma equal to 1 it is I, without rounding.

Both bases span the same space, and the relaxed Ritz pairs are those of $H + g e_m^\top$,

$$g = -\frac{\rho}{C_{mm}}, \qquad \rho = H c_m - \gamma^{(1)}_m \alpha_m c_m - \gamma^{(2)}_m \beta_{m-1} c_{m-1} .$$

So the gammas change the last column of H alone. A relaxed Ritz vector $x = Q y$, $\|y\| = 1$, has the residual
$\|L x - \theta x\| \le (\|g\| + \|f\|) |y_m|$, the classical one $\|f\| |y_m|$: with a bounded g the relaxed vectors
converge as the classical ones do. But once a Ritz pair has converged, a gamma other than 1 acts as rounding does in
Lanczos without reorthogonalisation: $C_{mm}$ falls, and $\|g\|$ grows, exponentially in m. This is a property of the
recurrence in exact arithmetic, which no orthogonalisation of its vectors would cure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from krylow import _checks, _native
from krylow.krylov.lanczos import (
    Krylov,
    breakdown_threshold,
    closed_below,
    lanczos,
    lost_below,
    recurrence,
    tridiagonal,
)
from krylow.operators import DenseOperator, Operator


def relaxed_lanczos(L: Operator, v: Tensor, m: int, gamma1: Tensor, gamma2: Tensor) -> Krylov:
    r"""Run m relaxed steps from ``v``, stably at every m: on an orthonormal basis, where its correction is bounded.

    A graph on which $\|g\|$ exceeds a bound of $\|H\|$, or whose Krylov space is closed, so that classical Ritz pairs
    are exact, takes classical steps: the gammas returned are 1 there. Elsewhere it is
    :func:`krylow.krylov.lanczos.lanczos` with these gammas, in exact arithmetic. Costs m products.

    Parameters
    ----------
    L
        The operator.
    v
        ``(*batch, n, 1)`` start; need not be normalised.
    m
        Number of steps.
    gamma1, gamma2
        ``(m,)``.
    """
    classical = lanczos(L, v, m, reorthogonalize=True)
    off = classical.beta[..., :-1]
    H = tridiagonal(classical.alpha, off, off)  # (*batch, m, m)
    shape = H.shape[:-2]
    identity = torch.eye(m, dtype=H.dtype, device=H.device)
    live = torch.arange(m, device=H.device) < classical.steps[..., None]  # (*batch, m)
    start = identity[:, :1] * live[..., :1, None]
    small = relaxed_recurrence(H.reshape(-1, m, m), start.reshape(-1, m, 1), gamma1, gamma2, live.reshape(-1, m))
    C, alpha, beta = (t.reshape(*shape, *t.shape[1:]) for t in (small.V, small.alpha, small.beta))
    rho = H @ C[..., -1:] - gamma1[-1] * alpha[..., -1:, None] * C[..., -1:]
    if m > 1:
        rho = rho - gamma2[-1] * beta[..., -2, None, None] * C[..., -2:-1]
    with torch.no_grad():
        bound = H.abs().sum(-1).amax(-1)
        bounded = torch.linalg.vector_norm(rho, dim=(-2, -1)) <= bound * C[..., -1, -1]
        whole = (small.steps.reshape(shape) == m) & (classical.beta[..., -1] > breakdown_threshold(L))
        relaxed = (bounded & whole)[..., None]
    one = torch.ones_like(classical.alpha)
    C, rho = torch.where(relaxed[..., None], C, identity), torch.where(relaxed[..., None], rho, 0)
    residual = classical.V @ rho + C[..., -1:, -1:] * classical.residual
    beta = torch.cat([torch.where(relaxed, beta, classical.beta)[..., :-1], _norm(residual)], dim=-1)
    return Krylov(
        V=classical.V @ C,
        alpha=torch.where(relaxed, alpha, classical.alpha),
        beta=beta,
        residual=residual,
        steps=classical.steps,
        gamma1=torch.where(relaxed, gamma1, one),
        gamma2=torch.where(relaxed, gamma2, one),
    )


def relaxed_recurrence(
    A: Tensor, start: Tensor, gamma1: Tensor, gamma2: Tensor, live: Tensor, *, longest: Tensor | None = None
) -> Krylov:
    """Return m relaxed steps on small matrices; the last residual is left at 0.

    On the host this is one compiled loop, since the time of tensor operations on small matrices is that
    of their number; elsewhere, and where torch records its operations, it is
    :func:`krylow.krylov.lanczos.recurrence`.

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
    noise = longest is not None
    if not _on_host(A):
        return recurrence(DenseOperator(A), start, gamma1.shape[0], gamma1, gamma2, sizes=sizes, noise=noise)
    limits = _limits(A.detach(), noise=noise)
    C, alpha, beta, steps = _Compiled.apply(A, start[..., 0], gamma1, gamma2, sizes, limits)
    return Krylov(C.mT, alpha, beta, torch.zeros_like(start), steps, gamma1, gamma2)


def _on_host(A: Tensor) -> bool:
    return A.device.type == "cpu" and not _checks.traced()


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, A: Tensor, start: Tensor, gamma1: Tensor, gamma2: Tensor, sizes: Tensor, limits: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        batch, s, _ = A.shape
        m = gamma1.shape[0]
        given = [t.contiguous() for t in (A, start, gamma1, gamma2, sizes)]
        C, alpha, beta = A.new_zeros(batch, m, s), A.new_zeros(batch, m), A.new_zeros(batch, m)
        steps = torch.empty_like(sizes)
        _call(_native.relaxed_forward, *given, limits, C, alpha, beta, steps)
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
        _call(_native.relaxed_backward, *given, *out)
        return out[0], out[1], out[2], out[3], None, None


def _call(kernel: Callable[..., None], *tensors: Tensor) -> None:
    kernel(*(t.detach().numpy() for t in tensors))


def _limits(A: Tensor, *, noise: bool) -> Tensor:
    """Return the residuals between which the recurrence goes on, as in Lanczos's, ``(batch, 3)``.

    The least, the largest, and what a residual times the smallest one before must exceed: 0 without ``noise``.
    """
    bound = A.abs().sum(-1).amax(-1)
    rounding = lost_below(bound) if noise else torch.zeros_like(bound)
    return torch.stack([closed_below(bound, A.shape[-1]), bound / torch.finfo(A.dtype).eps, rounding], -1)


def _norm(residual: Tensor) -> Tensor:
    return torch.linalg.vector_norm(residual, dim=-2)  # (*batch, 1)
