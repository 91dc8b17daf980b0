r"""Chebyshev expansions of responses, and what they leave out.

$$g(\lambda) \approx \sum_{j \le d} c_j T_j(t(\lambda)), \qquad
\max |g - p_d| \le \sum_{j > d} |c_j|$$

The coefficients of a smooth response fall geometrically, those of one with kinks like a power of the degree. Where it
jumps, no polynomial converges, and Jackson's damping removes the overshoot and widens the transition (Trefethen,
Approximation Theory and Approximation Practice, 2013; Weisse, Wellein, Alvermann and Fehske, 2006).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from krylow.krylov.chebyshev import chebyshev_adjoint, chebyshev_series, chebyshev_watched
from krylow.linalg.row_blocks import lengths
from krylow.operators import DenseOperator, Operator, SparseOperator


@dataclass(frozen=True)
class Search:
    """How the degree of an expansion is found."""

    first: int = 64  # nodes that are tried first
    most: int = 2**14  # and last: the largest degree is half of it
    jump_degree: int = 300  # degree where the response jumps
    steps: int = 4  # products with |L| that tighten the bound of the spectrum
    slack: float = 1.01  # factor on the norm of a signal, beyond which its T_d x betrays too short an interval
    least: float = 1e4  # least norm that is compared, over the root of the smallest number


SEARCH = Search()
#: Elementwise functions of frequencies ``(*batch, m)``, side by side in a last dimension.
Bank = Callable[[Tensor], Tensor]


def chebyshev_coefficients(cutoff: Tensor, low: Tensor, high: Tensor, degree: int, *, jackson: bool = False) -> Tensor:
    r"""Return the Chebyshev coefficients of the ideal response on [low, high], ``(*batch, degree + 1)``.

    With $\phi = \arccos$ of the cutoff mapped to [-1, 1]: $c_0 = 1 - \phi / \pi$ and
    $c_j = -2 \sin(j \phi) / (j \pi)$, times Jackson's factors where asked for.

    >>> one = torch.tensor(1.0)
    >>> chebyshev_coefficients(0 * one, -one, one, 1)
    tensor([ 0.5000, -0.6366])
    """
    x = (2 * cutoff - high - low) / (high - low)
    inside = x.abs() < 1  # beyond the ends the response is constant, and acos has no slope to give
    constant = torch.where(x < 0, torch.full_like(x, torch.pi), torch.zeros_like(x))
    phi = torch.where(inside, torch.acos(torch.where(inside, x, torch.zeros_like(x))), constant)[..., None]
    j = torch.arange(1, degree + 1, dtype=phi.dtype, device=phi.device)
    coefficients = torch.cat([1 - phi / torch.pi, -2 * torch.sin(j * phi) / (j * torch.pi)], dim=-1)
    return coefficients * jackson_factors(degree, phi) if jackson else coefficients


def jackson_factors(degree: int, like: Tensor) -> Tensor:
    """Return Jackson's damping factors, ``(degree + 1,)``."""
    terms = degree + 2
    angle = torch.pi / terms
    j = torch.arange(degree + 1, dtype=like.dtype, device=like.device)
    cot = 1 / torch.tan(torch.tensor(angle, dtype=like.dtype, device=like.device))
    return ((terms - j) * torch.cos(j * angle) + torch.sin(j * angle) * cot) / terms


def interval(L: Operator) -> tuple[Tensor, Tensor]:
    """Return Gershgorin's bounds of the spectrum, each ``(*batch,)``, apart from each other."""
    low, high = L.gershgorin()
    return low, torch.where(high > low, high, low + 1)


def spectral_interval(L: Operator) -> tuple[Tensor, Tensor]:
    r"""Return bounds of the spectrum, each ``(*batch,)``, in float64, without a gradient.

    Gershgorin's, and above it, where the entries are known, the bound of Collatz and Wielandt for $|L|$,
    $\lambda_n \le \max_i (|L| p)_i / p_i$ for any positive p, with a few steps of the power method for p: proved, and
    close to the largest eigenvalue, which for bipartite graphs it converges to. Costs 4 products of one vector, once a
    sparse operator.
    """
    if isinstance(L, SparseOperator):
        return L.kept("spectral interval", lambda: _proved_interval(L))
    return _proved_interval(L)


