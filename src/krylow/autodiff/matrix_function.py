r"""Functions of a symmetric matrix, times a vector, with a gradient that does not see eigenvectors.

For $y = f(S) b$ the derivative with respect to S has the divided differences of f as factors,
$(f(\theta_i) - f(\theta_j)) / (\theta_i - \theta_j)$, which stay finite where eigenvalues meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from krylow import _checks
from krylow.linalg.eigh import eigh


def apply_function(S: Tensor, f: Callable[[Tensor], Tensor], b: Tensor) -> Tensor:
    r"""Return $f(S) \, b$, differentiable in S, b and whatever f depends on.

    Parameters
    ----------
    S
        ``(*batch, m, m)`` symmetric.
    f
        An elementwise function of the eigenvalues ``(*batch, m)``.
    b
        ``(*batch, m, c)``.
    """
    return apply_bank(S, lambda theta: f(theta)[..., None], b)[..., 0]


def apply_bank(S: Tensor, f: Callable[[Tensor], Tensor], b: Tensor) -> Tensor:
    r"""Return $f_i(S) \, b$ of several functions, ``(*batch, m, c, filters)``; f returns ``(*batch, m, filters)``."""
    theta, Y = eigh(S)
    slope = slopes(f, theta) if S.requires_grad and torch.is_grad_enabled() else torch.zeros_like(theta)[..., None]
    y: Tensor = _Apply.apply(S, f(theta).to(S.dtype), b, slope, theta, Y)
    return y


def slopes(f: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    """Return the derivatives of elementwise functions, ``(*batch, m, filters)``: those of torch, else differences."""
    if _checks.traced():  # where no backward pass may be recorded
        return torch.func.jvp(f, (theta,), (torch.ones_like(theta),))[1].detach().nan_to_num(0.0, 0.0, 0.0)
    with torch.enable_grad():
        point = theta.detach().clone().requires_grad_()
        values = f(point)
        if not values.requires_grad:
            with torch.no_grad():
                step = torch.finfo(theta.dtype).eps ** (1 / 3) * (1 + theta.abs().amax(-1, keepdim=True))
                return (f(theta + step) - f(theta - step)) / (2 * step[..., None])
        found = []
        for i in range(values.shape[-1]):
            (slope,) = torch.autograd.grad(values[..., i].sum(), point, retain_graph=True, allow_unused=True)
            found.append(torch.zeros_like(point) if slope is None else slope)
    return torch.stack(found, dim=-1).nan_to_num(0.0, 0.0, 0.0)


def divided_differences(
    at: tuple[Tensor, Tensor], values: tuple[Tensor, Tensor], slope: tuple[Tensor, Tensor]
) -> Tensor:
    r"""Return $(f(\mu_i) - f(\theta_j)) / (\mu_i - \theta_j)$, ``(*batch, p, q)``, the mean slope where they meet.

    Each pair is about $\mu$ ``(*batch, p)`` and $\theta$ ``(*batch, q)``.
    """
    mu, theta = at
    gap = mu[..., :, None] - theta[..., None, :]
    size = torch.maximum(mu.abs().amax(-1), theta.abs().amax(-1))[..., None, None]
    apart = gap.abs() > torch.finfo(theta.dtype).eps ** 0.5 * size
    difference = (values[0][..., :, None] - values[1][..., None, :]) / torch.where(apart, gap, torch.ones_like(gap))
    return torch.where(apart, difference, (slope[0][..., :, None] + slope[1][..., None, :]) / 2)


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, S: Tensor, values: Tensor, b: Tensor, slope: Tensor, theta: Tensor, Y: Tensor) -> Tensor:
        c = Y.mT @ b  # (*batch, m, c)
        ctx.shape = b.shape
        ctx.save_for_backward(values, slope, theta, Y, c)
        inner = values[..., :, None, :] * c[..., None]  # (*batch, m, c, filters)
        return (Y @ inner.flatten(-2)).unflatten(-1, inner.shape[-2:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, slope, theta, Y, c = ctx.saved_tensors
        g = (Y.mT @ grad.flatten(-2)).unflatten(-1, grad.shape[-2:])  # (*batch, m, c, filters)
        grad_S = None
        if ctx.needs_input_grad[0]:
            inner = torch.zeros_like(Y)
            for i in range(grad.shape[-1]):
                f, d = values[..., i], slope[..., i]
                inner = inner + divided_differences((theta, theta), (f, f), (d, d)) * (g[..., i] @ c.mT)
            grad_S = (Y @ ((inner + inner.mT) / 2) @ Y.mT).sum_to_size(Y.shape)
        grad_b = Y @ (values[..., :, None, :] * g).sum(-1)
        grad_values = (g * c[..., None]).sum(-2).sum_to_size(values.shape)
        return grad_S, grad_values, grad_b.sum_to_size(ctx.shape), None, None, None
