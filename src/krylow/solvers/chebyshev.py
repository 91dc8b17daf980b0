r"""Chebyshev-filtered subspace iteration.

A block X is multiplied by $T_d\big((2L - (a + b) I) / (b - a)\big)$, which is at most 1 in size on the unwanted
interval [a, b] and grows like $\cosh(d \, \mathrm{arcosh})$ below a, then made orthonormal and rotated to its Ritz
vectors. The interval is found on the way: a is the block's own largest Ritz value, b an upper bound of the spectrum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from krylow._checks import InputError
from krylow._memory import trim
from krylow._random import gaussian
from krylow.krylov.chebyshev import chebyshev_filter
from krylow.krylov.pairs import Ritz, rotate, settled
from krylow.operators import Operator, SparseOperator
from krylow.solvers._communities import community_block
from krylow.solvers._filter import TOLD, FilteredBlock
from krylow.solvers._problem import SAFETY, Problem, Solver, random_block, solve_large, width_of_block
from krylow.solvers._progress import Watch
from krylow.solvers._spectrum import spectrum_top
from krylow.solvers._sweeps import (
    DOUBT,
    FIRST_DEGREE,
    LEAST_DEGREE,
    conclude,
    first_cut,
    refine_block,
    refine_up_to,
    rough,
    working_precision,
)

#: The last Ritz value is the k-th one's own if they differ by this part of the band; the interval then begins this part
#: of the way up from it.
LAST, BEYOND = 1e-3, 0.03
#: The filter's degree aims at this much growth of the k-th vector over the block's last one in one sweep.
GROWTH = 1e3
DEGREES = (6, 64)


@dataclass(frozen=True)
class Chebyshev(Solver):
    """Chebyshev-filtered subspace iteration (Zhou and Saad, 2007) with a posteriori error control.

    Each sweep applies a polynomial that is bounded by 1 on the unwanted interval and largest below the k-th Ritz value,
    then a Rayleigh-Ritz step. One large graph is stopped by an estimate of the block's own error; smaller graphs and
    batches by the residuals of their Ritz pairs.

    Parameters
    ----------
    block
        Columns of the block, more than k; the guard vectors set the rate of convergence. None: k and a third of it.
    """

    name: ClassVar[str] = "chebyshev"
    takes_cutoff: ClassVar[bool] = True
    block: int | None = None

    def _width(self, problem: Problem) -> int:
        L, k = problem.operator, problem.k
        width = min(int(L.sizes.min()), self.block or k + max(4, k // 3))
        if width < k:
            raise InputError(f"the block's width m must be at least k = {k}, got {width}.")
        return width_of_block(problem, self.block) if problem.is_large() else width

    def describe(self, problem: Problem) -> str:
        """Return the width of the block."""
        return f"a filtered block of {self._width(problem)} vectors"

    def solve(self, problem: Problem) -> Ritz:
        """Return the lowest Ritz pairs."""
        width = self._width(problem)
        if problem.is_large():
            return solve_large(problem, partial(self._solve_large, width=width), grouped=True)
        X = gaussian(problem.operator, width, generator=problem.generator)
        limit = problem.max_products or 4000 * width
        tol, watch = SAFETY * problem.tol, problem.watch(SAFETY)
        return chebyshev_subspace(problem.operator, X, problem.k, tol=tol, max_products=limit, watch=watch)

    def _solve_large(self, problem: Problem, width: int) -> Ritz:
        watch, limit = problem.watch(), problem.max_products or 4000 * width
        pairs = None
        X = self._communities(problem, width)
        if X is not None:
            start = [X]
            del X  # the filter's own from now on
            pairs = filtered_subspace(problem, start.pop, limit, watch, planted=True)
        if pairs is None:
            pairs = filtered_subspace(problem, partial(random_block, problem, width), limit, watch)
        assert pairs is not None
        return pairs

    def _communities(self, problem: Problem, width: int) -> Tensor | None:
        """Return a start block from communities, where these show the wanted frequencies."""
        null, labels, L = problem.null, problem.communities, problem.operator
        if labels is None or null is None or not null.lowest or problem.cutoff is not None:
            return None  # gaps are told by factors, above zero
        assert isinstance(L, SparseOperator)
        return community_block(L, problem.null_vector(), labels, problem.k, width, problem.generator)


def chebyshev_subspace(
    L: Operator,
    X: Tensor,
    k: int,
    *,
    tol: float,
    max_products: int,
    degree: int | None = None,
    watch: Watch | None = None,
) -> Ritz:
    """Return Ritz pairs of a filtered block, the k lowest of which have an estimated error of at most ``tol``.

    A block holds as many copies of a repeated eigenvalue as it has columns, so nothing below the cut is missed unless
    the random block happens to be orthogonal to it.

    Parameters
    ----------
    L
        The operator.
    X
        ``(*batch, n, s)`` start block with s > k; the s - k guards set the speed of convergence.
    k
        Wanted pairs.
    tol
        Estimated normalised squared subspace error to stop at.
    max_products
        Most products with L.
    degree
        Of the filter. None: chosen before each sweep from the Ritz values.
    watch
        Told of every sweep. Ctrl-C ends the iteration with what the last sweep found.
    """
    high = L.gershgorin()[1]
    ritz = rotate(L, X)
    spent = X.shape[-1]
    while not bool(((ritz.estimate(k) <= tol) | settled(L.norm_bound(), ritz.residuals[..., : k + 1])).all()):
        first, cut = ritz.theta[..., 0], ritz.theta[..., -1]
        sweep = degree or _degree(ritz.theta[..., k - 1], cut, high)
        if spent + (sweep + 1) * X.shape[-1] > max_products:
            break
        flat = cut <= first  # one eigenvalue in the whole block: any interval above it serves
        cut = torch.where(flat, (first + high) / 2, cut)
        # One eigenvalue from the k-th to the last, of which there may be more outside: from there on nothing grows.
        last = cut - ritz.theta[..., k - 1] <= LAST * (cut - first)
        cut = torch.where(last, cut + BEYOND * (high - cut), cut)
        size = L.norm_bound()
        size = torch.where(size > 0, size, torch.ones_like(size))
        high_now = torch.where(high > cut, high, cut + size)
        first = torch.where(first < cut, first, cut - size)
        try:
            ritz = rotate(L, chebyshev_filter(L, ritz.X, sweep, cut, high_now, first))
            spent += (sweep + 1) * X.shape[-1]
            if watch is not None:
                watch.report(float(ritz.estimate(k).max()))
        except KeyboardInterrupt:
            return replace(ritz, interrupted=True)
    return ritz


def _degree(theta_k: Tensor, cut: Tensor, high: Tensor) -> int:
    """Return the degree at which the k-th vector grows by ``GROWTH`` over the block's last."""
    x = 1 + 2 * (cut - theta_k) / (high - cut).clamp(min=torch.finfo(cut.dtype).tiny)
    rate = torch.acosh(x).amin()
    wanted = torch.acosh(torch.tensor(GROWTH)) / rate.clamp(min=1e-6)
    return int(wanted.clamp(*DEGREES).ceil())


