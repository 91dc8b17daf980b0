r"""Invariant subspaces of small symmetric matrices, differentiable through the projector only.

The k lowest eigenvectors $Y$ of $S$ are not differentiable where two kept eigenvalues meet; their span is, as long as
$\theta_k < \theta_{k+1}$. For every function of the span alone,

$$dY = Y_\perp \left( \frac{y_j^\top \, dS \, y_i}{\theta_i - \theta_j} \right)_{j > k \ge i}$$

is a valid differential: it differs from the eigenvectors' own by a rotation inside the kept space, which such a
function does not see. Only gaps between kept and dropped values enter. A loss that depends on the individual columns
of $Y$ gets a gradient that ignores their rotation inside the span.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from krylow import _checks
from krylow.autodiff.first_order import first_order
from krylow.linalg.eigh import eigh
from krylow.linalg.gram_schmidt import gram_schmidt, polished
from krylow.linalg.row_blocks import ROWS


def lowest_eigenspace(S: Tensor, k: int, count: Tensor | None = None) -> tuple[Tensor, Tensor]:
    r"""Return all eigenvalues ``(*batch, m)``, ascending, and the k lowest eigenvectors ``(*batch, m, k)`` of ``S``.

    $$\min_{Y^\top Y = I} \mathrm{tr}(Y^\top S Y)$$

    Exact to rounding, at the cost of one ``eigh``. Gradients are right for functions of the span and for symmetric
    functions of the values; they are finite for repeated kept values.

    Parameters
    ----------
    S
        ``(*batch, m, m)`` symmetric.
    k
        Columns returned.
    count
        ``(*batch,)`` how many of them are kept, where that differs over a batch; the others are zero. None: all k.

    Examples
    --------
    >>> S = torch.diag(torch.tensor([2.0, 1.0, 5.0]))
    >>> lowest_eigenspace(S, 2)[0]
    tensor([1., 2., 5.])
    """
    if count is None:
        count = torch.full(S.shape[:-2], k, device=S.device)
    values, vectors = _LowestEigenspace.apply(S, k, count)
    return values, vectors


class _LowestEigenspace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, S: Tensor, k: int, count: Tensor) -> tuple[Tensor, Tensor]:
        theta, Y = eigh(S)
        ctx.save_for_backward(theta, Y, count)
        ctx.k = k
        kept = torch.arange(k, device=S.device) < count[..., None]
        return theta.clone(), Y[..., :k] * kept[..., None, :]

    @staticmethod
    @first_order
    def backward(ctx: Any, grad_values: Tensor, grad_vectors: Tensor) -> tuple[Tensor, None, None]:
        theta, Y, count = ctx.saved_tensors
        k = ctx.k
        W = Y @ ((Y.mT @ grad_vectors) * _inverse_gaps(theta, k, count))  # (*batch, m, k)
        grad = W @ Y[..., :k].mT + (Y * grad_values[..., None, :]) @ Y.mT
        return (grad + grad.mT) / 2, None, None


def _inverse_gaps(theta: Tensor, k: int, count: Tensor) -> Tensor:
    r"""Return $1 / (\theta_i - \theta_j)$ for kept i and dropped j, ``(*batch, m, k)``, and 0 elsewhere."""
    kept = torch.arange(theta.shape[-1], device=theta.device) < count[..., None]  # (*batch, m)
    gap = theta[..., None, :k] - theta[..., :, None]
    # A gap below rounding is none: its derivative does not exist and is left out.
    rounding = 8 * torch.finfo(gap.dtype).eps * theta.abs().amax(-1)[..., None, None]
    real = kept[..., None, :k] & ~kept[..., :, None] & (gap.abs() > rounding)
    return torch.where(real, 1 / torch.where(real, gap, torch.ones_like(gap)), torch.zeros_like(gap))


def orthonormalize(X: Tensor) -> Tensor:
    r"""Return an orthonormal basis of span(X), ``(*batch, n, k)``; dependent or zero columns become zero columns.

    The gradient is that of the span, $dQ = (I - Q Q^\top) \, dX \, R^{-1}$ with $X = Q R$: finite as long as the
    columns are independent, whatever their angles to each other inside the span.

    >>> orthonormalize(torch.tensor([[3.0, 0.0], [4.0, 0.0]])).abs()
    tensor([[0.6000, 0.0000],
            [0.8000, 0.0000]])
    """
    return _Orthonormalize.apply(X)


class _Orthonormalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor) -> Tensor:
        size = torch.linalg.vector_norm(X, dim=-2, keepdim=True)
        size = torch.where(size > 0, size, torch.ones_like(size))
        tiny = X.shape[-2] * torch.finfo(X.dtype).eps
        Q, R = torch.linalg.qr(X / size)
        alive = R.diagonal(dim1=-2, dim2=-1).abs() > tiny
        # Q's column in place of a dead one is arbitrary, and later ones avoid it.
        if X.shape[-1] > X.shape[-2] or _checks.traced() or not bool(alive.all()):
            Q, R, alive = gram_schmidt(X / size, tiny)
        # LAPACK's sums over more nodes than that are off by as many eps where a column is nearly constant.
        if X.ndim == 2 and X.shape[-2] > ROWS and not _checks.traced():
            Q = polished(Q)
        ctx.save_for_backward(Q, R, size, alive)
        return Q

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        Q, R, size, alive = ctx.saved_tensors
        # A dead column has no direction of its own: give it a unit pivot and no gradient.
        live = alive[..., None, :] & alive[..., :, None]
        R = torch.where(live, R, torch.zeros_like(R)) + torch.diag_embed((~alive).to(R.dtype))
        grad = (grad - Q @ (Q.mT @ grad)) * alive[..., None, :]
        grad = torch.linalg.solve_triangular(R.mT, grad, upper=False, left=False)
        return grad / size
