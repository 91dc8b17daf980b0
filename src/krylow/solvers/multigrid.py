r"""Multilevel refinement: the answer of a coarser graph, prolonged, smoothed, and corrected there until it is good.

On each level a block X is smoothed by a short Chebyshev filter, which removes what the block holds of high frequencies
and measures it. What it holds of low dropped ones is too near for a filter of few degrees; the coarser graph sees it:

$$e_i \approx r \, P \, (P^\top L P - r \theta_i)^{-1} P^\top (L x_i - \theta_i x_i) , \qquad r = \theta^c / \theta ,$$

on the complement of the coarse answer, with r the factor by which piecewise constant vectors overrate a low frequency.
That is the error's estimate, by which the iteration stops, and, subtracted, its correction
(:mod:`krylow.solvers._cycles`). A cycle costs about ten passes, or twenty where the error is to be small, and lowers
the squared error ten times and more on graphs with a geometry.
Where a cycle does not pay, Chebyshev sweeps go on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from krylow._checks import InputError
from krylow._memory import empty, trim
from krylow.krylov.ritz import Ritz
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.result import Subspace
from krylow.solvers._aggregation import Aggregation, aggregate
from krylow.solvers._block import Block, conclude
from krylow.solvers._coarse import DECOMPOSED, FACTORISED, CoarseGraph, Coarsest, solve_coarsest
from krylow.solvers._coarse_count import coarse_count
from krylow.solvers._cycles import SMOOTH_CUT, run_cycles
from krylow.solvers._estimate import Outcome, Stopping, TooManyKept
from krylow.solvers._filter import block_width, single, spectrum_top, working_precision
from krylow.solvers._problem import Problem, Solver, Watch, solve_large, sparse_copy, width_of_block
from krylow.solvers.chebyshev import Chebyshev, Goal, first_cut, refine, refine_up_to
from krylow.solvers.exact import Exact

#: A coarser graph has to be smaller by this factor to be worth it.
SHRINKS = 0.6
#: A coarser graph of fewer nodes than this many a column is too unlike the finer one.
LEAST_COARSE = 11
#: Aggregates that leave more than this part of the nodes (grids'), or more than can be factorised, are joined once more
#: if so many nodes a column are left.
SMALL, MANY, TWICE_COARSE = 0.125, FACTORISED, 30
#: Where the coarsest graph's last frequency is not above its k-th by this factor, so many more are found, so often.
CLOSE, WIDER, TIMES_WIDER = 1.05, 8, 2
#: Where cycles do not pay with fewer guards than these, they are tried with as many more columns.
ENOUGH = 3
#: The coarser answer is asked for this part of the error, or for this one if that is less, but for no less than that.
COARSER, COARSE_ENOUGH, LEAST_ASKED = 0.1, 1e-4, 1e-9
#: Most passes of Chebyshev sweeps over a coarser graph.
COARSE_PASSES = 4000
#: Least guards of a block whose errors a coarser graph corrects; one is enough where so many columns hold it.
GUARDS, NARROW = 3, 8
#: A graph has a geometry if no level set of a breadth-first search holds more than this share of its nodes.
GEOMETRIC = 0.1


@dataclass(frozen=True)
class Multilevel(Solver):
    """Eigenvalue multigrid by aggregation (Brandt, McCormick and Ruge, 1983; Livne and Brandt, 2012).

    Parameters
    ----------
    block
        Columns of the block, more than k. None: k and a few guard vectors.
    """

    name: ClassVar[str] = "multilevel"
    takes_cutoff: ClassVar[bool] = True
    block: int | None = None

    def _width(self, problem: Problem, *, several: bool = False) -> int:
        # Neighbours are near: a narrow block pays more than whole cache lines.
        guards = GUARDS if several or problem.k >= NARROW else 1
        return width_of_block(problem, self.block, guards=guards, line=NARROW)

    def describe(self, problem: Problem) -> str:
        """Return the width of the block."""
        return f"coarser graphs, then a block of {self._width(problem)} vectors or more"

    def subspace(self, problem: Problem) -> Subspace:
        """Return the answer; a graph of few nodes is its own coarsest level, and is decomposed."""
        L = problem.operator
        if isinstance(L, FunctionOperator):
            raise InputError('method="multilevel" joins nodes of L, so its entries must be known, got a function.')
        if not problem.is_large(DECOMPOSED):
            why = f"{L.n} nodes are few enough to be the coarsest level"
            return replace(Exact().subspace(problem), why=why)
        geometric = isinstance(L, SparseOperator) and problem.profile.width <= GEOMETRIC
        if problem.cutoff is not None and not geometric:
            # A coarse graph unlike it estimates a guard's frequency too badly to show what is below the cutoff.
            return Chebyshev(self.block).subspace(problem)
        return super().subspace(problem)

    def solve(self, problem: Problem) -> Ritz:
        """Return the lowest Ritz pairs."""
        return solve_large(problem, self._solve_large)

    def _solve_large(self, problem: Problem) -> Ritz:
        A, null = problem.operator, problem.null
        S = A if isinstance(A, SparseOperator) else sparse_copy(A).counting_for(A)
        looped = null is None or null.count < null.components  # one guard tells too little of errors there
        # So it does of a frequency that has to be above a cutoff.
        several = looped or problem.cutoff is not None

        def width_of(k: int) -> int:
            return self._width(replace(problem, k=k), several=several)

        return multilevel_subspace(
            S,
            problem.null_vector(),
            problem.k,
            width_of(problem.k),
            tol=problem.tol,
            max_products=problem.max_products or 4000 * self._width(problem),
            generator=problem.seeded(),
            watch=replace(problem, operator=S).watch(),
            cutoff=problem.cutoff,
            width_of=width_of,
        )


def multilevel_subspace(
    L: SparseOperator,
    vector: Tensor,
    k: int,
    width: int,
    *,
    tol: float,
    max_products: int,
    generator: torch.Generator | None = None,
    watch: Watch | None = None,
    cutoff: float | None = None,
    width_of: Callable[[int], int] | None = None,
) -> Ritz:
    """Return Ritz pairs of one large sparse graph by multilevel refinement.

    Parameters
    ----------
    L
        The operator; products with it alone are counted, not those with coarser graphs.
    vector
        ``(n,)`` its null vector, nowhere zero: ones for D - W.
    k, width
        Wanted pairs, and columns of the block.
    tol, max_products, watch
        As in :func:`~krylow.solvers.chebyshev.chebyshev_subspace`.
    generator
        Source of the random columns with which sweeps go on.
    cutoff, width_of
        If all pairs up to this frequency are wanted: k and width are a first guess then, and the second is the width of
        a block for as many as a coarser graph counts.
    """
    A, D = working_precision(L, tol).counting_for(L), L.detach().counting_for(L)
    cut = None if cutoff is None or width_of is None else Cut(cutoff, width_of)
    block, outcome = _solve(A, D, vector, k, width, tol / Stopping.safety, max_products, generator, watch, cut)
    pairs = conclude(D, block, k if outcome.kept is None else outcome.kept, outcome, tol)
    return pairs


class Cut(NamedTuple):
    """A cutoff, and the width of a block for so many frequencies up to it."""

    frequency: float
    width: Callable[[int], int]


def _solve(
    A: Operator,
    D: SparseOperator,
    vector: Tensor,
    k: int,
    width: int,
    tol: float,
    max_products: int,
    generator: torch.Generator | None,
    watch: Watch | None,
    cut: Cut | None = None,
) -> tuple[Block, Outcome]:
    """Return the block of one level and how it ended; D is A, in float64 where ``tol`` is small."""
    high = spectrum_top(A)
    level = aggregate(D, vector, high / SMOOTH_CUT / 2)
    if level.coarse.n > min(SMALL * D.n, MANY):
        second = aggregate(level.coarse, level.vector, high / SMOOTH_CUT / 2)
        if second.coarse.n >= TWICE_COARSE * width:
            level = level.then(second)
    graph, cutoff = CoarseGraph(level.coarse), None
    if cut is not None:
        cutoff = cut.frequency
        counted = coarse_count(A, level, graph, cutoff, high) if high > 0 else None
        if counted is not None:
            if 4 * counted > D.n:
                raise TooManyKept
            k = max(1, counted)
            width = cut.width(k)
    trim(D.col)  # of what walks and aggregates took
    # The smoother removes what is above zero: where nothing is, sweeps alone serve.
    if high <= 0 or level.coarse.n > SHRINKS * D.n or level.coarse.n < LEAST_COARSE * width:
        X = _random(A, max(width, block_width(k, D.n)), generator)
        block = Block(A, X, high)
        return _swept(block, D, k, tol, max_products, watch, first_cut(block), cutoff)
    for more in (0, WIDER):
        if more and width >= k + ENOUGH:
            break
        coarse = _coarse_answer(level, graph, k, width + more, tol, generator)
        width = coarse.theta.numel()
        X = empty(A.n, width, dtype=A.dtype, device=A.device)
        trim(X)  # of what the coarser graph's answer took
        block = Block(A, level.prolong(coarse.V, X), high, orthonormal=True)
        left = max_products - A.products
        outcome = run_cycles(block, D, level, coarse, k, tol=tol, max_products=left, watch=watch, cutoff=cutoff)
        if outcome is not None and not outcome.narrow:
            return block, outcome
        if outcome is not None and outcome.kept:
            k = min(outcome.kept, width)
    # Sweeps need guards, which cycles do not.
    X = torch.cat([block.X, _random(A, max(0, block_width(k, D.n) - width), generator)], dim=1)
    low = max(float(block.estimate.theta[-1]), 1e-7 * high)
    block = Block(A, X, high)
    return _swept(block, D, k, tol, max_products - A.products, watch, low, cutoff)


def _swept(
    block: Block,
    D: Operator,
    k: int,
    tol: float,
    max_products: int,
    watch: Watch | None,
    low: float,
    cutoff: float | None,
) -> tuple[Block, Outcome]:
    """Return the block after Chebyshev sweeps, and how they ended."""
    goal = Goal(k, tol, max_products, watch, cutoff)
    return refine_up_to(block, D, goal, low) if cutoff is not None else (block, refine(block, D, goal, low))


def _coarse_answer(
    level: Aggregation, graph: CoarseGraph, k: int, width: int, tol: float, generator: torch.Generator | None
) -> Coarsest:
    """Return the lowest frequencies of the coarser graph, ``width`` of them or more, for an error of ``tol``."""
    C = level.coarse
    ask = max(min(COARSER * tol, COARSE_ENOUGH), LEAST_ASKED)
    coarse = _coarsest(graph, k, width, ask)
    if coarse is not None:
        return coarse
    A = single(C) if tol >= 1e-8 else C
    found, _ = _solve(A, C, level.vector, k, width, ask, COARSE_PASSES * width, generator, None)
    return Coarsest(found.estimate.theta[:width], found.turned()[:, :width])


def _coarsest(graph: CoarseGraph, k: int, width: int, tol: float) -> Coarsest | None:
    """Return the lowest frequencies of the coarsest graph, beyond the k-th as many as a finer graph may have below it.

    Of copies of a graph, or of a frequency, some are coarsened better than others: their order is not the finer one's.
    """
    coarse = solve_coarsest(graph, k, width, tol)
    for _ in range(TIMES_WIDER):
        wider = min(width + WIDER, graph.operator.n // LEAST_COARSE)
        if coarse is None or wider <= width or float(coarse.theta[-1]) > CLOSE * float(coarse.theta[k - 1]):
            break
        width = wider
        coarse = solve_coarsest(graph, k, width, tol)
    return coarse


def _random(A: Operator, width: int, generator: torch.Generator | None) -> Tensor:
    return torch.randn(A.n, width, dtype=A.dtype, device=A.device, generator=generator)
