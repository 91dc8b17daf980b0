r"""Lanczos on the signal itself: $g(L) x \approx \|x\| V_m g(T_m) e_1$, every column in its own Krylov space.

As good as the best polynomial of degree m - 1 for the spectrum and the signal: the error is at most
$2 \|x\| \min_p \max_\lambda |g - p|$ (Saad, SIAM J. Numer. Anal. 29, 1992; Druskin and Knizhnerman, 1989). The gradient
with respect to L is made of two Krylov spaces, that of the signal and that of the incoming gradient, by divided
differences between their Ritz values (Kandolf, Koskela, Relton and Schweitzer, 2021).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from krylow.autodiff.matrix_function import divided_differences, slopes
from krylow.autodiff.projector import lowest_eigenspace
from krylow.krylov.chebyshev import Pairs
from krylow.krylov.lanczos import Krylov, lanczos
from krylow.krylov.ritz import lift, symmetrized_matrix
from krylow.linalg.eigh import eigh
from krylow.operators import FunctionOperator, Operator

#: Elementwise functions of frequencies ``(*batch, m)``, side by side in a last dimension.
Bank = Callable[[Tensor], Tensor]


def lanczos_lowpass(
    L: Operator, x: Tensor, *, cutoff: float | None = None, k: int | None = None, m: int = 50
) -> Tensor:
    r"""Return $\|x\| V_m f(T_m) e_1$, every column of x ``(*batch, n, c)`` in its own Krylov space.

    f keeps the Ritz values up to the cutoff, or the k lowest: with k, components of the signal in several copies of one
    eigenvalue count as one. Exact for m = n where no frequency is repeated, and often long before. Costs m products and
    m n memory a column. Differentiable through the kept Ritz space.
    """
    krylov, v, S, live = _signal_space(L, x, m)
    with torch.no_grad():
        kept = torch.linalg.eigvalsh(S) <= cutoff if k is None else torch.arange(S.shape[-1], device=S.device) < k
        count = (kept & live).sum(-1)
    _, Y = lowest_eigenspace(S, max(1, int(count.max())), count)
    y = krylov.V @ (Y @ Y[..., :1, :].mT)  # (*batch, c, n, 1)
    return (y * torch.linalg.vector_norm(v, dim=-2, keepdim=True))[..., 0].mT


def _signal_space(L: Operator, x: Tensor, m: int) -> tuple[Krylov, Tensor, Tensor, Tensor]:
    """Return the Krylov space of each column, the columns ``(*batch, c, n, 1)``, T lifted, and which steps live."""
    low, high = L.gershgorin()
    columns = FunctionOperator(
        lambda X: (L @ X[..., 0].mT).mT[..., None],
        L.n,
        batch_shape=(*torch.broadcast_shapes(x.shape[:-2], L.batch_shape), x.shape[-1]),
        dtype=L.dtype,
        device=L.device,
        bounds=(low.detach()[..., None], high.detach()[..., None]),
        parameters=L.tensors,
    )
    v = x.expand(*columns.batch_shape[:-1], *x.shape[-2:]).mT[..., None]  # (*batch, c, n, 1)
    krylov = lanczos(columns, v, min(m, L.n), reorthogonalize=True)
    S, _ = symmetrized_matrix(krylov)
    live = torch.arange(S.shape[-1], device=S.device) < krylov.steps[..., None]
    return krylov, v, lift(S, live), live


@dataclass(frozen=True)
class RitzSpace:
    """The Krylov spaces of signals, and their Ritz pairs.

    Attributes
    ----------
    V
        ``(*batch, c, n, m)`` orthonormal bases.
    T
        ``(*batch, c, m, m)`` tridiagonal matrices, dead steps lifted above all others.
    size
        ``(*batch, c, 1)`` norms of the signals.
    live
        ``(*batch, c, m)`` which steps live.
    theta, Y
        Ritz values ``(*batch, c, m)``, those of dead steps replaced by the lowest, and the rotation.
    """

    V: Tensor
    T: Tensor
    size: Tensor
    live: Tensor
    theta: Tensor
    Y: Tensor

    @classmethod
    def of(cls, L: Operator, x: Tensor, m: int) -> RitzSpace:
        """Return those of m steps from each column of x ``(*batch, n, c)``, without a gradient."""
        with torch.no_grad():
            krylov, v, T, live = _signal_space(L, x, m)
            theta, Y = _pairs(T, live)
            return cls(krylov.V, T, torch.linalg.vector_norm(v, dim=-2), live, theta, Y)

    @property
    def c(self) -> Tensor:
        """``(*batch, c, m)``: the signal's coefficients in the Ritz vectors."""
        return self.Y[..., 0, :] * self.live * self.size

    def coordinates(self, g: Bank, m: int) -> Tensor:
        """Return the answer of the first m steps in the basis, ``(*batch, c, m, filters)``."""
        live = self.live[..., :m]
        theta, Y = _pairs(self.T[..., :m, :m], live)
        c = Y[..., 0, :] * live * self.size
        return Y @ (g(theta).to(Y.dtype) * c[..., None])

    def error(self, g: Bank, fewer: tuple[int, ...]) -> Tensor:
        """Return how far the answers of so many steps less are away, the largest ``(*batch, c, filters)``."""
        m = self.theta.shape[-1]
        whole = self.coordinates(g, m)
        worst = torch.zeros_like(whole[..., 0, :])
        for steps in fewer:
            if 0 < steps < m:
                part = torch.nn.functional.pad(self.coordinates(g, m - steps), (0, 0, 0, steps))
                worst = torch.maximum(worst, torch.linalg.vector_norm(whole - part, dim=-2))
        return worst


