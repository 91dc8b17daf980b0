r"""LOBPCG: locally optimal block preconditioned conjugate gradients (Knyazev, 2001), batched.

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

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from krylow._checks import InputError
from krylow._random import gaussian
from krylow.krylov.lanczos import breakdown_threshold
from krylow.krylov.ritz import CONVERGED_PART, WARM_PART, Ritz, following_converged, rayleigh_ritz, rotated, settled
from krylow.linalg.gram_schmidt import outside
from krylow.operators import FunctionOperator, Operator
from krylow.solvers._problem import SAFETY, Problem, Solver, warmed


@dataclass(frozen=True)
class LOBPCG(Solver):
    r"""LOBPCG (Knyazev, 2001), preconditioned by the diagonal, with soft locking; every graph of a batch together.

    It stops when Davis and Kahan's estimate of the error, with the (k+1)-st Ritz value less its residual for
    $\lambda_{k+1}$, is below `tol` and a Rayleigh-Ritz step with fresh products confirms it.

    Cost: a product a column that is not locked yet, an iteration; six blocks of memory.

    Parameters
    ----------
    block
        Columns of the block, at least k: those beyond k are guard vectors. None: k and a fifth of it.
    lock
        A column is locked (no residual of it joins the basis) once its term of the error estimate is this part of the
        tolerance in every graph of a batch.
    most_iterations
        Iterations, where ``max_products`` sets no limit.
    """

    name: ClassVar[str] = "lobpcg"
    iterates: ClassVar[bool] = True
    takes_start: ClassVar[bool] = True
    block: int | None = None
    lock: float = 0.1
    most_iterations: int = 2000

    def _width(self, problem: Problem) -> int:
        k = problem.k
        width = min(int(problem.operator.sizes.min()), self.block or k + max(2, k // 5))
        if width < k:
            raise InputError(f"the block's width m must be at least k = {k}, got {width}.")
        return width

    def describe(self, problem: Problem) -> str:
        """Return the width of the block."""
        return f"LOBPCG on a block of {self._width(problem)} vectors"

    def solve(self, problem: Problem) -> Ritz:
        """Return the lowest Ritz pairs."""
        L, k, width = problem.operator, problem.k, self._width(problem)
        limit = L.products + (problem.max_products or self.most_iterations * width)
        tol, watch, inverse = SAFETY * problem.tol, problem.watch(SAFETY), _inverse_diagonal(L)
        iteration = _Iteration.start(L, warmed(problem, gaussian(L, width, generator=problem.generator)))
        part = CONVERGED_PART if problem.start is None else WARM_PART
        while True:
            pairs = iteration.ritz()
            watch.report(float(pairs.estimate(k).max()))
            done = _done(L, pairs, k, tol, part)  # (*batch,)
            active = (~_locked(L, pairs, k, self.lock * tol) & ~done[..., None]).reshape(-1, width).any(0)
            stop = not bool(active.any()) or L.products + int(active.sum()) + width > limit
            if stop and iteration.V.shape[-1] == width:
                return pairs
            try:  # an answer is confirmed by fresh products
                if stop:
                    iteration = _Iteration.start(L, iteration.X)
                else:
                    iteration = iteration.step(L, inverse, active)
            except KeyboardInterrupt:
                return replace(pairs, interrupted=True)


@dataclass(frozen=True)
class _Iteration:
    """Orthonormal V = [X, P] with L V and the Ritz values of X; zero columns of P have been dropped."""

    V: Tensor
    LV: Tensor
    theta: Tensor
    steps: int = 0

    @property
    def X(self) -> Tensor:
        return self.V[..., : self.theta.shape[-1]]

    @classmethod
    def start(cls, L: Operator, X: Tensor) -> _Iteration:
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

    def step(self, L: Operator, inverse: Tensor, active: Tensor, *, polish: int = 16) -> _Iteration:
        """Return the Rayleigh-Ritz step on [X, P, W], with W and the new P of the active columns alone."""
        V, LV, width = self.V, self.LV, self.theta.shape[-1]
        if self.steps % polish == polish - 1:  # rotations add to the deviation from orthonormality
            correction = 1.5 * torch.eye(V.shape[-1], dtype=V.dtype, device=V.device) - 0.5 * (V.mT @ V)
            V, LV = V @ correction, LV @ correction
        W = outside(inverse * self.residual()[..., active], V)
        V, LV = torch.cat([V, W], dim=-1), torch.cat([LV, L @ W], dim=-1)
        theta, Y = rayleigh_ritz(V.mT @ LV, torch.linalg.vector_norm(V, dim=-2) > 0.5)
        lowest = Y[..., :width]
        directions = lowest[..., active].clone()
        directions[..., :width, :] = 0
        Q = torch.cat([lowest, outside(directions, lowest)], dim=-1)
        return _Iteration(V @ Q, LV @ Q, theta[..., :width], self.steps + 1)


def _done(L: Operator, pairs: Ritz, k: int, tol: float, part: float) -> Tensor:
    """Return where the estimate is within the tolerance, or cannot get there, ``(*batch,)``."""
    converged = (pairs.estimate(k) <= tol) & following_converged(pairs, k, part)
    return converged | settled(pairs, k, breakdown_threshold(L))


def _repeated(L: Operator, pairs: Ritz, k: int) -> Tensor:
    """Return where the k-th and the next Ritz value, right to the square of their residuals, are one to rounding."""
    return pairs.theta[..., k] - pairs.theta[..., k - 1] <= breakdown_threshold(L)


def _locked(L: Operator, pairs: Ritz, k: int, tol: float) -> Tensor:
    """Return which columns add less than ``tol`` to the error, or are right to rounding, ``(*batch, s)``."""
    exact = pairs.residuals <= breakdown_threshold(L)[..., None]
    if pairs.theta.shape[-1] <= k:
        return exact
    gaps = (pairs.theta - pairs.residuals)[..., k, None] - pairs.theta
    wanted = (torch.arange(gaps.shape[-1], device=gaps.device) < k) & ~_repeated(L, pairs, k)[..., None]
    return exact | (wanted & (gaps > 0) & (pairs.residuals <= tol**0.5 * gaps))


def _inverse_diagonal(L: Operator) -> Tensor:
    """Return Jacobi's preconditioner ``(*batch, n, 1)``: 1 over what is known and positive, else over the norm."""
    norm = L.norm_bound()[..., None]
    norm = torch.where(norm > 0, norm, torch.ones_like(norm))
    if isinstance(L, FunctionOperator):
        return torch.ones_like(norm)[..., None]
    diagonal = L.diagonal().detach()
    return (1 / torch.where(diagonal > 0, diagonal, norm))[..., None]
