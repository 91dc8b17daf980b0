r"""All frequencies of one large graph up to a cutoff: counted, then solved for once.

How many frequencies lie up to the cutoff $\omega$ is not known before.

- Where "shift_invert" has a light factor, the signs of its pivots at $\omega$ count them (Sylvester), which proves the
  number.
- "multilevel" counts them on its coarser graph (:mod:`krylow.solvers._coarse_count`), "chebyshev" estimates the trace
  of a step function by random probes, and so does "davidson" where degrees are alike; else it counts the negative
  frequencies of its pencil with the shift $\omega$. These are estimates, which set the width of a block: its own Ritz
  values then say how many are kept, sweep by sweep. It is made wider where too few guard vectors are left, and iterated
  until the first Ritz value above the cutoff is known to stay there.
- The other methods are asked for a few vectors more than the probes count, until one lies above the cutoff, and once
  more for as many as are to be kept where these are not good enough yet.

Ritz values are upper bounds, so that what is kept is never above the cutoff. That the next frequency is above it is
proved by pivots, else estimated as every error of a large graph is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from krylow._checks import InputError
from krylow._floor import PROOF_LIMIT
from krylow.autodiff.implicit import attach_gradient
from krylow.krylov.ritz import Evidence
from krylow.linalg.bounds import davis_kahan
from krylow.linalg.elimination import LIGHT, Factor
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.profile import GraphProfile
from krylow.response import estimated_count
from krylow.result import Subspace
from krylow.solvers._estimate import TooManyKept
from krylow.solvers._filter import single, spectrum_top
from krylow.solvers._problem import Problem, Solver
from krylow.solvers._schur import PROOF_SLACK
from krylow.solvers.exact import Exact, exact_up_to

#: Random probes of an estimated count; degree of its polynomial over the root of the spectrum's width over the cutoff's
#: height, the degrees that are worth it, and the number that is taken for granted where more would be needed.
PROBES, SHARP, DEGREES, GRANTED = 8, 5.0, (20, 240), 8
#: Largest degree for "davidson": in a wider spectrum most degrees are far below the largest, probes count far too many
#: frequencies, and a block that is widened as it counts costs less.
MODEST = 60
#: Standard deviations that an estimate is raised by: a block that is too narrow costs more than one that is too wide.
SPREAD = 1.5
#: Solves with a larger k that may follow the first.
TRIALS = 12
#: The count by pivots is made this many eps of the norm above the cutoff, beyond its own rounding.
ABOVE = 8 * PROOF_SLACK
#: A graph of up to so many nodes is decomposed where the cutoff keeps more than a quarter of its frequencies.
DECOMPOSED = 4096


@dataclass(frozen=True)
class Count:
    r"""How many frequencies lie up to a cutoff.

    Attributes
    ----------
    k
        The number.
    how
        It was found, in words.
    floor
        Proved lower bound of $\lambda_{k+1}$, above the cutoff; -inf: the number is an estimate.
    """

    k: int
    how: str
    floor: float = -math.inf


def up_to(problem: Problem, cutoff: float, solver: Solver) -> Subspace:
    """Return every frequency up to the cutoff: all at once if that is exact; counted first in a large graph."""
    L = problem.operator
    if isinstance(solver, Exact):
        return _cut(exact_up_to(L, cutoff), cutoff, exact=True)
    fixed = solver.name in ("lanczos", "unrolled")  # whose steps do not depend on what is found
    with torch.no_grad():
        if not L.batch_shape and (L.n > PROOF_LIMIT or isinstance(L, FunctionOperator)) and not fixed:
            found = _counted(problem, cutoff, solver)
        else:
            found = _cut(_doubled(problem, cutoff, solver), cutoff)
    if found is None:
        exact = _cut(exact_up_to(L, cutoff), cutoff, exact=True)
        return replace(exact, why="decomposed, since the cutoff keeps over a quarter of all")
    if not (torch.is_grad_enabled() and L.requires_grad):
        return found
    # The gradient is that of the space that was kept, not of the larger one that was computed.
    if fixed:
        raise InputError(f'method="{solver.name}" has no gradient at a cutoff: pass k, or use method="exact".')
    within = found.ritz_values.isfinite()
    theta = torch.where(within, found.ritz_values, torch.zeros_like(found.ritz_values))
    return replace(found, basis=attach_gradient(L, found.basis, theta) * within[..., None, :])


def _doubled(problem: Problem, cutoff: float, solver: Solver) -> Subspace:
    """Return the answer for a k that is doubled until the last Ritz value of every graph is above the cutoff."""
    L = problem.operator
    smallest = int(L.sizes.min())
    k = min(8, smallest)
    found = solver.subspace(replace(problem, k=k))
    while k < smallest and bool((found.ritz_values[..., -1] <= cutoff).any()):
        k = min(2 * k, smallest)
        found = solver.subspace(replace(problem, k=k))
    if bool(((found.ritz_values[..., -1] <= cutoff) & (L.sizes > k)).any()):
        raise InputError(
            f"the cutoff must keep at most as many frequencies as the smallest graph has nodes, {smallest}, got "
            f'{cutoff}, which keeps more in a larger one: use method="exact", or filter the graphs apart.'
        )
    return found


def _cut(found: Subspace, cutoff: float, *, exact: bool = False) -> Subspace:
    """Drop what is above the cutoff; columns that only some graphs of a batch keep are zero in the others."""
    theta = found.ritz_values
    kept = (theta <= cutoff).sum(-1)
    k = max(1, int(kept.max()))
    within = torch.arange(k, device=theta.device) < kept[..., None]
    beyond = torch.cat([theta.detach(), torch.full_like(theta.detach()[..., :1], torch.inf)], dim=-1)
    return replace(
        found,
        basis=found.basis[..., :k] * within[..., None, :],
        ritz_values=torch.where(within, theta[..., :k], torch.full_like(theta[..., :k], torch.inf)),
        following=torch.take_along_dim(beyond, kept[..., None], dim=-1)[..., 0],
        following_residual=None,
        evidence=None,
        exact=exact,
        cutoff=cutoff,
        kept=kept,
    )


def _counted(problem: Problem, cutoff: float, solver: Solver) -> Subspace | None:
    """Return all frequencies up to the cutoff of one graph, counted first; None where exact ones are due."""
    L = problem.operator
    products, passes = L.products, L.passes
    null = problem.profile.null_space
    zeros = null.count if null is not None and null.lowest else 0
    low, high = (float(bound) for bound in L.gershgorin())
    low = max(low, 0.0) if L.psd or zeros else low
    if cutoff < low:
        return _nothing(L, cutoff, low)
    if zeros and cutoff == 0:
        count = Count(zeros, "the components of the graph", math.ulp(0.0))
    elif cutoff >= high:
        count = Count(L.n, "Gershgorin's bound of all of them")
    else:
        count = _count(problem.profile, cutoff, solver.name, max(high, 0.0))
    k = max(1, count.k, zeros if math.isfinite(count.floor) else zeros + 1)
    if 4 * k > L.n > PROOF_LIMIT:
        _check_few(L, cutoff)
        return None
    found: Subspace | None
    problem = replace(problem, k=k)
    if math.isfinite(count.floor):
        found = _proved(problem, count, cutoff, solver, products)
    elif solver.takes_cutoff and problem.is_large():
        try:
            found = solver.subspace(replace(_left(problem, products), cutoff=cutoff))
        except TooManyKept:
            _check_few(L, cutoff)
            return None
    else:
        found = _grown(problem, cutoff, solver, products, zeros)
    if found is None:
        _check_few(L, cutoff)
        return None
    kept = int(found.kept) if found.kept is not None else found.k
    told = f"{kept} frequencies up to the cutoff"
    why = f"{told}, counted by {count.how}" if math.isfinite(count.floor) else f"{told}, by their Ritz values"
    return replace(
        found,
        cutoff=cutoff,
        why=f"{why}; {found.why}",
        products=L.products - products,
        passes=L.passes - passes,
    )


def _check_few(L: Operator, cutoff: float) -> None:
    """Refuse a cutoff that keeps a quarter of a graph's frequencies, unless it is so small that it is decomposed."""
    if L.n > DECOMPOSED or isinstance(L, FunctionOperator):
        raise InputError(
            f"the cutoff must keep fewer than a quarter of the {L.n} frequencies of a large graph, got {cutoff}, which "
            'keeps about as many or more: use lowpass with method="polynomial", which needs no basis.'
        )


