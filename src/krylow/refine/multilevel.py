r"""Multilevel refinement: the answer of a coarser graph, prolonged, smoothed, and corrected there until it is good.

On each level a block X is smoothed by a short Chebyshev filter, which removes what the block holds of high frequencies
and measures it. What it holds of low dropped ones is too near for a filter of few degrees; the coarser graph sees it:

$$e_i \approx r \, P \, (P^\top L P - r \theta_i)^{-1} P^\top (L x_i - \theta_i x_i) , \qquad r = \theta^c / \theta ,$$

on the complement of the coarse answer, with r the factor by which piecewise constant vectors overrate a low frequency.
That is the error's estimate, by which the iteration stops, and, subtracted, its correction
(:mod:`krylow.refine.cycles`). A cycle costs about ten passes, or twenty where the error is to be small, and lowers the
squared error ten times and more on graphs with a geometry.
Where a cycle does not pay, Chebyshev sweeps go on from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from krylow._memory import empty, trim
from krylow.operators import Operator, SparseOperator
from krylow.refine.chebyshev import (
    DOUBT,
    Outcome,
    TooManyKept,
    conclude,
    first_cut,
    refine_block,
    refine_up_to,
    rough,
    working_precision,
)
from krylow.refine.coarse_count import coarse_count
from krylow.refine.coarsest import FACTORISED, Coarsest, solve_coarsest
from krylow.refine.cycles import SMOOTH_CUT, run_cycles
from krylow.refine.filtered import FilteredBlock, block_width
from krylow.refine.progress import Watch
from krylow.refine.ritz import Ritz
from krylow.refine.spectrum import single, spectrum_top
from krylow.start.aggregation import Aggregation, aggregate

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
        As in :func:`~krylow.refine.chebyshev.chebyshev_subspace`.
    generator
        Source of the random columns with which sweeps go on.
    cutoff, width_of
        If all pairs up to this frequency are wanted: k and width are a first guess then, and the second is the width of
        a block for as many as a coarser graph counts.
    """
    A, D = working_precision(L, tol), L.detach()
    if watch is not None:
        watch.count(A)
        watch.count(D)
    cut = None if cutoff is None or width_of is None else Cut(cutoff, width_of)
    block, outcome = _solve(A, D, vector, k, width, tol / DOUBT, max_products, generator, watch, cut)
    pairs = conclude(D, block, k if outcome.kept is None else outcome.kept, outcome, tol)
    L.products += A.products + D.products
    L.passes += A.passes + D.passes
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
) -> tuple[FilteredBlock, Outcome]:
    """Return the block of one level and how it ended; D is A, in float64 where ``tol`` is small."""
    high, exact_below = spectrum_top(A), 0.0 if rough(DOUBT * tol) else math.inf
    level = aggregate(D, vector, high / SMOOTH_CUT / 2)
    if level.coarse.n > min(SMALL * D.n, MANY):
        second = aggregate(level.coarse, level.vector, high / SMOOTH_CUT / 2)
        if second.coarse.n >= TWICE_COARSE * width:
            level = level.then(second)
    cutoff = None
    if cut is not None:
        cutoff = cut.frequency
        counted = coarse_count(A, level, cutoff, high) if high > 0 else None
        if counted is not None:
            if 4 * counted > D.n:
                raise TooManyKept
            k = max(1, counted)
            width = cut.width(k)
    trim(D.col)  # of what walks and aggregates took
    # The smoother removes what is above zero: where nothing is, sweeps alone serve.
    if high <= 0 or level.coarse.n > SHRINKS * D.n or level.coarse.n < LEAST_COARSE * width:
        X = _random(A, max(width, block_width(k, D.n)), generator)
        block = FilteredBlock(A, X, high, exact_below=exact_below)
        return _swept(block, D, k, tol, max_products, watch, first_cut(block), cutoff)
    for more in (0, WIDER):
        if more and width >= k + ENOUGH:
            break
        coarse = _coarse_answer(level, k, width + more, tol, generator)
        width = coarse.theta.numel()
        X = empty(A.n, width, dtype=A.dtype, device=A.device)
        trim(X)  # of what the coarser graph's answer took
        block = FilteredBlock(A, level.prolong(coarse.V, X), high, orthonormal=True)
        left = max_products - A.products
        outcome = run_cycles(block, D, level, coarse, k, tol=tol, max_products=left, watch=watch, cutoff=cutoff)
        if outcome is not None and not outcome.narrow:
            return block, outcome
        if outcome is not None and outcome.kept:
            k = min(outcome.kept, width)
    # Sweeps need guards, which cycles do not.
    X = torch.cat([block.X, _random(A, max(0, block_width(k, D.n) - width), generator)], dim=1)
    low = max(float(block.theta[-1]), 1e-7 * high)
    block = FilteredBlock(A, X, high, exact_below=exact_below)
    return _swept(block, D, k, tol, max_products - A.products, watch, low, cutoff)


def _swept(
    block: FilteredBlock,
    D: Operator,
    k: int,
    tol: float,
    max_products: int,
    watch: Watch | None,
    low: float,
    cutoff: float | None,
) -> tuple[FilteredBlock, Outcome]:
    """Return the block after Chebyshev sweeps, and how they ended."""
    if cutoff is not None:
        return refine_up_to(block, D, k, cutoff, tol=tol, max_products=max_products, watch=watch, low=low)
    return block, refine_block(block, D, k, tol=tol, max_products=max_products, watch=watch, low=low)


def _coarse_answer(level: Aggregation, k: int, width: int, tol: float, generator: torch.Generator | None) -> Coarsest:
    """Return the lowest frequencies of the coarser graph, ``width`` of them or more, for an error of ``tol``."""
    C = level.coarse
    ask = max(min(COARSER * tol, COARSE_ENOUGH), LEAST_ASKED)
    coarse = _coarsest(C, k, width, ask)
    if coarse is not None:
        return coarse
    A = single(C) if tol >= 1e-8 else C
    found, _ = _solve(A, C, level.vector, k, width, ask, COARSE_PASSES * width, generator, None)
    return Coarsest(found.theta[:width], found.turned()[:, :width])


def _coarsest(C: SparseOperator, k: int, width: int, tol: float) -> Coarsest | None:
    """Return the lowest frequencies of the coarsest graph, beyond the k-th as many as a finer graph may have below it.

    Of copies of a graph, or of a frequency, some are coarsened better than others: their order is not the finer one's.
    """
    coarse = solve_coarsest(C, k, width, tol)
    for _ in range(TIMES_WIDER):
        wider = min(width + WIDER, C.n // LEAST_COARSE)
        if coarse is None or wider <= width or float(coarse.theta[-1]) > CLOSE * float(coarse.theta[k - 1]):
            break
        width = wider
        coarse = solve_coarsest(C, k, width, tol)
    return coarse


def _random(A: Operator, width: int, generator: torch.Generator | None) -> Tensor:
    return torch.randn(A.n, width, dtype=A.dtype, device=A.device, generator=generator)
