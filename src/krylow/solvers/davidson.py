r"""The lowest frequencies of one large graph whose degrees lie far apart: filter and corrections through the diagonal.

First a block is filtered by Chebyshev polynomials not of L but of $B = M^{-1/2} (L - \sigma) M^{-1/2}$
(:mod:`krylow.solvers._pencil`), whose lowest vectors are nearly those of L. What is left, because the frequencies
sought are not all equal to $\sigma$, is taken away by corrections: to the block X with residuals R, the vectors
$W = M^{-1/2} q(B) M^{-1/2} R \approx (L - \sigma)^{-1} R$ are joined, and the lowest Ritz vectors of L in span(X, W)
are the next block. A few columns are corrected at a time, and little is kept beside X: neither its products nor, as in
LOBPCG, the last directions, which a polynomial of some degree hardly needs. Vectors that are nearly constant on
clusters of heavy edges are all near 0 for B, which tells them badly: the lowest of the graph of clusters are joined in
the same way (:mod:`krylow.solvers._clusters`), and where that lowers the wanted frequencies, all begins again with a
better shift.

The error is measured on the way. A step moves the wanted vectors by nearly all that they were off: by theory it leaves
$1 / \cosh^2(d \, \mathrm{arcosh}(\cdot))$ of the squared error, by experience what the last two left, and the largest
of these is believed of it and of all that would follow (:mod:`krylow.solvers._correction`). That is told of the first
1, 2, ... vectors apart: the lowest frequencies, far below $\sigma$, are corrected by least, and would be covered by
what steps take of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from krylow._checks import InputError
from krylow._memory import empty, trim
from krylow.krylov.ritz import Ritz
from krylow.linalg.components import NullSpace
from krylow.linalg.row_blocks import gram, lengths, orthonormalize_, recombine_, rotate_, subtract_
from krylow.operators import FunctionOperator, SparseOperator
from krylow.profile import GraphProfile
from krylow.result import Subspace
from krylow.solvers._block import Block, conclude
from krylow.solvers._clusters import PART, lowest_of_clusters
from krylow.solvers._correction import Leftover, Step, beyond_rounding
from krylow.solvers._estimate import Outcome, Stopping, TooManyKept, cautious_floor
from krylow.solvers._filter import Filter, Precision, fits_single, least_guards
from krylow.solvers._pencil import first_frequency, scale
from krylow.solvers._problem import Problem, Solver, Watch, random_block, solve_large, sparse_copy, width_of_block
from krylow.solvers.exact import Exact

#: The filter of B runs until this error of B's own vectors, and until this one before the shift is looked at.
COARSE, ROUGH = 2e-2, 0.2
MOST_PASSES = 400
#: Shifts that are tried, and how far below 0 all wanted frequencies of B may be before the shift is far too high.
ROUNDS, NEAR = 8, 0.1
#: The shift is put at this part of the way from the last wanted frequency to the next, until B's last wanted one is
#: below 0 by at most this part of the distance of the last guard.
BETWEEN, BELOW = 0.3, 1.0
#: The first sweep filters from this part of B's top, with this degree; degrees of those that follow, and the growth
#: that rounding allows between the first vector and the last.
FIRST_CUT, FIRST_DEGREE = 16, 12
DEGREES = (4, 400)
#: The wanted frequencies of B are this near a filter's cut, relative to that, if they are at it or above.
CLAMPED = 0.02
GROWTH = {torch.float32: 1e5, torch.float64: 1e10}
#: Degrees of a correction, and the factor by which it should shrink the vectors' error at least and at most.
STEP_DEGREES = (6, 600)
SHRINK = (4.0, 20.0)
#: The part of the error asked for that a step aims at.
AIM = 0.3
#: Wanted vectors that leak this part of the error asked for, and after a step are still mixed by this part of what they
#: were before, so many times in turn, will not come apart: there is no gap.
SETTLED, STILL, TIMES = 1e-2, 0.5, 2
#: Columns are corrected in groups of about the same width: the widest, and how many there are at least.
GROUP, LEAST_GROUPS = 16, 2
#: Columns beyond the wanted ones that are corrected, too: while they are off, they couple vectors on either side of the
#: cut.
GUARDS = 4
#: With a cutoff, the first guard is known if it leaks at most this much.
KNOWN = 0.5
#: The block is filtered again where clusters lower the last wanted frequency by this part, so many times at most.
FALLS, JOINS = 0.1, 4
#: Inner products with the block that one more projection may take from corrections without another, and most of these.
ORTHOGONAL, MOST_PROJECTIONS = 1e-3, 5
#: float32 is used where its rounding, times the largest degree, is this small against the first frequency.
SINGLE_SCALE = 1e-2
#: Guard vectors: this many where so few vectors are wanted, and where weights differ by orders of magnitude; else a
#: third of those wanted if that is less. A fourth in any case, if that is more.
BLOCK_GUARDS, FEW = 6, 10
#: Weights differ by orders of magnitude if the mean degree is so many times the harmonic mean.
CONTRAST = 20.0
#: Graphs of up to so many nodes are searched whole.
SMALL = 400


@dataclass(frozen=True)
class Davidson(Solver):
    """Polynomial-preconditioned block Davidson (Davidson, 1975; Stathopoulos and McCombs, 2010) scaled by the diagonal.

    Parameters
    ----------
    block
        Columns of the block, more than k. None: k and a quarter of it, at least a few.
    """

    name: ClassVar[str] = "davidson"
    takes_cutoff: ClassVar[bool] = True
    block: int | None = None

    def _width(self, problem: Problem) -> int:
        k = problem.k
        least = BLOCK_GUARDS if k <= FEW or problem.profile.contrast > CONTRAST else min(BLOCK_GUARDS, k // 3)
        return width_of_block(problem, self.block, guards=max(least, k // 4), line=8)

    def subspace(self, problem: Problem) -> Subspace:
        """Return the answer; of few nodes the search space is the whole space, where Rayleigh-Ritz is exact."""
        L = problem.operator
        if isinstance(L, FunctionOperator):
            raise InputError(
                'method="davidson" scales L by its diagonal, so its entries must be known, got a function.'
            )
        if not problem.is_large(SMALL):
            why = f"{L.n} nodes are few enough for the whole space to be searched"
            return replace(Exact().subspace(problem), why=why)
        if not isinstance(L, SparseOperator):
            S = sparse_copy(L).counting_for(L)
            problem = replace(problem, operator=S, profile=GraphProfile(S))
            return replace(super().subspace(problem), operator=L)
        return super().subspace(problem)

    def describe(self, problem: Problem) -> str:
        """Return the width of the block."""
        return f"a block of {self._width(problem)} vectors, filtered and corrected through the diagonal"

    def solve(self, problem: Problem) -> Ritz:
        """Return the lowest Ritz pairs."""
        return solve_large(problem, partial(self._solve_large, width=self._width(problem)))

    def _solve_large(self, problem: Problem, width: int) -> Ritz:
        L = problem.operator
        assert isinstance(L, SparseOperator)
        return preconditioned_subspace(
            L,
            partial(random_block, problem, width),
            problem.k,
            problem.null,
            tol=problem.tol,
            max_products=problem.max_products or 4000 * width,
            generator=problem.seeded(),
            watch=problem.watch(),
            cutoff=problem.cutoff,
        )


def preconditioned_subspace(
    L: SparseOperator,
    start: Callable[[], Tensor],
    k: int,
    null: NullSpace | None,
    *,
    tol: float,
    max_products: int,
    generator: torch.Generator,
    watch: Watch | None = None,
    cutoff: float | None = None,
) -> Ritz:
    """Return Ritz pairs of one large graph, the k lowest of which have an estimated error of at most ``tol``.

    Parameters
    ----------
    L
        The operator, of one graph.
    start
        Makes the start block ``(n, s)``, s > k.
    k
        Wanted pairs.
    null
        Null vectors of L, which are not iterated for where they are the lowest; there must be fewer than k of them.
    tol
        Estimated normalised squared subspace error to stop at.
    max_products
        Most products with L.
    generator
        Of the vector that looks for the first frequency.
    watch
        Told of every correction. Ctrl-C ends the iteration with what the last one found.
    cutoff
        If all pairs up to this frequency are wanted: k is then an estimate of how many they are. It is the first shift,
        so that as many frequencies of B are negative.
    """
    null = null if null is not None and null.lowest and null.count else None
    D = L.double().counting_for(L)
    shift = first_frequency(D, null, generator) if cutoff is None else cutoff
    A = L.double().counting_for(L)
    X = start()
    for dtype in (torch.float32, torch.float64)[not _single_suffices(D, shift, tol) :]:
        pairs, settled = _search(A, D, X.to(dtype), k, null, shift, tol, max_products, watch, cutoff)
        known = pairs.evidence
        if not settled or known is None or known.error <= tol or known.well_defined < pairs.X.shape[1]:
            break
        # There is a gap, and rounding of the search is all that is left of the error: once more in double precision.
        X, k = start(), pairs.X.shape[1]
        X = torch.cat([pairs.X.to(X.dtype), X[:, -max(X.shape[1] - k, least_guards(k)) :]], dim=1)
    return pairs


def _search(
    A: SparseOperator,
    D: SparseOperator,
    X: Tensor,
    k: int,
    null: NullSpace | None,
    shift: float,
    tol: float,
    max_products: int,
    watch: Watch | None,
    cutoff: float | None,
) -> tuple[Ritz, bool]:
    """Return the pairs of a search in the precision of the start block X, and whether it settled.

    Products of the search are counted by A, those of its end by D; the rest as in :func:`preconditioned_subspace`.
    """
    search = Search(A, X, k, null, max_products, cutoff)
    try:
        search.find(shift, tol / Stopping.safety)
        while not search.correct(tol / Stopping.safety, watch):
            search.find(shift, tol / Stopping.safety)
    except KeyboardInterrupt:
        search.outcome = replace(search.outcome, interrupted=True)
    X, theta, outcome, doubt = search.X, search.theta, search.outcome, search.doubt
    known = null.count if null else 0
    if cutoff is not None:
        kept = int((theta <= cutoff).sum())
        k, outcome = kept + known, replace(outcome, kept=kept)
        if kept == 0:
            outcome = replace(outcome, error=0.0 if outcome.settled else math.inf, well_defined=k)
    del search  # and what it keeps beside its block
    trim(X)
    block = Block(A, X, 0.0, null=null)
    del X
    block.estimate = replace(block.estimate, theta=theta, delta=doubt)
    pairs = conclude(D, block, k, outcome, 0.0)
    if outcome.settled and k > known:
        pairs = beyond_rounding(pairs, theta, k, known)
    return pairs, outcome.settled and not outcome.interrupted


def _single_suffices(D: SparseOperator, first: float, tol: float) -> bool:
    rounding = torch.finfo(torch.float32).eps * float(D.diagonal().abs().max())
    return tol >= Precision.single and rounding <= SINGLE_SCALE * abs(first) and fits_single(D)


class Search:
    """The block of one graph on its way to the lowest frequencies.

    Parameters
    ----------
    A
        L in float64, which counts all products.
    X
        ``(n, s)`` start block, in the precision of the search.
    k
        Wanted vectors, null vectors included.
    null
        Null vectors to keep apart; None: none.
    max_products
        Most products.
    cutoff
        Where k is an estimate of how many frequencies are up to this one.

    Attributes
    ----------
    doubt
        ``(s,)`` by how much each Ritz value may still fall, by estimate.
    X
        ``(n, s)`` orthonormal, beside the null space, in the order of rising frequency once it is filtered.
    theta
        ``(s,)`` float64 Ritz values.
    outcome
        What is known of the error.
    """

    def __init__(
        self,
        A: SparseOperator,
        X: Tensor,
        k: int,
        null: NullSpace | None,
        max_products: int,
        cutoff: float | None = None,
    ) -> None:
        self.A, self.null, self.limit, self.cutoff = A, null, max_products, cutoff
        self._take(X)
        self.theta = torch.full((X.shape[1],), torch.inf, dtype=torch.float64)
        self.doubt = torch.full_like(self.theta, torch.inf)
        self.outcome = Outcome(math.inf, 0)
        self._want(k)
        self._deep = self.X.new_empty(self.X.shape[0], 0)
        self._entries: Tensor | None = None  # of the last pencil: the next one takes their room
        self._low, self._end, self._least = 1.0, 0.0, 0.0
        self._complete, self._stiff = False, False

    def _want(self, k: int) -> None:
        """Make k the number of wanted vectors, null vectors included, and plan how many columns are corrected."""
        X, self.k = self.X, k
        self.wanted = k - (self.null.count if self.null else 0)
        corrected = min(X.shape[1], self.wanted + GUARDS)
        groups = max(LEAST_GROUPS, -(-corrected // GROUP))
        self._group = -(-corrected // (4 * groups)) * 4
        self._columns = min(X.shape[1], -(-corrected // self._group) * self._group)

    def _recount(self, count: int) -> bool:
        """Want so many vectors of the block, one at least; return whether that changes anything."""
        before = self.wanted
        self._want(self.k - self.wanted + min(max(1, count), self.X.shape[1] - 1))
        return self.wanted != before

    def _widen(self) -> None:
        """Make the block twice as wide, with random columns."""
        n, width = self.X.shape
        if 4 * width > n:
            raise TooManyKept
        source = torch.Generator(device=self.X.device).manual_seed(width)
        more = torch.randn(n, min(width, n - self.k), dtype=self.X.dtype, device=self.X.device, generator=source)
        self._take(torch.cat([self.X, more], dim=1))
        self.theta = torch.full((self.X.shape[1],), torch.inf, dtype=torch.float64)
        self.doubt, self.outcome = torch.full_like(self.theta, torch.inf), Outcome(math.inf, 0)
        self._want(self.k)

    @property
    def _crowded(self) -> bool:
        """Whether a cutoff keeps so many vectors that too few guards are left."""
        width = self.X.shape[1]
        return self.cutoff is not None and self.k > width - least_guards(self.k)

    @property
    def _straddled(self) -> bool:
        """Whether the first Ritz value above the cutoff, if there is one, stays there."""
        if self.cutoff is None:
            return True
        j = int((self.theta <= self.cutoff).sum())
        return j < self.theta.numel() and cautious_floor(self.theta[j], self.doubt[j]) > self.cutoff

    def _clean_(self, X: Tensor) -> Tensor:
        return X.contiguous() if self.null is None else self.null.remove_(X).contiguous()

    def _take(self, X: Tensor) -> None:
        """Make X the block, beside the null space: again where columns near that were mostly rounding after once."""
        for _ in range(MOST_PROJECTIONS):
            X = orthonormalize_(self._clean_(X))
            if self._renew_(X) <= 1e-5:
                break
        self.X = X

    def _renew_(self, X: Tensor) -> float:
        """Return the most that an orthonormal column holds of the null space; one that it is most of becomes random.

        Where all neighbours are alike, rounding along a null vector lies along that again, however often it is removed.
        """
        if self.null is None:
            return 0.0
        held = self.null.coefficients(X).square().sum(0)
        for j in torch.nonzero(held > 0.5)[:, 0].tolist():
            source = torch.Generator(device=X.device).manual_seed(j)
            X[:, j] = torch.randn(X.shape[0], dtype=X.dtype, device=X.device, generator=source)
        return float(held.max().sqrt())

    def find(self, shift: float, tol: float) -> None:
        """Filter the block, join what a filter misses, and filter again with the shift that follows from that."""
        for _ in range(JOINS):
            self.filter(shift)
            before = float(self.theta[self.wanted - 1])
            self._join_clusters(tol)
            if self.cutoff is not None:
                self._recount(int((self.theta <= self.cutoff).sum()))
            last, following = self.theta[self.wanted - 1 : self.wanted + 1].tolist()
            shift = last + BETWEEN * (following - last)
            if before - last <= FALLS * abs(before):
                if self._complete and self.pencil.shift > following:
                    self._lower(shift)
                return
        self._complete = False

    def filter(self, shift: float) -> None:
        """Filter the block through pencils of better and better shifts, then rotate it to Ritz vectors of L."""
        goal, low = ROUGH, math.inf
        for _ in range(ROUNDS):
            trim(self.X)
            self.pencil = scale(self.A, shift, self.X.dtype, self._entries)
            self._entries = self.pencil.operator.values
            trim(self.X)
            self.X = self.pencil.from_graph_(self._with_null())
            block = Block(self.pencil.operator, self.X, self.pencil.top)
            try:
                self._sweep(block, min(low, block.high / FIRST_CUT), goal)
                if self._settled(block) and goal > COARSE and not self._crowded:
                    self._sweep(block, float(block.estimate.theta[-1]), COARSE)
                deep = block.estimate.theta < -NEAR
                self._deep = block.X[:, deep.to(block.X.device)].contiguous()
                self._least = float(block.estimate.theta[~deep].min()) if not bool(deep.all()) else 0.0
                self._low, self._end = float(block.estimate.theta[-1]), float(block.estimate.theta[self.k - 1])
                self._complete = self._settled(block) and not self._crowded
                if self._complete:
                    break
                if self._crowded:
                    low = 2 * max(self._low, self.pencil.near)
                    continue
                goal = COARSE if self._end >= -NEAR else ROUGH
                shift = self._last_of_graph(block)
                low = 2 * max(self._low - self._end, self.pencil.near)
            finally:
                self.X = block.X
                del block  # before another one takes its room
                self._take(self.pencil.to_graph_(self.X))
                if self._crowded:
                    self._widen()
        self._low = min(max(self._low, self.pencil.near), 0.5 * self.pencil.top)
        self._rotate()

    def _lower(self, shift: float) -> None:
        """Lower the shift to one just above the wanted frequencies, which are known better than when it was chosen.

        One that is beyond guards is near to what lies outside the block, and corrections take many steps. Frequencies
        of B near 0 are taken to rise as that of the heaviest wanted vector does, the least; if that is nothing to speak
        of, the shift stays. So it does where frequencies are negative: some degrees are about the shift then, and what
        is far below 0 in B is another vector with another shift.
        """
        if float(self.theta[0]) < 0:
            return
        former, most = self.pencil, 0.0
        for group in self._groups(self.wanted):
            most = max(most, float(lengths(former.from_graph_(self._rooms(group)[0])).max()) ** 2)
        rise = (former.shift - shift) / most
        if rise <= former.near:
            return
        self.pencil = scale(self.A, shift, self.X.dtype, former.operator.values)
        if self._deep.shape[1]:
            self._deep = orthonormalize_(self.pencil.from_graph_(former.to_graph_(self._deep)))
        self._low = min(self._low + rise, 0.5 * self.pencil.top)
        self._end, self._least = min(self._end + rise, 0.0), self._least + rise

    def _rotate(self) -> None:
        """Rotate the block to Ritz vectors of L."""
        trim(self.X)
        H = torch.cat(
            [gram(self.X, self._times(*self._rooms(group))) for group in self._groups(self.X.shape[1])], dim=1
        )
        self.theta, Q = torch.linalg.eigh((H + H.mT).cpu() / 2)
        rotate_(self.X, Q.to(self.X.device))

    def _join_clusters(self, tol: float) -> None:
        """Join the lowest vectors of the graph whose clusters of heavy edges are one node each to the block.

        B has all vectors of such clusters near 0, whatever their frequency is, so that the filter may have missed some.
        """
        u = torch.ones(self.A.n) if self.null is None else self.null.vector
        u = torch.where(u == 0, torch.ones_like(u), u)
        frequency = max(abs(self.pencil.shift), float(self.theta[self.wanted - 1]))
        found = lowest_of_clusters(self.A, u, frequency, self.k, self.X.shape[1], tol)
        self._stiff = found is not None
        if found is None:
            return
        level, vectors = found
        for V in vectors.split(GROUP, dim=1):
            W = self._orthonormalized(
                level.prolong(V, empty(self.A.n, V.shape[1], dtype=self.X.dtype, device=V.device))
            )
            self._ritz(W, torch.empty_like(W), torch.empty_like(W))

    def _with_null(self) -> Tensor:
        """Return null vectors and as much of the block as fits beside them.

        B's own vectors next to the null ones grow the most: the filter has to know of them from the start.
        """
        if self.null is None:
            return self.X
        X = empty(*self.X.shape, dtype=self.X.dtype, device=self.X.device)
        count = self.null.count
        X[:, :count], X[:, count:] = self.null.basis(dtype=X.dtype), self.X[:, : X.shape[1] - count]
        return X

    def _sweep(self, block: Block, low: float, goal: float) -> None:
        """Sweep until the error of B's own wanted vectors is at most ``goal``, or all are far below the shift."""
        B, k = block.L, self.k
        while self.A.products < self.limit and B.passes < MOST_PASSES:
            known = block.estimate.known
            first = float(block.estimate.theta[0]) if known else 0.0
            low = max(low, first + 1e-7 * block.high)
            degree = _filter_degree(block, k, low, goal) if known else FIRST_DEGREE
            block.sweep(k, Filter(degree, low, block.high, min(first, low - self.pencil.near)))
            shown = True
            if self.pencil.shift == self.cutoff:  # as many frequencies are below 0 as L has below the cutoff
                self._recount(int((block.estimate.theta <= 0).sum()) - (self.k - self.wanted))
                k = self.k
                if self._crowded:  # a wider block is needed, whatever this one still finds
                    return
                shown = float(block.estimate.outside[k]) <= KNOWN
            last, found = float(block.estimate.theta[k - 1]), block.estimate.error(k) <= goal
            if shown and (found or (block.estimate.sweeps > 1 and last < -NEAR)):
                return
            above = low - last <= CLAMPED * abs(low)  # a filter sees no frequency above its cut
            low = min(2 * abs(low), block.high / 2) if above else min(low, float(block.estimate.theta[-1]))

    def _settled(self, block: Block) -> bool:
        """Return whether the last wanted frequency of B is somewhat below 0, by the distance of the last guard.

        As many frequencies of B are below 0 as L has below the shift, so that none of the wanted ones can hide among
        high frequencies of B, as one on nodes of small degree would that is above the shift.
        """
        end, last = float(block.estimate.theta[self.k - 1]), float(block.estimate.theta[-1])
        distance = max(last - end, self.pencil.near)
        return -BELOW * distance <= end <= 0

    def _last_of_graph(self, block: Block) -> float:
        """Return a number just above L's wanted frequencies, from the Rayleigh quotients of the filtered vectors."""
        B, quotients, step = block.L, [], block.X.shape[1] // 2
        for j in range(0, block.X.shape[1], step):
            columns = block.X[:, j : j + step]
            Y = columns.clone(memory_format=torch.contiguous_format)
            BY = B.three_term(Y, None, 1.0, 0.0)
            products = gram(Y, BY).diagonal()
            quotients.append(products / lengths(self.pencil.to_graph_(Y)).square() + self.pencil.shift)
        last, following = (
            torch.cat(quotients)[self.k - self.wanted :].sort().values[self.wanted - 1 : self.wanted + 1].tolist()
        )
        return last + BETWEEN * (following - last)

    def correct(self, tol: float, watch: Watch | None) -> bool:
        """Correct the wanted vectors until their estimated error is at most ``tol``, or no gap shows.

        Returns False where a cutoff keeps too many of them for the block, which is wider then.
        """
        left, eps, still, undecided = Leftover(known=not self._stiff), torch.finfo(self.X.dtype).eps, 0, 0
        trim(self.X)
        while True:
            degree = self._step_degree(tol)
            if self.A.products + (degree + 1) * self._columns > self.limit:
                return True
            step, before = self._step(degree), self.outcome.error
            if step is None:
                return True
            if self.cutoff is not None and self._recount(int((self.theta <= self.cutoff).sum())):
                left, self.outcome = Leftover(known=not self._stiff), Outcome(math.inf, 0)
                if not self._crowded:
                    continue
                self._widen()
                return False
            left.take(step, self._theory(degree))
            if self._complete:
                judged = left.judged(step, self.theta, self.k - self.wanted, tol, eps)
                self.doubt = left.doubt
                # Steps hardly see what the vectors of clusters were off by.
                self.outcome = replace(judged, error=judged.error + PART * tol) if self._stiff else judged
            if watch is not None:
                watch.report(self.outcome.error)
            still = still + 1 if left.leaks <= SETTLED * tol and not self.outcome.error < STILL * before else 0
            if self._complete and left.stalled:
                return True
            if self.outcome.error <= tol and not self._straddled and undecided < Stopping.patience:
                undecided += 1
            elif self.outcome.error <= tol or still == TIMES:
                self.outcome = replace(self.outcome, settled=True)
                return True

    def _theory(self, degree: int) -> float:
        """Return the part of the squared error that a step of this degree leaves."""
        high, low = self.pencil.top, self._low
        x = (high + low - 2 * min(max(self._end, 0.0), low)) / (high - low)
        return math.cosh(degree * math.acosh(max(x, 1.0))) ** -2

    def _step_degree(self, tol: float) -> int:
        error = self.outcome.error if math.isfinite(self.outcome.error) else COARSE
        goal = min(max((error / (AIM * tol)) ** 0.5, SHRINK[0]), SHRINK[1])
        least, most = STEP_DEGREES
        rate = math.acosh(1 + 2 * max(self._low - self._least, 0.0) / (self.pencil.top - self._low))
        most = max(least, min(most, int(math.log(2 * GROWTH[self.X.dtype]) / max(rate, 1e-300))))
        return next((d for d in range(least, most) if self._theory(d) * goal**2 <= 1), most)

    def _step(self, degree: int) -> Step | None:
        """Correct the wanted vectors, a group of columns after the other; None where a correction overflows."""
        s, wanted = self.X.shape[1], self.wanted
        moved, new, S = (torch.zeros(shape, dtype=torch.float64) for shape in (wanted, wanted, (s, s)))
        for group in self._groups(self._columns):
            corrected = self._corrected(group, degree)
            if corrected is None:
                return None
            C, coupled = corrected
            # What the groups add is orthogonal but for products of small angles: squares add up.
            moved += self._moved(C)
            new += (1 - C[:s, :wanted].square().sum(0)).clamp(min=0)
            S = C[:s].mT @ (S + coupled) @ C[:s]
        return Step(moved, new, S)

    def _groups(self, columns: int) -> list[slice]:
        """Return the first columns in groups."""
        return [slice(j, min(j + self._group, columns)) for j in range(0, columns, self._group)]

    def _rooms(self, group: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Return a copy of some columns of the block, and two rooms of their size."""
        x = self.X[:, group]
        y, right, other = (empty(*x.shape, dtype=x.dtype, device=x.device) for _ in range(3))
        return y.copy_(x), right, other

    def _times(self, W: Tensor, out: Tensor, room: Tensor) -> Tensor:
        """Return L W in ``out``, through the pencil."""
        torch.mul(W, self.pencil.root, out=room)
        self.pencil.operator.three_term(room, None, 1.0, 0.0, out=out)
        return self.pencil.from_graph_(out).add_(W, alpha=self.pencil.shift)

    def _corrected(self, group: slice, degree: int) -> tuple[Tensor, Tensor] | None:
        """Join corrections of some columns to the block and take the lowest Ritz vectors.

        Returns the coefficients C of the new block over the old one (first rows) and what was joined, and S ``(s, s)``,
        by which what was joined coupled the old vectors. None where a correction overflows, with the block as it was:
        something is far below 0 in B that the filter has not seen.
        """
        pencil = self.pencil
        y, right, other = self._rooms(group)
        pencil.operator.three_term(pencil.from_graph_(y), None, 1.0, 0.0, out=right)
        right.add_(y.div_(pencil.root).div_(pencil.root).mul_((pencil.shift - self.theta[group]).to(y)))
        W, room = pencil.solve(right, degree, self._low, self._deep, y, other)
        if not bool(lengths(W).isfinite().all()):
            return None
        W = self._orthonormalized(pencil.to_graph_(W))
        return self._ritz(W, right, room)

    def _ritz(self, W: Tensor, right: Tensor, room: Tensor) -> tuple[Tensor, Tensor]:
        """Take the lowest Ritz vectors of the block and of W, which is orthonormal beside it; two rooms are spent.

        Returns as :meth:`_corrected` does.
        """
        s = self.X.shape[1]
        LW = self._times(W, right, room)
        new = torch.cat([gram(self.X, LW), gram(W, LW)]).cpu()
        H = torch.cat([torch.cat([torch.diag(self.theta), new[:s].mT]), new], dim=1)
        H = (H + H.mT) / 2
        values, V = torch.linalg.eigh(H)
        outer = H[s:, s:] - float(self.theta[self.wanted - 1]) * torch.eye(H.shape[0] - s, dtype=H.dtype)
        S = H[:s, s:] @ torch.linalg.solve(outer, H[s:, :s])
        self.theta = values[:s]
        recombine_([self.X, W], V[:, :s], [self.X])
        return V[:, :s], S

    def _orthonormalized(self, W: Tensor) -> Tensor:
        """Return W made orthonormal and orthogonal to the block and null vectors, as often as rounding asks for."""
        for again in range(MOST_PROJECTIONS):
            W = orthonormalize_(W) if again else W
            along = self._renew_(W) if again else 1.0
            W = self._clean_(W)
            inner = gram(self.X, W)
            subtract_(W, [self.X], [inner])
            if max(along, float(inner.abs().max())) <= ORTHOGONAL:
                break
        return W

    def _moved(self, C: Tensor) -> Tensor:
        """Return how far the first 1, 2, ... wanted vectors moved, each as a normalised squared subspace error."""
        kept = C[: self.wanted, : self.wanted].square().cumsum(0).cumsum(1).diagonal()
        return 1 - kept / torch.arange(1, self.wanted + 1)


def _filter_degree(block: Block, k: int, low: float, goal: float) -> int:
    """Return the degree that should bring the error of B's first k down to ``goal``, within what rounding allows."""
    rates = torch.acosh((1 + 2 * (low - block.estimate.theta) / (block.high - low)).clamp(min=1 + 1e-12))
    least, most = DEGREES
    growth = GROWTH[block.X.dtype] ** (1.0 if float(block.estimate.outside[:k].max()) < 0.3 else 0.7)
    most = max(least, min(most, int(math.log(2 * growth) / float(rates[0]))))
    for degree in range(least, most):
        if float((block.estimate.outside[:k] / torch.cosh(degree * rates[:k])).square().mean()) <= AIM * goal:
            return degree
    return most