def _nothing(L: Operator, cutoff: float, low: float) -> Subspace:
    """Return the answer where all frequencies are above the cutoff: one zero column."""
    one = torch.zeros(1, dtype=L.dtype, device=L.device)
    evidence = Evidence(error=0.0, floor=low, well_defined=1, residuals=one.double(), proved=True)
    nothing = Subspace(one.expand(L.n, 1), one + torch.inf, L, evidence=evidence)
    return replace(nothing, why="no frequency is up to the cutoff", cutoff=cutoff, kept=torch.zeros_like(L.sizes))


def _left(problem: Problem, products: int) -> Problem:
    """Return the problem with as many products as are left of those allowed."""
    if problem.max_products is None:
        return problem
    spent = problem.operator.products - products
    return replace(problem, max_products=max(1, problem.max_products - spent))


def _count(profile: GraphProfile, cutoff: float, method: str, high: float) -> Count:
    """Return the number of frequencies up to the cutoff, proved or estimated."""
    L = profile.operator
    if method == "shift_invert" and isinstance(L, SparseOperator) and L.device.type == "cpu":
        found = _by_factor(L, profile, cutoff)
        if found is not None:
            return found
    if method == "multilevel" and L.n > PROOF_LIMIT:  # it counts for itself
        return Count(GRANTED, "guess")
    A = single(L).counting_for(L)
    low, top = float(L.gershgorin()[0]), min(high, 1.01 * spectrum_top(A))
    degree = int(SHARP * ((top - low) / (cutoff - low)) ** 0.5) if low < cutoff < top else 0
    if degree == 0 or degree > (MODEST if method == "davidson" else DEGREES[1]):
        return Count(GRANTED, "guess")
    estimate = estimated_count(A, cutoff, high=top, degree=max(degree, DEGREES[0]), probes=PROBES)
    k = max(1.0, float(estimate))
    return Count(round(k + SPREAD * (2 * k / PROBES) ** 0.5), "random probes")


