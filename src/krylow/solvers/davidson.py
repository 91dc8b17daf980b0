r"""Polynomial-preconditioned block Davidson for one large graph whose degrees or weights are spread widely.

1. A block is filtered by Chebyshev polynomials of $B = M^{-1/2} (L - \sigma) M^{-1/2}$
   (:mod:`krylow.solvers._pencil`), whose lowest vectors are nearly those of L, until the last wanted eigenvalue of B is
   just below 0: then no wanted vector can be among B's high ones.
2. Vectors that are nearly constant on clusters of heavy edges are all near 0 for B: the lowest of the graph of clusters
   are added to the block by a Rayleigh-Ritz step (:mod:`krylow.solvers._clusters`), and where that lowers the wanted
   frequencies, step 1 begins again with a better shift.
3. Corrections: with the residuals R of the block X, the vectors $W = M^{-1/2} q(B) M^{-1/2} R \approx (L - \sigma)^{-1}
   R$ are added, and the lowest Ritz vectors of L in span(X, W) are the next block, until the error estimated from the
   size of the corrections (:mod:`krylow.solvers._correction`) is small enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from krylow._checks import InputError
from krylow.krylov.ritz import Ritz
from krylow.linalg.components import NullSpace
from krylow.linalg.row_blocks import lengths, orthonormalize_
from krylow.operators import FunctionOperator, SparseOperator
from krylow.profile import GraphProfile
from krylow.solvers._aggregation import Aggregation
from krylow.solvers._block import Block, conclude
from krylow.solvers._clusters import clusters, lowest_of_clusters
from krylow.solvers._correction import Corrections, Step, beyond_rounding
from krylow.solvers._estimate import Outcome, Stopping, cautious_floor
from krylow.solvers._filter import Filter, Precision, fits_single, least_guards, rates
from krylow.solvers._pencil import first_frequency, scale
from krylow.solvers._problem import Problem, Solver, Watch, random_block, solve_large, sparse_copy, width_of_block
from krylow.solvers._ritz_block import RitzBlock
from krylow.solvers.exact import Exact


@dataclass(frozen=True)
class Filtering:
    """Settings of the filter of B and of the choice of the shift."""

    goal: float = 0.2  # squared error of B's wanted vectors to stop at: corrections do the rest
    first_cut: float = 16  # the first filter's interval begins at this part of B's top
    first_degree: int = 12  # degree of the first filter
    least_degree: int = 4  # of the later ones
    most_degree: int = 400  # largest degree
    target: float = 0.3  # part of the error asked for that a filter or a correction aims at
    most_passes: int = 400  # passes over B with one shift
    rounds: int = 8  # shifts that are tried
    joins: int = 4  # times that clusters may lower the wanted frequencies, and all begins again
    fall: float = 0.1  # relative fall of the last wanted frequency for that
    deep: float = 0.1  # eigenvalues of B below minus this are deflated from corrections
    clamped: float = 0.02  # Ritz values of B this near the end of a filter's interval, relative to it, may be above
    growth_single: float = 1e5  # largest amplification over that of the last vector, for rounding in float32
    growth_double: float = 1e10  # the same in float64
    cluster_error: float = 0.1  # error of the contracted graph's vectors, relative to the one asked for
    single_rounding: float = 1e-2  # largest rounding of the norm in float32, relative to the first frequency


@dataclass(frozen=True)
class Davidson(Solver):
    """Polynomial-preconditioned block Davidson (Davidson, 1975; Stathopoulos and McCombs, 2010) scaled by the diagonal.

    Filters in Davidson's method: Zhou and Saad (2007). The preconditioner is a polynomial in the diagonally scaled
    matrix. No search directions are kept as in LOBPCG (Knyazev, 2001): a polynomial of some degree hardly needs them.

    Parameters
    ----------
    block
        Columns of the block, more than k. None: k and a quarter of it, at least a few.
    guards
        Guard vectors that are corrected, too, since they couple vectors across the cut.
    shift
        Place of the shift between the last wanted Ritz value, 0, and the next one, 1.
    least_degree, most_degree
        Degrees of the polynomial of a correction.
    least_reduction, most_reduction
        Factors that a correction should reduce the error of the vectors by.
    heavy, clusters
        Edges above ``heavy`` times the last wanted frequency are contracted, if ``clusters`` nodes a column remain.
    """

    name: ClassVar[str] = "davidson"
    iterates: ClassVar[bool] = True
    takes_cutoff: ClassVar[bool] = True
    block: int | None = None
    guards: int = 4
    shift: float = 0.3
    least_degree: int = 6
    most_degree: int = 600
    least_reduction: float = 4.0
    most_reduction: float = 8.0
    heavy: float = 20.0
    clusters: float = 40.0

    def _width(self, problem: Problem) -> int:
        k, few = problem.k, problem.k <= 10 or problem.profile.contrast > 20
        return width_of_block(problem, self.block, guards=max(6 if few else min(6, k // 3), k // 4), line=8)

    def describe(self, problem: Problem) -> str:
        """Return the width of the block, if there is one."""
        if isinstance(problem.operator, FunctionOperator):
            raise InputError('method="davidson" scales L by its diagonal: its entries must be known, got a function.')
        if not problem.is_large(400):
            return f"{problem.operator.n} nodes are few enough for the whole space to be searched"
        return f"a block of {self._width(problem)} vectors, filtered and corrected through the diagonal"

    def solve(self, problem: Problem) -> Ritz:
        """Return the lowest Ritz pairs; of few nodes the search space is the whole space, where they are exact."""
        L = problem.operator
        if not problem.is_large(400):
            return Exact().solve(problem)
        width = self._width(problem)
        if not isinstance(L, SparseOperator):
            S = sparse_copy(L).counting_for(L)
            problem = replace(problem, operator=S, profile=GraphProfile(S))
        return solve_large(problem, partial(self._solve_large, width=width))

    def _solve_large(self, problem: Problem, width: int) -> Ritz:
        """Search in float32 where that suffices, and again in float64 where rounding is all of the remaining error."""
        L, null, k, tol = problem.operator, problem.null, problem.k, problem.tol / Stopping.safety
        assert isinstance(L, SparseOperator)
        null = null if null is not None and null.lowest and null.count else None
        A, watch, limit = L.double().counting_for(L), problem.watch(), problem.max_products or 4000 * width
        first = first_frequency(A, null, problem.seeded()) if problem.cutoff is None else problem.cutoff
        X, start = random_block(problem, width), None
        for dtype in (torch.float32, torch.float64)[not self._single_suffices(A, first, problem.tol) :]:
            if start is not None:
                guards = max(X.shape[1] - start.shape[1], least_guards(start.shape[1]))
                X = torch.cat([start.to(X), random_block(problem, width)[:, -guards:]], dim=1)
                k = start.shape[1]
            search = Search(self, A, X.to(dtype), k, null, limit, problem.cutoff)
            try:
                search.find(first, tol)
                while not search.correct(tol, watch):
                    search.find(first, tol)
            except KeyboardInterrupt:
                search.outcome = replace(search.outcome, interrupted=True)
            pairs = search.pairs()
            known, start = pairs.evidence, pairs.X
            assert known is not None
            ended = search.outcome.settled and not search.outcome.interrupted
            if not ended or known.error <= problem.tol or known.well_defined < start.shape[1]:
                break
        return pairs

    def _single_suffices(self, A: SparseOperator, first: float, tol: float) -> bool:
        rounding = torch.finfo(torch.float32).eps * float(A.diagonal().abs().max())
        return tol >= Precision.single and rounding <= Filtering.single_rounding * abs(first) and fits_single(A)


class Search(RitzBlock):
    """A block of one graph on its way to the lowest frequencies; A is L in float64, which counts all products.

    ``interval`` are eigenvalues of B, by estimate: the lowest that is not deflated, the k-th, and the last guard's,
    from which on corrections invert B.
    """

    def __init__(
        self,
        settings: Davidson,
        A: SparseOperator,
        X: Tensor,
        k: int,
        null: NullSpace | None,
        limit: int,
        cutoff: float | None,
    ) -> None:
        super().__init__(X, k, null)
        self.settings, self.filtering = settings, Filtering()
        self.A, self.limit, self.cutoff = A, limit, cutoff
        self.interval = 0.0, 0.0, 1.0
        self._deep = self.X.new_empty(self.X.shape[0], 0)
        self._complete = self._stiff = False

    def find(self, shift: float, tol: float) -> None:
        """Filter the block, add what the filter may miss, and filter again where that gives another shift."""
        set_ = self.filtering
        for _ in range(set_.joins):
            self._filter(shift)
            before = float(self.theta[self.wanted - 1])
            levels = self._clusters()
            self._stiff = bool(levels)
            for level in levels:
                assert isinstance(level.coarse, SparseOperator)
                V = lowest_of_clusters(level.coarse, self.k, self.X.shape[1], set_.cluster_error * tol)
                self.add(self.orthonormalized(level.prolong(V).to(self.X.dtype)))
            if self.cutoff is not None:
                self._recount(int((self.theta <= self.cutoff).sum()))
            used, shift, last = self.pencil.shift, self._between(), float(self.theta[self.wanted - 1])
            if before - last <= set_.fall * abs(before) or shift >= (1 - set_.fall) * used > 0:
                return
        self._complete = False

    def _between(self) -> float:
        """Return a shift just above the last wanted frequency, and above its rounding where that is repeated."""
        last, following = self.theta[self.wanted - 1 : self.wanted + 1].tolist()
        return last + max(self.settings.shift * (following - last), 8 * torch.finfo(self.X.dtype).eps * abs(last))

    def _filter(self, shift: float) -> None:
        """Filter the block with better and better shifts, each time rotated to Ritz vectors of L."""
        set_, low = self.filtering, math.inf
        for _ in range(set_.rounds):
            self.pencil = scale(self.A, shift, self.X.dtype)
            block = Block(self.pencil.operator, self.pencil.from_graph_(self.with_null()), self.pencil.top)
            try:
                p = self._next_filter(block, min(low, block.high / set_.first_cut))
                while p is not None:
                    block.sweep(self.k, p)
                    p = self._next_filter(block, p.low)
            finally:
                self.take(self.pencil.to_graph_(block.X.clone()))
            theta = block.estimate.theta
            deep = theta < -set_.deep
            self._deep = block.X[:, deep.to(block.X.device)].contiguous()
            least = float(theta[~deep].min()) if not bool(deep.all()) else 0.0
            end, last = float(theta[self.k - 1]), float(theta[-1])
            near = self.pencil.near
            self.interval = least, end, min(max(last, near), 0.5 * self.pencil.top)
            # As many eigenvalues of B are below 0 as L has below the shift. With the last wanted one just there, by
            # the distance of the last guard, none is among high ones of B, as it may be on a node of small degree.
            self._complete = -max(last - end, near) <= end <= 0 and not self._crowded
            if self._crowded:
                low = 2 * max(last, near)
                self.widen()
                continue
            self.rotate()
            if self._complete:
                return
            shift, low = self._between(), 2 * max(last - end, near)
        if not bool(self.theta.isfinite().all()):
            self.rotate()

    def _next_filter(self, block: Block, low: float) -> Filter | None:
        """Return the filter of the next sweep, the last of which had its interval begin at ``low``.

        None once the error of B's own wanted vectors is small, or all of them are far below the shift.
        """
        set_, estimate, degree, first = self.filtering, block.estimate, self.filtering.first_degree, 0.0
        if estimate.known:
            shown = True
            if self.pencil.shift == self.cutoff:  # as many eigenvalues are below 0 as L has below the cutoff
                self._recount(estimate.count(0.0) - self.known)
                shown = not self._crowded and float(estimate.outside[self.k]) <= 0.5
            first, last = float(estimate.theta[0]), float(estimate.theta[self.k - 1])
            found = estimate.error(self.k) <= set_.goal or (estimate.sweeps > 1 and last < -set_.deep)
            if self._crowded or (shown and found):
                return None
            above = low - last <= set_.clamped * abs(low)  # a filter sees no frequency above its interval's lower end
            low = min(2 * abs(low), block.high / 2) if above else min(low, float(estimate.theta[-1]))
            low = max(low, first + 1e-7 * block.high)
            degree = self._filter_degree(block, low)
        if self.A.products >= self.limit or block.L.passes >= set_.most_passes:
            return None
        return Filter(degree, low, block.high, min(first, low - self.pencil.near))

    def _filter_degree(self, block: Block, low: float) -> int:
        """Return the degree that should bring the error of B's wanted vectors down, within what rounding allows."""
        set_, k, estimate = self.filtering, self.k, block.estimate
        rate, outside = rates(estimate.theta, low, block.high, 1e-12), estimate.outside[:k]
        growth = self._growth() ** (1.0 if float(outside.max()) < 0.3 else 0.7)
        most = max(set_.least_degree, min(set_.most_degree, int(math.log(2 * growth) / float(rate[0]))))
        for degree in range(set_.least_degree, most):
            if float((outside / torch.cosh(degree * rate[:k])).square().mean()) <= set_.target * set_.goal:
                return degree
        return most

    def _growth(self) -> float:
        """Return the amplification that rounding allows."""
        return self.filtering.growth_single if self.X.dtype == torch.float32 else self.filtering.growth_double

    def _lower(self, shift: float) -> None:
        """Lower the shift to one just above the wanted frequencies, which are known better than when it was chosen.

        One beyond guards is near to frequencies outside the block, and corrections take many steps. Eigenvalues of B
        near 0 are taken to rise as that of the wanted vector with the largest mass does, the least. Where frequencies
        are negative, degrees are near the shift, and other shifts have other eigenvectors far below 0.
        """
        former = self.pencil
        if float(self.theta[0]) < 0:
            return
        heaviest = float(lengths(former.from_graph_(self.X[:, : self.wanted].contiguous())).max()) ** 2
        rise = (former.shift - shift) / heaviest
        if rise <= former.near:
            return
        self.pencil = scale(self.A, shift, self.X.dtype)
        if self._deep.shape[1]:
            self._deep = orthonormalize_(self.pencil.from_graph_(former.to_graph_(self._deep)))
        least, end, low = self.interval
        self.interval = least + rise, min(end + rise, 0.0), min(low + rise, 0.5 * self.pencil.top)

    def _clusters(self) -> list[Aggregation]:
        """Return graphs of clusters of heavy edges."""
        u = torch.ones(self.A.n) if self.null is None else self.null.vector
        u = torch.where(u == 0, torch.ones_like(u), u)
        frequency, set_ = max(abs(self.pencil.shift), float(self.theta[self.wanted - 1])), self.settings
        return clusters(self.A, u, frequency, self.X.shape[1], heavy=set_.heavy, least=set_.clusters)

    def correct(self, tol: float, watch: Watch) -> bool:
        """Correct the wanted vectors until their estimated error is at most ``tol``, or no gap shows.

        Returns False where a cutoff keeps too many of them for the block, which is wider then.
        """
        estimate, still, undecided = Corrections(complete=not self._stiff), 0, 0
        while True:
            if self._complete and self.pencil.shift > float(self.theta[self.wanted]):
                self._lower(self._between())
            degree, before = self._step_degree(tol), self.outcome.error
            if self.A.products + (degree + 1) * self._columns > self.limit:
                return True
            step = self._step(degree)
            if step is None:
                return True
            if self.cutoff is not None and self._recount(int((self.theta <= self.cutoff).sum())):
                estimate, self.outcome = Corrections(complete=not self._stiff), Outcome(math.inf, 0)
                if not self._crowded:
                    continue
                self.widen()
                return False
            estimate.take(step, self.pencil.reduction(degree, *self.interval[1:]))
            if self._complete:
                eps = torch.finfo(self.X.dtype).eps
                self.outcome = estimate.judge(step, self.theta, self.known, tol, eps)
                self.delta = estimate.delta
                if self._stiff:  # corrections hardly see what the vectors of clusters are off by
                    self.outcome = replace(self.outcome, error=self.outcome.error + self.filtering.cluster_error * tol)
            watch.report(self.outcome.error)
            if self._complete and estimate.stalled:
                return True
            stagnant = estimate.outside <= Stopping.stagnant * tol and not self.outcome.error < before / 2
            still = still + 1 if stagnant else 0
            if self.outcome.error <= tol and not self._separated and undecided < Stopping.patience:
                undecided += 1
            elif self.outcome.error <= tol or still == 2:
                self.outcome = replace(self.outcome, settled=self._complete)  # else nothing was judged
                return True

    @property
    def _columns(self) -> int:
        """Columns that are corrected."""
        return min(self.X.shape[1], -(-(self.wanted + self.settings.guards) // 4) * 4)

    def _step_degree(self, tol: float) -> int:
        """Return the degree that should bring the error down, within what rounding of deflated vectors allows."""
        set_, (lowest, end, low) = self.settings, self.interval
        error = self.outcome.error if math.isfinite(self.outcome.error) else 2e-2
        goal = (error / (self.filtering.target * tol)) ** 0.5
        goal = min(max(goal, set_.least_reduction), set_.most_reduction)
        rate = math.acosh(1 + 2 * max(low - lowest, 0.0) / (self.pencil.top - low))
        most = max(set_.least_degree, min(set_.most_degree, int(math.log(2 * self._growth()) / max(rate, 1e-300))))
        enough = (d for d in range(set_.least_degree, most) if self.pencil.reduction(d, end, low) * goal**2 <= 1)
        return next(enough, most)

    def _step(self, degree: int) -> Step | None:
        """Add corrections of the wanted vectors and take the lowest Ritz vectors.

        None where a correction overflows, since the filter has missed an eigenvalue of B far below 0; the block is then
        as it was.
        """
        j = self._columns
        R = self.pencil.residual(self.X[:, :j], self.theta[:j])
        W = self.pencil.precondition(R, degree, self.interval[-1], self._deep)
        if not bool(lengths(W).isfinite().all()):
            return None
        return self.add(self.orthonormalized(self.pencil.to_graph_(W)))

    def _recount(self, count: int) -> bool:
        """Want so many vectors of the block, one at least; return whether that changes anything."""
        before, self.wanted = self.wanted, min(max(1, count), self.X.shape[1] - 1)
        return self.wanted != before

    @property
    def _crowded(self) -> bool:
        """Whether a cutoff keeps so many vectors that too few guards are left."""
        return self.cutoff is not None and self.k > self.X.shape[1] - least_guards(self.k)

    @property
    def _separated(self) -> bool:
        """Whether the first Ritz value above the cutoff, if there is one, stays there."""
        if self.cutoff is None:
            return True
        j = int((self.theta <= self.cutoff).sum())
        return j < self.theta.numel() and cautious_floor(self.theta[j], self.delta[j]) > self.cutoff

    def pairs(self) -> Ritz:
        """Return the wanted Ritz pairs in float64, with the evidence for them."""
        k, outcome = self.k, self.outcome
        if self.cutoff is not None:
            kept = int((self.theta <= self.cutoff).sum())
            k, outcome = kept + self.known, replace(outcome, kept=kept)
            if kept == 0:
                outcome = replace(outcome, error=0.0 if outcome.settled else math.inf, well_defined=k)
        block = Block(self.A, self.X, 0.0, null=self.null)
        block.estimate = replace(block.estimate, theta=self.theta, delta=self.delta)
        pairs = conclude(self.A, block, k, outcome, 0.0)
        return beyond_rounding(pairs, self.theta, k, self.known) if outcome.settled and k > self.known else pairs
