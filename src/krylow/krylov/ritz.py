r"""Ritz pairs: the Rayleigh-Ritz step, what solvers return, and the extraction from a Krylov basis.

The relaxed recurrence leaves the nonsymmetric tridiagonal matrix (the paper's eq. (Tm_relaxed))

$$T_m = \begin{pmatrix} \gamma^{(1)}_1 \alpha_1 & \gamma^{(2)}_2 \beta_1 & & \\
\beta_1 & \gamma^{(1)}_2 \alpha_2 & \gamma^{(2)}_3 \beta_2 & \\ & \beta_2 & \ddots & \ddots \end{pmatrix} .$$

By the paper's Lemma 1, $T_m = D S D^{-1}$ with S symmetric, off-diagonal $\sqrt{\gamma^{(2)}_{j+1}} \beta_j$, and
$d_{j+1} = d_j / \sqrt{\gamma^{(2)}_{j+1}}$. So the eigenvectors of T_m are D times those of S.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from krylow.autodiff.projector import lowest_eigenspace, orthonormalize
from krylow.krylov.lanczos import Krylov, tridiagonal
from krylow.linalg.gram_schmidt import newton_schulz
from krylow.linalg.perturbation import davis_kahan
from krylow.operators import Operator

#: The (k+1)-st Ritz pair has converged if its residual is this part of its distance from the k-th: a pair that has not
#: may still fall to the k-th, or below.
CONVERGED_PART = 0.3
#: From a warm start its residual has to be this part of it: a random guard vector that has not converged may yet show
#: an eigenvector that the start has missed.
WARM_PART = 0.03


@dataclass(frozen=True)
class Evidence:
    r"""What a solver of one large graph has measured of its own error, so that the certificate need not.

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
        Whether this is about the graph's Laplacian as :func:`krylow.linalg.perturbation.restored` has it, and not about
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
    """Ritz pairs of a solver: the k wanted ones first, guard vectors after them.

    Attributes
    ----------
    theta
        ``(*batch, p)`` ascending, infinite where there is no vector.
    X
        ``(*batch, n, p)`` orthonormal; zero columns where the graph has fewer than p nodes.
    residuals
        ``(*batch, p)`` norms of L x - theta x, as the recurrence knows them.
    interrupted
        Whether Ctrl-C ended the iteration before its own criterion did.
    evidence
        The solver's error estimate, where it is sharper than these residuals give.
    kept
        With a cutoff: how many of the pairs are up to it; None: k was given.
    how
        In words what the solver did, where it chose on the way.
    """

    theta: Tensor
    X: Tensor
    residuals: Tensor
    interrupted: bool = False
    evidence: Evidence | None = None
    kept: int | None = None
    how: str = ""

    def to(self, dtype: torch.dtype) -> Ritz:
        """Return the pairs in a dtype."""
        theta, X, residuals = (part.to(dtype) for part in (self.theta, self.X, self.residuals))
        return replace(self, theta=theta, X=X, residuals=residuals)

    def untested(self, k: int, where: Tensor | None = None) -> Ritz:
        """Return pairs of which the (k+1)-st bounds nothing, since values below it may have been missed.

        ``where`` ``(*batch,)`` says of which graphs; None: of all.
        """
        residuals = self.residuals.clone()
        residuals[..., k:] = torch.inf if where is None else residuals[..., k:].masked_fill(where[..., None], torch.inf)
        return replace(self, residuals=residuals)

    def estimate(self, k: int) -> Tensor:
        r"""Return the estimated error of the k lowest, ``(*batch,)``: the next pair bounds $\lambda_{k+1}$."""
        if self.theta.shape[-1] <= k:
            return torch.full_like(self.theta[..., 0], torch.inf)
        floor = (self.theta[..., k] - self.residuals[..., k])[..., None]
        gaps = torch.where(floor.isposinf(), floor, floor - self.theta[..., :k])
        return davis_kahan(self.residuals[..., :k], gaps)


