r"""Two-grid cycles: smoothing, Rayleigh-Ritz, an error estimate, and the coarse-grid correction of a block.

A block X is smoothed by a Chebyshev filter. Its remaining error is a component in dropped eigenspaces of low frequency,
which the coarse graph represents,

$$e_i \approx P z_i, \qquad z_i = \tau (P^\top L P - \tau \theta_i I)^{-1} P^\top (L x_i - \theta_i x_i)$$

on the complement of the coarse eigenvectors, where $\tau$ is the factor by which piecewise constant vectors
overestimate a low frequency. It is the error estimate, by which the iteration stops, and, subtracted, the correction.

All that counts is the span of the block: it stays in the basis that the filter makes of it, and Rayleigh-Ritz steps are
made in small matrices, of inner products. It is turned to its Ritz vectors once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from krylow._reduce import agreed, largest, summed
from krylow.krylov.cg import conjugate_gradients
from krylow.linalg.row_blocks import gram, residual_gram
from krylow.operators import SparseOperator
from krylow.operators.distributed import LocalRows
from krylow.solvers._aggregation import Aggregation
from krylow.solvers._block import Block, Image
from krylow.solvers._coarse import SETTINGS, Coarsest
from krylow.solvers._estimate import Outcome, Stopping, inseparable, judge, judge_up_to, mixed
from krylow.solvers._filter import Filter, single
from krylow.solvers.chebyshev import Goal


@dataclass(frozen=True)
class CycleSettings:
    """Settings of the two-grid cycles."""

    cycles: int = 20  #: most cycles
    degree: int = 8  #: of the smoother, and twice that for errors below the next number,
    fine: float = 1e-4  #: since high frequencies that remain look like low ones to the coarse graph
    interval: float = 1 / 30  #: where the smoother's interval begins, over the spectrum's upper bound
    wide: int = 32  #: mean nodes of an aggregate from which,
    few: int = 100  #: if there are fewer of them than this a column, the degree
    wide_degree: int = 12  #: is at least this
    most_degree: int = 128  #: up to which the degree is doubled, near the end,
    stiff: float = 0.5  #: where a cycle leaves more than this part of the squared error
    pays: float = 0.7  #: the part of the squared error that a cycle has to leave at most
    damping: float = 0.85  #: of the corrections after the first: most vectors are overestimated by less than the median
    coarse_tol: float = 0.1  #: relative residual of the coarse corrections
    coarse_steps: int = 300  #: most steps of conjugate gradients for one
    rough: float = 100  #: squared error over the tolerance from which float32 products serve
    dependent: float = 1e-2  #: sine of the angle of a column with those before it below which the block has no rank
    zero: float = 1e-9  #: frequency over the spectrum's upper bound that is taken for zero
    overlap: float = 0.02  #: cosine of the rounding of two vectors that is assumed in any case
    singletons: float = 40.0  #: underestimate of the squared error over the share of one-node aggregates
    looks: int = 60  #: most steps of the search for what cycles do not see, before an error is believed,
    seen: float = 0.1  #: or until its energy has so small a relative error
    slowest: float = 0.9  #: largest part of the squared error that a cycle is taken to leave, in the estimate
    self_loops: float = 4.0  #: underestimate where L has self-loops, which aggregation does not overestimate


class Measured(NamedTuple):
    """What is known of a smoothed block Y, whose Ritz vectors are Y C."""

    C: Tensor  # (s, s)
    inverse: Tensor  # (s, s) of C
    inner: Tensor  # (s, s) Y^T Y
    restricted: Tensor  # (aggregates, s) P^T Y
    Z: Tensor  # (aggregates, s) coarse corrections of the Ritz vectors
    mixing: Tensor  # (s, s) how the Ritz vectors are mixed
    shifts: Tensor  # (s,) how far each Ritz value is expected to fall
    rounding: Tensor  # (s,) of the Ritz values


class TwoGrid:
    """Two-grid cycles over a block, at first the coarse eigenvectors prolonged.

    D is L with counters of its own, in float64 where the error is to be small. With a cutoff, k is as many frequencies
    as are up to that after each cycle, and cycles go on until the next one is known to stay above.
    """

    def __init__(
        self,
        block: Block,
        D: SparseOperator | LocalRows,
        level: Aggregation,
        coarse: Coarsest,
        goal: Goal,
        settings: CycleSettings,
    ) -> None:
        self.block, self.D, self.level, self.coarse = block, D, level, coarse
        self.goal, self.settings, self.k = goal, settings, goal.k
        self.low = max(settings.interval * block.high, float(coarse.theta[-1]) / 2)
        self.degree = settings.degree if goal.tol >= settings.fine else 2 * settings.degree
        if settings.wide * level.coarse.n < D.n and level.coarse.n < settings.few * block.X.shape[1]:
            self.degree = max(self.degree, settings.wide_degree)
        V = coarse.V.double()
        self.inner = level.inner(V, V)  # of the block's columns
        sums = (level.coarse @ level.vector / level.vector).abs()
        looped = largest(float(sums.max()) if sums.numel() else 0.0)[0] > settings.zero * block.high
        self.underestimate = (1 + settings.singletons * level.singletons) * (settings.self_loops if looped else 1.0)
        self.done = 0  # cycles so far
        self._predicted: tuple[float, float] | None = None
        self._outside: list[float] = []  # squared corrections so far, and by how much those to come exceed the last
        self._to_come = 1.0

    def run(self) -> Outcome | None:
        """Return how the cycles ended; None where they do not converge.

        The block's columns are Ritz vectors when turned then, or any basis of their span where None is returned.
        """
        block, goal, outcome = self.block, self.goal, Outcome(math.inf, 0)
        limit, width = block.L.products + goal.max_products, block.X.shape[1]
        try:
            while self.done < self.settings.cycles:
                if block.L.products + (self.degree + 3) * width > limit:
                    return outcome
                error, slow = outcome.error, self._to_come
                measured = self.measure(goal.tol if error <= self.settings.rough * goal.tol else 1.0)
                if measured is None:
                    return None
                outcome = agreed(self._judge(measured))
                self.done += 1
                if goal.watch is not None and not outcome.narrow:
                    goal.watch.report(outcome.error)
                if outcome.narrow or outcome.settled:
                    return outcome
                if not agreed(self._converges(error / slow, outcome.error / self._to_come)):
                    return None
                self.correct(measured, self.settings.damping if self.done > 1 else 1.0)
        except KeyboardInterrupt:
            block.settle()
            return replace(outcome, interrupted=True)
        return None

    def measure(self, tol: float) -> Measured | None:
        """Smooth the block, take its Ritz vectors and estimate their errors; None where it has lost its rank.

        ``tol`` says how exact the products have to be. The block's estimate becomes that of its Ritz vectors.
        """
        block, high = self.block, self.block.high
        p = agreed(Filter(self.degree, self.low, high, 0.0))
        G, S = block.filter(p)
        made = block.image(self.D, tol)
        R, failed = agreed(torch.linalg.cholesky_ex(S, upper=True))
        if int(failed) or float((R.diagonal() / S.diagonal().sqrt()).min()) < self.settings.dependent:
            return None
        half = torch.linalg.solve_triangular(R.mT, made.H, upper=False)
        theta, Q = agreed(torch.linalg.eigh(torch.linalg.solve_triangular(R.mT, half.mT, upper=False)))
        C = torch.linalg.solve_triangular(R, Q, upper=True)
        block.turn, values = C, theta.cpu()
        residuals, size = _residuals(block, made, R, C)
        restricted = self.level.restrict(block.X)
        rho = (self.level.restrict(made.LX) @ C).addcmul_(restricted @ C, theta, value=-1)
        Z = self._coarse_corrections(rho, theta)
        high_part = _high_part(p, values, p.rounding(block.X.dtype), G @ C, self.inner)
        outside = (high_part.square() + self.level.inner(Z, Z).diagonal().cpu()).sqrt().clamp(max=1)
        block.estimate = replace(block.estimate, theta=values, outside=outside, residuals=size)
        # The residual that no coarse vector has, over the frequency at which it is as large as the high part.
        unseen = (residuals - self.level.inner(rho, rho)).cpu()
        at = (unseen.diagonal().clamp(min=0).sqrt() / high_part).clamp(self.low, high).sqrt()
        seen = self.level.inner(rho, Z).cpu()
        coupling = (seen + seen.mT) / 2 + unseen / at / at[:, None]
        shifts = coupling.diagonal().clamp(min=0)
        rounding = made.rounding + self.settings.overlap * high * p.rounding(block.X.dtype) ** 2
        mixing = mixed(coupling.abs() + rounding, values - shifts, shifts + rounding)
        return Measured(C, Q.mT @ R, S, restricted, Z, mixing, shifts, rounding)

    def overlooked(self, measured: Measured) -> float:
        r"""Return the normalised squared error, as a few conjugate gradients from the residuals find it.

        A component too high for the coarse graph and too low for the smoother is hardly changed by a cycle, and so not
        seen by the estimate; but it is in the residual. $e = (L - \theta_k)^{-1} r$ in the complement of the wanted
        vectors, for the residual r of their sum with random signs, is that sum of their errors, those of the lower ones
        enlarged. Guards belong to the complement: what is outside the block moves with them. Preconditioned by the
        coarse graph, the diagonal and the guards, this takes few products of one vector, a cycle many of the block.
        """
        block, level, k = self.block, self.level, self.k
        X, L, theta = block.X, block.L, block.estimate.theta.to(block.X.device)
        signs = torch.randint(0, 2, (k, 1), generator=torch.Generator().manual_seed(k)).to(theta) * 2 - 1
        coarse, diagonal = self._coarse_inverse(), L.diagonal()[:, None].clamp(min=self.settings.zero * block.high)
        C, guards, shift = measured.C[:, :k], measured.C[:, k:], float(theta[k - 1])
        above = (theta[k:] - shift).clamp(min=self.settings.zero * block.high)[:, None]

        def project(Y: Tensor) -> Tensor:
            return Y - X @ (C @ (C.mT @ gram(X, Y))).to(X.dtype)

        def precondition(Y: Tensor) -> Tensor:
            Z = level.prolong(coarse(level.restrict(Y))).to(Y.dtype) + Y / diagonal
            known = guards @ (guards.mT @ gram(X, Y) / above) - C @ (C.mT @ gram(X, Z))
            return Z + X @ known.to(X.dtype)

        def total(Y: Tensor) -> Tensor:
            return summed(Y.sum(-2, keepdim=True))[0]

        r = project(L @ (X @ (C @ signs).to(X.dtype)))
        e = conjugate_gradients(
            lambda Y: (L @ Y).sub_(Y, alpha=shift),  # which leaves the complement by no more than residuals
            r,
            steps=self.settings.looks,
            energy=self.settings.seen,
            preconditioner=precondition,
            total=total,
        )
        return agreed(float(total(e.double().square()))) / k

    def _coarse_inverse(self) -> Callable[[Tensor], Tensor]:
        """Return an approximate inverse of the coarse graph's Laplacian on its range."""
        if self.coarse.inverse is not None:
            return self.coarse.inverse
        A, settings = self.level.coarse, self.settings
        if A.n <= SETTINGS.any_fill and isinstance(A, SparseOperator):
            lifted = A.to_dense().double()
            lifted.diagonal().add_(SETTINGS.shift * self.block.high - min(float(A.gershgorin()[0]), 0.0))
            factor = torch.linalg.cholesky(lifted)
            return lambda Y: torch.cholesky_solve(Y.double(), factor)
        B, total = single(A), self.level.total
        return lambda Y: conjugate_gradients(
            lambda Z: B @ Z, Y.to(B.dtype), steps=settings.coarse_steps, tol=settings.coarse_tol, total=total
        )

    def correct(self, measured: Measured, damping: float) -> None:
        """Subtract the coarse corrections, prolonged, from the block."""
        Z = measured.Z @ (damping * measured.inverse)
        self.level.subtract_(self.block.X, Z)
        crossed = self.level.inner(measured.restricted, Z)
        self.inner = measured.inner - crossed - crossed.mT + self.level.inner(Z, Z)

    def _coarse_corrections(self, rho: Tensor, theta: Tensor) -> Tensor:
        r"""Return $z_i$ ``(aggregates, s)`` of restricted residuals, to a modest accuracy."""
        k = self.k if self.goal.cutoff is None else min(self.k + 1, theta.numel())  # the first guard has to be known
        found, below = theta[:k].cpu(), self.coarse.theta[:k].cpu()
        zero = self.settings.zero * self.block.high
        nonzero = (found > zero) & (below > zero)
        tau = float((below / found)[nonzero].median()) if bool(nonzero.any()) else 1.0
        A = single(self.level.coarse)
        V, inverse, inner = self.coarse.V.to(A.dtype), self.coarse.inverse, self.level.inner
        shift = (tau * theta.clamp(max=float(theta[k - 1]))).to(A.dtype)

        def project_(Y: Tensor) -> Tensor:
            return Y.addmm_(V, inner(V, Y), alpha=-1)

        def multiply(Y: Tensor) -> Tensor:
            return project_(A @ Y).addcmul_(shift, Y, value=-1)

        preconditioner = None if inverse is None else lambda Y: project_(inverse(Y))
        right = project_(rho.to(A.dtype, memory_format=torch.contiguous_format, copy=True))
        steps, tol = self.settings.coarse_steps, self.settings.coarse_tol
        Z = conjugate_gradients(
            multiply, right, steps=steps, tol=tol, preconditioner=preconditioner, total=self.level.total
        )
        project_(Z)
        return Z.double().mul_(tau)

    def _judge(self, measured: Measured) -> Outcome:
        """Return how good the block is, and with a cutoff how many of its frequencies are kept."""
        block, cutoff, tol = self.block, self.goal.cutoff, self.goal.tol
        if cutoff is not None:
            kept = block.estimate.count(cutoff)
            if kept >= block.X.shape[1]:
                return Outcome(math.inf, 0, kept=kept, narrow=True)
            if kept != self.k:
                self.k, self._predicted, self._outside = max(1, kept), None, []
        optimism = self._optimism(measured)
        self._to_come = max(1.0, self._series() / Stopping.safety / optimism)
        factor = self.underestimate * optimism * self._to_come
        outside = (factor**0.5 * block.estimate.outside).clamp(max=1)
        delta = factor * (measured.shifts + measured.rounding)
        estimate = block.estimate = replace(block.estimate, outside=outside, delta=delta, sweeps=2)
        mixing = factor**0.5 * measured.mixing
        if cutoff is None:
            outcome = judge(estimate, mixing, self.k, tol)
        else:
            outcome = judge_up_to(estimate, mixing, cutoff, tol)
            if not estimate.separated(cutoff):
                return outcome
        # A small error is not concluded from one cycle, whose estimate no second one has confirmed.
        reached = outcome.error <= tol and (self.done > 0 or tol >= self.settings.fine)
        if reached and outcome.kept != 0:
            outcome = replace(outcome, error=max(outcome.error, self.overlooked(measured)))
            reached = outcome.error <= tol
        return replace(outcome, settled=reached or inseparable(estimate, outcome, self.k, tol))

    def _optimism(self, measured: Measured) -> float:
        """Return the ratio of the observed to the predicted decrease of the Ritz values' sum, if that is above 1."""
        total, decrease = (float(part[: self.k].sum()) for part in (self.block.estimate.theta, measured.shifts))
        predicted, self._predicted = self._predicted, (total, decrease)
        if predicted is None:
            return 1.0
        return max(1.0, (predicted[0] - total + decrease) / max(predicted[1], 1e-300))

    def _series(self) -> float:
        r"""Return the squared sum of this correction and all that follow, over its square, a geometric series.

        A component that is too high for the coarse graph and too low for the smoother loses a part $1 - \rho^{1/2}$ of
        itself in each cycle, and that part is all that the estimate sees of it. The rate is the worst one of the last
        four cycles: what is slow is seen again once what is faster is gone.
        """
        self._outside.append(float(self.block.estimate.outside[: self.k].square().sum()))
        last = self._outside[-5:]
        ratio = max((new / max(old, 1e-300) for old, new in pairwise(last)), default=0.0)
        return (1 - min(ratio, self.settings.slowest) ** 0.5) ** -2

    def _converges(self, before: float, error: float) -> bool:
        """Return whether another cycle pays; near the end the smoother is made stronger where the last one has not.

        Where aggregates have many nodes, frequencies too low for the smoother and too high for the coarse graph remain.
        """
        near = error <= self.settings.rough * self.goal.tol
        if near and error > self.settings.stiff * before and self.degree < self.settings.most_degree:
            self.degree *= 2
            return True
        return error <= self.settings.pays * before


