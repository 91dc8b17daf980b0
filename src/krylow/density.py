r"""The density of a spectrum, and how many eigenvalues lie up to a frequency, by stochastic traces.

The kernel polynomial method: with the moments $\mu_j = \mathrm{mean}(z^\top T_j(t(L)) z)$ over random z, which come two
a product, the trace of any expanded function is $\mathrm{tr} f(L) \approx \sum_j c_j \mu_j$ (Weisse, Wellein, Alvermann
and Fehske, Rev. Mod. Phys. 78, 2006; Lin, Saad and Yang, SIAM Review 58, 2016).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from krylow import _checks
from krylow._random import gaussian
from krylow.expansion import chebyshev_coefficients, column_moments, interval, jackson_factors, spectral_interval
from krylow.graph import as_operator
from krylow.operators import Operator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Random vectors of the eigenvalue count that turns k into a cutoff.
COUNT_PROBES = 16
#: Nodes up to which the trace of a density is exact.
EXACT_TRACE = 64


@dataclass(frozen=True, repr=False)
class SpectralDensity:
    r"""How many eigenvalues lie where: the spectral density of a graph, smoothed by Jackson's kernel.

    Attributes
    ----------
    grid
        ``(*batch, points)`` frequencies.
    density
        ``(*batch, points)`` the share of the eigenvalues an interval of unit length holds there; its integral is 1.
    low, high
        ``(*batch,)`` ends of the interval.
    moments
        ``(*batch, degree + 1)`` means of the Chebyshev polynomials over the spectrum, the first one 1.
    """

    grid: Tensor
    density: Tensor
    low: Tensor
    high: Tensor
    moments: Tensor

    def cdf(self, lam: Tensor) -> Tensor:
        r"""Return the share of the eigenvalues up to frequencies ``(*batch, m)``; ascending, smooth, in [0, 1]."""
        # The primitive of the smoothed density: of the ideal low-pass response, the damped series against the moments.
        low, high, mu = self.low[..., None], self.high[..., None], self.moments[..., None, :]
        inside = torch.minimum(torch.maximum(lam, low), high)
        shape = torch.broadcast_shapes(inside.shape, low.shape)
        low, high, inside = (part.expand(shape) for part in (low, high, inside))
        C = chebyshev_coefficients(inside, low, high, mu.shape[-1] - 1, jackson=True)
        return (C * mu).sum(-1).clamp(0, 1)

    def plot(self, **options: Any) -> Axes:
        """Draw it: :func:`krylow.plot.density` and its options."""
        from krylow import plot

        return plot.density(self, **options)

    def __repr__(self) -> str:
        points, degree = self.grid.shape[-1], self.moments.shape[-1] - 1
        return f"SpectralDensity(points={points}, degree={degree})"


def spectral_density(
    L: Any, *, points: int = 200, degree: int = 100, probes: int = 16, seed: int | None = None
) -> SpectralDensity:
    r"""Return the density of a graph's frequencies by the kernel polynomial method.

    $$\rho(\lambda) \approx \frac1n \sum_i \delta_d(\lambda - \lambda_i)$$

    with Jackson's kernel of degree d for $\delta_d$, about $\pi / d$ of the half interval wide, never negative. Up
    to 64 nodes the trace is exact; beyond, the standard deviation of a share p is about
    $\sqrt{2 p / (n \, \text{probes})}$. Costs ``probes * degree / 2`` products.

    Parameters
    ----------
    L
        As in :func:`krylow.subspace`, one graph or a batch.
    points
        Frequencies of the grid, over the whole interval that holds the spectrum.
    degree, probes
        Of the kernel, and how many random vectors.
    seed
        Of the vectors; the same call gives the same answer by default.

    Returns
    -------
    SpectralDensity
        ``grid`` and ``density``, each ``(*batch, points)``, and the cumulative distribution, ``cdf(lam)``.

    Examples
    --------
    >>> two = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)  # frequencies 0 and 2
    >>> found = spectral_density(two)
    >>> found.cdf(torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64)).round(decimals=1)
    tensor([0.5000, 0.5000, 0.5000], dtype=torch.float64)
    """
    L = as_operator(L)
    points, degree = _checks.count(points, "points", 2), _checks.count(degree, "degree", 2)
    probes = _checks.count(probes, "probes")
    seed = None if seed is None else _checks.count(seed, "seed", -(2**63), 2**64 - 1)
    generator = None if seed is None else torch.Generator(device=L.device).manual_seed(seed)
    with torch.no_grad():
        low, high = spectral_interval(L)
        # A little room at both ends, where the kernel of an eigenvalue at the end would be cut off.
        room = torch.pi / degree * (high - low) / 2
        low, high = (low - room).to(L.dtype), (high + room).to(L.dtype)
        if L.n <= EXACT_TRACE and L.mask is None:
            z = torch.eye(L.n, dtype=L.dtype, device=L.device).expand(L.shape)
        else:
            z = gaussian(L, probes, generator=generator)
        mu = _moments(L, z, low, high, degree) / L.sizes[..., None]
        grid = low[..., None] + (high - low)[..., None] * torch.linspace(0, 1, points + 2, dtype=L.dtype)[1:-1].to(low)
        x = (2 * grid - (low + high)[..., None]) / (high - low)[..., None]
        j = torch.arange(degree + 1, dtype=L.dtype, device=L.device)
        weight = torch.where(j == 0, 1.0, 2.0) * jackson_factors(degree, x) * mu
        series = (torch.cos(j * torch.acos(x)[..., None]) * weight[..., None, :]).sum(-1)
        density = series * 2 / (torch.pi * (1 - x.square()).sqrt() * (high - low)[..., None])
    return SpectralDensity(grid, density, low, high, mu)


def estimated_cutoff(
    L: Operator, k: int, *, degree: int = 50, generator: torch.Generator | None = None, z: Tensor | None = None
) -> Tensor:
    r"""Return cutoffs ``(*batch,)`` below which about k eigenvalues lie, repeated ones counted, by a stochastic trace.

    The number of eigenvalues below $\omega$ is $\mathrm{tr} f(L) \approx \sum_j c_j(\omega) \mu_j$ with the moments
    $\mu_j = \mathrm{mean} (z^\top T_j z)$ over random z, which are computed once, two of them a product;
    the cutoff is then found by bisection. Costs 16 * degree / 2 products. No finer than the
    polynomial's own transition band. The random z may be given, ``(*batch, n, s)`` and zero on padding.
    """
    with torch.no_grad():
        low, high = interval(L)
        mu = _moments(L, gaussian(L, COUNT_PROBES, generator=generator) if z is None else z, low, high, degree)
        left, right = low.clone(), high.clone()
        for _ in range(40):
            middle = (left + right) / 2
            found = (chebyshev_coefficients(middle, low, high, degree, jackson=True) * mu).sum(-1)
            left, right = torch.where(found < k, middle, left), torch.where(found < k, right, middle)
        return (left + right) / 2


def estimated_count(L: Operator, cutoff: float, *, high: float, degree: int, probes: int = COUNT_PROBES) -> Tensor:
    r"""Return about how many eigenvalues ``(*batch,)`` lie up to a cutoff, by the trace of :func:`estimated_cutoff`.

    ``high`` is an upper bound of the spectrum. Costs ``probes * degree / 2`` products; the standard deviation for k
    eigenvalues is about $\sqrt{2 k / \text{probes}}$, beside what the polynomial's transition band adds: little without
    damping, since what it overshoots by averages out.
    """
    with torch.no_grad():
        low = L.gershgorin()[0]
        top = torch.full_like(low, high)
        mu = _moments(L, gaussian(L, probes), low, top, degree)
        return (chebyshev_coefficients(torch.full_like(low, cutoff), low, top, degree) * mu).sum(-1)


def _moments(L: Operator, z: Tensor, low: Tensor, high: Tensor, degree: int) -> Tensor:
    r"""Return $n \, \mathrm{mean}(z^\top T_j z) / \|z\|^2$ over random columns, ``(*batch, degree + 1)``."""
    size = torch.linalg.vector_norm(z, dim=-2, keepdim=True)
    z = z / torch.where(size > 0, size, torch.ones_like(size))
    moments = column_moments(L, z, low, high, degree).mean(-2)
    moments[..., 0] = 1
    return moments * L.sizes[..., None]
