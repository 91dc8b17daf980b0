r"""Multilevel refinement: the answer of a coarser graph, prolonged, smoothed, and corrected there until it is good.

On each level a block X is smoothed by a short Chebyshev filter, which removes what the block holds of high frequencies
and measures it. What it holds of low dropped ones is too near for a filter of few degrees; the coarser graph sees it:

$$e_i \approx r \, P \, (P^\top L P - r \theta_i)^{-1} P^\top (L x_i - \theta_i x_i) , \qquad r = \theta^c / \theta ,$$

on the complement of the coarse answer, with r the factor by which piecewise constant vectors overrate a low frequency.
That is the error's estimate, by which the iteration stops, and, subtracted, its correction. A cycle costs about ten
passes, and lowers the squared error ten to twenty times for few vectors on graphs with a geometry.
Where a cycle does not pay, Chebyshev sweeps go on from there.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from krylow.linalg.cg import conjugate_gradients
from krylow.operators import Operator, SparseOperator
from krylow.refine.chebyshev import DOUBT, Outcome, conclude, judge, refine_block, tied, working_precision
from krylow.refine.coarsest import Coarsest, solve_coarsest
from krylow.refine.filtered import OVERLAP, FilteredBlock, block_width, rotate_, single, spectrum_top
from krylow.refine.progress import Watch
from krylow.refine.ritz import Ritz
from krylow.start.aggregation import Aggregation, aggregate

#: A coarser graph has to be smaller by this factor to be worth it.
SHRINKS = 0.6
#: A coarser graph of fewer nodes than this many a column is too unlike the finer one.
LEAST_COARSE = 11
#: Aggregates that leave more than this part of the nodes (grids') are joined once more, for errors that are not below
#: this one, if so many nodes a column are left.
SMALL, TWICE_TOL, TWICE_COARSE = 0.125, 1e-4, 100
#: The smoother's degree, and the part of the spectrum's top that it begins at.
SMOOTHING, SMOOTH_CUT = 8, 30
#: Relative residual and most steps of the solves on the coarser graph.
COARSE_TOL, COARSE_STEPS = 0.04, 300
#: Most cycles, and the part of the error that one has to leave at most.
CYCLES, PAYS = 20, 0.7
#: The part of a coupling that is doubted: it lowers the distance of two frequencies.
DOUBTED = 1.0
#: By how much an error is underrated, over the share of nodes that are aggregates by themselves: where weights differ
#: by orders of magnitude, some frequencies are too low for the smoother and too local for the coarser graph.
ALONE = 40.0
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
    """
    A, D = working_precision(L, tol), L.double()
    if watch is not None:
        watch.count(A)
        watch.count(D)
    block, outcome = _solve(A, D, vector, k, width, tol / DOUBT, max_products, generator, watch)
    pairs = conclude(L, D, block, k, outcome)
    L.products += A.products + D.products
    L.passes += A.passes + D.passes
    return pairs


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
) -> tuple[FilteredBlock, Outcome]:
    """Return the block of one level and how it ended; D is A in float64."""
    high = spectrum_top(A)
    level = aggregate(D, vector, high / SMOOTH_CUT / 2)
    if tol >= TWICE_TOL and level.coarse.n > SMALL * D.n:
        second = aggregate(level.coarse, level.vector, high / SMOOTH_CUT / 2)
        if second.coarse.n >= TWICE_COARSE * width:
            level = level.then(second)
    if level.coarse.n > SHRINKS * D.n or level.coarse.n < LEAST_COARSE * width:
        X = _random(A, max(width, block_width(k, D.n)), generator)
        block = FilteredBlock(A, X, high)
        low = block.high / 4
        return block, refine_block(block, D, k, tol=tol, max_products=max_products, watch=watch, low=low)
    C = level.coarse
    ask = max(min(COARSER * tol, COARSE_ENOUGH), LEAST_ASKED)
    coarse = solve_coarsest(C, k, width, ask)
    if coarse is None:
        found, _ = _solve(
            single(C) if tol >= 1e-8 else C, C, level.vector, k, width, ask, COARSE_PASSES * width, generator, None
        )
        coarse = Coarsest(found.theta[:width], found.X[:, :width])
    block = FilteredBlock(A, level.prolong(coarse.V).to(A.dtype), high)
    outcome = _cycles(block, D, level, coarse, k, tol=tol, max_products=max_products, watch=watch)
    if outcome is not None:
        return block, outcome
    # Sweeps need guards, which cycles do not.
    X = torch.cat([block.X, _random(A, max(0, block_width(k, D.n) - width), generator)], dim=1)
    low = max(float(block.theta[-1]), 1e-7 * high)
    block = FilteredBlock(A, X, high)
    return block, refine_block(block, D, k, tol=tol, max_products=max_products - A.products, watch=watch, low=low)


