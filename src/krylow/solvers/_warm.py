r"""A warm start from an earlier answer, and what it has missed.

An earlier :class:`~krylow.result.Subspace` of nearly the same graph has k vectors X near the wanted ones, and an
estimate $\phi$ of $\lambda_{k+1}$. With that as lower end of the filter's interval no guard vectors are needed: the k
vectors alone are filtered until Davis and Kahan's bound, for the filter in place of L, is small enough.

What has fallen below the cut since, they would never show. A proof shows it, or one random vector outside them: with
$\sigma$ between $\theta_k$ and $\phi$ and $M > 0$ diagonal, no other eigenvalue of L is below $\sigma$ if

$$B = M^{-1/2} (L - \sigma I) M^{-1/2}$$

is positive definite on the complement of $M^{-1/2} X$: there $y = M^{1/2} x$ with x outside X, and of k + 1 dimensions
with quotients below $\sigma$ one would be (Courant and Fischer), however inexact X is. After m steps of Lanczos from a
random vector the lowest Ritz value is above the lowest eigenvalue by more than $\epsilon$ times the width of the
spectrum with a probability of at most $1.648 \sqrt n \, e^{-(2 m - 1) \sqrt\epsilon}$ (Kuczynski and Wozniakowski,
1992), whatever the spectrum is: steps are taken until what that leaves is positive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from krylow._random import gaussian
from krylow.autodiff.projector import orthonormalize
from krylow.krylov.chebyshev import chebyshev_steps
from krylow.krylov.lobpcg import Iteration, inverse_diagonal
from krylow.krylov.ritz import Evidence, Ritz
from krylow.linalg.perturbation import davis_kahan
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.solvers._estimate import Stopping
from krylow.solvers._filter import spectrum_top
from krylow.solvers._pencil import mass_of


@dataclass(frozen=True)
class Warm:
    """Settings of warm starts."""

    most: int = 10_000  # products of all, where it is not known what a random start takes
    filters: int = 4  # filters of an earlier answer, each from the Ritz vectors of the one before
    most_degree: int = 600  # of each
    least_gain: float = 2.0  # amplification that a filter of that degree has to reach
    spread: float = 8.0  # spectrum over the weight of the last wanted vector from which the diagonal preconditions
    lock: float = 0.1  # part of the tolerance below which a column's error lets it rest, there
    shift: float = 0.2  # place of the check's shift between the last wanted Ritz value, 0, and the next, 1
    failure: float = 1e-6  # probability with which the check may overlook an eigenvector
    converged: float = 0.3  # residual of the check's lowest Ritz value, over that


def refine_start(L: Operator, start: Tensor, following: Tensor, tol: float, most: int) -> Ritz | None:
    r"""Return the Ritz pairs of an earlier answer, refined as far as an estimated error of ``tol`` takes.

    ``following`` comes behind them. None where the start is no basis, or does not come to that error.

    Parameters
    ----------
    L
        The operator.
    start
        ``(*batch, n, k)``.
    following
        ``(*batch,)`` the estimate of $\lambda_{k+1}$.
    tol
        Normalised squared subspace error to stop at, by estimate.
    most
        Products that may be spent on it.
    """
    pairs = _ritz_pairs(L, start)
    if pairs is None:
        return None
    found, error = _refined(L, pairs, following, tol, most)
    return found if error <= tol else None


def checked_start(L: SparseOperator, start: Tensor, following: float, tol: float, most: int) -> Ritz | None:
    """Return what :func:`refine_start` does of one large graph, in float64, with the evidence of a check.

    None also where the check finds something below the next frequency, or would take more than ``most`` products.
    """
    A = L.double().counting_for(L)
    spent, pairs = A.products, _ritz_pairs(A, start.double())
    if pairs is None or following <= float(pairs.theta[-1]):
        return None
    X, last = pairs.X, float(pairs.theta[-1])
    shift = last + Warm.shift * (following - last)
    weight = mass_of(A.diagonal(), shift)[:, None]
    least = least_outside(A, X, shift, weight, likely=following - shift, most=most - X.shape[1])
    if least is None:
        return None
    # x^T (L - shift) x is at least x^T M x times that, which is taken to be no less than that of the wanted vectors.
    floor = min(following, shift + least * float((weight * X.square()).sum(0).min()))
    tol = tol / Stopping.safety
    most -= A.products - spent
    found, error = _refined(A, pairs, torch.tensor(floor).to(pairs.theta), tol, most)
    if error > tol:
        return None
    k = X.shape[1]
    evidence = Evidence(Stopping.safety * error, floor, well_defined=k, residuals=found.residuals[:k])
    return replace(found, evidence=evidence)


def _ritz_pairs(L: Operator, start: Tensor) -> Iteration | None:
    """Return the Ritz pairs in the span of a start, and L times their vectors; None where columns are dependent."""
    X = orthonormalize(start)
    live = bool((torch.linalg.vector_norm(X, dim=-2) > 0.5).all())
    return Iteration.start(L, X) if live else None


def _refined(L: Operator, pairs: Iteration, following: Tensor, tol: float, most: int) -> tuple[Ritz, float]:
    """Return Ritz pairs of which Davis and Kahan's estimate is ``tol``, and that; an infinite one where none are found.

    They are those given where these will do, else those of filters, or of LOBPCG where the diagonal preconditions.
    """
    found = _with_next(pairs, following)
    error = _by_residuals(found, following)
    if error <= tol:
        return found, error
    high = L.gershgorin()[1]
    if not bool(((following > found.theta[..., -2]) & (following < high)).all()):
        return found, math.inf
    if not isinstance(L, FunctionOperator):
        weight = (L.diagonal()[..., None] * pairs.X[..., -1:].square()).sum((-2, -1))
        if bool((high > Warm.spread * weight).all()):
            return _preconditioned(L, pairs, following, tol, L.products + most)
    high = high if L.batch_shape else high.new_tensor(spectrum_top(L))
    limit = L.products + most
    for _ in range(Warm.filters):
        degree = (limit - L.products) // pairs.X.shape[-1]
        Y, error, after = _swept(L, pairs, (following, high), tol, degree)
        if Y is None:
            return _with_next(pairs, following), error
        pairs = Iteration.start(L, Y)
        if after <= tol:
            return _with_next(pairs, following), after
    return _with_next(pairs, following), math.inf


def _swept(
    L: Operator, pairs: Iteration, interval: tuple[Tensor, Tensor], tol: float, most: int
) -> tuple[Tensor | None, float, float]:
    """Return a filtered block, of as high a degree as the tolerance takes, and the errors before and after that.

    No block is returned where the vectors will do as they were, by the error before, or no filter is of use. L X is the
    filter's first product.
    """
    X, theta, eps = pairs.X, pairs.theta, torch.finfo(pairs.X.dtype).eps
    following, high = interval
    gaps, width = (following[..., None] - theta).clamp(min=0), (high - following)[..., None]
    rate = torch.acosh(1 + 2 * gaps / width.clamp(min=eps))  # of amplification with the degree
    slowest, range_ = float(rate[..., -1].min()), float((rate[..., 0] - rate[..., -1]).max())
    most = min(most, Warm.most_degree)
    if most * slowest < math.acosh(Warm.least_gain):
        return None, math.inf, math.inf
    most = max(2, min(most, int(-0.5 * math.log(eps) / max(range_, 1e-30))))
    low, top, first = (end[..., None, None] for end in (following, high, theta[..., 0]))
    look, before, after, Y = 2, math.inf, math.inf, X
    for degree, Y in enumerate(chebyshev_steps(L, X, most, low, top, first, LX=pairs.LV), start=1):
        if degree < min(look, most):
            continue
        look = max(degree + 1, math.ceil(1.15 * degree))
        # Davis and Kahan's bound for p(L) before the sweep, |p| <= eta above the cut, contracted by the sweep.
        eta = 1 / torch.cosh(degree * rate[..., :1])
        G = X.mT @ Y
        mu, Q = torch.linalg.eigh((G + G.mT) / 2)
        left = torch.linalg.vector_norm((Y - X @ G) @ Q, dim=-2) + 4 * degree**0.5 * eps
        before = float(davis_kahan(left, mu - eta).max())
        if before <= tol:
            return None, before, before
        after = float(davis_kahan(left * eta / torch.maximum(mu, eta), mu - eta).max())
        if after <= tol:
            break
    return Y, before, after


def _preconditioned(L: Operator, pairs: Iteration, following: Tensor, tol: float, limit: int) -> tuple[Ritz, float]:
    """Return the Ritz pairs of LOBPCG from those given, and their error by their residuals."""
    inverse, found = inverse_diagonal(L), _with_next(pairs, following)
    while L.products < limit:
        gaps = (following[..., None] - pairs.theta).clamp(min=0)
        active = found.residuals[..., :-1] > (Warm.lock * tol) ** 0.5 * gaps
        pairs = pairs.step(L, inverse, active.reshape(-1, active.shape[-1]).any(0))
        found = _with_next(pairs, following)
        if _by_residuals(found, following) <= tol:  # which is confirmed by fresh products
            pairs = Iteration.start(L, pairs.X)
            found = _with_next(pairs, following)
            error = _by_residuals(found, following)
            if error <= tol:
                return found, error
    return found, math.inf


def _with_next(pairs: Iteration, following: Tensor) -> Ritz:
    """Return the Ritz pairs with the next value behind them, of which no vector is known."""
    found = pairs.ritz()
    theta = torch.cat([found.theta, following[..., None]], dim=-1)
    unknown = torch.full_like(following[..., None], torch.inf)
    return Ritz(theta, found.X, torch.cat([found.residuals, unknown], dim=-1), how="from the earlier answer")


def _by_residuals(found: Ritz, following: Tensor) -> float:
    """Return Davis and Kahan's estimate by the residuals of L, the largest of the batch."""
    return float(davis_kahan(found.residuals[..., :-1], following[..., None] - found.theta[..., :-1]).max())


