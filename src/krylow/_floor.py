r"""A lower bound of the first dropped eigenvalue, the floor, which no set of Ritz values gives.

Ritz values bound $\lambda_{k+1}$ from above. A lower bound is either **proved**: if $L + s \hat U \hat U^\top -
\sigma I$ has a Cholesky factor then $\lambda_{k+1}(L) > \sigma$, since adding a positive semidefinite matrix of
rank k lifts the smallest eigenvalue at most to $\lambda_{k+1}(L)$; a trial costs $n^3 / 3$ operations, a fraction
of an eigendecomposition. Or it is **estimated** from the complement of $\hat U$.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from krylow._random import gaussian
from krylow.krylov.lanczos import lanczos
from krylow.krylov.ritz import CONVERGED_PART, rayleigh_ritz, ritz
from krylow.linalg.perturbation import restored
from krylow.operators import FunctionOperator, Operator

#: Largest graph whose gap is proved by factorisation.
PROOF_LIMIT = 2048


def lifted_dense(L: Operator) -> Tensor:
    """Return the dense matrix with its padding nodes lifted above the spectrum, ``(*batch, n, n)``."""
    dense = L.to_dense()
    if L.mask is None:
        return dense
    top = 2 * L.norm_bound()[..., None] + 1
    return dense + torch.diag_embed(torch.where(L.mask, torch.zeros_like(top), top))


@dataclass(frozen=True)
class Inside:
    """The Ritz pairs inside the span of a basis, in float64, and what they are measured by."""

    L: Operator
    A: Operator  # L in float64, its entries restored from rounding
    X: Tensor  # (*batch, n, k), absent columns zero and last
    theta: Tensor  # (*batch, k), infinite for absent columns
    residuals: Tensor  # (*batch, k), infinite for missing columns
    absent: Tensor  # (*batch, k) booleans
    kept: Tensor  # (*batch,) columns that are meant
    dtype: torch.dtype  # of the basis

    @classmethod
    def of(cls, L: Operator, basis: Tensor, kept: Tensor) -> Inside:
        A = restored(L)
        zero = torch.linalg.vector_norm(basis, dim=-2) == 0  # (*batch, k)
        order = zero.to(torch.int8).argsort(dim=-1, stable=True)
        live = ~torch.take_along_dim(zero, order, dim=-1)
        X = torch.take_along_dim(basis.to(torch.float64), order[..., None, :], dim=-1)
        Q = torch.linalg.qr(X).Q  # of at most n columns
        X = torch.nn.functional.pad(Q, (0, X.shape[-1] - Q.shape[-1])) * live[..., None, :]
        AX = A @ X
        theta, Y = rayleigh_ritz(X.mT @ AX, live)
        X, AX, absent = X @ Y, AX @ Y, theta.isinf()
        residuals = torch.linalg.vector_norm(AX - X * theta.masked_fill(absent, 0.0)[..., None, :], dim=-2)
        missing = absent & (torch.arange(absent.shape[-1], device=absent.device) < kept[..., None])
        residuals = residuals.masked_fill(absent, 0.0).masked_fill(missing, torch.inf)
        return cls(L, A, X, theta, residuals, absent, kept, basis.dtype)

    @cached_property
    def norm(self) -> Tensor:
        return self.A.norm_bound()

    @cached_property
    def lift(self) -> Tensor:
        """By how much eigenvectors are lifted above the spectrum, ``(*batch,)``."""
        return 4 * torch.where(self.norm > 0, self.norm, torch.ones_like(self.norm))

    @cached_property
    def theta_k(self) -> Tensor:
        return torch.where(self.absent, -self.norm[..., None], self.theta).amax(-1)

    @cached_property
    def total(self) -> Tensor:
        return torch.linalg.vector_norm(self.residuals, dim=-1)  # infinite where a column is missing

    @cached_property
    def noise(self) -> Tensor:
        """A gap below this cannot be told from none, ``(*batch,)``."""
        return 8 * self.L.n**0.5 * torch.finfo(self.dtype).eps * self.norm

    @property
    def missing(self) -> Tensor:
        return self.residuals.isinf().any(-1)

    @property
    def everything(self) -> Tensor:
        return self.L.sizes <= self.kept

    @property
    def share(self) -> Tensor:
        """Factor of residuals: the mean of the error is over the columns that are meant."""
        return (self.theta.shape[-1] / self.kept.clamp(min=1)).sqrt()[..., None]


def proved_floor(inside: Inside, following: Tensor, cutoff: float | None) -> tuple[Tensor, Tensor]:
    """Return a proved lower bound of lambda_{k+1}, -inf where none is, and whether the complement reaches below."""
    theta_k, lift = inside.theta_k, inside.lift
    above, slack = _factorisation(inside, inside.X)
    floor = torch.full_like(theta_k, -torch.inf)
    # No complement value is needed beyond the largest possible one.
    span = torch.minimum(following, theta_k + lift) - theta_k
    for part in (0.95, 0.75, 0.5, 0.25, 0.1, 0.03, 0.01):  # of the way to the next Ritz value
        sigma = theta_k + part * span
        sigma = sigma if cutoff is None else sigma.clamp(min=cutoff)
        worth = floor.isneginf() & (span > 0) & theta_k.isfinite()
        if bool(worth.any()):
            sigma = torch.where(worth, sigma, -lift)
            floor = torch.where(worth & above(sigma), sigma, floor)
    under = theta_k - torch.maximum(10 * inside.total, inside.noise)
    candidate = floor.isneginf() & under.isfinite()
    below = torch.zeros_like(candidate)
    if bool(candidate.any()):
        # The slack makes a success certain; here a failure has to be.
        below = candidate & ~above(torch.where(candidate, under - 2 * slack, -lift))
    return floor, below


def proved_tie(inside: Inside, wanted: Tensor) -> Tensor:
    """Return where lambda_k is proved to be theta_k to rounding, and so no less than a next Ritz value equal to that.

    Lifting all Ritz vectors but the k-th lifts the smallest eigenvalue at most to lambda_k.
    """
    if not bool(wanted.any()):
        return wanted
    last = (~inside.absent).sum(-1, keepdim=True) - 1  # (*batch, 1)
    others = torch.arange(inside.absent.shape[-1], device=last.device) != last
    above, slack = _factorisation(inside, inside.X * others[..., None, :])
    return wanted & above(torch.where(wanted, inside.theta_k - inside.noise - 2 * slack, -inside.lift))


def _factorisation(inside: Inside, X: Tensor) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return whether L, with the columns of X lifted, is above a number, which a factor proves; and its rounding."""
    raised = lifted_dense(inside.A) + inside.lift[..., None, None] * (X @ X.mT)
    eye = torch.eye(inside.A.n, dtype=X.dtype, device=X.device)
    slack = inside.A.n * torch.finfo(X.dtype).eps * (inside.norm + inside.lift)

    def above(sigma: Tensor) -> Tensor:
        return torch.linalg.cholesky_ex(raised - (sigma + slack)[..., None, None] * eye).info == 0

    return above, slack