def filtered_subspace(
    problem: Problem, start: Callable[[], Tensor], max_products: int, watch: Watch, *, planted: bool = False
) -> Ritz | None:
    """Return Ritz pairs of one large graph from a filtered block that is stopped by its own measure of the error.

    Parameters
    ----------
    problem
        Of which null vectors are not iterated for where they are the lowest; there must be fewer than k of them.
    start
        Makes the start block ``(n, s)``, s > k: it is overwritten, and given up before the answer needs memory.
    max_products, watch
        As in :func:`chebyshev_subspace`.
    planted
        Whether it is orthonormal and its first k columns are near the wanted vectors already, which are apart from all
        others by a clear gap; a third of the other columns at least are random. None is returned where that turns out
        to be wrong.
    """
    L, k, tol, null = problem.operator, problem.k, problem.tol, problem.null
    A, D = working_precision(L, tol).counting_for(L), L.detach().counting_for(L)
    null = null if null is not None and null.lowest and null.count and not planted else None
    wanted = k - (null.count if null else 0)
    X = start().to(A.dtype)[:, : L.n - (k - wanted)].contiguous()
    trim(X)
    exact_below = 0.0 if rough(tol) else TOLD
    block = FilteredBlock(A, X, spectrum_top(A), orthonormal=planted, beside=null, exact_below=exact_below)
    del X
    low, degree = first_cut(block), FIRST_DEGREE
    if planted:
        block.hidden, degree = float(L.n), LEAST_DEGREE
    goal = tol / DOUBT * k / wanted
    if problem.cutoff is not None:
        known = k - wanted
        block, found = refine_up_to(
            block, D, wanted, problem.cutoff, tol=tol / DOUBT, max_products=max_products, watch=watch, low=low
        )
        wanted = found.kept or 0
        k = known + wanted
    else:
        found = refine_block(block, D, wanted, tol=goal, max_products=max_products, watch=watch, low=low, degree=degree)
    found = replace(found, error=found.error * wanted / max(1, k), well_defined=found.well_defined + k - wanted)
    pairs = None if found.hidden else conclude(D, block, k, found, tol)
    return pairs
