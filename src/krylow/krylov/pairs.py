"""Ritz pairs: what every iterative refinement works on, stops by and returns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from krylow.linalg.bounds import davis_kahan
from krylow.linalg.rayleigh_ritz import rayleigh_ritz
from krylow.operators import Operator

#: Residuals below this power of eps, times the norm, are as small as they need to be: no gap will show any more.
SETTLED_POWER = 0.5
#: The (k+1)-st Ritz pair has converged if its residual is this part of its distance from the k-th: a pair that has not
#: may still fall to the k-th, or below.
CONVERGED_PART = 0.3


@dataclass(frozen=True)
class Evidence:
    r"""What a refinement of one large graph has measured of its own error, so that no certificate need do it again.

    Attributes
    ----------
    error
        Estimate of the normalised squared subspace error, infinite where none is at hand.
    floor
        Estimate of $\lambda_{k+1}$.
    well_defined
        The largest number of vectors, at most k, after which a gap shows: up to there the subspace is unique.
    residuals
        ``(k,)`` residual norms of the Ritz pairs inside the k-dimensional subspace.
    proved
        Whether the floor is a proved lower bound of $\lambda_{k+1}$: all frequencies below it were counted.
    restored
        Whether this is about the graph's Laplacian as :func:`krylow.linalg.rounding.restored` has it, and not about
        what float32 has made of it.
    """

    error: float
    floor: float
    well_defined: int
    residuals: Tensor
    proved: bool = False
    restored: bool = False


@dataclass(frozen=True)
class Ritz:
    """Ritz pairs of a refinement: the k wanted ones first, guards after them.

    Attributes
    ----------
    theta
        ``(*batch, p)`` ascending, infinite where there is no vector.
    X
        ``(*batch, n, p)`` orthonormal; zero columns where the graph has fewer than p nodes.
    residuals
        ``(*batch, p)`` norms of L x - theta x, as the recurrence knows them.
    interrupted
        Whether Ctrl-C ended the refinement before its own criterion did.
    evidence
        What the refinement knows of its error, where that is more than these residuals tell.
    kept
        With a cutoff: how many of the pairs are up to it; None: k was given.
    """

    theta: Tensor
    X: Tensor
    residuals: Tensor
    interrupted: bool = False
    evidence: Evidence | None = None
    kept: int | None = None

    def to(self, dtype: torch.dtype) -> Ritz:
        """Return the pairs in a dtype."""
        theta, X, residuals = (part.to(dtype) for part in (self.theta, self.X, self.residuals))
        return replace(self, theta=theta, X=X, residuals=residuals)

    def estimate(self, k: int) -> Tensor:
        """Return the estimated error of the k lowest, ``(*batch,)``, taking the next Ritz pair at its word."""
        if self.theta.shape[-1] <= k:
            return torch.full_like(self.theta[..., 0], torch.inf)
        floor = (self.theta[..., k] - self.residuals[..., k])[..., None]
        gaps = torch.where(floor.isposinf(), floor, floor - self.theta[..., :k])
        return davis_kahan(self.residuals[..., :k], gaps)


def settled(scale: Tensor, residuals: Tensor) -> Tensor:
    """Return where all residuals ``(*batch, k)`` are so small against ``scale`` that further work changes nothing."""
    return residuals.amax(-1) <= torch.finfo(residuals.dtype).eps ** SETTLED_POWER * scale


def following_converged(pairs: Ritz, k: int) -> Tensor:
    """Return where the (k+1)-st pair has converged as far as a lower bound of the next eigenvalue needs it."""
    if pairs.theta.shape[-1] <= k:
        return torch.zeros_like(pairs.theta[..., 0], dtype=torch.bool)
    following = pairs.theta[..., k]
    return following.isinf() | (pairs.residuals[..., k] <= CONVERGED_PART * (following - pairs.theta[..., k - 1]))


def rotate(L: Operator, X: Tensor) -> Ritz:
    """Return the Ritz pairs of span(X), one product a column. The columns of X must be independent."""
    Q = torch.linalg.qr(torch.linalg.qr(X).Q).Q  # once more, since a filtered block is nearly dependent
    LQ = L @ Q
    theta, Y = rayleigh_ritz(Q, LQ, Q.shape[-1])
    X = Q @ Y
    return Ritz(theta, X, torch.linalg.vector_norm(LQ @ Y - X * theta[..., None, :], dim=-2))
