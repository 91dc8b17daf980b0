r"""A step of LOBPCG: locally optimal block preconditioned conjugate gradients (Knyazev, 2001), batched.

An iteration is a Rayleigh-Ritz step on $\mathrm{span}[X, W, P]$: the Ritz vectors X, their preconditioned residuals
$W = M^{-1} (L X - X \Theta)$ with M the diagonal of L, and the directions P, the part of the new Ritz vectors that is
not in the old ones,

$$[X, W, P]^\top L \, [X, W, P] \, Y = Y \Theta, \qquad X \leftarrow [X, W, P] \, Y_{1:s}, \quad
P \leftarrow [0, W, P] \, Y_{1:s} .$$

The basis is kept orthonormal, with P orthonormalised against X in the coefficients Y, where that costs nothing
(Hetmaniuk and Lehoucq, 2006; Duersch, Shao, Yang and Gu, 2018): its Gram matrix, which the original method factorises
and which loses definiteness as residuals vanish, is the identity. Dependent columns are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from krylow.krylov.ritz import Ritz, rayleigh_ritz, rotated
from krylow.linalg.gram_schmidt import newton_schulz, outside
from krylow.operators import FunctionOperator, Operator


@dataclass(frozen=True)
class Iteration:
    """Orthonormal V = [X, P] with L V and the Ritz values of X; zero columns of P have been dropped."""

    V: Tensor
    LV: Tensor
    theta: Tensor
    steps: int = 0

    @property
    def X(self) -> Tensor:
        """The Ritz vectors."""
        return self.V[..., : self.theta.shape[-1]]

    @classmethod
    def start(cls, L: Operator, X: Tensor) -> Iteration:
        """Return the Rayleigh-Ritz step on span(X), one product a column."""
        theta, X, LX = rotated(L, X)
        return cls(X, LX, theta)

    def residual(self) -> Tensor:
        """Return L X - X Theta."""
        width = self.theta.shape[-1]
        return self.LV[..., :width] - self.X * self.theta[..., None, :]

    def ritz(self) -> Ritz:
        """Return the Ritz pairs, their residuals as the recurrence knows them."""
        return Ritz(self.theta, self.X, torch.linalg.vector_norm(self.residual(), dim=-2))

    def step(self, L: Operator, inverse: Tensor, active: Tensor, *, polish: int = 16) -> Iteration:
        """Return the Rayleigh-Ritz step on [X, P, W], with W and the new P of the active columns alone."""
        V, LV, width = self.V, self.LV, self.theta.shape[-1]
        if self.steps % polish == polish - 1:  # rotations add to the deviation from orthonormality
            turn = newton_schulz(V)
            V, LV = V @ turn, LV @ turn
        W = outside(inverse * self.residual()[..., active], V)
        V, LV = torch.cat([V, W], dim=-1), torch.cat([LV, L @ W], dim=-1)
        theta, Y = rayleigh_ritz(V.mT @ LV, torch.linalg.vector_norm(V, dim=-2) > 0.5)
        lowest = Y[..., :width]
        directions = lowest[..., active].clone()
        directions[..., :width, :] = 0
        Q = torch.cat([lowest, outside(directions, lowest)], dim=-1)
        return Iteration(V @ Q, LV @ Q, theta[..., :width], self.steps + 1)


def inverse_diagonal(L: Operator) -> Tensor:
    """Return Jacobi's preconditioner ``(*batch, n, 1)``: 1 over what is known and positive, else over the norm."""
    norm = L.norm_bound()[..., None]
    norm = torch.where(norm > 0, norm, torch.ones_like(norm))
    if isinstance(L, FunctionOperator):
        return torch.ones_like(norm)[..., None]
    diagonal = L.diagonal().detach()
    return (1 / torch.where(diagonal > 0, diagonal, norm))[..., None]
