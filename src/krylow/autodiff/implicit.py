r"""The gradient of a converged subspace with respect to its operator, without a tape through the solver.

At $L U = U H$ with $Q = I - U U^\top$, a change dL moves the subspace by the solution of a Sylvester equation,

$$dU \, H - L \, dU = Q \, dL \, U ,$$

so for a loss with $\bar U = \partial \ell / \partial U$ that depends on the span alone,
$d\ell = \langle W, dL \, U \rangle$ where $(L - \theta_i I) \, w_i = -Q \bar u_i$ for each Ritz pair. On the
complement that operator is positive definite, with a condition number set by the gap between kept and dropped values
and by nothing inside the band; conjugate gradients solve all columns together.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from krylow.krylov.cg import conjugate_gradients
from krylow.operators import Operator


def attach_gradient(L: Operator, basis: Tensor, theta: Tensor) -> Tensor:
    """Return ``basis`` as it is, with the gradient of its span with respect to ``L.tensors``.

    Parameters
    ----------
    L
        The operator, with a gradient.
    basis, theta
        ``(*batch, n, k)`` Ritz vectors and ``(*batch, k)`` Ritz values of L, converged. The gradient is that of the
        exact subspace, evaluated here: its error is of the order of the subspace's. Costs at most 2000 k products,
        when a gradient is asked for.
    """
    return _Implicit.apply(basis.detach(), theta.detach(), L, *L.tensors)


class _Implicit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, basis: Tensor, theta: Tensor, L: Operator, *tensors: Tensor) -> Tensor:
        ctx.L = L
        ctx.save_for_backward(basis, theta)
        return basis.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        U, theta = ctx.saved_tensors
        L = ctx.L
        frozen = L.detach()

        def outside(X: Tensor) -> Tensor:
            return X - U @ (U.mT @ X)

        def shifted(X: Tensor) -> Tensor:
            return outside(frozen @ X) - theta[..., None, :] * X

        steps, tol = 2000, torch.finfo(U.dtype).eps ** 0.75
        W = outside(conjugate_gradients(shifted, -outside(grad), steps=steps, tol=tol))
        with torch.enable_grad():
            # <W, L U> symmetrised, as a function of the entries of L: its gradient is the one wanted.
            value = ((W * (L @ U)).sum() + (U * (L @ W)).sum()) / 2
            wanted = [t for t in L.tensors if t.requires_grad]
            found = iter(torch.autograd.grad(value, wanted, allow_unused=True))
        return None, None, None, *(next(found) if t.requires_grad else None for t in L.tensors)