def _pairs(T: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """Return Ritz values, those of dead steps replaced, and the rotation: no function is asked about the lifted."""
    theta, Y = eigh(T)
    return torch.where(live, theta, theta[..., :1].expand_as(theta)), Y


def lanczos_function(L: Operator, x: Tensor, g: Bank, m: int) -> tuple[Tensor, RitzSpace]:
    r"""Return $g_i(L) x$, ``(*batch, n, c, filters)``, by m steps from each column of x, and the Krylov spaces.

    Costs m products and m n memory a column, and m products a column and filter for the gradient, which is that of
    g(L) as far as the two spaces know it: it does not end where the signal's own space closes.
    """
    space = RitzSpace.of(L, x, m)
    values = g(space.theta).to(x.dtype)  # (*batch, c, m, filters), with the gradient of what g depends on
    y: Tensor = _LanczosFunction.apply(x, values, L, g, space, *L.tensors)
    return y, space


class _LanczosFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, values: Tensor, L: Operator, g: Bank, space: RitzSpace, *tensors: Tensor
    ) -> Tensor:
        ctx.L, ctx.g, ctx.space, ctx.shape = L, g, space, x.shape
        ctx.save_for_backward(values)
        inner = space.Y @ (values * space.c[..., None])  # (*batch, c, m, filters)
        return (space.V @ inner).transpose(-3, -2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (values,) = ctx.saved_tensors
        L, g, space, needs = ctx.L, ctx.g, ctx.space, ctx.needs_input_grad
        c, filters = grad.shape[-2:]
        grad_values = None
        if needs[1]:
            seen = space.Y.mT @ (space.V.mT @ grad.transpose(-3, -2))  # (*batch, c, m, filters)
            grad_values = seen * space.c[..., None]
        if not needs[0] and not any(needs[5:]):
            return None, grad_values, None, None, None, *([None] * len(needs[5:]))
        other = RitzSpace.of(L, grad.flatten(-2), space.T.shape[-1])  # columns (c, filters)
        found = _own(g(other.theta), filters)  # (*batch, c filters, m)
        back = other.V @ (other.Y @ (found.to(grad.dtype) * other.c)[..., None])  # (*batch, c filters, n, 1)
        grad_x = back[..., 0].mT.unflatten(-1, (c, filters)).sum(-1).sum_to_size(ctx.shape)
        if not any(needs[5:]):
            return grad_x, grad_values, None, None, None, *([None] * len(needs[5:]))
        theta, coefficients = (part.repeat_interleave(filters, -2) for part in (space.theta, space.c))
        slope = _own(slopes(g, other.theta), filters), slopes(g, space.theta).mT.flatten(-3, -2)
        at, both = (other.theta, theta), (found, values.mT.flatten(-3, -2))
        inner = divided_differences(at, both, slope) * other.c[..., :, None] * coefficients[..., None, :]
        W = other.V @ (other.Y @ inner.to(grad.dtype))  # (*batch, c filters, n, m), against the signal's Ritz vectors
        W = (W.unflatten(-3, (c, filters)).sum(-3) @ space.Y.mT).movedim(-3, -2)
        pairs = Pairs(L)
        for part, vectors in zip(W.unbind(-1), space.V.movedim(-3, -2).unbind(-1), strict=True):
            pairs.add(part, vectors)
        return grad_x, grad_values, None, None, None, *pairs.gradients()


def _own(values: Tensor, filters: int) -> Tensor:
    """Return of ``(*batch, c filters, m, filters)`` each column's own filter, ``(*batch, c filters, m)``."""
    parts = values.unflatten(-3, (-1, filters)).diagonal(dim1=-3, dim2=-1)  # (*batch, c, m, filters)
    return parts.mT.flatten(-3, -2)