def _residuals(block: Block, made: Image, R: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inner products of the Ritz vectors' residuals ``(s, s)``, and their norms with the rounding."""
    inside = torch.cholesky_solve(made.H, R, upper=True)  # L Y in the basis Y
    if made.squares is None:
        residuals = C.mT @ residual_gram(block.X, made.LX, inside) @ C
        rounding = torch.zeros_like(residuals.diagonal())
    else:  # a difference of sums, exact enough for a large error
        residuals = C.mT @ (made.squares - made.H @ inside) @ C
        rounding = 2 * torch.finfo(block.X.dtype).eps * (C.mT @ made.squares @ C).diagonal()
    return residuals, (residuals.diagonal().clamp(min=0) + rounding).sqrt().cpu() + made.rounding


def _high_part(p: Filter, theta: Tensor, rounding: float, former: Tensor, inner: Tensor) -> Tensor:
    r"""Return the Ritz vectors' components on the smoother's interval ``(s,)``, on the host.

    What the smoother left of them, $\eta h_i$, has changed the span by $\nu_i = (p(\theta_i) - \eta) h_i$. ``former``
    are the inner products of the block before smoothing with the Ritz vectors, ``inner`` those with itself.
    """
    within = (former * torch.linalg.solve(inner, former)).sum(0)
    new = (1 - within).clamp(min=0).sqrt().cpu()
    kept = p.amplification(theta) * p.bound
    return new * p.bound / (kept - p.bound).clamp(min=p.bound) + rounding
