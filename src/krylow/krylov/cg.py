"""Conjugate gradients: batched, preconditioned, differentiable, or with given step sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]


def conjugate_gradients(
    A: Product,
    b: Tensor,
    *,
    steps: int,
    tol: float = 0.0,
    energy: float = 0.0,
    geometric: bool = False,
    preconditioner: Product | None = None,
    total: Product = lambda Y: Y.sum(-2, keepdim=True),
) -> Tensor:
    r"""Solve $A x = b$ for a symmetric positive definite A, every column of every batch item by its own iteration.

    Costs one product a step. A column whose residual is zero to rounding, or along which A has no positive curvature,
    is frozen: it stays as it is, without NaN. With ``tol=0`` exactly ``steps`` steps are taken and nothing is read back
    to the host, so that the truncated iteration can be differentiated as what it is; with ``tol > 0`` it stops when
    every column's relative residual is below it, with ``energy > 0`` when the relative error of all columns together in
    the norm $(x^\top A x)^{1/2}$ was below that a fifth of the steps ago: its squared decrease in a step is known to be
    the step size times $r^\top M^{-1} r$ (Hestenes and Stiefel, 1952).

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
    energy
        Relative error in the energy norm to stop at.
    geometric
        Whether the preconditioner is so good that the decreases fall like a geometric series. What is to come is then
        known from the last three, and the error that of now.
    preconditioner
        An approximation of $A^{-1}$, symmetric positive definite, on blocks.
    total
        The sums ``(*batch, 1, s)`` of a block's columns, over all ranks where these share the rows.
    """
    squared = total(b.detach().square())  # (*batch, 1, s)
    floor = torch.finfo(b.dtype).eps ** 2 * squared
    x, r, p = torch.zeros_like(b), b.clone(), torch.zeros_like(b)
    rz, live = torch.ones_like(squared), torch.ones_like(squared, dtype=torch.bool)
    in_place, fallen, size = not torch.is_grad_enabled(), [0.0], squared  # decrease of the squared error so far
    for count in range(1, steps + 1):
        z = r if preconditioner is None else preconditioner(r)
        before = torch.where(live, rz, torch.ones_like(rz))
        rz = torch.where(live, total(r * z), rz)
        p = torch.addcmul(z, torch.where(live, rz / before, torch.ones_like(rz)), p, out=p if in_place else None)
        Ap = A(p)
        curvature = total(p * Ap)
        live = live & (size > floor) & (curvature > 0)
        step = torch.where(live, rz / torch.where(live, curvature, torch.ones_like(rz)), torch.zeros_like(rz))
        x = torch.addcmul(x, step, p, out=x if in_place else None)
        r = torch.addcmul(r, step, Ap, value=-1, out=r if in_place else None)
        size = total(r.detach().square())
        if energy > 0:
            fallen.append(fallen[-1] + float((step * rz).sum()))
            since = count - max(2, count // 5)
            rest = _to_come(fallen) if geometric else fallen[-1] - fallen[since] if since >= 0 else math.inf
            if rest <= energy**2 * fallen[-1]:
                break
        if tol > 0 and bool((size <= tol**2 * squared).all()):
            break
    return x


def _to_come(sums: list[float]) -> float:
    """Return the rest of a series of positive terms, by the slower of its last two ratios; infinite before the third.

    ``sums`` are its partial sums, 0 first.
    """
    if len(sums) < 4:
        return math.inf
    first, second, third = (b - a for a, b in pairwise(sums[-4:]))
    if third <= 0:
        return 0.0
    ratio = max(third / max(second, third), second / max(first, second))
    return third * ratio / (1 - ratio) if ratio < 1 else math.inf


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
