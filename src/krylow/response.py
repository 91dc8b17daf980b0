r"""Filters that apply an approximation of the ideal response to a signal, without a basis of the subspace.

$$y \approx f(L) x, \qquad f(\lambda) = 1 \text{ for } \lambda \le \omega, \text{ else } 0$$

is the paper's eq. (1), the ideal low-pass filter with cutoff $\omega$.

- A Chebyshev polynomial of degree d: d products a signal. The response is discontinuous, so the plain expansion
  overshoots near the cutoff and converges like 1/d there; Jackson's damping removes the overshoot and widens the
  transition.
- Lanczos on the signal itself, $\|x\| V_m f(T_m) e_1$: m products a signal, and as good as the best polynomial for that
  signal, which is why it beats the former at equal products.
"""

from __future__ import annotations

import torch
from torch import Tensor

from krylow._random import gaussian
from krylow.autodiff.projector import lowest_eigenspace
from krylow.krylov.lanczos import lanczos
from krylow.krylov.ritz import lift, symmetrized_matrix
from krylow.operators import FunctionOperator, Operator

#: Random vectors of the eigenvalue count that turns k into a cutoff.
COUNT_PROBES = 16


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
    return coefficients * _jackson(degree, phi) if jackson else coefficients


def _jackson(degree: int, like: Tensor) -> Tensor:
    """Return Jackson's damping factors, ``(degree + 1,)``."""
    terms = degree + 2
    angle = torch.pi / terms
    j = torch.arange(degree + 1, dtype=like.dtype, device=like.device)
    cot = 1 / torch.tan(torch.tensor(angle, dtype=like.dtype, device=like.device))
    return ((terms - j) * torch.cos(j * angle) + torch.sin(j * angle) * cot) / terms


def chebyshev_lowpass(
    L: Operator,
    x: Tensor,
    *,
    cutoff: float | Tensor | None = None,
    k: int | None = None,
    degree: int = 50,
    jackson: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return the signal filtered by a Chebyshev polynomial of the ideal response.

    Costs ``degree`` products a column of x, and for ``k`` half that times 16 for :func:`estimated_cutoff`.

    Parameters
    ----------
    L, x
        Operator and signal ``(*batch, n, c)``.
    cutoff, k
        The largest kept frequency, or the number of kept ones.
    degree
        Of the polynomial.
    jackson
        Whether to damp the overshoot.
    generator
        Source of randomness of the eigenvalue count.
    """
    low, high = _interval(L)
    if k is not None:
        cutoff = estimated_cutoff(L, k, degree=degree, generator=generator)
    omega = torch.as_tensor(cutoff, dtype=L.dtype, device=L.device).expand(L.batch_shape)
    c = chebyshev_coefficients(omega, low, high, degree, jackson=jackson)[..., None, None]
    center, radius = (((high + low) / 2)[..., None, None], ((high - low) / 2)[..., None, None])
    previous, current = x, (L @ x - center * x) / radius
    y = c[..., 0, :, :] * previous + c[..., 1, :, :] * current
    for j in range(2, degree + 1):
        previous, current = current, 2 * (L @ current - center * current) / radius - previous
        y = y + c[..., j, :, :] * current
    return y


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
        low, high = _interval(L)
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
    center, radius = (((high + low) / 2)[..., None, None], ((high - low) / 2)[..., None, None])
    size = torch.linalg.vector_norm(z, dim=-2, keepdim=True)
    z = z / torch.where(size > 0, size, torch.ones_like(size))
    a, b = 1 / radius, -center / radius
    previous, current = z, L.three_term(z, None, a, b)
    moments = [torch.ones_like(low), _mean_dot(z, current)]
    for _ in range((degree + 1) // 2):
        moments.append(2 * _mean_dot(current, current) - moments[0])
        previous, current = current, L.three_term(current, previous, 2 * a, 2 * b, -1.0)
        moments.append(2 * _mean_dot(current, previous) - moments[1])
    return torch.stack(moments[: degree + 1], dim=-1) * L.sizes[..., None]


def lanczos_lowpass(
    L: Operator, x: Tensor, *, cutoff: float | None = None, k: int | None = None, m: int = 50
) -> Tensor:
    r"""Return $\|x\| V_m f(T_m) e_1$, every column of x ``(*batch, n, c)`` in its own Krylov space.

    f keeps the Ritz values up to the cutoff, or the k lowest: with k, components of the signal in several copies of one
    eigenvalue count as one. Exact for m = n where no frequency is repeated, and often long before. Costs m products and
    m n memory a column. Differentiable through the kept Ritz space.
    """
    low, high = L.gershgorin()
    columns = FunctionOperator(
        lambda X: (L @ X[..., 0].mT).mT[..., None],
        L.n,
        batch_shape=(*torch.broadcast_shapes(x.shape[:-2], L.batch_shape), x.shape[-1]),
        dtype=L.dtype,
        device=L.device,
        bounds=(low.detach()[..., None], high.detach()[..., None]),
        parameters=L.tensors,
    )
    v = x.expand(*columns.batch_shape[:-1], *x.shape[-2:]).mT[..., None]  # (*batch, c, n, 1)
    krylov = lanczos(columns, v, min(m, L.n), reorthogonalize=True)
    S, _ = symmetrized_matrix(krylov)
    live = torch.arange(S.shape[-1], device=S.device) < krylov.steps[..., None]
    S = lift(S, live)
    with torch.no_grad():
        kept = torch.linalg.eigvalsh(S) <= cutoff if k is None else torch.arange(S.shape[-1], device=S.device) < k
        count = (kept & live).sum(-1)
    _, Y = lowest_eigenspace(S, max(1, int(count.max())), count)
    y = krylov.V @ (Y @ Y[..., :1, :].mT)  # (*batch, c, n, 1)
    return (y * torch.linalg.vector_norm(v, dim=-2, keepdim=True))[..., 0].mT


def _interval(L: Operator) -> tuple[Tensor, Tensor]:
    low, high = L.gershgorin()
    return low, torch.where(high > low, high, low + 1)


def _mean_dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-2).mean(-1)
