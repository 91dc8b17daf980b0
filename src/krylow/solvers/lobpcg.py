"""LOBPCG (Knyazev, 2001), batched; its step is in :mod:`krylow.krylov.lobpcg`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from krylow._checks import InputError
from krylow._random import gaussian
from krylow.krylov.lanczos import breakdown_threshold
from krylow.krylov.lobpcg import Iteration, inverse_diagonal
from krylow.krylov.ritz import CONVERGED_PART, WARM_PART, Ritz, following_converged, settled
from krylow.operators import Operator
from krylow.solvers._problem import SAFETY, Problem, Solver, null_answer, warmed


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
        null = problem.profile.null_space if problem.is_large() else None
        if null is not None and null.lowest and null.count >= k:
            return null_answer(L, null, k)
        limit = L.products + (problem.max_products or self.most_iterations * width)
        tol, watch, inverse = SAFETY * problem.tol, problem.watch(SAFETY), inverse_diagonal(L)
        X = warmed(problem, gaussian(L, width, generator=problem.generator))
        if null is not None and null.count:  # of small components a random block has too little
            X[:, : min(null.count, k)] = L.n**0.5 * null.basis(k, L.dtype)
        iteration = Iteration.start(L, X)
        part = CONVERGED_PART if problem.start is None else WARM_PART
        while True:
            pairs = iteration.ritz()
            watch.report(float(pairs.estimate(k).max()))
            done = _done(L, pairs, k, tol, part)  # (*batch,)
            active = (~_locked(L, pairs, k, self.lock * tol) & ~done[..., None]).reshape(-1, width).any(0)
            stop = not bool(active.any()) or L.products + int(active.sum()) + width > limit
            if stop and iteration.V.shape[-1] == width:
                return pairs.untested(k, ~done)  # a guard that has not converged may hide what is lower
            try:  # an answer is confirmed by fresh products
                if stop:
                    iteration = Iteration.start(L, iteration.X)
                else:
                    iteration = iteration.step(L, inverse, active)
            except KeyboardInterrupt:
                return replace(pairs, interrupted=True)


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