def tied(pairs: Ritz, k: int, rounding: Tensor) -> Tensor:
    r"""Return where the k-th and the next Ritz value are equal to ``rounding``, and right to it, ``(*batch,)``.

    A Ritz value is above its eigenvalue by $\rho^2 / \delta$ at most (Kato and Temple), with $\rho$ its residual and
    $\delta$ its distance from the eigenvalues outside the block. These are not known; the distance of the block's first
    value from its last stands for it. Where that is none, residuals have to be rounding themselves.
    """
    if pairs.theta.shape[-1] <= k:
        return torch.zeros_like(rounding, dtype=torch.bool)
    theta, residual = pairs.theta, pairs.residuals[..., : k + 1].amax(-1)
    # NaN: both are missing, so that nothing is outside the block.
    equal = (theta[..., k] - theta[..., k - 1]).nan_to_num(nan=0.0, posinf=torch.inf) <= rounding
    spread = (theta[..., -1] - theta[..., 0]).nan_to_num(nan=torch.inf, posinf=torch.inf)
    return equal & (residual.square() <= rounding * torch.maximum(spread, rounding))


def settled(pairs: Ritz, k: int, rounding: Tensor) -> Tensor:
    """Return where no gap will show any more, however long the iteration goes on, ``(*batch,)``.

    All residuals are rounding, or the k-th and the next value are tied.
    """
    return (pairs.residuals[..., : k + 1].amax(-1) <= rounding) | tied(pairs, k, rounding)


def following_converged(pairs: Ritz, k: int, part: float = CONVERGED_PART) -> Tensor:
    """Return where the (k+1)-st pair has converged as far as a lower bound of the next eigenvalue needs it.

    Its residual is then this part of its distance from the k-th.
    """
    if pairs.theta.shape[-1] <= k:
        return torch.zeros_like(pairs.theta[..., 0], dtype=torch.bool)
    following = pairs.theta[..., k]
    return following.isinf() | (pairs.residuals[..., k] <= part * (following - pairs.theta[..., k - 1]))


def lift(H: Tensor, live: Tensor) -> Tensor:
    """Return H ``(*batch, p, p)`` with rows and columns that do not live ``(*batch, p)``, and are zero, put last.

    They get an eigenvalue above all others.
    """
    with torch.no_grad():
        top = 2 * H.abs().sum(-1).amax(-1, keepdim=True)
        top = torch.where(top > 0, top, torch.ones_like(top))
    return H + torch.diag_embed(torch.where(live, torch.zeros_like(top), top))


def rayleigh_ritz(H: Tensor, live: Tensor | None = None) -> tuple[Tensor, Tensor]:
    r"""Return the Ritz values ``(*batch, p)`` and the rotation ``(*batch, p, p)`` of $H = V^\top L V$.

    The best eigenpairs inside the span of V, orthonormal but for zero columns, where ``live`` ``(*batch, p)`` is
    False: those come last, with infinite values and zero columns of the rotation.
    """
    H = (H + H.mT) / 2
    if live is None:
        theta, Y = torch.linalg.eigh(H)
        return theta, Y
    theta, Y = torch.linalg.eigh(lift(H, live))
    Y = Y.masked_fill(~live[..., None], 0.0)  # what rounding has left there could be blown up to a direction
    absent = torch.arange(H.shape[-1], device=H.device) >= live.sum(-1, keepdim=True)
    return theta.masked_fill(absent, torch.inf), Y


