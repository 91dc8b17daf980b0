r"""The lowest frequencies of one large sparse graph by Lanczos on its inverse, with its chains and twigs condensed.

The iteration runs on the core of the graph (:mod:`krylow.linalg.elimination`), where a road network has an eighth of
its nodes: on $S^{-1} M$, whose largest values are one over the lowest frequencies. Its Ritz vectors are extended to the
whole graph. Where the pieces that were condensed are fast enough, that is the answer; else one step of inverse
iteration with a whole block follows, $Y = L^{-1} X$, which tells how good X was: with $\nu_i$ the Ritz values and
$\rho_i$ the residual norms of the *inverse*, and $\phi$ above what is dropped,

$$\text{error} \le \frac1k \sum_{i \le k} \frac{\rho_i^2}{(\nu_i - \phi)^2}$$

(Davis and Kahan), and Y is better. Residuals of the inverse overrate what leaks at high frequencies by the relative gap
alone, those of L by many orders. Nothing is missed: the signs of the pivots of $L - \sigma I$ count the eigenvalues
below $\sigma$ (Sylvester), and give $\phi = 1 / \sigma$. Where another factorisation would be dear, a second random
start looks for what the first one could not see. Null vectors are read off the components and deflated, and each such
component is held at one node, which changes no solution: the inverse needs no shift.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from krylow._memory import discard
from krylow.krylov.ritz import Evidence, Ritz
from krylow.linalg.components import NullSpace
from krylow.linalg.elimination import Condensed, Factor, condense, float64_matrix
from krylow.linalg.fill import pattern_fill, refuse
from krylow.linalg.rounding import restored
from krylow.operators import SparseOperator
from krylow.solvers._inverse_lanczos import InverseLanczos
from krylow.solvers._schur_pairs import Found, Problem, settled

#: Frequencies sought may be at most this part of a piece's lowest one; else the pieces are made so many times smaller,
#: and if that does not help, nothing is condensed.
SLOW, FINER = 0.05, 16.0
#: The Lanczos iteration aims at this part of the error asked for.
AIM = 0.05
#: A count proves something where this many times its rounding fits the gap: rounding adds up along rows of the factor.
PROOF_SLACK = 1e4
#: Where between the k-th frequency and the next their number is counted.
CUTS = (0.7, 0.3)
#: Products after another start, which is to find what those before it have missed, and starts that there is room for
#: from the beginning.
PROBE, STARTS = 16, 16
#: Least vectors that take longer to improve than to count beforehand whether one is missing.
MANY = 16
#: Values that differ by less, relatively, after another start are the same, if that is less than this part of a gap
#: that is believed in: it may be between copies.
SAME, OF_GAP = 1e-3, 0.1


def condensed_inverse(
    L: SparseOperator,
    k: int,
    null: NullSpace | None,
    *,
    shift: float,
    basis_size: int,
    tol: float,
    max_products: int,
    max_fill: float,
    core: Condensed,
    generator: torch.Generator | None = None,
) -> Ritz:
    """Return the k lowest Ritz pairs of one large sparse graph, with the evidence for them.

    Parameters
    ----------
    L
        The operator.
    k
        Wanted pairs, fewer than L has nodes and more than ``null`` has vectors.
    null
        Null vectors to deflate, which must be the lowest frequencies; None: none are known.
    shift
        Added to L, which is then positive definite beside the null vectors. Only without one are nodes condensed.
    basis_size
        Most vectors of the Lanczos basis.
    tol
        Normalised squared subspace error asked for.
    max_products
        Most products with the inverse of one vector.
    max_fill
        Most entries of a factor, by estimate; more raise an error.
    core
        L as :func:`condense_graph` returns it.
    generator
        Of the starts.
    """
    seed = 0 if generator is None else int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
    basis = np.zeros((L.n, 0)) if null is None else _columns(null)
    norm = max(abs(float(bound)) for bound in L.detach().gershgorin())
    core = condense(float64_matrix(L), shift, 0.0) if shift else core
    coarsest, slowest, left = core.slowest, core.slowest, max_products
    while True:
        if core.nodes.size**2 / 2 > max_fill:
            refuse(pattern_fill(core.S.indptr, core.S.indices), max_fill)
        factor = Factor(_held(core, null), core.order and core.order[0])
        problem = Problem(core, factor, k, k - basis.shape[1], basis, norm, tol, max(left, k + 2))
        found = _run(problem, basis_size, np.random.default_rng(seed))
        left = problem.most
        if found is not None:
            del factor, problem  # spent before there are vectors of the whole graph
            return _conclude(L, k, core, basis, found)
        slowest = slowest / FINER if slowest == coarsest else 0.0
        core = condense(float64_matrix(L), shift, slowest)


def _columns(null: NullSpace) -> np.ndarray:
    """Return the null vectors as columns ``(n, d)``, which take no room where all entries are the same."""
    columns = null.vector[:, None] if null.components == 1 else null.basis()
    return np.asarray(columns[:, : null.count].cpu())


def _held(core: Condensed, null: NullSpace | None) -> Any:
    """Return S with one node of each component that has a null vector held, so that it is definite."""
    if null is None:
        return core.S
    if null.components == 1:
        component = first = np.zeros(1, np.int64)
    else:
        component, first = np.unique(null.labels.cpu().numpy()[core.nodes], return_index=True)
    data, rows, columns = core.S.data.copy(), core.S.indptr, core.S.indices
    added = max(float(core.S.diagonal().mean()), np.finfo(np.float64).tiny)
    for node in first[component < null.count]:
        row = slice(rows[node], rows[node + 1])
        data[row][columns[row] == node] += added
    return csr_array((data, columns, rows), shape=core.S.shape)


def _run(problem: Problem, size: int, rng: np.random.Generator) -> Found | None:
    """Return what was found, or None where the condensed pieces are too slow for the frequencies sought."""
    core, factor, wanted = problem.core, problem.factor, problem.wanted
    null = np.ascontiguousarray(problem.null[core.nodes].T)
    images = null if core.M is None else (core.M @ null.T).T

    def product(image: np.ndarray) -> np.ndarray:
        z = factor.solve(image)
        return z - (images @ z) @ null

    size = max(size, wanted + 2 * STARTS)
    lanczos = InverseLanczos(product, core.M, null, size, wanted + (size - wanted) // 3, rng)
    lanczos.start()
    starts, least, before = 1, 0, np.zeros(wanted)
    while True:
        values, Y, residuals = _iterate(lanczos, problem, least)
        if core.M is not None and (values.size <= wanted or core.slowest > SLOW * values[wanted - 1]):
            return None
        overlooked = _overlooked(problem, values) if starts == 1 else 0
        if overlooked and problem.most > 0:
            starts, least = 1 + overlooked, _start_more(lanczos, overlooked, wanted)
            continue
        found = settled(problem, lanczos.advanced(Y[:, : wanted + 1]), values, residuals)
        if found is None:
            return None
        if factor.counts:
            missed, found = _counted(problem, found)
        else:
            missed = int((np.abs(values[:wanted] - before) > _same(problem, values)).any())
            before = values[:wanted].copy()
        if not missed:
            discard(lanczos.rows)  # the heap would keep their room beside that of the whole graph's vectors
            return found
        missed = min(missed, wanted + 2 - starts)
        if missed <= 0 or problem.most <= 0:
            return replace(found, error=math.inf, apart=wanted)
        starts, least = starts + missed, _start_more(lanczos, missed, wanted)


def _same(problem: Problem, values: np.ndarray) -> np.ndarray:
    """Return by how much each wanted value may differ after another start that has found nothing new."""
    wanted = problem.wanted
    gap = float(values[wanted - 1] - values[wanted]) if values.size > wanted else math.inf
    same = SAME * values[:wanted]
    return np.minimum(same, OF_GAP * gap) if gap > problem.noise(values) else same


def _start_more(lanczos: InverseLanczos, count: int, wanted: int) -> int:
    """Put more starts in, with room for them, and return how many products will show what they see."""
    lanczos.widen(wanted + 2 * (lanczos.waiting + count))
    lanczos.start(count)
    return PROBE + 2 * lanczos.waiting


def _iterate(lanczos: InverseLanczos, problem: Problem, least: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Advance until the pairs of the core are as good as they need to be, and return them as ``ritz`` does."""
    wanted = problem.wanted
    steps = max(1, least, wanted + 2 - lanczos.expanded)
    while True:
        going = True
        for _ in range(steps):
            going = problem.most > 0 and lanczos.advance()
            problem.most -= going
            if not going:
                break
        values, Y, residuals = lanczos.ritz()
        if not going:
            return values, Y, residuals
        steps = max(1, wanted // 8)
        if values.size <= wanted:
            continue
        error = problem.error(values, residuals, float(values[wanted] + residuals[wanted]))
        settled = residuals[: wanted + 1].max() <= problem.noise(values)
        if error <= AIM * problem.tol or settled:
            return values, Y, residuals


def _overlooked(problem: Problem, values: np.ndarray) -> int:
    """Return how many frequencies the core's values lack by count, before their vectors are improved for nothing."""
    if problem.core.M is None or not MANY <= problem.wanted < values.size:
        return 0
    low, high = (1 / float(value) for value in values[problem.wanted - 1 : problem.wanted + 1])
    counted = problem.core.below(problem.factor, low + CUTS[0] * (high - low) - problem.core.shift)
    if counted is None or not counted[1] < (1 - CUTS[0]) * (high - low):
        return 0
    return min(max(0, counted[0] - problem.wanted - problem.null.shape[1]), problem.wanted + 1)


def _counted(problem: Problem, found: Found) -> tuple[int, Found]:
    """Return how many frequencies below the cut were missed, and the pairs with the bound that the count proves."""
    last = found.apart
    if not problem.factor.counts or last == 0:
        return 0, found
    # One over values of the inverse: quotients of L may be far above, for what a vector leaks at high frequencies.
    low, high = (1 / float(value) for value in found.values[last - 1 : last + 1])
    expected = last + problem.null.shape[1]
    missed = 0
    for cut in CUTS:
        sigma = low + cut * (high - low)
        counted = problem.core.below(problem.factor, sigma - problem.core.shift)
        if counted is None or not counted[1] < min(cut, 1 - cut) * (high - low):
            continue
        missed = max(0, counted[0] - expected)
        if counted[0] == expected:
            if last < problem.wanted:
                return 0, found
            error = problem.error(found.values, found.residuals, 1 / sigma)
            slack = PROOF_SLACK * counted[1]
            floor = sigma - slack if slack < min(cut, 1 - cut) * (high - low) else None
            return 0, replace(found, error=error, floor=floor)
    return missed, replace(found, error=math.inf)


def _conclude(L: SparseOperator, k: int, core: Condensed, null: np.ndarray, found: Found) -> Ritz:
    """Return the Ritz pairs of the whole graph in L's dtype, with the evidence for them."""
    wanted, shift = k - null.shape[1], core.shift
    following = float(found.frequencies[wanted]) - shift
    if found.of_L is not None:
        zero = np.zeros(k - wanted)
        theta, residuals = (np.concatenate([zero, part]) for part in (found.frequencies[:wanted], found.of_L))
        X = torch.from_numpy(found.X if len(found.X) == L.n else core.extend(found.X, null))
        pairs = Ritz(torch.from_numpy(theta), X, torch.from_numpy(residuals))
    else:
        D = restored(L).counting_for(L)
        X = torch.from_numpy(np.concatenate([null, found.X[:, :wanted]], axis=1)).to(D.device)
        LX = D @ X
        values, W = torch.linalg.eigh(X.mT @ LX)  # X is orthonormal
        X, LX = X @ W, LX @ W
        pairs = Ritz(values, X, torch.linalg.vector_norm(LX.sub_(X * values), dim=0))
    floor = following if found.floor is None else found.floor - shift
    proved = found.floor is not None
    evidence = Evidence(found.error, floor, found.apart + k - wanted, pairs.residuals, proved=proved, restored=True)
    last = pairs.theta.new_tensor([max(following, float(pairs.theta[-1]))])
    return Ritz(
        theta=torch.cat([pairs.theta, last]).to(L.values),
        X=pairs.X.to(L.values),
        residuals=torch.nn.functional.pad(pairs.residuals, (0, 1), value=torch.inf).to(L.values),
        evidence=evidence,
    )
