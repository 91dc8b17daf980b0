"""Chebyshev sweeps over the block of one large graph, until its own estimate of the error is small enough."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from krylow.krylov.pairs import Evidence, Ritz
from krylow.operators import Operator
from krylow.solvers._filter import FilteredBlock, block_width, cautious_floor
from krylow.solvers._image import EXACT_TOL
from krylow.solvers._progress import Watch
from krylow.solvers._spectrum import single, single_dtype

#: The first sweep over a large graph filters from this part of the spectrum's top, with this degree.
FIRST_CUT = 4
FIRST_DEGREE = 8
#: Degrees of the sweeps that follow, the fewest where something may be hidden, since guards alone then do the rest, and
#: little is asked for, since one that falls short costs another; and the part of the error asked for that they aim at.
FEWEST, LEAST_DEGREE, MOST_DEGREE = 2, 4, 96
AIM = 0.3
#: And what they aim at where vectors may be hidden, if guards all grew as much as the lowest of them; and what guards
#: alone do, for whom a degree costs little.
AIM_UNSEEN, AIM_ALONE = 2.0, 0.9
#: Hidden vectors are worth so many degrees of the whole block more than the wanted ones need: else guards look alone.
WORTH = 3
#: Vectors that leak so much are not near any frequency yet.
YOUNG = 0.3
#: How far the values of one filter may lie apart before rounding covers the smaller ones.
RANGE = {torch.float32: 1e5, torch.float64: 1e11}
#: Errors down to this one are reached with a filter in float32.
SINGLE_TOL = 1e-8
#: The measure of the error is right within about this factor, by which it is multiplied before it is believed.
DOUBT = 2.0
#: Vectors that leak this part of the error asked for and are still mixed will not come apart: there is no gap.
SETTLED = 1e-2
#: A gap that is this part of the band's width is near to none.
NEAR = 5e-3
#: One that is this part of it for so many sweeps, while the error does not fall, is none.
SAME, PATIENCE = 1e-5, 8
#: A start that is not random has to do in so many sweeps, or twice as many looks if only hidden vectors are left to
#: look for, with a gap by this factor.
TRIALS, CLEAR = 4, 1.5
#: A block that is cut at a frequency has so many guards at least, or this part of those kept if that is more; else it
#: is made wider.
LEAST_GUARDS, GUARDS_SHARE = 3, 8
#: Part of the error asked for by which less is asked for each time that a frequency may still fall below the cutoff.
STRICTER = 0.03


def first_cut(block: FilteredBlock) -> float:
    """Return where the first filter's interval begins; below zero if the whole spectrum is."""
    return block.high / FIRST_CUT if block.high > 0 else block.lowest / 2


@dataclass(frozen=True)
class Outcome:
    """How a refinement ended.

    Attributes
    ----------
    error
        That it measured.
    well_defined
        Up to where its vectors stand apart.
    settled
        Whether it came to its end, so that vectors which are mixed by now will not come apart.
    interrupted
        Whether by Ctrl-C.
    hidden
        Whether its start, which was not random, may hide something.
    kept
        With a cutoff: how many frequencies of the block are up to it.
    narrow
        With a cutoff: whether these are too many for the guards that are left.
    """

    error: float
    well_defined: int
    settled: bool = False
    interrupted: bool = False
    hidden: bool = False
    kept: int | None = None
    narrow: bool = False