def rotated(L: Operator, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return Ritz values, vectors and L times these of span(X), one product a column; X has independent columns."""
    Q = torch.linalg.qr(torch.linalg.qr(X).Q).Q  # once more, since a filtered block is nearly dependent
    LQ = L @ Q
    theta, Y = rayleigh_ritz(Q.mT @ LQ)
    X, LX = Q @ Y, LQ @ Y
    turn = newton_schulz(X)  # LAPACK's vectors are off beside a null vector, and among many equal eigenvalues
    return theta, X @ turn, LX @ turn


def rotate(L: Operator, X: Tensor) -> Ritz:
    """Return the Ritz pairs of span(X), one product a column. The columns of X must be independent."""
    theta, X, LX = rotated(L, X)
    return Ritz(theta, X, torch.linalg.vector_norm(LX - X * theta[..., None, :], dim=-2))


def relaxed_matrix(krylov: Krylov) -> Tensor:
    """Return T_m as the paper writes it, ``(*batch, m, m)``: gamma1 alpha, gamma2 beta above, beta below."""
    diagonal, beta, gamma2 = _coefficients(krylov)
    return tridiagonal(diagonal, beta, gamma2 * beta)


def symmetrized_matrix(krylov: Krylov) -> tuple[Tensor, Tensor]:
    r"""Return the symmetric S similar to T_m, ``(*batch, m, m)``, and $\log d$, ``(*batch, m)``, of $T_m = D S D^{-1}$.

    The logarithm, because the product of m factors leaves the range of floating point long before m = 200.
    """
    diagonal, beta, gamma2 = _coefficients(krylov)
    off = gamma2.sqrt() * beta
    log_d = torch.nn.functional.pad(-0.5 * gamma2.log().cumsum(-1), (1, 0)).expand_as(diagonal)
    return tridiagonal(diagonal, off, off), log_d


def ritz(krylov: Krylov, k: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return the k lowest Ritz values, an orthonormal basis of their Ritz vectors' span, and the next Ritz value.

    $$T_m y_i = \theta_i y_i, \qquad \hat U = \mathrm{orth}(V_m [y_1, \ldots, y_k])$$

    Differentiable through the span only (see :mod:`krylow.autodiff.projector`). Where fewer than k steps live, the
    missing columns are zero and their values infinite.

    Returns
    -------
    theta
        ``(*batch, k)``, ascending.
    basis
        ``(*batch, n, k)``.
    following
        ``(*batch,)``, the (k+1)-st Ritz value, infinite where there is none. No gradient.
    """
    m = krylov.alpha.shape[-1]
    S, log_d = symmetrized_matrix(krylov)
    live = torch.arange(m, device=S.device) < krylov.steps[..., None]  # (*batch, m); dead steps are decoupled
    values, Y = lowest_eigenspace(lift(S, live), min(k, m))  # (*batch, m), (*batch, m, min(k, m))
    basis = orthonormalize(krylov.V @ _scaled(Y, log_d))  # (*batch, n, min(k, m))
    inf = torch.full_like(values, torch.inf)
    values = torch.where(live, values, inf)
    theta, following = values[..., :k], (values[..., k] if k < m else inf[..., 0]).detach()
    # Ritz vectors that depend on lower ones, as a degenerate relaxed basis gives, are missing too: put them last.
    gone = torch.linalg.vector_norm(basis.detach(), dim=-2) == 0  # (*batch, min(k, m))
    order = gone.to(torch.int8).argsort(dim=-1, stable=True)
    theta = torch.take_along_dim(torch.where(gone, inf[..., : min(k, m)], theta), order, dim=-1)
    basis = torch.take_along_dim(basis, order[..., None, :], dim=-1)
    if m < k:
        theta = torch.cat([theta, inf[..., :1].expand(*theta.shape[:-1], k - m)], dim=-1)
        basis = torch.cat([basis, torch.zeros_like(basis[..., :1]).expand(*basis.shape[:-1], k - m)], dim=-1)
    return theta, basis, following


def _coefficients(krylov: Krylov) -> tuple[Tensor, Tensor, Tensor]:
    """Return the diagonal of T_m, the m - 1 inner betas and the gamma2 that goes with each of them."""
    gamma1 = torch.ones_like(krylov.alpha) if krylov.gamma1 is None else krylov.gamma1
    gamma2 = torch.ones_like(krylov.alpha) if krylov.gamma2 is None else krylov.gamma2
    return gamma1 * krylov.alpha, krylov.beta[..., :-1], gamma2[..., 1:]


def _scaled(Y: Tensor, log_d: Tensor) -> Tensor:
    """Return D Y with every column scaled to size about 1, which does not change the span.

    An entry of Y below eps is rounding; the clamp keeps it from being blown up to a number that counts.
    """
    with torch.no_grad():
        size = log_d[..., None] + Y.abs().clamp(min=torch.finfo(Y.dtype).tiny).log()
        shift = size.amax(-2, keepdim=True)  # (*batch, 1, k)
    ceiling = -math.log(torch.finfo(Y.dtype).eps)
    return Y * (log_d[..., None] - shift).clamp(max=ceiling).exp()
