r"""Conjugate gradients: batched, preconditioned, and for many shifts from one Krylov sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Solution:
    """What a solver leaves behind.

    Attributes
    ----------
    x
        ``(*batch, n, s)``; for shifts ``(*batch, n, shifts)``.
    residuals
        ``(*batch, s)`` norms of b - A x relative to b, as the recurrence knows them.
    converged
        ``(*batch, s)`` booleans.
    steps
        Steps taken: products with A a column.
    """

    x: Tensor
    residuals: Tensor
    converged: Tensor
    steps: int


def conjugate_gradients(
    A: Product,
    b: Tensor,
    *,
    steps: int,
    tol: float = 0.0,
    preconditioner: Product | None = None,
) -> Solution:
    r"""Solve $A x = b$ for a symmetric positive definite A, every column of every batch item by its own iteration.

    Costs one product a step. A column whose residual is zero to rounding is frozen: it stays as it is, without NaN.
    With ``tol=0`` exactly ``steps`` steps are taken and nothing is read back to the host, so that the truncated
    iteration can be differentiated as what it is; with ``tol > 0`` it stops when every column's relative residual is
    below it.

    Parameters
    ----------
    A
        The product, on blocks ``(*batch, n, s)``.
    b
        ``(*batch, n, s)`` right-hand sides.
    steps
        Most steps.
    tol
        Relative residual to stop at.
    preconditioner
        An approximation of $A^{-1}$, symmetric positive definite, on blocks.
    """
    M = preconditioner or (lambda r: r)
    size = torch.linalg.vector_norm(b, dim=-2, keepdim=True)  # (*batch, 1, s)
    floor = (torch.finfo(b.dtype).eps * size.detach()).square()
    x, r = torch.zeros_like(b), b
    z = M(r)
    p = z
    rz = (r * z).sum(-2, keepdim=True)
    taken = 0
    for _ in range(steps):
        Ap = A(p)
        curvature = (p * Ap).sum(-2, keepdim=True)
        live = (r.detach().square().sum(-2, keepdim=True) > floor) & (curvature > 0)
        one = torch.ones_like(curvature)
        step = torch.where(live, rz / torch.where(live, curvature, one), torch.zeros_like(rz))
        x, r = x + step * p, r - step * Ap
        z = M(r)
        rz_next = (r * z).sum(-2, keepdim=True)
        p = torch.where(live, z + rz_next / torch.where(live, rz, one) * p, p)
        rz = torch.where(live, rz_next, rz)
        taken += 1
        if tol > 0 and bool((torch.linalg.vector_norm(r, dim=-2, keepdim=True) <= tol * size).all()):
            break
    relative = torch.linalg.vector_norm(r, dim=-2, keepdim=True) / torch.where(size > 0, size, torch.ones_like(size))
    relative = relative[..., 0, :].detach()
    return Solution(x, relative, relative <= max(tol, torch.finfo(b.dtype).eps * 4), taken)


def conjugate_gradients_with(A: Product, b: Tensor, step: Tensor, momentum: Tensor) -> Tensor:
    r"""Run the recurrence of conjugate gradients with given numbers instead of those that the vectors determine.

    From $x = 0, r = d = b$, for t = 1, ..., s: $x \leftarrow x + \sigma_t d$, $r \leftarrow r - \sigma_t A d$,
    $d \leftarrow r + \mu_t d$. It is a polynomial of A times b, linear in b; with the numbers of
    :func:`conjugate_gradients` for this A and b it is what that returns. Costs s - 1 products: the last residual is
    not needed, and neither is the last $\mu$.

    Parameters
    ----------
    A
        The product, on blocks ``(*batch, n, s)``.
    b
        ``(*batch, n, s)``.
    step, momentum
        ``(*p, s)`` the $\sigma_t$ and $\mu_t$, broadcastable over the batch.
    """
    x, r, d = torch.zeros_like(b), b, b
    steps = step.shape[-1]
    for t in range(steps):
        s = step[..., t, None, None]
        x = x + s * d
        if t + 1 < steps:
            r = r - s * A(d)
            d = r + momentum[..., t, None, None] * d
    return x


def conjugate_gradients_(
    A: Product, b: Tensor, *, steps: int, tol: float, preconditioner: Product | None = None
) -> Tensor:
    """Return what :func:`conjugate_gradients` does of one block ``(n, s)``, in less room and without a gradient.

    In place of b is what is left of it.
    """
    size = torch.linalg.vector_norm(b, dim=0)
    floor, enough = ((part * size).square() for part in (torch.finfo(b.dtype).eps, tol))
    x, r, p = torch.zeros_like(b), b, torch.zeros_like(b)
    left, rz, live = size.square(), torch.ones_like(size), torch.ones_like(size, dtype=torch.bool)
    for _ in range(steps):
        z = r if preconditioner is None else preconditioner(r)
        rz, before = torch.where(live, (r * z).sum(0), rz), rz
        p.mul_(torch.where(live, rz / before, torch.ones_like(rz))).addcmul_(z, live.to(z.dtype))
        del z  # before the product takes as much room
        Ap = A(p)
        curvature = (p * Ap).sum(0)
        live = (left > floor) & (curvature > 0)
        step = torch.where(live, rz / torch.where(live, curvature, torch.ones_like(rz)), torch.zeros_like(rz))
        x.addcmul_(p, step)
        r.addcmul_(Ap, step, value=-1)
        left = (r * r).sum(0)
        if bool((left <= enough).all()):
            break
    return x


def multishift_cg(A: Product, b: Tensor, shifts: Tensor, *, steps: int, tol: float = 1e-10) -> Solution:
    r"""Solve $(A + \sigma_i I) x_i = b$ for many shifts $\sigma_i \ge 0$ with the products of one.

    The Krylov space does not depend on the shift, and the shifted residuals are multiples of the unshifted one:
    $r^\sigma_j = \zeta^\sigma_j r_j$ with a scalar recurrence for $\zeta$ (Frommer, 2003). Costs one product a step
    and one vector pair a shift.

    Parameters
    ----------
    A
        The product, symmetric positive semidefinite, on blocks ``(*batch, n, 1)``.
    b
        ``(*batch, n, 1)``.
    shifts
        ``(s,)`` or ``(*batch, s)``, non-negative.
    steps, tol
        Most steps, and the relative residual at which all shifts stop.
    """
    shifts = shifts.to(b.dtype)[..., None, :]  # (*batch, 1, s)
    # The recurrence runs on the smallest shift, whose system is definite wherever that of any shift is.
    base = shifts.amin(-1, keepdim=True)
    shifts = shifts - base
    size = torch.linalg.vector_norm(b, dim=-2, keepdim=True)
    width = (*b.shape[:-1], shifts.shape[-1])
    x, p_shift = b.new_zeros(width), b.expand(width).clone()
    zeta = zeta_old = torch.ones((*b.shape[:-2], 1, shifts.shape[-1]), dtype=b.dtype, device=b.device)
    r, p = b, b
    rr = (r * r).sum(-2, keepdim=True)
    alpha_old, beta_old = torch.ones_like(rr), torch.zeros_like(rr)
    floor = torch.finfo(b.dtype).eps * size
    moving = (size > 0).expand_as(zeta)  # a shift that is solved to rounding rests: its zeta goes on to underflow
    error = rr.sqrt() * zeta  # (*batch, 1, s) residual norms
    taken = 0
    for _ in range(steps):
        Ap = A(p) + base * p
        curvature = (p * Ap).sum(-2, keepdim=True)
        live = moving & (curvature > 0)
        any_live = live.any(-1, keepdim=True)
        one = torch.ones_like(rr)
        alpha = torch.where(any_live, rr / torch.where(any_live, curvature, one), torch.zeros_like(rr))
        denominator = alpha * beta_old * (zeta_old - zeta) + zeta_old * alpha_old * (1 + shifts * alpha)
        zeta_next = torch.where(live, zeta * zeta_old * alpha_old / torch.where(live, denominator, one), zeta)
        ratio = zeta_next / zeta
        x = x + torch.where(live, alpha * ratio, torch.zeros_like(ratio)) * p_shift
        r = r - alpha * Ap
        rr_next = (r * r).sum(-2, keepdim=True)
        beta = torch.where(any_live, rr_next / torch.where(any_live, rr, one), torch.zeros_like(rr))
        p = torch.where(any_live, r + beta * p, p)
        p_shift = torch.where(live, zeta_next * r + beta * ratio.square() * p_shift, p_shift)
        zeta_old, zeta = torch.where(live, zeta, zeta_old), zeta_next
        alpha_old, beta_old = torch.where(any_live, alpha, alpha_old), torch.where(any_live, beta, beta_old)
        rr = torch.where(any_live, rr_next, rr)
        error = torch.where(live, rr.sqrt() * zeta.abs(), error)
        moving = moving & (error > floor)
        taken += 1
        if bool((error <= tol * size).all()):
            break
    relative = (error / torch.where(size > 0, size, torch.ones_like(size)))[..., 0, :]
    return Solution(x, relative, relative <= max(tol, torch.finfo(b.dtype).eps * 4), taken)
