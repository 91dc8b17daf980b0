r"""Eigenvalue multigrid by aggregation.

Nodes are aggregated; the coarse eigenproblem is solved, by recursion and in the end by a factor or densely; its
eigenvectors are prolonged and refined by two-grid cycles (:mod:`krylow.solvers._cycles`) of a Chebyshev smoother, a
Rayleigh-Ritz step and a coarse-grid correction, which is the error estimate as well. A cycle costs about ten passes, or
twenty where the error is to be small, and lowers the squared error ten times and more on graphs with a geometry. Where
cycles do not converge, Chebyshev sweeps go on from there.

References: Brandt, McCormick and Ruge (1983); Kushnir, Galun and Brandt (2010); Livne and Brandt (2012).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from krylow._checks import InputError
from krylow._memory import empty
from krylow._reduce import agreed
from krylow.krylov.ritz import Ritz
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.operators.distributed import LocalRows
from krylow.result import Subspace
from krylow.solvers._aggregation import Aggregation, Replicated, aggregate
from krylow.solvers._block import Block, conclude
from krylow.solvers._coarse import SETTINGS, CoarseGraph, Coarsest, coarse_count, solve_coarsest
from krylow.solvers._cycles import CycleSettings, TwoGrid
from krylow.solvers._estimate import Outcome, Stopping, TooManyKept
from krylow.solvers._filter import Filter, block_width, single, spectrum_top, working_precision
from krylow.solvers._problem import Problem, Solver, random_block, solve_large, sparse_copy, width_of_block
from krylow.solvers.chebyshev import Goal, filtered_subspace, first_cut, refine, refine_up_to
from krylow.solvers.exact import Exact


@dataclass(frozen=True)
class CoarseningSettings:
    """Settings of the hierarchy of graphs."""

    shrinks: float = 0.6  #: most nodes of a coarse graph over those of the fine one
    least: int = 11  #: least aggregates a column of the block; fewer represent the fine graph badly
    small: float = 0.125  #: aggregates are aggregated once more if they are more than this part of the nodes,
    many: int = 40_000  #: or more than this,
    least_twice: int = 30  #: and if at least so many a column remain
    error: float = 0.1  #: squared error asked of the coarse eigenvectors, over that of the fine ones,
    most_error: float = 1e-4  #: but at most this
    least_error: float = 1e-9  #: and at least this
    close: float = 1.05  #: least ratio of the last to the k-th coarse eigenvalue,
    parts: float = 1.3  #: and that of a graph of weakly connected parts:
    weak: float = 6.0  #: one with a ratio of neighbouring eigenvalues, from the second on, above this
    more: int = 8  #: least vectors more that are computed where the ratio is less,
    times: int = 2  #: so many times
    guards: int = 3  #: where cycles do not converge with fewer guards than this, they are tried with as many more
    passes: int = 4000  #: most passes of Chebyshev sweeps over a coarse graph
    replicated: int = 400_000  #: most nodes of a coarse graph that every rank solves whole
    geometric: float = 0.1  #: largest level set of a breadth-first search, over the nodes, of a graph with a geometry


NO_COARSE_GRAPH = "no coarse graph is like it: Chebyshev sweeps alone, of"


@dataclass(frozen=True)
class Multilevel(Solver):
    """Eigenvalue multigrid by aggregation (Brandt, McCormick and Ruge, 1983; Livne and Brandt, 2012).

    The lowest eigenvectors of a coarse graph, prolonged and refined by two-grid cycles until the estimated error is
    below ``tol``. A graph of up to 400 nodes is its own coarsest level, which is decomposed, and so are graphs of a
    batch, and one of which more than a quarter of the frequencies are wanted. One without a geometry, with large level
    sets of a breadth-first search, is swept by Chebyshev filters from a random block.

    Cost: about 10 passes over L a cycle, 1 to 3 cycles for an error of 1e-3, and four blocks of memory.

    Parameters
    ----------
    block
        Columns of the block, more than k. None: k and a few guard vectors.
    degree
        Degree of the smoother, a Chebyshev polynomial; twice that for errors below 2e-4.
    cycles
        Most two-grid cycles, after which Chebyshev sweeps go on.
    """

    name: ClassVar[str] = "multilevel"
    takes_cutoff: ClassVar[bool] = True
    block: int | None = None
    degree: int = CycleSettings.degree
    cycles: int = CycleSettings.cycles
    coarsening: ClassVar[CoarseningSettings] = CoarseningSettings()

    def _width(self, problem: Problem) -> int:
        """Return the columns of the block: with one guard where that is enough to fill 8 columns, else with three.

        One shows too little of the error where there are self-loops, and of what is above a cutoff.
        """
        null = problem.profile.null_space
        loops = null is None or null.count < null.components
        guards = 3 if loops or problem.cutoff is not None or problem.k >= 8 else 1
        return width_of_block(problem, self.block, guards=guards, line=8)

    def describe(self, problem: Problem) -> str:
        """Return what it coarsens by."""
        return "a hierarchy of aggregates"

    def subspace(self, problem: Problem) -> Subspace:
        """Return the answer; a graph that is its own coarsest level is decomposed."""
        L = problem.operator
        if isinstance(L, FunctionOperator):
            raise InputError('method="multilevel" joins nodes of L, so its entries must be known, got a function.')
        if problem.is_large(SETTINGS.decomposed):
            return super().subspace(problem)
        why = f"{L.n} nodes are few enough to be the coarsest level, which is decomposed"
        if L.batch_shape:
            why = "graphs of a batch are decomposed"
        elif L.n > SETTINGS.decomposed:
            why = f"{problem.k} of {L.n} frequencies are so many that all are decomposed"
        return replace(Exact().subspace(problem), why=why)

    def solve(self, problem: Problem) -> Ritz:
        """Return the lowest Ritz pairs."""
        return solve_large(problem, self._solve_large)

    def _solve_large(self, problem: Problem) -> Ritz:
        L, tol, width = problem.operator, problem.tol, self._width(problem)
        watch, limit = problem.watch(), problem.max_products or 4000 * width
        if not self._has_coarse_graphs(problem):
            columns = width_of_block(problem, self.block)
            pairs = filtered_subspace(problem, random_block(problem, columns), limit, watch)
            assert pairs is not None
            return replace(pairs, how=f"{NO_COARSE_GRAPH} {columns} vectors")
        S = L if isinstance(L, (SparseOperator, LocalRows)) else sparse_copy(L).counting_for(L)
        A, D = working_precision(S, tol).counting_for(S), S.detach().counting_for(S)
        goal = Goal(problem.k, tol / Stopping.safety, limit, watch, problem.cutoff)
        block, outcome, how = self._solve_level(problem, A, D, problem.null_vector(), goal, width)
        k = problem.k if outcome.kept is None else outcome.kept
        guards = problem.profile.operator.requires_grad and problem.cutoff is None  # which a gradient deflates
        return replace(conclude(D, block, k, outcome, tol, guards=guards), how=how)

    def _solve_level(
        self, problem: Problem, A: Operator, D: SparseOperator | LocalRows, vector: Tensor, goal: Goal, width: int
    ) -> tuple[Block, Outcome, str]:
        """Return the block of one level, how it ended, and in words what was done.

        D is the level's Laplacian, A the same in the precision of the block, ``vector`` its null vector.
        """
        settings = CycleSettings(degree=self.degree, cycles=self.cycles)
        high = spectrum_top(A)
        smoother = Filter(self.degree, settings.interval * high, high, 0.0)
        level = self._aggregated(D, vector, smoother, width)
        graph = CoarseGraph(level.coarse)
        if goal.cutoff is not None and high > 0:
            goal = self._counted(A, level, graph, goal, smoother)
            width = self._width(replace(problem, k=goal.k))
        # The smoother removes what is above zero: where nothing is, sweeps alone serve.
        represented = high > 0 and self._represents(level, D.n, width)
        coarse = self._solve_coarse(problem, level, graph, goal, width) if represented else None
        if coarse is None:
            columns = max(width, block_width(goal.k, D.n))
            block = Block(A, _random(problem, A, columns), high)
            return *_sweeps(block, D, goal, first_cut(block)), f"{NO_COARSE_GRAPH} {columns} vectors"
        limit = goal.max_products
        while coarse is not None:
            asked, width = width, coarse.theta.numel()
            X = level.prolong(coarse.V, empty(A.rows, width, dtype=A.dtype, device=A.device))
            block = Block(A, X, high, orthonormal=True)
            cycles = TwoGrid(block, D, level, coarse, replace(goal, max_products=limit - A.products), settings)
            outcome = cycles.run()
            how = f"{cycles.done} two-grid cycles of {width} vectors with {level.coarse.n} aggregates"
            if outcome is not None and not outcome.narrow:
                return block, outcome, how
            if outcome is not None and outcome.kept:
                goal = replace(goal, k=min(outcome.kept, width))
            if width >= goal.k + self.coarsening.guards:
                break
            width += self.coarsening.more
            coarse = self._solve_coarse(problem, level, graph, goal, width)
        # Sweeps need guards, which cycles do not: random ones, which contain every eigenvector, and are to show it.
        least = self.coarsening.more if width > asked else 0
        more = _random(problem, A, max(least, block_width(goal.k, D.n) - block.X.shape[1]))
        last = float(block.estimate.theta[-1])  # infinite where the first cycle has lost the block's rank
        undetected = float(D.n) if goal.cutoff is None else 0.0
        block = Block(A, torch.cat([block.X, more], dim=1), high, undetected=undetected)
        low = max(last, 1e-7 * high) if math.isfinite(last) else first_cut(block)
        return *_sweeps(block, D, replace(goal, max_products=limit - A.products), low), f"{how}, then Chebyshev sweeps"

    def _aggregated(self, D: SparseOperator | LocalRows, vector: Tensor, smoother: Filter, width: int) -> Aggregation:
        """Return a coarsening of D, by aggregates of aggregates where the first are small, as those of grids."""
        settings, bound = self.coarsening, smoother.low / 2
        level = aggregate(D, vector, bound)
        if level.coarse.n > min(settings.small * D.n, settings.many):
            second = aggregate(level.coarse, level.vector, bound)
            if second.coarse.n >= settings.least_twice * width:
                level = level.then(second)
        few = isinstance(level.coarse, LocalRows) and level.coarse.n <= settings.replicated
        return Replicated.of(level) if few else level

    def _represents(self, level: Aggregation, n: int, width: int) -> bool:
        """Return whether a coarse graph is smaller, and not too small to represent the block."""
        return self.coarsening.least * width <= level.coarse.n <= self.coarsening.shrinks * n

    def _has_coarse_graphs(self, problem: Problem) -> bool:
        """Return whether low frequencies are smooth, and level sets small: else sweeps are as cheap, and surer."""
        if not problem.profile.smooth:
            return False
        if not isinstance(problem.profile.operator, SparseOperator):
            return problem.cutoff is None
        return problem.profile.width <= self.coarsening.geometric

    def _counted(self, A: Operator, level: Aggregation, graph: CoarseGraph, goal: Goal, smoother: Filter) -> Goal:
        """Return the goal with as many vectors as a coarse graph has frequencies up to the cutoff."""
        assert goal.cutoff is not None
        k = coarse_count(A, level, graph, goal.cutoff, smoother)
        if k is None:
            return goal
        if 4 * k > A.n:
            raise TooManyKept
        return replace(goal, k=max(1, k))

    def _solve_coarse(
        self, problem: Problem, level: Aggregation, graph: CoarseGraph, goal: Goal, width: int
    ) -> Coarsest | None:
        """Return the lowest eigenpairs of the coarse graph, ``width`` of them or more; None where too many are needed.

        Coarse eigenvalues are overestimated by different factors, so that their order is not that on the fine graph.
        More are computed where the last is close to the k-th: between weakly connected parts, which correct each other
        in nothing, a missing eigenvector would not be found later.
        """
        settings, C, k = self.coarsening, level.coarse, goal.k
        tol = max(min(settings.error * goal.tol, settings.most_error), settings.least_error)
        A = single(C) if goal.tol >= 1e-8 else C
        for _ in range(settings.times + 1):
            with C.together():  # each rank by itself where each has the whole coarse graph
                coarse = solve_coarsest(graph, k, width, tol)
                if coarse is None:
                    inner = Goal(k, tol, settings.passes * width)
                    block, _, _ = self._solve_level(problem, A, C, level.vector, inner, width)
                    coarse = Coarsest(block.estimate.theta[:width], block.turned()[:, :width])
            if isinstance(level, Replicated):
                coarse = replace(coarse, theta=agreed(coarse.theta), V=agreed(coarse.V))
            low = coarse.theta[1:k].clamp(min=1e-9 * float(coarse.theta[k - 1]))
            weak = bool((low[1:] > settings.weak * low[:-1]).any())
            enough = (settings.parts if weak else settings.close) * float(coarse.theta[k - 1])
            wider = min(width + max(settings.more, width // 4), C.n // (settings.least // 2))
            if float(coarse.theta[-1]) > enough or wider <= width:
                break
            width = wider
        assert coarse is not None
        return None if weak and float(coarse.theta[-1]) <= enough else coarse


def _sweeps(block: Block, D: Operator, goal: Goal, low: float) -> tuple[Block, Outcome]:
    """Return the block after Chebyshev sweeps, the first of them above ``low``, and how they ended."""
    return refine_up_to(block, D, goal, low) if goal.cutoff is not None else (block, refine(block, D, goal, low))


def _random(problem: Problem, A: Operator, width: int) -> Tensor:
    return torch.randn(A.rows, width, dtype=A.dtype, device=A.device, generator=problem.seeded())