def estimated_floor(
    inside: Inside, following: Tensor, following_residual: Tensor | None, steps: int
) -> tuple[Tensor, Tensor]:
    """Return the lowest value seen in the complement less its residual, unless it reaches below theta_k.

    The smallest eigenvalue of L on the complement is a lower bound of lambda_{k+1}, whatever X is (Cauchy). Methods
    that look for repeated eigenvalues have seen it as their own next Ritz pair, which is used unless a run from a
    random vector sees a lower one; for the others that run is all there is. Either has to have converged: a value whose
    residual is not small against its distance from theta_k, or that is above the Ritz value ``following``, may be that
    of a vector that falls below the cut yet. There is no floor then.
    """
    theta_k = inside.theta_k

    def converged(value: Tensor, residual: Tensor) -> Tensor:
        return residual <= CONVERGED_PART * (value - theta_k)

    lowest, residual = complement_probe(inside, steps)
    below = lowest < theta_k - torch.maximum(10 * inside.total, inside.noise)
    none = torch.full_like(lowest, -torch.inf)
    near = lowest <= following + CONVERGED_PART * (following - theta_k)
    floor = torch.where(near & converged(lowest, residual), lowest - residual, none)
    if following_residual is not None:
        known = following_residual.to(theta_k.dtype)
        floor = torch.where(converged(following, known), following - known, floor)
    return torch.where(below, none, floor), below


def complement_probe(inside: Inside, steps: int) -> tuple[Tensor, Tensor]:
    """Return the lowest Ritz value, and its residual, of a random vector's Krylov space in the complement of X."""
    A, X = inside.A, inside.X
    low, high = A.gershgorin()
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)

    def outside(Z: Tensor) -> Tensor:
        return Z - X @ (X.mT @ Z)

    def multiply(Z: Tensor) -> Tensor:
        # What rounding lets in from span(X) is lifted to the top of the spectrum, so that it is never the lowest.
        rest = outside(Z)
        return outside(A @ rest) + high[..., None, None] * (Z - rest)

    shape = tuple(A.batch_shape)
    deflated = FunctionOperator(multiply, A.n, batch_shape=shape, dtype=A.dtype, device=A.device, bounds=(low, high))
    generator = torch.Generator(device=A.device).manual_seed(2)
    z = outside(gaussian(A, 1, generator=generator))
    theta, x, _ = ritz(lanczos(deflated, z, min(steps, A.n), reorthogonalize=True), 1)
    residual = torch.linalg.vector_norm(deflated @ x - x * theta.nan_to_num(posinf=0.0)[..., None, :], dim=-2)
    return theta[..., 0], residual[..., 0]
