r"""Functions of a small symmetric matrix, times a vector, with a gradient that does not see eigenvectors.

For $y = f(S) b$ the derivative with respect to S has the divided differences of f as factors,
$(f(\theta_i) - f(\theta_j)) / (\theta_i - \theta_j)$, which stay finite where eigenvalues meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


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
    theta, Y = torch.linalg.eigh(S.detach())
    slope = torch.zeros_like(theta)
    if S.requires_grad:
        with torch.enable_grad():
            point = theta.clone().requires_grad_()
            (slope,) = torch.autograd.grad(f(point).sum(), point)
    return _Apply.apply(S, f(theta), b, slope, theta, Y)


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, S: Tensor, values: Tensor, b: Tensor, slope: Tensor, theta: Tensor, Y: Tensor) -> Tensor:
        c = Y.mT @ b
        ctx.save_for_backward(values, slope, theta, Y, c)
        return Y @ (values[..., None] * c)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, slope, theta, Y, c = ctx.saved_tensors
        g = Y.mT @ grad  # (*batch, m, c)
        grad_S = None
        if ctx.needs_input_grad[0]:
            gap = theta[..., :, None] - theta[..., None, :]
            size = theta.abs().amax(-1)[..., None, None]
            apart = gap.abs() > torch.finfo(theta.dtype).eps ** 0.5 * size
            difference = (values[..., :, None] - values[..., None, :]) / torch.where(apart, gap, torch.ones_like(gap))
            mean_slope = (slope[..., :, None] + slope[..., None, :]) / 2
            inner = torch.where(apart, difference, mean_slope) * (g @ c.mT)
            grad_S = Y @ ((inner + inner.mT) / 2) @ Y.mT
        return grad_S, (g * c).sum(-1), Y @ (values[..., None] * g), None, None, None
