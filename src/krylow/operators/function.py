"""A matrix known only by a function that multiplies blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krylow._checks import InputError
from krylow.operators.base import Operator


class FunctionOperator(Operator):
    """A symmetric matrix given by ``multiply(X) -> L X`` on blocks ``(*batch, n, s)``.

    Parameters
    ----------
    multiply
        The product. It must be linear and symmetric, which cannot be checked.
    n, batch_shape, dtype, device
        The matrix's size and where it lives.
    bounds
        ``(low, high)`` bounds of the spectrum, numbers or ``(*batch,)`` tensors. None: estimated once, when first
        needed, with 16 products of a random vector.
    parameters
        The tensors that ``multiply`` depends on, for gradients.
    """

    def __init__(
        self,
        multiply: Callable[[Tensor], Tensor],
        n: int,
        *,
        batch_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        bounds: tuple[float | Tensor, float | Tensor] | None = None,
        parameters: tuple[Tensor, ...] = (),
        psd: bool = False,
    ) -> None:
        super().__init__(batch_shape, n, dtype, torch.device(device), psd=psd)
        self.multiply = multiply
        self.parameters = parameters
        self._bounds: tuple[Tensor, Tensor] | None = None
        if bounds is not None:
            low, high = (torch.as_tensor(b, dtype=dtype, device=device).expand(batch_shape) for b in bounds)
            self._bounds = (low, high)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The parameters of the function."""
        return self.parameters

    def _multiply(self, X: Tensor) -> Tensor:
        return self.multiply(X)

    def diagonal(self) -> Tensor:
        """Return the diagonal, ``(*batch, n)``, by n products that are not counted."""
        return self.to_dense().diagonal(dim1=-2, dim2=-1)

    def gershgorin(self) -> tuple[Tensor, Tensor]:
        """Return the given bounds, or estimated ones (no entries are known, so they are not Gershgorin's)."""
        if self._bounds is None:
            with torch.no_grad():
                self._bounds = self._estimate_bounds()
        return self._bounds

    def detach(self) -> FunctionOperator:
        """Return the same operator without a gradient."""
        return self._like(lambda X: self.multiply(X).detach(), self.dtype, self.device)

    def _to(self, dtype: torch.dtype, device: torch.device) -> FunctionOperator:
        """Return the same operator on blocks of another dtype or device; its products are computed as before."""
        other = self._like(lambda X: self.multiply(X.to(self.device, self.dtype)).to(device, dtype), dtype, device)
        other.parameters = self.parameters
        return other

    def _like(self, multiply: Callable[[Tensor], Tensor], dtype: torch.dtype, device: torch.device) -> FunctionOperator:
        shape, bounds = tuple(self.batch_shape), self._bounds
        return FunctionOperator(
            multiply, self.n, batch_shape=shape, dtype=dtype, device=device, bounds=bounds, psd=self.psd
        )

    def _estimate_bounds(self) -> tuple[Tensor, Tensor]:
        """Extreme Ritz values of an orthonormal Krylov basis, widened by their residuals."""
        steps = min(16, self.n)
        start = torch.Generator(device=self.device).manual_seed(0)
        v = torch.randn((*self.batch_shape, self.n, 1), dtype=self.dtype, device=self.device, generator=start)
        V = v / v.norm(dim=-2, keepdim=True)
        images = []
        for _ in range(steps):
            w = self @ V[..., -1:]
            images.append(w)
            for _ in range(2):
                w = w - V @ (V.mT @ w)
            size = w.norm(dim=-2, keepdim=True)
            V = torch.cat([V, w / size.where(size > 0, torch.ones_like(size))], dim=-1)
        V, LV = V[..., :-1], torch.cat(images, dim=-1)  # (*batch, n, steps)
        theta, Y = torch.linalg.eigh(V.mT @ LV)
        residual = (LV @ Y - (V @ Y) * theta[..., None, :]).norm(dim=-2)
        low, high = theta[..., 0] - residual[..., 0], theta[..., -1] + residual[..., -1]
        return (low.clamp(min=0) if self.psd else low), high


def from_linear_operator(L: Any) -> FunctionOperator:
    """Return a ``scipy.sparse.linalg.LinearOperator`` as an operator, through which gradients pass."""
    if L.shape[0] != L.shape[1]:
        raise InputError(f"L must be square, got a LinearOperator of shape {L.shape}.")
    if L.dtype is not None and L.dtype.kind == "c":
        raise InputError(f"L must be real, got a LinearOperator of dtype {L.dtype}: pass its real part.")
    dtype = torch.float32 if L.dtype == np.float32 else torch.float64

    def multiply(X: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(L.matmat(X.numpy()))).to(dtype)

    return FunctionOperator(lambda X: _OfNumpy.apply(X, multiply), L.shape[0], dtype=dtype)


class _OfNumpy(torch.autograd.Function):
    """A product by numpy with a symmetric matrix, which passes gradients on by another."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, multiply: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.multiply = multiply
        return multiply(X.detach())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _OfNumpy.apply(gradients[0], ctx.multiply), None
