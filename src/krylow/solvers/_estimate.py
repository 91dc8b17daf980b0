r"""The error of a block, estimated a posteriori from what a filter makes of it.

Let X be orthonormal and $Y = p(L) X$ with p at most $\eta$ in size on all that is dropped and $\mu_i$ at a wanted
eigenvalue. If $x_i$ has a component e in the dropped eigenspace, then $(I - X X^\top) y_i \approx (p(L) - \mu_i) e$:
the part of $y_i$ outside span(X), over $\mu_i - \eta$, is the norm of e, and $\eta / \mu_i$ of it remains in $y_i$.
This is the theorem of Davis and Kahan for p(L) in place of L, before the sweep, and contracted by the sweep. The
residual of L would overestimate a component at frequency $\lambda$ by $(\lambda / \mathrm{gap})^2$, and never let the
iteration stop in time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from krylow.solvers._filter import Filter


@dataclass(frozen=True)
class Stopping:
    """The stopping rule of blocks of one large graph."""

    safety: float = 2.0  # factor of a squared error estimate before it is compared with the tolerance
    stagnant: float = 1e-2  # vectors outside by this part of the tolerance, and still mixed, are never separated
    near: float = 5e-3  # if their gap is below this part of the band; else by the square of that part
    least: float = 1e-5  # part of equal frequencies that counts as the width of their band
    patience: int = 8  # sweeps without progress that are stagnation


class TooManyKept(Exception):
    """A cutoff keeps so many frequencies of a graph that no block of it is worth it."""


@dataclass(frozen=True)
class Estimate:
    r"""What is known of the vectors of a block, in the order of rising frequency.

    Attributes
    ----------
    theta
        ``(s,)`` float64 Ritz values; infinite before the first sweep.
    outside
        ``(s,)`` float64 out-of-subspace components $e_i$: norms of the parts in the dropped eigenspace.
    delta
        ``(s,)`` float64 $\delta_i$, by how much each Ritz value may still fall; infinite before a product shows it.
    residuals
        ``(s,)`` float64 residual norms with their rounding; None before a product shows them.
    rounding
        Norm of the rounding that the last filter left in a vector.
    sweeps
        Measurements so far: the first predicts, the second compares.
    undetected
        Squared worst-case ratio of the guards' norm to their component along an eigenvector below the cut that the
        block lacks; n at first where the start is structured. 0: all columns were random.
    """

    theta: Tensor
    outside: Tensor
    delta: Tensor
    residuals: Tensor | None = None
    rounding: float = 0.0
    sweeps: int = 0
    undetected: float = 0.0
    _last: tuple[Filter, Tensor] | None = None  # the last sweep's filter, and components before it

    @classmethod
    def unknown(cls, s: int, undetected: float = 0.0) -> Estimate:
        """Return what is known of s vectors before anything is measured."""
        infinite = torch.full((s,), torch.inf, dtype=torch.float64)
        return cls(infinite, torch.ones_like(infinite), infinite, undetected=undetected)

    @property
    def known(self) -> bool:
        """Whether there are Ritz values."""
        return bool(self.theta.isfinite().all())

    def error(self, k: int) -> float:
        """Return the out-of-subspace part of the normalised squared error of the first k vectors."""
        return float(self.outside[:k].square().mean()) if self.sweeps > 1 else math.inf

    def count(self, cutoff: float) -> int:
        """Return how many Ritz values are up to a cutoff."""
        return int((self.theta <= cutoff).sum())

    def separated(self, cutoff: float) -> bool:
        """Return whether the first Ritz value above a cutoff, if there is one, will stay above."""
        j = self.count(cutoff)
        return j < self.theta.numel() and cautious_floor(self.theta[j], self.delta[j]) > cutoff

    def missing(self, k: int) -> float:
        """Return by what factor ``undetected`` has to fall before guards show all eigenvectors below the cut."""
        return 10 * self.undetected / max(1, self.theta.numel() - k)

    def swept(self, p: Filter, k: int, mu: Tensor, squares: Tensor, new: Tensor, rounding: float) -> Estimate:
        r"""Return the estimate after a sweep.

        ``mu`` are the Ritz values of p(L), descending, ``squares`` the squared lengths of the filtered vectors, ``new``
        the norms of their parts outside the former span, all ``(s,)``, and ``rounding`` that of the filter.
        """
        s = mu.numel()
        # What is outside may be amplified as much as the first guard that has not converged. It need not be the next
        # vector; the first two thirds of the guards do not speak for what is beyond them.
        moving = torch.nonzero((new / mu.clamp(min=p.bound))[k:] > 0.1)
        first = k + int(moving[0]) if moving.numel() else s
        at = min(max(first, k if self.undetected else k + 2 * (s - k) // 3), s - 1)
        outer = max(p.bound, float(mu[at])) if s > k else p.bound
        inner = mu > 1.05 * outer
        before = torch.where(inner, new / (mu - outer), torch.ones_like(mu)).clamp(max=1)
        after = before * torch.where(inner, outer / mu, torch.ones_like(mu)) + rounding
        if self.sweeps:  # by what the last prediction was too low, this one is likely to be, too
            after *= float((before[:k].square().mean() / self.outside[:k].square().mean()).sqrt().clamp(min=1))
        reached = float(squares[k:].mean() / mu[k - 1].clamp(min=p.bound).square()) if self.undetected else 0.0
        return replace(
            self,
            theta=_frequencies(p, mu, squares),
            outside=after,
            residuals=None,
            rounding=rounding,
            sweeps=self.sweeps + 1,
            undetected=self.undetected * reached,
            _last=(p, before),
        )

    def probed(self, p: Filter, k: int, mu: Tensor, squares: Tensor) -> Estimate:
        """Return the estimate after a filter of the guards alone, whose values and squared lengths these are."""
        amplified = p.bound * float(p.amplification(self.theta[k - 1]))
        undetected = self.undetected * float(squares.mean()) / amplified**2
        theta = torch.cat([self.theta[:k], _frequencies(p, mu, squares)])
        found = replace(self, theta=theta, residuals=None, undetected=undetected, sweeps=self.sweeps + 1)
        return replace(found, outside=torch.cat([found.contracted(k), self.outside[k:]]))

    def turned(self, theta: Tensor, outside: Tensor, residuals: Tensor, rounding: Tensor) -> Estimate:
        """Return the estimate after a Rayleigh-Ritz step for L, whose residual norms have a known rounding."""
        delta = residuals * outside.cummax(0).values + rounding
        return replace(self, theta=theta, outside=outside, delta=delta, residuals=residuals)

    def contracted(self, k: int) -> Tensor:
        """Return the first k components after the last sweep, if the outside was amplified as the first guard."""
        assert self._last is not None
        p, before = self._last
        growth = p.amplification(self.theta[: k + 1])
        return before[:k] * growth[k] / growth[:k] + self.rounding


def _frequencies(p: Filter, mu: Tensor, squares: Tensor) -> Tensor:
    """Return Ritz values from $x^T p^2 x / x^T p x$, half a sweep further than $x^T p x$."""
    return p.frequencies(squares / mu.clamp(min=p.bound)).cummax(0).values


def cautious_floor(theta: Tensor, delta: Tensor) -> float:
    """Return what a frequency stays above, if it may fall by about ``delta``."""
    return float(theta - 4 * delta - 1e-4 * theta.abs())


def mixed(coupling: Tensor, theta: Tensor, delta: Tensor) -> Tensor:
    r"""Return $m_{ij} = c_{ij} / (\theta_j - \theta_i - \delta_i - \delta_j)$ ``(s, s)`` for j > i.

    A vector beyond another is no nearer than that, however much in doubt its frequency is.
    """
    gaps = theta - theta[:, None] - (delta[:, None] + delta)
    beyond = torch.ones_like(gaps).triu(1).bool()
    gaps = torch.where(beyond, gaps, torch.full_like(gaps, -torch.inf)).cummax(1).values
    mixing = coupling / gaps.clamp(min=torch.finfo(torch.float64).tiny)
    return torch.where(beyond, mixing, torch.zeros_like(mixing))


@dataclass(frozen=True)
class Outcome:
    """How a refinement ended."""

    error: float  # estimate of the normalised squared error, before the factor of safety
    well_defined: int  # the largest number of vectors after which a gap shows
    settled: bool = False  # whether vectors that are mixed by now will not be separated
    interrupted: bool = False  # whether by Ctrl-C
    deficient: bool = False  # whether the structured start may lack an eigenvector
    kept: int | None = None  # with a cutoff: how many frequencies of the block are up to it
    narrow: bool = False  # with a cutoff: whether these are too many for the remaining guards


def judge(estimate: Estimate, mixing: Tensor, k: int, tol: float, *, stagnant: bool = False) -> Outcome:
    """Return the error of the first k vectors: their components outside, and how they are mixed with others.

    Where sweeps are ``stagnant``, vectors are settled if the k-th and the next are tied; else filters gain too little.
    """
    parts = [float(mixing[:j, j:].square().clamp(max=1).sum()) / j for j in range(1, k + 1)]
    separate = [j for j, part in enumerate(parts, start=1) if part <= tol]
    settled = stagnant and tied(estimate, k)
    return Outcome(estimate.error(k) + min(parts[-1], 1.0), max(separate, default=0), settled)


def tied(estimate: Estimate, k: int) -> bool:
    r"""Return whether the k-th and the next value are near, and neither will fall by more.

    By $\rho^2 / \delta$ at most (Kato and Temple), with the residual $\rho$ and the distance $\delta$ of the block's
    first value from its last.
    """
    theta, residuals = estimate.theta, estimate.residuals
    assert residuals is not None  # after a Rayleigh-Ritz step
    least = Stopping.least * float(theta[k].abs())
    band = max(float(theta[k] - theta[0]), least)
    fall = float(residuals[: k + 1].max()) ** 2 / max(float(theta[-1] - theta[0]), least)
    return max(float(theta[k] - theta[k - 1]), fall) <= Stopping.near * band


def judge_up_to(estimate: Estimate, mixing: Tensor, cutoff: float, tol: float) -> Outcome:
    """Return what :func:`judge` does of as many vectors as have frequencies up to a cutoff."""
    kept = estimate.count(cutoff)
    return replace(judge(estimate, mixing, kept, tol) if kept else Outcome(0.0, 0), kept=kept)


def inseparable(estimate: Estimate, outcome: Outcome, k: int, tol: float) -> bool:
    """Return whether vectors are mixed although hardly anything of them is outside the block: there is no gap.

    Where frequencies look well separated, it is guards that have not converged, and some more sweeps are worth it: many
    while the next frequency may still fall by so much that no gap could show.
    """
    theta = estimate.theta
    near = float(theta[k] - theta[k - 1]) <= Stopping.near * float(theta[k] - theta[0])
    if not near and cautious_floor(theta[k], estimate.delta[k]) <= float(theta[k - 1]):
        return False
    least = Stopping.stagnant if near else Stopping.stagnant**2
    return outcome.well_defined < k and estimate.error(k) <= least * tol