def least_outside(A: Operator, X: Tensor, shift: float, weight: Tensor, *, likely: float, most: int) -> float | None:
    r"""Return about the lowest eigenvalue of $M^{-1/2} (A - \sigma I) M^{-1/2}$ where M^1/2 x is outside X.

    None where it is not shown to be positive, or that and a refinement would take more products than ``most``.

    Parameters
    ----------
    A
        The operator, in float64.
    X
        ``(n, k)`` orthonormal.
    shift
        $\sigma$.
    weight
        ``(n, 1)`` the diagonal of M, positive.
    likely
        About the lowest quotient that is expected of $A - \sigma I$ there.
    most
        Products.
    """
    most = min(most, A.n - X.shape[1])
    missed = math.log(1.648 * A.n**0.5 / Warm.failure)
    # A refinement amplifies each column about as often as one filter has to; the top of the spectrum is near 2.
    rate = 2 * (likely / (2 * float((weight * X.square()).sum(0).max()))) ** 0.5
    if missed + X.shape[1] * math.acosh(Warm.least_gain) > most * rate:
        return None
    root = weight.sqrt()
    Q = torch.linalg.qr(X / root).Q
    source = torch.Generator(device=A.device).manual_seed(_CHECK_SEED)

    def outside(w: Tensor) -> Tensor:
        return w - Q @ (Q.mT @ w)

    v, previous = outside(gaussian(A, 1, generator=source)), torch.zeros_like(root)
    v = v / torch.linalg.vector_norm(v)
    alpha, beta, look = [], [0.0], 8
    for step in range(1, most + 1):
        w = (A @ (v / root) - shift * (v / root)) / root
        alpha.append(float((v * w).sum()))
        w = outside(w - alpha[-1] * v - beta[-1] * previous)
        beta.append(float(torch.linalg.vector_norm(w)))
        if step == look:
            look = max(step + 4, math.ceil(1.05 * step))
            low, residual, high = _ends(alpha, beta)
            if low <= 0:
                return None
            if low > (missed / (2 * step - 1)) ** 2 * high and residual <= Warm.converged * low:
                return low - residual
        previous, v = v, w / beta[-1]
    return None


#: Of a start that is independent of all other draws.
_CHECK_SEED = 0x5EED3


def _ends(alpha: list[float], beta: list[float]) -> tuple[float, float, float]:
    """Return the lowest Ritz value of a Lanczos recurrence, its residual, and an upper bound of the spectrum."""
    off = beta[1:-1]
    low, s = eigh_tridiagonal(alpha, off, select="i", select_range=(0, 0))
    top = eigh_tridiagonal(alpha, off, eigvals_only=True, select="i", select_range=(len(alpha) - 1,) * 2)
    return float(low[0]), beta[-1] * abs(float(s[-1, 0])), float(top[0]) + beta[-1]
