r"""Cycles on one level: smooth a block, measure what it leaks with a coarser graph's help, and correct it there.

The span of the block is what counts: it stays in the basis that the filter makes of it, and all rotations are made in
small matrices, its inner products and those with its image under L. It is rotated to its Ritz vectors once, at the end.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from krylow.krylov.cg import conjugate_gradients_
from krylow.linalg.row_blocks import lengths, residual_gram
from krylow.operators import SparseOperator
from krylow.solvers._aggregation import Aggregation
from krylow.solvers._block import Block
from krylow.solvers._coarse import Coarsest
from krylow.solvers._estimate import Outcome, inseparable, judge, judge_up_to, mixed
from krylow.solvers._filter import Filter, single
from krylow.solvers._problem import Watch

#: The smoother's degree, for errors down to this one and below, and the part of the spectrum's top that it begins at.
#: What it leaves of high frequencies looks like low ones to the coarser graph, and spoils the correction there.
SMOOTHING, SMOOTHING_FINE, FINE_TOL, SMOOTH_CUT = 8, 16, 1e-4, 30
#: Near the end it is doubled, up to this one, where a cycle leaves this part of the error: frequencies too low for the
#: smoother and too high for the coarser graph are what is left where aggregates have many nodes.
SMOOTHING_MOST, STIFF = 128, 0.5
#: Its least degree for aggregates of so many nodes on average; half as many where there are fewer aggregates a column.
SMOOTHING_WIDE, WIDE, FEW = 12, 64, 100
#: While the error is this many times what is asked for, float32 products tell enough of it.
ROUGH = 100
#: The part of a correction that is made after the first one: what is left by then is mostly what was corrected too
#: much, where aggregates overrate a frequency by less than they do on average.
DAMPED = 0.85
#: What two vectors hold outside the block is hardly ever parallel: the part of their product that counts in any case.
OVERLAP = 0.02
#: Relative residual and most steps of the solves on the coarser graph.
COARSE_TOL, COARSE_STEPS = 0.1, 300
#: Columns that are solved for together there: their room is several times theirs.
AT_A_TIME = 24
#: Most cycles, and the part of the error that one has to leave at most.
CYCLES, PAYS = 20, 0.7
#: Least columns beyond those that are up to a cutoff.
LEAST_BEYOND = 1
#: The part of a coupling that is doubted: it lowers the distance of two frequencies.
DOUBTED = 1.0
#: By how much an error is underrated, over the share of nodes that are aggregates by themselves: where weights differ
#: by orders of magnitude, some frequencies are too low for the smoother and too local for the coarser graph.
ALONE = 40.0
#: And where L has a diagonal beside differences over edges (self-loops): aggregates overrate the latter alone, and of
#: that less is seen in frequencies.
LOOPED = 4.0
#: A frequency, or what L makes of a vector, is zero if it is this part of the spectrum's top.
NULL = 1e-9
#: Rounding of a difference of sums, in eps of the larger ones: residuals are not said to be less.
BLUR = 2.0
#: Columns this near to depending on each other are left to a filter that makes them orthonormal.
DEPENDENT = 1e-2


class Look(NamedTuple):
    """What is known of a smoothed block.

    Attributes
    ----------
    C, back
        ``(s, s)`` coefficients of the Ritz vectors in the block, and their inverse.
    inner, inside
        ``(s, s)`` inner products of the block, and ``(aggregates, s)`` the block on the coarser graph.
    Z
        ``(aggregates, s)`` what the Ritz vectors hold of other frequencies, on the coarser graph.
    mixing
        ``(s, s)`` how the Ritz vectors may be mixed.
    falls
        ``(s,)`` how far each frequency is still to fall.
    left
        How far the sum of the first k of them is.
    """

    C: Tensor
    back: Tensor
    inner: Tensor
    inside: Tensor
    Z: Tensor
    mixing: Tensor
    falls: Tensor
    left: float


def run_cycles(
    block: Block,
    D: SparseOperator,
    level: Aggregation,
    coarse: Coarsest,
    k: int,
    *,
    tol: float,
    max_products: int,
    watch: Watch | None,
    cutoff: float | None = None,
) -> Outcome | None:
    """Smooth, measure and correct until the error is at most ``tol``; None where cycles do not pay any more.

    Before, the block is the coarse answer prolonged; after, its columns are Ritz vectors when turned, or any basis of
    their span where None is returned.
    With a cutoff, k is as many frequencies as are up to that after each look, and cycles go on until the next one is
    known to stay above.
    """
    A, width = block.L, block.X.shape[1]
    limit = A.products + max_products
    outcome = Outcome(math.inf, 0)
    foretold: tuple[float, float] | None = None
    low = max(block.high / SMOOTH_CUT, float(coarse.theta[-1]) / 2)
    degree = SMOOTHING if tol >= FINE_TOL else SMOOTHING_FINE
    if D.n > (WIDE / 2 if level.coarse.n < FEW * width else WIDE) * level.coarse.n:
        degree = max(degree, SMOOTHING_WIDE)
    inner = coarse.V.double().mT @ coarse.V.double()
    turn: Tensor | None = None
    looped = float((level.coarse @ level.vector / level.vector).abs().max()) > NULL * block.high
    underrated = (1 + ALONE * level.alone) * (LOOPED if looped else 1.0)
    try:
        for _ in range(CYCLES):
            if A.products + (degree + 3) * width > limit:
                break
            before = outcome.error
            needed = tol if before <= ROUGH * tol else 1.0
            measured = k if cutoff is None else min(k + 1, width)  # the first guard has to be known as well
            look = _look(block, inner, D, level, coarse, measured, degree, low, needed)
            if look is None:
                return None
            turn = look.C
            if cutoff is not None:
                kept = block.estimate.count(cutoff)
                if kept > width - LEAST_BEYOND:
                    return Outcome(math.inf, 0, kept=kept, narrow=True)
                if kept != k:
                    k, foretold = max(1, kept), None
            # What the frequencies were to fall by at the last look, and what they fell by and are still to fall by.
            total = float(block.estimate.theta[:k].sum())
            optimism = max(1.0, (foretold[0] - total + look.left) / max(foretold[1], 1e-300)) if foretold else 1.0
            foretold = total, look.left
            doubt = optimism * underrated
            outside = (doubt**0.5 * block.estimate.outside).clamp(max=1)
            estimate = block.estimate = replace(block.estimate, outside=outside, delta=doubt * look.falls, sweeps=2)
            mixing, straddled = doubt**0.5 * look.mixing, True
            if cutoff is None:
                outcome = judge(estimate, mixing, k, tol)
            else:
                outcome = judge_up_to(estimate, mixing, cutoff, tol)
                straddled = estimate.separated(cutoff)
            if watch is not None:
                watch.report(outcome.error)
            if straddled and (outcome.error <= tol or inseparable(estimate, outcome, k, tol)):
                outcome = replace(outcome, settled=True)
                break
            if STIFF * before < outcome.error <= ROUGH * tol and degree < SMOOTHING_MOST:
                degree *= 2
            elif outcome.error > PAYS * before:
                return None
            Z = look.Z @ ((1.0 if math.isinf(before) else DAMPED) * look.back)
            level.subtract_(block.X, Z)
            crossed = look.inside.mT @ Z
            inner = look.inner - crossed - crossed.mT + Z.mT @ Z
            del look, Z, crossed  # before the next look takes as much room
        else:
            return None
    except KeyboardInterrupt:
        block.settle()
        return replace(outcome, interrupted=True)
    block.turn = turn
    return outcome


def _look(
    block: Block,
    inner: Tensor,
    D: SparseOperator,
    level: Aggregation,
    coarse: Coarsest,
    k: int,
    degree: int,
    low: float,
    tol: float,
) -> Look | None:
    """Smooth a block of known inner products, and measure what its Ritz vectors leak; None where it hardly is a basis.

    Sets the block's frequencies and leakage, which are those of the Ritz vectors.
    """
    p = Filter(degree, low, block.high, 0.0)
    G, S = block.filter(p)  # inner products of the former block with this one, and of this one
    made = block.image(D, tol)
    restricted = level.restrict(made.LX)
    R, failed = torch.linalg.cholesky_ex(S, upper=True)
    if int(failed) or float((R.diagonal() / S.diagonal().sqrt()).min()) < DEPENDENT:
        return None
    theta, Q = torch.linalg.eigh(_congruent(R, made.H))
    C, back = torch.linalg.solve_triangular(R, Q, upper=True), Q.mT @ R
    found = theta.cpu()
    high_part = _high_part(p, found, p.rounding(block.X.dtype), G @ C, inner)
    raw = level.restrict(block.X)
    rho = (restricted @ C).addcmul_(raw @ C, theta, value=-1)
    within = torch.cholesky_solve(made.H, R, upper=True)  # L X in the basis X
    # A difference of sums is exact enough while little is asked for, and else the sums are those of differences.
    if made.squares is None:
        residuals, blur = residual_gram(block.X, made.LX, within), torch.zeros_like(theta)
    else:
        residuals = made.squares - made.H @ within
        blur = BLUR * torch.finfo(block.X.dtype).eps * (C.mT @ made.squares @ C).diagonal()
    residuals = C.mT @ residuals @ C
    rounding = made.rounding
    size = (residuals.diagonal().clamp(min=0) + blur).sqrt().cpu() + rounding
    below = coarse.theta.cpu()
    live = (found > NULL * block.high) & (below > NULL * block.high)
    live[k:] = False
    factor = float((below[live] / found[live]).median()) if bool(live.any()) else 1.0
    shift = factor * theta.clamp(max=float(theta[k - 1]))
    Z = _coarse_solve(level.coarse, coarse, rho, shift).double().mul_(factor)
    low_part = lengths(Z).cpu()
    outside = (high_part.square() + low_part.square()).sqrt().clamp(max=1)
    block.estimate = replace(block.estimate, theta=found, outside=outside, residuals=size)
    low_coupling = (rho.mT @ Z).cpu()
    # The residuals that no coarser vector sees, over the frequency at which they are as large as what leaks there.
    unseen = (residuals - rho.mT @ rho).cpu()
    at = (unseen.diagonal().clamp(min=0).sqrt() / high_part).clamp(low, block.high).sqrt()
    coupling = (low_coupling + low_coupling.mT) / 2 + unseen / at / at[:, None]
    shifts = coupling.diagonal().clamp(min=0)
    noise = rounding + OVERLAP * block.high * p.rounding(block.X.dtype) ** 2
    mixing = mixed(coupling.abs() + noise, found - shifts, DOUBTED * shifts + noise)
    return Look(C, back, S, raw, Z, mixing, shifts + noise, float(shifts[:k].sum()))


def _congruent(R: Tensor, H: Tensor) -> Tensor:
    """Return R^-T H R^-1."""
    half = torch.linalg.solve_triangular(R.mT, H, upper=False)
    return torch.linalg.solve_triangular(R.mT, half.mT, upper=False)


def _high_part(p: Filter, theta: Tensor, rounding: float, former: Tensor, inner: Tensor) -> Tensor:
    """Return the Ritz vectors' components on the filter's interval, on the host, from products with the block before.

    What the smoother left of the former block's high part is what is new in the span, over what it takes away.
    """
    within = (former * torch.linalg.solve(inner, former)).sum(0)
    new = (1 - within).clamp(min=0).sqrt().cpu()
    kept, dropped = p.amplification(theta) * p.bound, p.bound
    return new * dropped / (kept - dropped).clamp(min=dropped) + rounding


def _coarse_solve(C: SparseOperator, coarse: Coarsest, rho: Tensor, shift: Tensor) -> Tensor:
    """Return (C - shift_i)^-1 rho_i on the complement of the coarse answer, to a modest residual; some at a time."""
    A = single(C)
    V, shift, inverse = coarse.V.to(A.dtype), shift.to(A.dtype), coarse.inverse
    Z = torch.empty(rho.shape, dtype=A.dtype, device=rho.device)

    def outside_(Y: Tensor) -> Tensor:
        return Y.addmm_(V, V.mT @ Y, alpha=-1)

    near = None if inverse is None else lambda Y: outside_(inverse(Y))
    for j in range(0, rho.shape[1], AT_A_TIME):
        part = slice(j, j + AT_A_TIME)

        def multiply(Y: Tensor, own: Tensor = shift[part]) -> Tensor:
            return outside_(A @ Y).addcmul_(own, Y, value=-1)

        right = outside_(rho[:, part].to(A.dtype, memory_format=torch.contiguous_format, copy=True))
        Z[:, part] = outside_(
            conjugate_gradients_(multiply, right, steps=COARSE_STEPS, tol=COARSE_TOL, preconditioner=near)
        )
    return Z