def _by_factor(L: SparseOperator, profile: GraphProfile, cutoff: float) -> Count | None:
    """Return the count by the signs of pivots, None where no factor is light or rounding covers it."""
    core = profile.core
    if 2 * profile.fill.entries > LIGHT * L.n:
        return None
    norm = max(abs(float(bound)) for bound in L.gershgorin())
    above = cutoff + ABOVE * float(np.finfo(np.float64).eps) * norm
    factor = Factor(core.S, core.order and core.order[0])
    counted = core.below(factor, above) if factor.counts else None
    if counted is None or not above - PROOF_SLACK * counted[1] > cutoff:
        return None
    return Count(counted[0], "the signs of a factor's pivots", above - PROOF_SLACK * counted[1])


def _proved(problem: Problem, count: Count, cutoff: float, solver: Solver, products: int) -> Subspace:
    """Return as many vectors as were counted, with the floor that the count proves."""
    L = problem.operator
    if count.k == 0:
        return _nothing(L, cutoff, count.floor)
    found = solver.subspace(replace(_left(problem, products), k=count.k))
    evidence = found.evidence and replace(found.evidence, floor=max(found.evidence.floor, count.floor))
    return replace(found, evidence=evidence, kept=torch.full_like(L.sizes, count.k))


def _grown(problem: Problem, cutoff: float, solver: Solver, products: int, zeros: int) -> Subspace | None:
    """Return what a method for a given k finds with more and more vectors, until one lies above the cutoff.

    None where that would be more than a quarter of them.
    """
    L = problem.operator
    k = min(problem.k + 1, L.n)
    for _ in range(TRIALS):
        if 4 * k > L.n > PROOF_LIMIT:
            return None
        found = solver.subspace(replace(_left(problem, products), k=k))
        kept = _kept(found, cutoff, zeros)
        if kept < k or k == L.n or found.interrupted:
            break
        k = min(L.n, max(k + 2, int(1.5 * k)))
    cut = _first(L, found, kept, cutoff)
    if not 0 < kept < k or found.interrupted or found.exact or _error(L, cut) <= problem.tol:
        return cut
    again = solver.subspace(replace(_left(problem, products), k=kept))
    if _kept(again, cutoff, zeros) < kept:
        return cut
    # The larger answer has measured the first vector above the cutoff.
    return replace(
        again, following=cut.following, following_residual=cut.following_residual, evidence=None, kept=cut.kept
    )


def _kept(found: Subspace, cutoff: float, zeros: int) -> int:
    """Return how many Ritz values are up to the cutoff; those of null vectors are zero, whatever rounding says."""
    theta = found.ritz_values
    least = min(zeros, theta.numel()) if cutoff >= 0 else 0
    return max(least, int((theta <= cutoff).sum()))


def _first(L: Operator, found: Subspace, kept: int, cutoff: float) -> Subspace:
    """Return the first ``kept`` vectors of an answer, to be certified; one zero column where none is."""
    theta, X = found.ritz_values, found.basis
    k = max(1, kept)
    within = torch.arange(k, device=theta.device) < kept
    following, residual = found.following, found.following_residual
    if kept < found.k:
        following, vector = theta[kept], X[:, kept : kept + 1]
        residual = torch.linalg.vector_norm(L @ vector - following * vector)
    return replace(
        found,
        basis=X[:, :k] * within,
        ritz_values=torch.where(within, theta[:k], torch.full_like(theta[:k], torch.inf)),
        following=following,
        following_residual=residual,
        evidence=None,
        cutoff=cutoff,
        kept=torch.full_like(L.sizes, kept),
    )


def _error(L: Operator, cut: Subspace) -> float:
    """Return the error of what was kept by its residuals over the gap."""
    if cut.following is None or cut.following_residual is None:
        return math.inf
    theta, X = cut.ritz_values, cut.basis
    residuals = torch.linalg.vector_norm(L @ X - X * theta, dim=-2)
    gaps = cut.following - cut.following_residual - theta
    return float(davis_kahan(residuals, gaps)) if bool((gaps > 0).all()) else math.inf
