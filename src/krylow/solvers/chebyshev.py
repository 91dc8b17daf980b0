r"""Chebyshev-filtered subspace iteration.

A block X is multiplied by $T_d\big((2L - (a + b) I) / (b - a)\big)$, which is at most 1 in size on the unwanted
interval [a, b] and grows like $\cosh(d \, \mathrm{arcosh})$ below a, then made orthonormal and rotated to its Ritz
vectors. The interval is found on the way: a is the block's own largest Ritz value, b an upper bound of the spectrum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from krylow._checks import InputError
from krylow._random import gaussian
from krylow._reduce import agreed, seeded
from krylow.krylov.chebyshev import chebyshev_filter
from krylow.krylov.lanczos import breakdown_threshold
from krylow.krylov.ritz import Ritz, rotate, settled
from krylow.operators import Operator, SparseOperator
from krylow.solvers._block import Block, conclude
from krylow.solvers._communities import community_block
from krylow.solvers._estimate import Estimate, Outcome, Stopping, TooManyKept, inseparable, judge, judge_up_to
from krylow.solvers._filter import (
    Filter,
    Precision,
    amplifying_degree,
    block_width,
    least_guards,
    most_degree,
    rates,
    spectrum_top,
    working_precision,
)
from krylow.solvers._problem import SAFETY, Problem, Solver, Watch, random_block, solve_large, width_of_block


@dataclass(frozen=True)
class Chebyshev(Solver):
    """Chebyshev-filtered subspace iteration (Zhou and Saad, 2007) with a posteriori error control.

    Each sweep applies a polynomial that is bounded by 1 on the unwanted interval and largest below the k-th Ritz value,
    then a Rayleigh-Ritz step. One large graph is stopped by an estimate of the block's own error; smaller graphs and
    batches by the residuals of their Ritz pairs.

    Parameters
    ----------
    block
        Columns of the block, more than k; the guard vectors set the rate of convergence. None: k and a third of it.
    """

    name: ClassVar[str] = "chebyshev"
    iterates: ClassVar[bool] = True
    takes_cutoff: ClassVar[bool] = True
    block: int | None = None

    def _width(self, problem: Problem) -> int:
        L, k = problem.operator, problem.k
        width = min(int(L.sizes.min()), self.block or k + max(4, k // 3))
        if width < k:
            raise InputError(f"the block's width m must be at least k = {k}, got {width}.")
        return width_of_block(problem, self.block) if problem.is_large() else width

    def describe(self, problem: Problem) -> str:
        """Return the width of the block."""
        return f"a filtered block of {self._width(problem)} vectors"

    def solve(self, problem: Problem) -> Ritz:
        """Return the lowest Ritz pairs."""
        width = self._width(problem)
        if problem.is_large():
            return solve_large(problem, partial(self._solve_large, width=width), grouped=True)
        X = gaussian(problem.operator, width, generator=problem.generator)
        tol, watch, limit = SAFETY * problem.tol, problem.watch(SAFETY), problem.max_products or 4000 * width
        return chebyshev_subspace(problem.operator, X, problem.k, tol=tol, max_products=limit, watch=watch)

    def _solve_large(self, problem: Problem, width: int) -> Ritz:
        watch, limit, pairs = problem.watch(), problem.max_products or 4000 * width, None
        null, labels, L = problem.null, problem.communities, problem.operator
        if labels is not None and null is not None and null.lowest and problem.cutoff is None:
            assert isinstance(L, SparseOperator)
            X = community_block(L, problem.null_vector(), labels, problem.k, width, problem.generator)
            pairs = None if X is None else filtered_subspace(problem, X, limit, watch, structured=True)
        pairs = pairs or filtered_subspace(problem, random_block(problem, width), limit, watch)
        assert pairs is not None
        return pairs


def chebyshev_subspace(
    L: Operator, X: Tensor, k: int, *, tol: float, max_products: int, watch: Watch | None = None
) -> Ritz:
    """Return Ritz pairs of graphs whose residuals are computed in every sweep.

    A block holds as many copies of a repeated eigenvalue as it has columns, so nothing below the cut is missed unless
    the random block happens to be orthogonal to it.

    Parameters
    ----------
    L
        The operator.
    X
        ``(*batch, n, s)`` start block with s > k; the s - k guards set the rate of convergence.
    k
        Wanted pairs.
    tol
        Estimated normalised squared subspace error to stop at.
    max_products
        Most products with L.
    watch
        Told of every sweep. Ctrl-C ends the iteration with what the last sweep found.
    """
    (bottom, high), size, width = L.gershgorin(), L.norm_bound(), X.shape[-1]
    size = torch.where(size > 0, size, torch.ones_like(size))
    ritz, products, rounding = rotate(L, X), width, breakdown_threshold(L)
    while not bool(((ritz.estimate(k) <= tol) | settled(ritz, k, rounding)).all()):
        first, theta, low = ritz.theta[..., 0], ritz.theta[..., k - 1], ritz.theta[..., -1]
        degree = amplifying_degree(theta, low, high)
        low = torch.where(low <= first, (first + high) / 2, low)  # one eigenvalue in the whole block
        # One eigenvalue from the k-th to the last, of which there may be more outside: nothing above is to grow.
        low = torch.where(low - theta <= 1e-3 * (low - first), low + 0.03 * (high - low), low)
        first = torch.where(first < low, first, low - size)
        degree = min(degree, most_degree(bottom, first, theta, low, high))
        if products + (degree + 1) * width > max_products:
            break
        try:
            Y = chebyshev_filter(L, ritz.X, degree, low, torch.where(high > low, high, low + size), first)
            ritz = rotate(L, Y)
            products += (degree + 1) * width
            if watch is not None:
                watch.report(float(ritz.estimate(k).max()))
        except KeyboardInterrupt:
            return replace(ritz, interrupted=True)
    return ritz


@dataclass(frozen=True)
class Goal:
    """What a refinement of a block is asked for."""

    k: int  # wanted vectors; with a cutoff an estimate of their number
    tol: float  # estimate of the normalised squared error to stop at
    max_products: int
    watch: Watch | None = None  # told of every sweep
    cutoff: float | None = None  # if all frequencies up to this one are wanted
    trials: int = 0  # sweeps after which a block that may lack an eigenvector is given up; 0: never


@dataclass(frozen=True)
class Sweeps:
    """Settings of the sweeps over one large graph."""

    first_cut: float = 4  # the first filter's interval begins at this part of the spectrum's top
    first_degree: int = 8  # degree of the first filter
    least_degree: int = 4  # of the later ones
    fewest: int = 2  # least degree while an eigenvector may be undetected and the tolerance is loose
    most_degree: int = 96  # largest degree
    target: float = 0.3  # part of the tolerance that a sweep aims at
    range_single: float = 1e5  # ratio of amplifications at which float32 rounding covers the smaller one
    range_double: float = 1e11  # the same in float64
    unsettled: float = 0.3  # with this component outside the block a vector may still fall far below its frequency
    equal: float = 1e-5  # frequencies of this relative distance are equal in the stagnation test
    stricter: float = 0.03  # part of the tolerance asked for each time that a frequency may still cross the cutoff
    trials: int = 4  # sweeps that a structured start may take
    gap: float = 1.5  # least ratio of the frequencies on either side of its cut
    target_missing: float = 2.0  # undetected ratio that a sweep aims at, over the one that shows all
    target_probe: float = 0.9  # that a filter of the guards alone aims at
    worth: int = 3  # degrees of the whole block that saving such a filter is worth


def filtered_subspace(
    problem: Problem, X: Tensor, max_products: int, watch: Watch, *, structured: bool = False
) -> Ritz | None:
    """Return Ritz pairs of one large graph from a filtered block that is stopped by the estimate of its own error.

    Parameters
    ----------
    problem
        Of which null vectors are deflated where they are the lowest; there must be fewer than k of them.
    X
        The start block ``(n, s)``, s > k, which is overwritten.
    max_products, watch
        As in :func:`chebyshev_subspace`.
    structured
        Whether it is orthonormal and its first k columns are near the wanted vectors already, which a clear gap
        separates from all others; a third of the other columns at least are random. None is returned where that turns
        out to be wrong.
    """
    L, k, null = problem.operator, problem.k, problem.null
    A, D = working_precision(L, problem.tol).counting_for(L), L.detach().counting_for(L)
    null = null if null is not None and null.lowest and null.count and not structured else None
    known = null.count if null else 0
    X = X.to(A.dtype)[:, : L.n - known].contiguous()
    block = Block(A, X, spectrum_top(A), null=null, orthonormal=structured, undetected=L.n * float(structured))
    trials = Sweeps.trials if structured else 0
    goal = Goal(k - known, problem.tol / Stopping.safety, max_products, watch, problem.cutoff, trials)
    if goal.cutoff is not None:
        block, found = refine_up_to(block, D, goal, first_cut(block))
        wanted = found.kept or 0
    else:
        wanted = goal.k
        goal = replace(goal, tol=goal.tol * k / wanted)
        found = refine(block, D, goal, first_cut(block), Sweeps.least_degree if structured else Sweeps.first_degree)
    if found.deficient:
        return None
    k = known + wanted
    found = replace(found, error=found.error * wanted / max(1, k), well_defined=found.well_defined + known)
    return conclude(D, block, k, found, problem.tol)


def first_cut(block: Block) -> float:
    """Return where the first filter's interval begins; below zero if the whole spectrum is."""
    return block.high / Sweeps.first_cut if block.high > 0 else block.lowest / 2