def _proved_interval(L: Operator) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        frozen = L.detach()
        low, high = (bound.double() for bound in interval(frozen))
        if isinstance(frozen, SparseOperator):
            absolute: Operator = frozen.like(frozen.values.abs()).counting_for(L)
        elif isinstance(frozen, DenseOperator):
            absolute = DenseOperator(frozen.matrix.abs()).counting_for(L)
        else:
            return low, high
        p = torch.ones((*L.batch_shape, L.n, 1), dtype=L.dtype, device=L.device)
        tiny, norm = torch.finfo(L.dtype).tiny ** 0.5, torch.full_like(high, torch.inf)
        for _ in range(SEARCH.steps):
            q = absolute @ p
            bound = (q / p).amax((-2, -1)).double() * (1 + 64 * torch.finfo(L.dtype).eps)
            norm = torch.minimum(norm, bound)
            p = (q / q.amax((-2, -1), keepdim=True).clamp(min=tiny)).clamp(min=tiny)
        empty = norm == 0
        return torch.where(empty, low, torch.maximum(low, -norm)), torch.where(empty, high, torch.minimum(high, norm))


def column_moments(L: Operator, x: Tensor, low: Tensor, high: Tensor, degree: int) -> Tensor:
    r"""Return $x^\top T_j(t(L)) x$ of each column, ``(*batch, c, degree + 1)``, two of them a product."""
    center, radius = (((high + low) / 2)[..., None, None], ((high - low) / 2)[..., None, None])
    a, b = 1 / radius, -center / radius
    x = x.expand(*torch.broadcast_shapes(x.shape[:-2], L.batch_shape), *x.shape[-2:])
    previous, current = x, L.three_term(x, None, a, b)
    moments = [(x * x).sum(-2), (x * current).sum(-2)]
    for _ in range((degree + 1) // 2):
        moments.append(2 * (current * current).sum(-2) - moments[0])
        previous, current = current, L.three_term(current, previous, 2 * a, 2 * b, -1.0)
        moments.append(2 * (current * previous).sum(-2) - moments[1])
    return torch.stack(moments[: degree + 1], dim=-1)


@dataclass(frozen=True)
class Expansion:
    """A response's Chebyshev series on the interval [low, high].

    Attributes
    ----------
    C
        ``(*batch, degree + 1, filters)`` coefficients in float64, with the gradient of what the response depends on.
    error
        ``(*batch, filters)`` a bound of what is left out, anywhere on the interval; infinite where a filter jumps.
    size
        ``(*batch, filters)`` the largest modulus of each filter.
    tol
        The part of ``size`` that was asked for.
    watched
        Whether the spectrum may reach beyond ``high``: the error is then that for signals whose norms
        :meth:`apply_watched` finds to be no larger than they may be.
    """

    C: Tensor
    error: Tensor
    size: Tensor
    low: Tensor
    high: Tensor
    tol: float
    watched: bool = False

    @property
    def degree(self) -> int:
        """Degree of the polynomials."""
        return self.C.shape[-2] - 1

    @property
    def jumps(self) -> Tensor:
        """``(*batch, filters)``: which filters jump."""
        return self.error.isinf()

    @property
    def converged(self) -> bool:
        """Whether what is left out is within the tolerance."""
        return bool((self.error <= self.tol * self.size).all())

    def apply(self, L: Operator, x: Tensor) -> Tensor:
        """Return the polynomials' images of x, ``(*batch, n, c, filters)``."""
        return chebyshev_series(L, x, self.C, self.low.to(x.dtype), self.high.to(x.dtype))

    def apply_watched(self, L: Operator, x: Tensor) -> Tensor | None:
        """Return the images of one block of signals ``(n, c)``, None where one betrays frequencies beyond ``high``."""
        Y, last = chebyshev_watched(L, x, self.C, self.low.to(x.dtype), self.high.to(x.dtype))
        norms = lengths(x)
        seen = (last <= SEARCH.slack * norms) & (norms > SEARCH.least * torch.finfo(x.dtype).tiny ** 0.5)
        seen &= norms.isfinite()  # squares that are too small or too large tell nothing
        if not bool(seen.all()):
            seen |= (x == 0).all(-2)
        return Y if bool(seen.all()) else None

    def combine(self, L: Operator, X: Tensor) -> Tensor:
        """Return the sum of the polynomials' images, each of its own block of X ``(*batch, n, c, filters)``."""
        return chebyshev_adjoint(L, X, self.C, self.low.to(X.dtype), self.high.to(X.dtype))

    @torch.no_grad()
    def jump_error(self, g: Bank, L: Operator, x: Tensor) -> Tensor:
        r"""Return a bound of the error for each signal, ``(*batch, c, filters)``, wherever its filter jumps.

        $$\|g(L) x - p(L) x\|^2 = \int |g - p|^2 \, d\mu_x \le s \int M \, d\mu_x$$

        with the signal's spectral measure, whose first 2 d moments $x^\top T_j x$ are known from d products, and the
        polynomial M of that degree that Jackson's kernel makes of $|g - p|^2$, scaled until it is nowhere below.
        """
        degree = 2 * self.degree
        moments = column_moments(L, x, self.low.to(x.dtype), self.high.to(x.dtype), degree).double()
        points = 4 * 2 ** math.ceil(math.log2(degree + 1))
        p, exact = _values(self.C.detach(), points), at_nodes(g, self.low, self.high, points, torch.float64)
        # A jump is anywhere between two nodes: each value is compared with the polynomial's at the next ones, too.
        before, after = (
            torch.cat(part, dim=-2) for part in ((p[..., :1, :], p[..., :-1, :]), (p[..., 1:, :], p[..., -1:, :]))
        )
        rest = torch.stack([(exact - near).abs() for near in (before, p, after)]).amax(0).square()
        flat = rest.mT.reshape(-1, 1, points)
        wide = torch.nn.functional.max_pool1d(flat, 17, 1, 8).reshape(rest.mT.shape).mT
        wide = wide + 1e-14 * wide.amax(-2, keepdim=True)
        M = coefficients_of(wide)[..., : degree + 1, :] * jackson_factors(degree, wide)[:, None]
        scale = (rest / _values(M, points)).amax(-2).clamp(min=1)
        return 1.05 * ((moments @ M) * scale[..., None, :]).clamp(min=0).sqrt()

    def rounding(self, dtype: torch.dtype) -> Tensor:
        """Return what rounding adds for a signal of unit length, ``(*batch, filters)``."""
        j = torch.arange(1, self.degree + 2, dtype=self.C.dtype, device=self.C.device)[:, None]
        return 4 * torch.finfo(dtype).eps * (self.C.detach().abs() * j).sum(-2)


def expand(
    g: Bank,
    low: Tensor,
    high: Tensor,
    tol: float,
    *,
    degree: int | None = None,
    jumps: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Expansion:
    """Return the series of least degree that leaves out at most ``tol`` times the largest value, or of a given degree.

    ``jumps`` says that the response is known to; else its values are looked at. ``dtype`` is what it is evaluated in,
    whose rounding no tolerance is below.
    """
    noise = 4 * torch.finfo(dtype).eps
    points = SEARCH.first
    with torch.no_grad():
        while True:
            values = at_nodes(g, low, high, points, dtype)
            size = values.abs().amax(-2)
            tail = _tails(coefficients_of(values), noise * size)  # (*batch, points, filters)
            within = (tail <= max(tol, noise) * size[..., None, :]).all(-1)
            least = int(within.int().argmax(-1).max()) if bool(within.any(-1).all()) else points
            if least <= points // 2 or points >= SEARCH.most or (jumps and points >= 4 * SEARCH.jump_degree):
                break
            points *= 2
        resolved = least <= points // 2
        broken = torch.zeros_like(size, dtype=torch.bool) if resolved else _jumping(g, low, high, points, values, tol)
        if degree is None and resolved:
            degree = _least_degree(g, low, high, values, max(tol, noise) * size, dtype)
        elif degree is None:
            degree = SEARCH.jump_degree if bool(broken.any()) else points // 2
        points = max(points, 2 ** math.ceil(math.log2(degree + 1)))
        left = left_out(g, low, high, coefficients_of(at_nodes(g, low, high, points, dtype)), dtype)
        error = torch.where(broken, torch.inf, left(degree))
    C = coefficients_of(at_nodes(g, low, high, points, dtype))[..., : degree + 1, :]
    if bool(broken.any()):
        damping = jackson_factors(degree, C)[:, None]
        C = torch.where(broken[..., None, :], damping * C, C)
    return Expansion(C, error, size, low, high, tol)


def least_within(within: Callable[[int], bool], first: int, last: int) -> int:
    """Return the least number from ``first`` on that is within, found by halving, the last one being taken to be."""
    under, over = first - 1, last
    while over - under > 1:
        middle = (under + over) // 2
        under, over = (under, middle) if within(middle) else (middle, over)
    return over


def left_out(g: Bank, low: Tensor, high: Tensor, C: Tensor, dtype: torch.dtype) -> Callable[[int], Tensor]:
    """Return what gives the largest error of a series cut at a degree, ``(*batch, filters)``, by finer nodes."""
    points = 4 * C.shape[-2]
    values = at_nodes(g, low, high, points, dtype)
    # Between nodes a polynomial of a quarter of their number is at most 1 / cos(pi / 8) times as large.
    return lambda degree: 1.09 * (values - _values(C[..., : degree + 1, :], points)).abs().amax(-2)


def _least_degree(g: Bank, low: Tensor, high: Tensor, values: Tensor, limit: Tensor, dtype: torch.dtype) -> int:
    """Return the least degree whose largest error is within the limit, half of the nodes being enough."""
    left = left_out(g, low, high, coefficients_of(values), dtype)
    return least_within(lambda degree: bool((left(degree) <= limit).all()), 0, values.shape[-2] // 2)


def at_nodes(g: Bank, low: Tensor, high: Tensor, points: int, dtype: torch.dtype) -> Tensor:
    """Return the response at Chebyshev's nodes, ``(*batch, points, filters)`` in float64."""
    angle = torch.pi * (torch.arange(points, dtype=torch.float64, device=low.device) + 0.5) / points
    lam = (high + low)[..., None] / 2 + (high - low)[..., None] / 2 * torch.cos(angle)
    return g(lam.to(dtype)).double()


def coefficients_of(values: Tensor) -> Tensor:
    """Return the coefficients of the polynomial through values at Chebyshev's nodes, by a cosine transform."""
    points = values.shape[-2]
    mirrored = torch.fft.rfft(torch.cat([values, values.flip(-2)], dim=-2), dim=-2)[..., :points, :]
    j = torch.arange(points, dtype=torch.float64, device=values.device)
    turn = torch.polar(torch.ones_like(j), -torch.pi * j / (2 * points))[:, None]
    weight = torch.where(j == 0, 0.5, 1.0)[:, None]
    return weight * (mirrored * turn).real / points


def _values(C: Tensor, points: int) -> Tensor:
    """Return a series at Chebyshev's nodes, ``(*batch, points, filters)``: the inverse of :func:`coefficients_of`."""
    j = torch.arange(C.shape[-2], dtype=torch.float64, device=C.device)
    turned = C * torch.polar(torch.ones_like(j), torch.pi * j / (2 * points))[:, None]
    return (torch.fft.ifft(turned, 2 * points, dim=-2).real * (2 * points))[..., :points, :]


def _tails(C: Tensor, noise: Tensor) -> Tensor:
    """Return the sums of the moduli of all later coefficients, those within the noise left out."""
    size = C.abs()
    size = torch.where(size <= noise[..., None, :], torch.zeros_like(size), size)
    return size.flip(-2).cumsum(-2).flip(-2) - size


def _jumping(g: Bank, low: Tensor, high: Tensor, points: int, values: Tensor, tol: float) -> Tensor:
    """Return which filters ``(*batch, filters)`` jump: steps between nodes do not shrink with their distance."""
    coarse = values.diff(dim=-2).abs().amax(-2)
    fine = at_nodes(g, low, high, 4 * points, values.dtype).diff(dim=-2).abs().amax(-2)
    return (fine > 0.6 * coarse) & (fine > tol * values.abs().amax(-2))


def chebyshev_lowpass(
    L: Operator, x: Tensor, *, cutoff: float | Tensor, degree: int = 50, jackson: bool = True
) -> Tensor:
    """Return the signal filtered by a Chebyshev polynomial of the ideal response.

    Costs ``degree`` products a column of x.

    Parameters
    ----------
    L, x
        Operator and signal ``(*batch, n, c)``.
    cutoff
        The largest kept frequency, a number or ``(*batch,)``.
    degree
        Of the polynomial.
    jackson
        Whether to damp the overshoot.
    """
    low, high = (bound.detach() for bound in interval(L))
    omega = torch.as_tensor(cutoff, dtype=L.dtype, device=L.device).expand(L.batch_shape)
    C = chebyshev_coefficients(omega, low, high, degree, jackson=jackson)[..., None]
    return chebyshev_series(L, x, C, low, high)[..., 0]