def _random(A: Operator, width: int, generator: torch.Generator | None) -> Tensor:
    return torch.randn(A.n, width, dtype=A.dtype, device=A.device, generator=generator)


def _cycles(
    block: FilteredBlock,
    D: SparseOperator,
    level: Aggregation,
    coarse: Coarsest,
    k: int,
    *,
    tol: float,
    max_products: int,
    watch: Watch | None,
) -> Outcome | None:
    """Smooth, measure and correct until the error is at most ``tol``; None where cycles do not pay any more."""
    A, width = block.L, block.X.shape[1]
    limit = A.products + max_products
    outcome = Outcome(math.inf, 0)
    foretold: tuple[float, float] | None = None
    low = max(block.high / SMOOTH_CUT, float(coarse.theta[-1]) / 2)
    try:
        for _ in range(CYCLES):
            if A.products + (SMOOTHING + 3) * width > limit:
                return outcome
            before = outcome.error
            block.sweep(k, SMOOTHING, low, 0.0, smooth=True)
            mixing, Z, left = _measure(block, D, level, coarse, k, low, tol)
            # What the frequencies were to fall by at the last look, and what they fell by and are still to fall by.
            total = float(block.theta[:k].sum())
            optimism = max(1.0, (foretold[0] - total + left) / max(foretold[1], 1e-300)) if foretold else 1.0
            foretold = total, left
            doubt = optimism * (1 + ALONE * level.alone)
            block.leakage = (doubt**0.5 * block.leakage).clamp(max=1)
            block.sweeps = 2
            outcome = judge(block, D, k, tol, mixing=doubt**0.5 * mixing)
            if watch is not None:
                watch.report(outcome.error)
            if outcome.error <= tol or tied(block, outcome, k, tol):
                return outcome
            if outcome.error > PAYS * before:
                break
            block.correct(Z, level.prolong)
        return None
    except KeyboardInterrupt:
        return replace(outcome, interrupted=True)


def _measure(
    block: FilteredBlock, D: SparseOperator, level: Aggregation, coarse: Coarsest, k: int, low: float, tol: float
) -> tuple[Tensor, Tensor, float]:
    """Rotate to Ritz vectors, and measure what they leak with the coarser graph's help.

    Returns the mixing ``(s, s)``, the correction ``(aggregates, s)`` on the coarser graph, and how far the sum of the
    first k frequencies is still to fall.
    """
    H, residuals, rounding, restricted = block.multiplied(D, tol, level.restrict)
    assert restricted is not None
    theta, Q = torch.linalg.eigh(H)
    rotate_(block.X, Q)
    inside = level.restrict(block.X).double()  # P^T X
    rho = restricted @ Q - inside * theta
    high_part = (Q.square().mT.cpu() @ block.leakage.square()).sqrt()
    block.theta = theta.cpu()
    below = coarse.theta.cpu()
    live = (block.theta > 1e-9 * block.high) & (below > 1e-9 * block.high)
    live[k:] = False
    factor = float((below[live] / block.theta[live]).median()) if bool(live.any()) else 1.0
    shift = factor * theta.clamp(max=float(theta[k - 1]))
    Z = factor * _coarse_solve(level.coarse, coarse, rho, shift).double()
    low_part = torch.linalg.vector_norm(Z, dim=0).cpu()
    block.leakage = (high_part.square() + low_part.square()).sqrt().clamp(max=1)
    low_coupling = (rho.mT @ Z).cpu()
    # The residuals that no coarser vector sees, over the frequency at which they are as large as what leaks there.
    unseen = (Q.mT @ residuals @ Q - rho.mT @ rho).cpu()
    at = (unseen.diagonal().clamp(min=0).sqrt() / high_part).clamp(low, block.high).sqrt()
    coupling = (low_coupling + low_coupling.mT) / 2 + unseen / at / at[:, None]
    shifts = coupling.diagonal().clamp(min=0)
    noise = rounding + OVERLAP * block.high * block.noise**2
    mixing = block.mixed(coupling.abs() + noise, DOUBTED * shifts + noise, block.theta - shifts)
    return mixing, Z, float(shifts[:k].sum())


def _coarse_solve(C: SparseOperator, coarse: Coarsest, rho: Tensor, shift: Tensor) -> Tensor:
    """Return (C - shift_i)^-1 rho_i on the complement of the coarse answer, to a modest residual."""
    A = single(C)
    V, rho, shift = coarse.V.to(A.dtype), rho.to(A.dtype), shift.to(A.dtype)

    def outside(Y: Tensor) -> Tensor:
        return Y - V @ (V.mT @ Y)

    def multiply(Y: Tensor) -> Tensor:
        return outside(A @ Y) - shift * Y

    inverse = coarse.inverse
    near = None if inverse is None else lambda Y: outside(inverse(Y))
    solved = conjugate_gradients(multiply, outside(rho), steps=COARSE_STEPS, tol=COARSE_TOL, preconditioner=near)
    return outside(solved.x)