def refine(block: Block, D: Operator, goal: Goal, low: float, degree: int = Sweeps.first_degree) -> Outcome:
    """Sweep until the estimated error of the first k is at most ``goal.tol``.

    ``low`` is the lower end of the first filter's interval and ``degree`` its degree; later intervals begin at the
    frequency of the last guard, and their degree aims at the remaining error. D is L, with counters of its own.
    With a cutoff, k is as many frequencies as are up to that after each sweep, and sweeps go on until the next one is
    known to stay above.
    """
    state = Refinement(block, D, goal)
    try:
        while True:
            if goal.cutoff is not None and block.estimate.sweeps and not state.recount():
                return replace(state.outcome, narrow=True)
            p = agreed(state.next_filter(low, degree))
            if p is None:
                return state.outcome
            (block.probe if agreed(state.found(state.target())) else block.sweep)(state.k, p)
            error, ended = agreed(state.judge())
            if goal.watch is not None:
                goal.watch.report(error)
            if state.is_deficient():
                return replace(state.outcome, deficient=True)
            if ended or agreed(state.stagnates(error)):
                return replace(state.outcome, settled=ended or state.outcome.settled)
            low = min(low, state.next_low(low))
    except KeyboardInterrupt:
        block.settle()
        return replace(state.outcome, interrupted=True)


