"""Conjugate gradients: batched, preconditioned, differentiable, or with given step sizes."""

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
        ``(*batch, n, s)``.
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
