r"""The gradient of a converged subspace with respect to its operator, without a tape through the solver.

At $L U = U H$ with $Q = I - U U^\top$, a change dL moves the subspace by the solution of a Sylvester equation,

$$dU \, H - L \, dU = Q \, dL \, U ,$$

so for a loss with $\bar U = \partial \ell / \partial U$ that depends on the span alone,
$d\ell = \langle W, dL \, U \rangle$ where $(L - \theta_i I) \, w_i = -Q \bar u_i$ for each Ritz pair. On the
complement that operator is positive definite, with a condition number set by the gap between kept and dropped values
and by nothing inside the band; conjugate gradients solve all columns together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from krylow.autodiff.first_order import first_order
from krylow.krylov.cg import conjugate_gradients
from krylow.krylov.chebyshev import Pairs
from krylow.operators import Operator

#: From U, theta and the gradient of U: W, and U as it is best used with that.
Adjoint: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
#: Relative error of W in the energy norm, over the root of the squared error that the subspace was asked for.
ACCURACY = 0.1


def attach_gradient(
    L: Operator, basis: Tensor, theta: Tensor, adjoint: Adjoint | None = None, *, tol: float = 0.0
) -> Tensor:
    """Return ``basis`` as it is, with the gradient of its span with respect to ``L.tensors``.

    Parameters
    ----------
    L
        The operator, with a gradient.
    basis, theta
        ``(*batch, n, k)`` Ritz vectors and ``(*batch, k)`` Ritz values of L, converged. The gradient is that of the
        exact subspace, evaluated here: its error is of the order of the subspace's.
    adjoint
        What solves for W when a gradient is asked for. None: :func:`solve_adjoint`.
    tol
        Squared error that the subspace was asked for; W is not solved for much more exactly. 0: to rounding.
    """
    if adjoint is None:
        frozen = L.detach().counting_for(L)

        def adjoint(U: Tensor, theta: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
            return solve_adjoint(frozen, U, theta, grad, tol), U

    return _Implicit.apply(basis.detach(), theta.detach(), L, adjoint, *L.tensors)


def solve_adjoint(L: Operator, U: Tensor, theta: Tensor, grad: Tensor, tol: float = 0.0) -> Tensor:
    """Return W ``(*batch, n, k)`` by conjugate gradients, as exactly as a subspace of squared error ``tol`` deserves.

    Costs at most 2000 k products.
    """

    def outside(X: Tensor) -> Tensor:
        return X - U @ (U.mT @ X)

    def shifted(X: Tensor) -> Tensor:
        return outside(L @ X) - theta[..., None, :] * X

    least = torch.finfo(U.dtype).eps ** 0.75
    right, energy = -outside(grad), ACCURACY * tol**0.5
    return outside(conjugate_gradients(shifted, right, steps=2000, tol=least, energy=energy))


class _Implicit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, basis: Tensor, theta: Tensor, L: Operator, adjoint: Adjoint, *tensors: Tensor) -> Tensor:
        ctx.L, ctx.adjoint = L, adjoint
        ctx.save_for_backward(basis, theta)
        return basis.clone()

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        W, U = ctx.adjoint(*ctx.saved_tensors, grad)
        sums = Pairs(ctx.L)
        sums.add(W, U)
        return None, None, None, None, *sums.gradients()
