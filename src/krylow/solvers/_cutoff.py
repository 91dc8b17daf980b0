r"""All frequencies of one large graph up to a cutoff: counted, then solved for once.

How many frequencies lie up to the cutoff $\omega$ is not known before.

- Where "shift_invert" has a sparse factor, its inertia at $\omega$ counts them (Sylvester), which proves the number.
- "multilevel" counts them on a coarse graph (:mod:`krylow.solvers._coarse`), "chebyshev" estimates the trace
  of a step function by random probes, and so does "davidson" where degrees are alike; else it counts the negative
  frequencies of its pencil with the shift $\omega$. These are estimates, which set the width of a block: its own Ritz
  values then say how many are kept, sweep by sweep. It is made wider where too few guard vectors remain, and iterated
  until the first Ritz value above the cutoff is known to stay there.
- The other methods are asked for a few vectors more than the probes count, until one lies above the cutoff, and once
  more for as many as are to be kept where these are not good enough yet.

Ritz values are upper bounds, so that what is kept is never above the cutoff. That the next frequency is above it is
proved by inertia, else estimated as every error of a large graph is.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch

from krylow._checks import InputError
from krylow._floor import PROOF_LIMIT
from krylow.density import estimated_count
from krylow.krylov.ritz import Evidence
from krylow.linalg.elimination import SETTINGS, Factor
from krylow.linalg.perturbation import davis_kahan
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.profile import GraphProfile
from krylow.result import Subspace
from krylow.solvers._estimate import TooManyKept
from krylow.solvers._filter import single, spectrum_top
from krylow.solvers._problem import Problem, Solver
from krylow.solvers.exact import Exact, exact_up_to


class Count(NamedTuple):
    r"""How many frequencies lie up to a cutoff, and a proved lower bound of $\lambda_{k+1}$, if there is one."""

    k: int
    how: str
    floor: float = -math.inf


def up_to(problem: Problem, cutoff: float, solver: Solver) -> Subspace:
    """Return every frequency up to the cutoff: all at once if that is exact; counted first in a large graph."""
    L = problem.operator
    if isinstance(solver, Exact):
        return _cut(exact_up_to(L, cutoff), cutoff)
    fixed = solver.name in ("lanczos", "unrolled")  # whose steps do not depend on what is found
    try:
        with torch.no_grad():
            if not L.batch_shape and (L.n > PROOF_LIMIT or isinstance(L, FunctionOperator)) and not fixed:
                found = _counted(problem, cutoff, solver)
            else:
                found = _doubled(problem, cutoff, solver)
    except TooManyKept:
        if L.n > 4096 or isinstance(L, FunctionOperator):  # too many nodes for a decomposition
            raise InputError(
                f"the cutoff must keep fewer than a quarter of the {L.n} frequencies of a large graph, got {cutoff}, "
                'which keeps about as many or more: use lowpass with method="polynomial", which needs no basis.'
            ) from None
        exact = _cut(exact_up_to(L, cutoff), cutoff)
        return replace(exact, why="decomposed, since the cutoff keeps over a quarter of all")
    if not (torch.is_grad_enabled() and L.requires_grad):
        return found
    # The gradient is that of the space that was kept, not of the larger one that was computed.
    if fixed:
        raise InputError(f'method="{solver.name}" has no gradient at a cutoff: pass k, or use method="exact".')
    within = found.ritz_values.isfinite()
    theta = torch.where(within, found.ritz_values, torch.zeros_like(found.ritz_values))
    return replace(found, basis=solver.attach(problem, found.basis, theta) * within[..., None, :])


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
    return _cut(found, cutoff)


def _cut(found: Subspace, cutoff: float) -> Subspace:
    """Drop what is above the cutoff; columns that only some graphs of a batch keep are zero in the others."""
    L, theta = found.operator, found.ritz_values
    kept = (theta <= cutoff).sum(-1)
    k = max(1, int(kept.max()))
    within = torch.arange(k, device=theta.device) < kept[..., None]
    beyond = torch.cat([theta.detach(), torch.full_like(theta.detach()[..., :1], torch.inf)], dim=-1)
    following, residual = torch.take_along_dim(beyond, kept[..., None], dim=-1)[..., 0], None
    if not found.exact and not L.batch_shape and int(kept) < found.k:
        vector = found.basis[:, int(kept), None].detach()
        residual = torch.linalg.vector_norm(L @ vector - following * vector)
    elif not found.exact and not L.batch_shape and found.following is not None:
        following, residual = found.following, found.following_residual
    return replace(
        found,
        basis=found.basis[..., :k] * within[..., None, :],
        ritz_values=torch.where(within, theta[..., :k], torch.full_like(theta[..., :k], torch.inf)),
        following=following,
        following_residual=residual,
        evidence=None,
        cutoff=cutoff,
        kept=kept,
    )


def _counted(problem: Problem, cutoff: float, solver: Solver) -> Subspace:
    """Return all frequencies up to the cutoff of one graph, counted first."""
    L, null = problem.operator, problem.profile.null_space
    products, passes = L.products, L.passes
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
    proved = math.isfinite(count.floor)
    problem = replace(problem, k=max(1, count.k, zeros if proved else zeros + 1))
    if 4 * problem.k > L.n > PROOF_LIMIT:
        raise TooManyKept
    if proved and count.k == 0:
        found = _nothing(L, cutoff, count.floor)
    elif proved:
        found = solver.subspace(_remaining(problem, products))
        evidence = found.evidence and replace(found.evidence, floor=max(found.evidence.floor, count.floor))
        found = replace(found, evidence=evidence, kept=torch.full_like(L.sizes, count.k))
    elif solver.takes_cutoff and problem.is_large():
        found = solver.subspace(replace(_remaining(problem, products), cutoff=cutoff))
    else:
        found = _grown(problem, cutoff, solver, products)
    kept = int(found.kept) if found.kept is not None else found.k
    how = f"counted by {count.how}" if proved else "by their Ritz values"
    return replace(
        found,
        cutoff=cutoff,
        why=f"{kept} frequencies up to the cutoff, {how}; {found.why}",
        products=L.products - products,
        passes=L.passes - passes,
    )


def _nothing(L: Operator, cutoff: float, low: float) -> Subspace:
    """Return the answer where all frequencies are above the cutoff: one zero column."""
    one = torch.zeros(1, dtype=L.dtype, device=L.device)
    evidence = Evidence(error=0.0, floor=low, well_defined=1, residuals=one.double(), proved=True)
    nothing = Subspace(one.expand(L.n, 1), one + torch.inf, L, evidence=evidence)
    return replace(nothing, why="no frequency is up to the cutoff", cutoff=cutoff, kept=torch.zeros_like(L.sizes))


def _remaining(problem: Problem, before: int) -> Problem:
    """Return the problem with as many products as remain of those allowed since the counter was at ``before``."""
    if problem.max_products is None:
        return problem
    return replace(problem, max_products=max(1, problem.max_products - (problem.operator.products - before)))


def _count(profile: GraphProfile, cutoff: float, method: str, high: float) -> Count:
    """Return the number of frequencies up to the cutoff, proved or estimated.

    A polynomial that rises within a fifth of the cutoff's height counts them by the trace at 8 random probes, raised by
    1.5 standard deviations: a block that is too narrow costs more than one that is too wide. Where its degree would be
    above 240 (60 for "davidson": in a wide spectrum most degrees are far below the largest, and it would count far too
    many), 8 are taken for granted, and a block that is widened as it counts costs less.
    """
    L, guess, probes = profile.operator, Count(8, "guess"), 8
    if method == "shift_invert" and isinstance(L, SparseOperator) and L.device.type == "cpu":
        found = _by_inertia(L, profile, cutoff)
        if found is not None:
            return found
    if method == "multilevel" and L.n > PROOF_LIMIT:  # it counts for itself
        return guess
    A = single(L).counting_for(L)
    low, top = float(L.gershgorin()[0]), min(high, 1.01 * spectrum_top(A))
    degree = int(5 * ((top - low) / (cutoff - low)) ** 0.5) if low < cutoff < top else 0
    if degree == 0 or degree > (60 if method == "davidson" else 240):
        return guess
    k = max(1.0, float(estimated_count(A, cutoff, high=top, degree=max(degree, 20), probes=probes)))
    return Count(round(k + 1.5 * (2 * k / probes) ** 0.5), "random probes")


def _by_inertia(L: SparseOperator, profile: GraphProfile, cutoff: float) -> Count | None:
    """Return the count by the inertia of a factor, None where none is sparse or rounding covers it."""
    if 2 * profile.fill.entries > SETTINGS.light * L.n:
        return None
    norm = max(abs(float(bound)) for bound in L.gershgorin())
    above = cutoff + 8 * SETTINGS.proof * torch.finfo(torch.float64).eps * norm  # beyond the rounding of the count
    schur = profile.condensed
    counted = schur.below(Factor(schur.S, schur.order), above)
    if counted is None or not above - counted.proof > cutoff:
        return None
    return Count(counted.below, "the inertia of a factor", above - counted.proof)


def _grown(problem: Problem, cutoff: float, solver: Solver, products: int) -> Subspace:
    """Return what a method for a given k finds with more and more vectors, until one lies above the cutoff."""
    L, k = problem.operator, min(problem.k + 1, problem.operator.n)
    while True:
        if 4 * k > L.n > PROOF_LIMIT:
            raise TooManyKept
        cut = _cut(found := solver.subspace(replace(_remaining(problem, products), k=k)), cutoff)
        kept = int(cut.kept) if cut.kept is not None else k
        if kept < k or k == L.n or cut.interrupted:
            break
        k = min(L.n, max(k + 2, int(1.5 * k)))
    if not 0 < kept < found.k or cut.interrupted or cut.exact or _error(cut) <= problem.tol:
        return cut
    again = solver.subspace(replace(_remaining(problem, products), k=kept))
    if bool((again.ritz_values > cutoff).any()):
        return cut
    # The larger answer has measured the first vector above the cutoff.
    following, residual = cut.following, cut.following_residual
    return replace(again, following=following, following_residual=residual, evidence=None, kept=cut.kept)


def _error(cut: Subspace) -> float:
    """Return the error of what was kept by its residuals over the gap."""
    if cut.following is None or cut.following_residual is None:
        return math.inf
    theta, X = cut.ritz_values, cut.basis
    residuals = torch.linalg.vector_norm(cut.operator @ X - X * theta, dim=-2)
    gaps = cut.following - cut.following_residual - theta
    return float(davis_kahan(residuals, gaps)) if bool((gaps > 0).all()) else math.inf
