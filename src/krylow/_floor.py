r"""A floor under the first dropped eigenvalue: what every bound of a gap needs, and no set of Ritz values gives.

Ritz values bound $\lambda_{k+1}$ from above. A lower bound is either **proved**: if $L + s \hat U \hat U^\top -
\sigma I$ has a Cholesky factor then $\lambda_{k+1}(L) > \sigma$, since adding a positive semidefinite matrix of
rank k lifts the smallest eigenvalue at most to $\lambda_{k+1}(L)$; a trial costs $n^3 / 3$ operations, a fraction
of an eigendecomposition. Or it is **estimated** from what has been seen in the complement of $\hat U$.
"""

from __future__ import annotations

import torch
from torch import Tensor

from krylow._random import gaussian
from krylow.krylov.lanczos import lanczos
from krylow.krylov.ritz import CONVERGED_PART, ritz
from krylow.operators import FunctionOperator, Operator

#: Largest graph whose gap is proved by factorisation.
PROOF_LIMIT = 2048
#: Trial positions of the floor under lambda_{k+1}, as parts of the way from theta_k to the next Ritz value.
TRIALS = (0.95, 0.75, 0.5, 0.25, 0.1, 0.03, 0.01)
#: Steps of the Lanczos run that looks for missed eigenvalues in the complement.
PROBE_STEPS = 60


def lifted_dense(L: Operator) -> Tensor:
    """Return the dense matrix with its padding nodes lifted above the spectrum, ``(*batch, n, n)``."""
    dense = L.to_dense()
    if L.mask is None:
        return dense
    top = 2 * L.norm_bound()[..., None] + 1
    return dense + torch.diag_embed(torch.where(L.mask, torch.zeros_like(top), top))


def proved_floor(
    A: Operator,
    X: Tensor,
    theta_k: Tensor,
    following: Tensor,
    total: Tensor,
    norm: Tensor,
    noise: Tensor,
    cutoff: float | None,
) -> tuple[Tensor, Tensor]:
    """Return a proved lower bound of lambda_{k+1}, -inf where none is, and whether the complement reaches below."""
    lift = 4 * torch.where(norm > 0, norm, torch.ones_like(norm))
    raised = lifted_dense(A) + lift[..., None, None] * (X @ X.mT)
    eye = torch.eye(A.n, dtype=X.dtype, device=X.device)
    slack = A.n * torch.finfo(X.dtype).eps * (norm + lift)  # rounding of the factorisation

    def above(sigma: Tensor) -> Tensor:
        factor = torch.linalg.cholesky_ex(raised - (sigma + slack)[..., None, None] * eye)
        return factor.info == 0

    floor = torch.full_like(theta_k, -torch.inf)
    # No complement value is needed beyond the largest possible one.
    span = torch.minimum(following, theta_k + lift) - theta_k
    for part in TRIALS:
        sigma = theta_k + part * span
        if cutoff is not None:
            sigma = sigma.clamp(min=cutoff)
        worth = floor.isneginf() & (span > 0) & theta_k.isfinite()
        if bool(worth.any()):
            sigma = torch.where(worth, sigma, -lift)
            floor = torch.where(worth & above(sigma), sigma, floor)
    under = theta_k - torch.maximum(10 * total, noise)
    candidate = floor.isneginf() & under.isfinite()
    below = torch.zeros_like(candidate)
    if bool(candidate.any()):
        # The slack makes a success certain; here a failure has to be.
        below = candidate & ~above(torch.where(candidate, under - 2 * slack, -lift))
    return floor, below


def estimated_floor(
    A: Operator,
    X: Tensor,
    theta_k: Tensor,
    following: Tensor,
    following_residual: Tensor | None,
    total: Tensor,
    noise: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the lowest value seen in the complement less its residual, unless it reaches below theta_k.

    The smallest eigenvalue of L on the complement is a lower bound of lambda_{k+1}, whatever X is (Cauchy). Methods
    that look for repeated eigenvalues have seen it as their own next Ritz pair, and are believed unless a run from a
    random vector sees a lower one; for the others that run is all there is. Either has to have converged: a value whose
    residual is not small against its distance from theta_k, or that is above the Ritz value ``following``, may be that
    of a vector that falls below the cut yet. There is no floor then.
    """
    lowest, residual = complement_probe(A, X)
    below = lowest < theta_k - torch.maximum(10 * total, noise)
    none = torch.full_like(lowest, -torch.inf)
    near = lowest <= following + CONVERGED_PART * (following - theta_k)
    floor = torch.where(near & _converged(lowest, residual, theta_k), lowest - residual, none)
    if following_residual is not None:
        known = following_residual.to(theta_k.dtype)
        floor = torch.where(_converged(following, known, theta_k), following - known, floor)
    return torch.where(below, none, floor), below


def _converged(value: Tensor, residual: Tensor, theta_k: Tensor) -> Tensor:
    return residual <= CONVERGED_PART * (value - theta_k)


def complement_probe(A: Operator, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lowest Ritz value, and its residual, of a random vector's Krylov space in the complement of X."""
    low, high = A.gershgorin()
    top = torch.maximum(high, torch.zeros_like(high))[..., None, None]

    def outside(Z: Tensor) -> Tensor:
        return Z - X @ (X.mT @ Z)

    def multiply(Z: Tensor) -> Tensor:
        # What rounding lets in from span(X) is lifted to the top of the spectrum, so that it is never the lowest.
        rest = outside(Z)
        return outside(A @ rest) + top * (Z - rest)

    deflated = FunctionOperator(
        multiply,
        A.n,
        batch_shape=tuple(A.batch_shape),
        dtype=A.dtype,
        device=A.device,
        bounds=(torch.minimum(low, torch.zeros_like(low)), torch.maximum(high, torch.zeros_like(high))),
    )
    generator = torch.Generator(device=A.device).manual_seed(2)
    z = outside(gaussian(A, 1, generator=generator))
    krylov = lanczos(deflated, z, min(PROBE_STEPS, A.n), reorthogonalize=True)
    theta, x, _ = ritz(krylov, 1)
    residual = torch.linalg.vector_norm(deflated @ x - x * theta.nan_to_num(posinf=0.0)[..., None, :], dim=-2)
    return theta[..., 0], residual[..., 0]
