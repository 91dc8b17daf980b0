r"""All frequencies of one large graph up to a cutoff: counted, then solved for once.

How many frequencies lie up to the cutoff $\omega$ is not known before. By Sylvester's law it is the number of negative
eigenvalues of $M^{-1/2} (L - \omega I) M^{-1/2}$ for any positive M, and

- where "shift_invert" has a light factor, the signs of its pivots at $\omega$ count it, which proves the answer;
- for "multilevel" those of a coarser graph do, at $r \omega$, where r is the factor by which its vectors overrate a low
  frequency: measured on a few of them, which are smoothed on the graph itself;
- for the other methods so many Ritz values of a short Lanczos run, with M the diagonal, are negative: at most as many.

The last two are estimates. The solve is for more vectors than that, so that the first one above the cutoff is among
those whose error is measured; its own Ritz values then say how many are to be kept, with the evidence for these. Where the estimate was too low, or the kept ones are not good enough yet, it is done once more at the corrected k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from krylow import large
from krylow._checks import InputError
from krylow.answers import Options
from krylow.certify import Subspace
from krylow.floor import PROOF_LIMIT
from krylow.linalg.bounds import davis_kahan
from krylow.linalg.components import NullSpace, null_space
from krylow.linalg.elimination import LIGHT, Factor
from krylow.linalg.fill import core_fill, estimate_fill
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.refine.chebyshev import chebyshev_filter
from krylow.refine.coarsest import DECOMPOSED, FACTORISED
from krylow.refine.condensed import PROOF_SLACK, core_of
from krylow.refine.cycles import SMOOTH_CUT, SMOOTHING
from krylow.refine.lanczos import lanczos
from krylow.refine.multilevel import MANY, SHRINKS, SMALL
from krylow.refine.ritz import Evidence
from krylow.refine.spectrum import spectrum_top
from krylow.start.aggregation import Aggregation, aggregate
from krylow.start.gaussian import gaussian

Recipe = Callable[[Operator, int, Options], Subspace]

#: Steps of the Lanczos run that estimates a count.
STEPS = 40
#: Vectors of the coarser graph by which it is measured how much this overrates frequencies, and inverse iterations.
SMOOTHED, INVERSES = 4, 3
#: The shift of the coarser graph's inverse, over its top.
SHIFT = 1e-6
#: An estimated count may be too low by this part: so many vectors more are found, one at least.
MARGIN = 0.125
#: Solves with a larger k that may follow the first.
TRIALS = 12
#: The count is made this many eps of the norm above the cutoff, beyond its own rounding.
ABOVE = 8 * PROOF_SLACK


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
    floor: float = -float("inf")


def is_counted(L: Operator) -> bool:
    """Return whether L is one graph whose answer no dense factor proves, so that its frequencies are counted first."""
    return not L.batch_shape and (L.n > PROOF_LIMIT or isinstance(L, FunctionOperator))


def up_to(L: Operator, cutoff: float, method: str, recipe: Recipe, options: Options) -> Subspace:
    """Return all frequencies up to the cutoff of one graph that :func:`is_counted`."""
    products, passes = L.products, L.passes
    null = null_space(L)
    zeros = null.count if null is not None and null.lowest else 0
    count = _count(L, cutoff, method, null, zeros)
    proved = np.isfinite(count.floor)
    k = max(1, count.k if proved else count.k + 1 + int(MARGIN * count.k))
    for _ in range(TRIALS):
        k = _within(L, k, cutoff)
        found = recipe(L, k, _left(L, options, products))
        kept = _kept(found, cutoff, zeros)
        if kept < k or k == L.n or found.interrupted or (proved and kept == count.k):
            break
        k = min(L.n, max(k + 2, int(1.5 * k)))
    if proved and kept == count.k == found.k:
        evidence = found.evidence and replace(found.evidence, floor=max(found.evidence.floor, count.floor))
        found = replace(found, evidence=evidence, cutoff=cutoff, kept=torch.full_like(L.sizes, kept))
    else:
        found = _cut(L, found, kept, cutoff, recipe, options, products)
    why = f"{kept} frequencies up to the cutoff, {_told(count, kept, proved)}; {found.why}"
    return replace(found, products=L.products - products, passes=L.passes - passes, why=why)


def _told(count: Count, kept: int, proved: bool) -> str:
    if proved and kept == count.k:
        return f"counted by {count.how}"
    return f"estimated as {count.k} by {count.how}, then told by the Ritz values"


def _within(L: Operator, k: int, cutoff: float) -> int:
    """Return k, if a basis of so many vectors is worth it."""
    if 4 * k > L.n > 4 * PROOF_LIMIT:
        raise InputError(
            f"the cutoff must keep fewer than a quarter of the frequencies of a graph of {L.n} nodes, got {cutoff}, "
            'which keeps about as many or more: use lowpass with method="polynomial", which needs no basis.'
        )
    return min(k, L.n)


def _left(L: Operator, options: Options, products: int) -> Options:
    """Return the options with as many products as are left of those allowed."""
    if options.max_products is None:
        return options
    return replace(options, max_products=max(1, options.max_products - (L.products - products)))


def _kept(found: Subspace, cutoff: float, zeros: int) -> int:
    """Return how many Ritz values are up to the cutoff; those of null vectors are zero, whatever rounding says."""
    theta = found.ritz_values
    least = min(zeros, theta.numel()) if cutoff >= 0 else 0
    return max(least, int((theta <= cutoff).sum()))


def _cut(
    L: Operator, found: Subspace, kept: int, cutoff: float, recipe: Recipe, options: Options, products: int
) -> Subspace:
    """Return the first ``kept`` vectors; solved for again where they are not good enough among the others."""
    cut = _first(L, found, kept, cutoff)
    if 0 < kept < found.k and not found.interrupted and not cut.exact and _error(L, cut) > options.tol:
        again = recipe(L, kept, _left(L, options, products))
        if _kept(again, cutoff, 0) >= kept or again.evidence is None:
            following, residual = cut.following, cut.following_residual
            evidence = again.evidence and replace(again.evidence, floor=_floor(cut, again.evidence))
            cut = replace(
                again, following=following, following_residual=residual, evidence=evidence, cutoff=cutoff, kept=cut.kept
            )
    return cut


def _error(L: Operator, cut: Subspace) -> float:
    """Return the error of what was kept: by evidence, or else by its residuals over the gap."""
    if cut.evidence is not None:
        return cut.evidence.error
    assert cut.following is not None and cut.following_residual is not None
    theta, X = cut.ritz_values, cut.basis
    residuals = torch.linalg.vector_norm(L @ X - X * theta, dim=-2)
    gaps = cut.following - cut.following_residual - theta
    return float(davis_kahan(residuals, gaps)) if bool((gaps > 0).all()) else torch.inf


def _floor(cut: Subspace, evidence: Evidence) -> float:
    """Return the floor that two solves know: the larger one has measured the first vector above the cutoff."""
    known = -torch.inf if cut.evidence is None else cut.evidence.floor
    return max(known, evidence.floor if evidence.proved else -torch.inf)


def _first(L: Operator, found: Subspace, kept: int, cutoff: float) -> Subspace:
    """Return the first ``kept`` vectors of an answer, with what it knows of these; one zero column where none is."""
    theta, X = found.ritz_values, found.basis
    k = max(1, kept)
    within = torch.arange(k, device=theta.device) < kept
    inf = torch.full_like(theta[:1], torch.inf)
    following: Tensor | None
    residual: Tensor | None
    if kept < found.k:
        following, residual, vector = theta[kept], None, X[:, kept : kept + 1]
        if found.evidence is None and not found.exact:
            residual = torch.linalg.vector_norm(L @ vector - following * vector)
    else:
        following, residual = found.following, found.following_residual
    return replace(
        found,
        basis=X[:, :k] * within,
        ritz_values=torch.where(within, theta[:k], inf),
        following=following,
        following_residual=residual,
        evidence=found.evidence and _evidence(found, found.evidence, kept),
        cutoff=cutoff,
        kept=torch.full_like(L.sizes, kept),
    )


def _evidence(found: Subspace, evidence: Evidence, kept: int) -> Evidence:
    r"""Return what is known of the first ``kept`` vectors of an answer.

    The next one x, of residual r, holds at most $\epsilon$ of frequencies outside the space that was found: its
    quotient is off by at most about $\epsilon \|r\|$, and by at most $\|r\|$ in any case.
    """
    k, residuals = found.k, evidence.residuals.double().cpu()
    if kept >= k:  # no vector above the cutoff was measured: all may be kept
        everything = k >= found.operator.n
        return replace(evidence, floor=torch.inf if everything else -torch.inf)
    off = float(residuals[kept]) * min(1.0, (k * evidence.error) ** 0.5)
    errors = evidence.errors
    error = 0.0 if kept == 0 else torch.inf if errors is None else float(errors[kept - 1])
    return Evidence(
        error=error,
        floor=float(found.ritz_values[kept]) - off,
        well_defined=max(1, kept),
        residuals=residuals[:kept] if kept else residuals.new_zeros(1),
    )


def _count(L: Operator, cutoff: float, method: str, null: NullSpace | None, zeros: int) -> Count:
    """Return the number of frequencies up to the cutoff, proved or estimated."""
    low, high = (float(bound) for bound in L.gershgorin())
    if cutoff >= high:
        return Count(L.n, "Gershgorin's bound of all of them")
    if cutoff < low or (zeros and cutoff < 0):
        return Count(0, "Gershgorin's bound of all of them")
    found = None
    if isinstance(L, SparseOperator) and L.device.type == "cpu":
        if method == "shift_invert":
            found = _by_factor(L, cutoff)
        elif method == "multilevel":
            found = _by_coarser(L, cutoff, null)
    found = found or _by_lanczos(L, cutoff)
    return replace(found, k=max(found.k, zeros)) if cutoff >= 0 else found


def _by_factor(L: SparseOperator, cutoff: float) -> Count | None:
    """Return the count by the signs of pivots, None where no factor is light."""
    core = core_of(L)
    if 2 * core_fill(core).entries > LIGHT * L.n:
        return None
    norm = max(abs(float(bound)) for bound in L.gershgorin())
    above = cutoff + ABOVE * float(np.finfo(np.float64).eps) * norm
    counted = core.below(Factor(core.S, core.order and core.order[0]), above)
    if counted is None:
        return None
    floor = above - PROOF_SLACK * counted[1]
    return Count(counted[0], "the signs of a factor's pivots", floor if floor > cutoff else -float("inf"))


def _by_coarser(L: SparseOperator, cutoff: float, null: NullSpace | None) -> Count | None:
    """Return the estimate of a coarser graph, None where that is too large to be factorised."""
    high = spectrum_top(L)
    level = _coarser(L.detach(), large._null_vector(L, null), high)
    C = level.coarse
    small = C.n <= FACTORISED and C.n <= SHRINKS * L.n
    if high <= 0 or not small or 2 * estimate_fill(C).entries > LIGHT * C.n > LIGHT * DECOMPOSED:
        return None
    if C.n <= DECOMPOSED:
        values, vectors = torch.linalg.eigh(C.to_dense().double())
        overrated = _overrated(L, level, vectors[:, 1 : 1 + SMOOTHED], high)
        return Count(int((values <= overrated * cutoff).sum()), "a coarser graph")
    shift, matrix = SHIFT * high - min(float(C.gershgorin()[0]), 0.0), C.to_scipy()
    diagonal = matrix.diagonal()
    matrix.setdiag(diagonal + shift)
    factor = Factor(matrix)
    if not factor.counts:
        return None
    V, unit = np.random.default_rng(0).standard_normal((C.n, SMOOTHED)), level.vector.cpu().numpy()[:, None]
    unit = unit / np.linalg.norm(unit)
    for _ in range(INVERSES):
        V = factor.solve(np.linalg.qr(V - unit @ (unit.T @ V))[0])
    V = np.linalg.qr(V - unit @ (unit.T @ V))[0]
    overrated = _overrated(L, level, torch.from_numpy(V), high)
    matrix.setdiag(diagonal - overrated * cutoff)
    return Count(factor.negative_pivots(matrix)[0], "a coarser graph")


def _coarser(L: SparseOperator, vector: Tensor, high: float) -> Aggregation:
    """Return the coarser graph that "multilevel" would take for few vectors."""
    level = aggregate(L, vector, high / SMOOTH_CUT / 2)
    if level.coarse.n > min(SMALL * L.n, MANY):
        level = level.then(aggregate(level.coarse, level.vector, high / SMOOTH_CUT / 2))
    return level


def _overrated(L: SparseOperator, level: Aggregation, V: Tensor, high: float) -> float:
    """Return the factor by which coarse vectors, orthonormal, overrate what is left when they are smoothed."""
    one = torch.ones((), dtype=L.dtype, device=L.device)
    X = level.prolong(V).to(L.dtype)
    Y = chebyshev_filter(L.detach(), X, SMOOTHING, one * high / SMOOTH_CUT, one * high, 0 * one)
    smooth = (Y * (L @ Y)).sum(0) / Y.square().sum(0)
    coarse = (V * (level.coarse.double() @ V)).sum(0).to(smooth)
    L.products += V.shape[1] * SMOOTHING
    L.passes += SMOOTHING
    return float((coarse / smooth.clamp(min=torch.finfo(smooth.dtype).tiny)).median().clamp(1, 10))


def _by_lanczos(L: Operator, cutoff: float) -> Count:
    """Return how many Ritz values of L less the cutoff, through its diagonal, are negative: no more than there are."""
    scale = torch.ones(L.n, 1, dtype=L.dtype, device=L.device)
    if not isinstance(L, FunctionOperator):
        diagonal = L.diagonal().detach()
        if bool((diagonal > 0).all()):
            scale = diagonal.rsqrt()[:, None]

    def shifted(X: Tensor) -> Tensor:
        Y = scale * X
        return scale * (L @ Y - cutoff * Y)

    low, high = (bound - cutoff for bound in L.gershgorin())
    size = scale.square().amax()
    bounds = (torch.minimum(low * size, low), torch.maximum(high * size, high))
    B = FunctionOperator(shifted, L.n, dtype=L.dtype, device=L.device, bounds=bounds)
    z = gaussian(L, 1, generator=torch.Generator(device=L.device).manual_seed(5))
    krylov = lanczos(B, z, min(STEPS, L.n), reorthogonalize=True)
    steps = int(krylov.steps)
    alpha, beta = krylov.alpha[:steps].double(), krylov.beta[: steps - 1].double()
    T = torch.diag(alpha) + torch.diag(beta, 1) + torch.diag(beta, -1)
    return Count(int((torch.linalg.eigvalsh(T) < 0).sum()), f"{steps} Lanczos steps")