def refine_block(
    block: FilteredBlock,
    D: Operator,
    k: int,
    *,
    tol: float,
    max_products: int,
    watch: Watch | None,
    low: float,
    degree: int = FIRST_DEGREE,
    cutoff: float | None = None,
) -> Outcome:
    """Sweep until the estimated error of the first k is at most ``tol``.

    ``low`` is the lower end of the first filter's interval and ``degree`` its degree; later intervals begin at the
    frequency of the last guard, and their degree aims at the error that is left to remove. D is L, with counters of its
    own.
    A start that is not random may not do: where something is found beside it, or may be hidden still.
    With a cutoff, k is as many frequencies as are up to that after each sweep, and sweeps go on until the next one is
    known to stay above.
    """
    A, width = block.L, block.X.shape[1]
    limit = A.products + max_products - 2 * width
    outcome = Outcome(math.inf, 0)
    best, together, asked = math.inf, 0, tol
    try:
        while True:
            if cutoff is not None and block.sweeps:
                kept = block.count(cutoff)
                if kept > width - guards_beside(kept):
                    return replace(outcome, kept=kept, narrow=True)
                k, outcome = min(max(1, kept), width - 1), replace(outcome, kept=kept)
                if asked < tol and kept < width - 1:  # the next one has to be known better, too
                    k = kept + 1
            first = float(block.theta[0]) if bool(block.theta.isfinite().all()) else min(0.0, low)
            # Vectors that hardly leak and are still mixed have to leak less by as much.
            mixed = block.error(k) <= tol < outcome.error < math.inf
            goal = block.error(k) * tol / outcome.error if mixed else asked
            degree = min(_sweep_degree(block, k, low, goal) or degree, (limit - A.products) // width)
            if degree < 1:
                return outcome
            first = min(first, low - 1e-3 * (block.high - low))
            if _found(block, k, goal):
                block.probe(k, degree, low, first)
            else:
                block.sweep(k, degree, low, first)
            error = block.error(k)
            shown = block.unseen(k) <= 1
            if error <= tol and shown and cutoff is None:
                outcome = judge(block, D, k, tol)
                error = outcome.error
            elif error <= asked and cutoff is not None:
                outcome = judge_up_to(block, D, cutoff, tol)
                error, k = outcome.error, min(max(1, outcome.kept or 0), width - 1)
                shown = block.straddles(cutoff)
                if not shown:  # the next one has to be known better
                    asked *= STRICTER
                    if asked < tol * STRICTER**PATIENCE:
                        return replace(outcome, settled=True)
            elif cutoff is not None:
                shown = False
            if watch is not None:
                watch.report(error)
            trials = 2 * TRIALS if _found(block, k, tol) else TRIALS
            if block.hidden and (block.sweeps > trials or not _clear(block, k)):
                return replace(outcome, hidden=True)
            if shown and (outcome.error <= tol or tied(block, outcome, k, tol)):
                return replace(outcome, settled=True)
            # Copies of one frequency on either side of the cut look to each other like something that leaks.
            same = float(block.theta[k] - block.theta[k - 1]) <= SAME * float(block.theta[k] - block.theta[0])
            together = together + 1 if same and error > best / 2 else 0
            best = min(best, error)
            if together >= PATIENCE:
                return replace(judge(block, D, k, tol), settled=True)
            low = min(low, max(_next_low(block, k, low), float(block.theta[0]) + 1e-7 * block.high))
    except KeyboardInterrupt:
        block.settle()
        return replace(outcome, interrupted=True)


class TooManyKept(Exception):
    """A cutoff keeps so many frequencies of a graph that no block of it is worth it."""


def refine_up_to(
    block: FilteredBlock,
    D: Operator,
    k: int,
    cutoff: float,
    *,
    tol: float,
    max_products: int,
    watch: Watch | None,
    low: float,
) -> tuple[FilteredBlock, Outcome]:
    """Sweep as :func:`refine_block` does for all frequencies up to a cutoff, with as wide a block as these need.

    k is an estimate of their number. Returns the block, which may be another one, and how it ended.
    """
    A = block.L
    limit = A.products + max_products
    above = cutoff + max(0.0, block.high - cutoff) / FIRST_CUT
    while True:
        left = limit - A.products
        if low <= cutoff:  # a filter sees no frequency above its interval's lower end
            low = above
        outcome = refine_block(block, D, k, tol=tol, max_products=left, watch=watch, low=low, cutoff=cutoff)
        if not outcome.narrow:
            break
        k, width = outcome.kept or 1, block.X.shape[1]
        wider = max(block_width(k, D.n), 2 * width)
        if wider > D.n // 2:
            raise TooManyKept
        source = torch.Generator(device=A.device).manual_seed(width)
        more = torch.randn(A.n, wider - width, dtype=A.dtype, device=A.device, generator=source)
        low = above
        X, high, beside, exact_below = torch.cat([block.X, more], dim=1), block.high, block.beside, block.exact_below
        block = FilteredBlock(A, X, high, beside=beside, exact_below=exact_below)
        del X, more
    kept = block.count(cutoff) if outcome.kept is None else outcome.kept
    return block, replace(outcome, kept=kept)


def guards_beside(kept: int) -> int:
    """Return the least guards of a block of which so many vectors are kept."""
    return max(LEAST_GUARDS, kept // GUARDS_SHARE)


def judge_up_to(block: FilteredBlock, D: Operator, cutoff: float, tol: float, mixing: Tensor | None = None) -> Outcome:
    """Return what :func:`judge` does of as many vectors as have frequencies up to a cutoff."""
    mixing = block.align(D, tol) if mixing is None else mixing
    kept = block.count(cutoff)
    if kept == 0:
        return Outcome(0.0, 0, kept=0)
    return replace(judge(block, D, kept, tol, mixing=mixing), kept=kept)


def _found(block: FilteredBlock, k: int, tol: float) -> bool:
    """Return whether the first k vectors need no more sweeps, whatever may still be hidden from them."""
    if not block.hidden or not block.sweeps:
        return False
    error = float(block.doubted(k).square().mean()) if block.sweeps == 1 else block.error(k)
    return error <= tol


def _next_low(block: FilteredBlock, k: int, low: float) -> float:
    """Return where the next filter's interval begins: near the last guard's frequency.

    That still falls from sweep to sweep, and likely by half of what it fell by last.
    """
    guard, last = float(block.theta[k]), float(block.theta[-1])
    if block.sweeps <= 2:  # the first ones fall by far more
        return last
    return max(last - max(low - last, 0.0) / 2, (guard + last) / 2)


def _clear(block: FilteredBlock, k: int) -> bool:
    """Return whether the first k frequencies are clearly apart from what else was found."""
    return float(block.theta[k]) >= CLEAR * float(block.theta[k - 1])


def tied(block: FilteredBlock, outcome: Outcome, k: int, tol: float) -> bool:
    """Return whether vectors that hardly leak any more are still mixed, and will not come apart.

    Where their frequencies look well apart, it is the guards that have not settled, and some more sweeps are worth it.
    """
    near = float(block.theta[k] - block.theta[k - 1]) <= NEAR * float(block.theta[k] - block.theta[0])
    return outcome.well_defined < k and block.error(k) <= (SETTLED if near else SETTLED**2) * tol


def judge(block: FilteredBlock, D: Operator, k: int, tol: float, *, mixing: Tensor | None = None) -> Outcome:
    """Return the error of a block's first k vectors once they hardly leak: what they leak, and how they are mixed."""
    mixing = block.align(D, tol) if mixing is None else mixing
    mixed = [float(mixing[:j, j:].square().clamp(max=1).sum()) / j for j in range(1, k + 1)]
    apart = [j for j, part in enumerate(mixed, start=1) if part <= tol]
    return Outcome(block.error(k) + min(mixed[-1], 1.0), max(apart, default=0))


def conclude(D: Operator, block: FilteredBlock, k: int, outcome: Outcome, tol: float) -> Ritz:
    """Return the Ritz pairs of the first k vectors of a block in float64, with the evidence for them.

    D and ``tol`` as in :func:`refine_block`.
    """
    known = (block.residuals is not None or not rough(tol)) and not outcome.interrupted
    if math.isinf(outcome.error) or not known:  # nothing was judged since the last sweep
        block.align(D, tol)
    wanted = k - (0 if block.beside is None else block.beside.count)
    following = block.theta[wanted : wanted + 1].clone()
    floor = float(following) if following.numel() else math.inf
    if outcome.kept is not None and following.numel():  # whether it is above the cutoff is what has to be known
        floor = cautious_floor(block.theta[wanted], block.doubt[wanted])
    theta, basis, residuals = block.finish(D, max(1, wanted), again=not rough(tol))
    theta, basis, residuals = (part[..., : max(1, k)] for part in (theta, basis, residuals))
    apart = outcome.well_defined if outcome.settled else k  # of gaps that may still show nothing is claimed
    if k == 0:  # nothing is up to the cutoff: one column that stands for none
        apart, residuals = 1, torch.zeros_like(residuals)
    evidence = Evidence(error=DOUBT * outcome.error, floor=floor, well_defined=apart, residuals=residuals)
    return Ritz(
        theta=torch.cat([theta, following.to(theta)]),
        X=basis,
        residuals=torch.nn.functional.pad(residuals, (0, following.numel()), value=torch.inf),
        interrupted=outcome.interrupted,
        evidence=evidence,
        kept=None if outcome.kept is None else k,
    )


def working_precision(L: Operator, tol: float) -> Operator:
    """Return L in the precision that the filter needs for an error of ``tol``, with counters of its own."""
    return single(L) if in_single(L, tol) and L.dtype != torch.float32 else L.detach()


def in_single(L: Operator, tol: float) -> bool:
    """Return whether the filter runs in float32 for an error of ``tol``."""
    return tol >= SINGLE_TOL and single_dtype(L) == torch.float32


def rough(tol: float) -> bool:
    """Return whether products in float32 suffice to judge an error of ``tol``."""
    return tol >= DOUBT * EXACT_TOL


def _sweep_degree(block: FilteredBlock, k: int, low: float, tol: float) -> int | None:
    """Return the degree that should bring the error of the first k down to ``tol``, within what rounding allows.

    Where vectors may be hidden, these are to show, too, if that takes few degrees more; once the first k are found, it
    is the guards' degree, for hidden ones alone. None before the first sweep.
    """
    if not bool(block.theta.isfinite().all()):
        return None

    def rate(theta: Tensor) -> Tensor:
        return torch.acosh((1 + 2 * (low - theta) / (block.high - low)).clamp(min=1 + 1e-12))

    span, lowest, rates = RANGE[block.X.dtype], block.theta[0], rate(block.theta[: k + 1])
    if float(block.leakage[:k].max()) >= YOUNG:  # the lowest frequency may be far below the lowest estimate
        span, lowest = span**0.7, lowest.clamp(max=0)
    most = max(LEAST_DEGREE, min(MOST_DEGREE, int(math.log(2 * span) / float(rate(lowest)))))
    found, enough = _found(block, k, tol), most
    least = FEWEST if block.hidden and not (found or block.exact_below) else LEAST_DEGREE
    for degree in range(least, most):
        growth = torch.cosh(degree * rates)
        left = block.leakage[:k] / growth[:k]
        if not found and enough == most and float(left.square().mean()) <= AIM * tol:
            enough = degree
        unseen = block.unseen(k) * float(growth[k] / growth[k - 1]) ** 2
        if found and unseen <= AIM_ALONE:
            return degree
        if enough < most and unseen <= AIM_UNSEEN:
            return degree if degree <= enough + WORTH else enough
    return enough