class Refinement:
    """Where the sweeps over one block are, and what follows."""

    def __init__(self, block: Block, D: Operator, goal: Goal, settings: Sweeps | None = None) -> None:
        self.block, self.D, self.goal, self.settings = block, D, goal, settings or Sweeps()
        self.k, self.tol = goal.k, goal.tol  # which a cutoff changes on the way
        self.limit = block.L.products + goal.max_products - 2 * block.X.shape[1]
        self.outcome = Outcome(math.inf, 0)
        self.best, self.still = math.inf, 0

    def recount(self) -> bool:
        """Want as many vectors as are up to the cutoff; return whether enough guards remain."""
        kept, width = self.block.estimate.count(self.goal.cutoff or 0.0), self.block.X.shape[1]
        self.outcome = replace(self.outcome, kept=kept)
        if kept > width - least_guards(kept):
            return False
        self.k = min(max(1, kept), width - 1)
        if self.tol < self.goal.tol and kept < width - 1:  # the next one has to be known better, too
            self.k = kept + 1
        return True

    def next_filter(self, low: float, degree: int) -> Filter | None:
        """Return the next filter, of this degree if it is the first; None where no product is left for it."""
        block, theta = self.block, self.block.estimate.theta
        first = min(0.0, low)
        if block.estimate.known:
            first, degree = float(theta[0]), self._degree(low, self.target())
        degree = min(degree, (self.limit - block.L.products) // block.X.shape[1])
        return Filter(degree, low, block.high, min(first, low - 1e-3 * (block.high - low))) if degree > 0 else None

    def target(self) -> float:
        """Return the out-of-subspace error to aim at: that many times less as mixed vectors are off by more."""
        error, tol = self.block.estimate.error(self.k), self.goal.tol
        mixed = error <= tol < self.outcome.error < math.inf
        return error * tol / self.outcome.error if mixed else self.tol

    def found(self, tol: float) -> bool:
        """Return whether the first k vectors need no more sweeps, and only what may be undetected is looked for."""
        estimate, k = self.block.estimate, self.k
        if not estimate.undetected or not estimate.sweeps:
            return False
        error = float(estimate.contracted(k).square().mean()) if estimate.sweeps == 1 else estimate.error(k)
        return error <= tol

    def _degree(self, low: float, tol: float) -> int:
        """Return the degree that should bring the error of the first k down to ``tol``, within what rounding allows.

        Where an eigenvector may be undetected, the guards are to show it, too, if that takes few degrees more; once the
        first k are found, it is the degree of the guards, for that alone.
        """
        block, estimate, k, set_ = self.block, self.block.estimate, self.k, self.settings
        outside, lowest = estimate.outside[:k], estimate.theta[:1]
        span = set_.range_single if block.X.dtype == torch.float32 else set_.range_double
        if float(outside.max()) >= set_.unsettled:
            span, lowest = span**0.7, lowest.clamp(max=0)
        most = int(math.log(2 * span) / float(rates(lowest, low, block.high, 1e-12)))
        enough = most = max(set_.least_degree, min(set_.most_degree, most))
        found, missing = self.found(tol), estimate.missing(k)
        rate = rates(estimate.theta[: k + 1], low, block.high, 1e-12)
        few = estimate.undetected and not found and self.goal.tol >= Precision.exact
        for degree in range(set_.fewest if few else set_.least_degree, most):
            growth = torch.cosh(degree * rate)
            if not found and enough == most and float((outside / growth[:k]).square().mean()) <= set_.target * tol:
                enough = degree
            left = missing * float(growth[k] / growth[k - 1]) ** 2
            if found and left <= set_.target_probe:
                return degree
            if enough < most and left <= set_.target_missing:
                return degree if degree <= enough + set_.worth else enough
        return enough

    def judge(self) -> tuple[float, bool]:
        """Return the error now, and whether the iteration has come to its end."""
        block, goal, k = self.block, self.goal, self.k
        error, shown = agreed((block.estimate.error(k), block.estimate.missing(k) <= 1))
        if goal.cutoff is None and error <= goal.tol and shown:
            self.outcome = agreed(judge(*self._ritz(), k, goal.tol))
            error = self.outcome.error
        elif goal.cutoff is not None:
            shown = error <= self.tol
            if shown:
                self.outcome = judge_up_to(*self._ritz(), goal.cutoff, goal.tol)
                error, k = self.outcome.error, min(max(1, self.outcome.kept or 0), block.X.shape[1] - 1)
                shown = block.estimate.separated(goal.cutoff)
                if not shown:  # the next one has to be known better
                    self.tol *= self.settings.stricter
                    if self.tol < goal.tol * self.settings.stricter**Stopping.patience:
                        return error, True
        return error, shown and (
            self.outcome.error <= goal.tol or inseparable(block.estimate, self.outcome, k, goal.tol)
        )

    def _ritz(self) -> tuple[Estimate, Tensor]:
        """Make a Rayleigh-Ritz step for L; return the estimate after it, and how vectors may be mixed."""
        mixing = self.block.rayleigh_ritz(self.D, self.goal.tol)
        return self.block.estimate, mixing

    def is_deficient(self) -> bool:
        """Return whether a structured start has not done in its trials, or without a clear gap."""
        estimate, k = self.block.estimate, self.k
        trials = (2 if self.found(self.goal.tol) else 1) * self.goal.trials
        near = float(estimate.theta[k]) < self.settings.gap * float(estimate.theta[k - 1])
        return trials > 0 and estimate.undetected > 0 and (near or estimate.sweeps > trials)

    def stagnates(self, error: float) -> bool:
        """Return whether two frequencies at the cut have been equal for long while the error was not halved.

        Copies of one frequency on either side of the cut look to each other like components outside the block.
        """
        theta, k = self.block.estimate.theta, self.k
        equal = float(theta[k] - theta[k - 1]) <= self.settings.equal * float(theta[k] - theta[0])
        self.still = self.still + 1 if equal and error > self.best / 2 else 0
        self.best = min(self.best, error)
        if self.still < Stopping.patience:
            return False
        self.outcome = agreed(judge(*self._ritz(), k, self.goal.tol, stagnant=True))
        return True

    def next_low(self, low: float) -> float:
        """Return where the next filter's interval begins: near the last guard's frequency.

        That still falls from sweep to sweep, and likely by half of what it fell by last; in the first ones by far more.
        """
        theta = self.block.estimate.theta
        last = at = float(theta[-1])
        if self.block.estimate.sweeps > 2:
            at = max(last - max(low - last, 0.0) / 2, (float(theta[self.k]) + last) / 2)
        return max(at, float(theta[0]) + 1e-7 * self.block.high)


def refine_up_to(block: Block, D: Operator, goal: Goal, low: float) -> tuple[Block, Outcome]:
    """Sweep as :func:`refine` does for all frequencies up to a cutoff, with as wide a block as these need.

    Returns the block, which may be another one, and how it ended.
    """
    A, cutoff = block.L, goal.cutoff
    assert cutoff is not None
    limit = A.products + goal.max_products
    above = cutoff + max(0.0, block.high - cutoff) / Sweeps.first_cut
    while True:
        low = low if low > cutoff else above  # a filter sees no frequency above its interval's lower end
        outcome = refine(block, D, replace(goal, max_products=limit - A.products), low)
        if not outcome.narrow:
            break
        kept, width = outcome.kept or 1, block.X.shape[1]
        wider = max(block_width(kept, D.n), 2 * width)
        if wider > D.n // 2:
            raise TooManyKept
        more = torch.randn(A.rows, wider - width, dtype=A.dtype, device=A.device, generator=seeded(width, A.device))
        block = Block(A, torch.cat([block.X, more], dim=1), block.high, null=block.null)
        goal, low = replace(goal, k=kept), above
    return block, replace(outcome, kept=block.estimate.count(cutoff) if outcome.kept is None else outcome.kept)
