"""A start with learned roots: a polynomial filter of a fixed number of products, trained for a family of graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from krylow import _checks
from krylow._checks import InputError
from krylow.nn.probes import Probe
from krylow.operators import Operator

#: The vector is normalised after this many factors: often enough for float32, since a factor grows it by less than 10.
NORMALIZE_EVERY = 4


def chebyshev_roots(count: int, low: float, high: float) -> list[float]:
    r"""Return the roots of the Chebyshev polynomial of degree ``count`` on [low, high], ascending.

    $$r_i = \tfrac{high + low}2 - \tfrac{high - low}2 \cos\frac{(2i - 1) \pi}{2 \, count}$$

    >>> chebyshev_roots(1, 1.0, 3.0)
    [2.0]
    """
    center, radius = (high + low) / 2, (high - low) / 2
    return [round(center - radius * math.cos((2 * i + 1) * math.pi / (2 * count)), 12) for i in range(count)]


def leja_order(points: Sequence[float]) -> list[float]:
    r"""Return the points in Leja's order: each the one with the largest product of distances to those before it.

    A polynomial in product form, $\prod_i (1 - \lambda / r_i)$, multiplied out in this order, keeps its partial
    products of one size over the whole interval; in ascending order they spread over many magnitudes, which rounding
    does not survive.

    >>> leja_order([1.0, 2.0, 3.0])
    [3.0, 1.0, 2.0]
    """
    left = sorted(points)
    ordered: list[float] = []
    while left:
        if ordered:
            best = max(left, key=lambda x: sum(math.log(max(abs(x - y), 1e-300)) for y in ordered))
        else:
            best = max(left, key=abs)
        left.remove(best)
        ordered.append(best)
    return ordered


class RootProbe(Probe):
    r"""A polynomial low-pass filter with learned roots.

    $$v_1 \propto \prod_{i=1}^{d} \Big(I - \frac{L}{r_i}\Big) \, z, \qquad r_i = \rho_i \frac{\mathrm{tr} L}{n}$$

    The roots lie in the part of the spectrum that is to be removed, in units of the mean degree, which is free. They
    start as Chebyshev's of an interval, in Leja's order, and are learned for a family of graphs on the subspace error;
    $\rho_i = \exp(\cdot)$ keeps them positive. Costs d products.

    Parameters
    ----------
    count
        d, the number of roots.
    low, high
        The unwanted interval that the roots start on, in units of tr(L) / n.

    Examples
    --------
    One root at the largest eigenvalue of a single edge, 2 = 2 tr(L) / n, leaves the constant vector:

    >>> import krylow as kl
    >>> L = kl.laplacian(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    >>> v = RootProbe(1, low=1.5, high=2.5)(L, torch.tensor([[1.0], [0.0]]))
    >>> v.detach()
    tensor([[0.7071],
            [0.7071]])
    """

    scale_invariant = True

    def __init__(self, count: int, low: float = 0.5, high: float = 2.5) -> None:
        super().__init__()
        self.count = _checks.count(count, "count")
        self.low, self.high = _checks.positive(low, "low"), _checks.positive(high, "high")
        if not low < high:
            raise InputError(f"low must be below high, got [{low}, {high}].")
        roots = leja_order(chebyshev_roots(self.count, low, high))
        self.log_rho = nn.Parameter(torch.tensor(roots).log())

    @property
    def rho(self) -> Tensor:
        """``(d,)`` roots in units of tr(L) / n, in the order they are applied."""
        return self.log_rho.exp()

    def shifts(self, L: Operator) -> Tensor:
        """Return the roots for L, ``(*batch, d)``."""
        scale = L.diagonal().sum(-1) / L.sizes  # (*batch,)
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        return self.rho.to(L.dtype) * scale[..., None]

    def forward(self, L: Operator, z: Tensor) -> Tensor:
        """Return the start vector ``(*batch, n, 1)``."""
        inverse = 1 / self.shifts(L)
        v = z
        for i in range(self.count):
            v = v - inverse[..., i, None, None] * (L @ v)
            if i % NORMALIZE_EVERY == NORMALIZE_EVERY - 1 or i == self.count - 1:
                size = torch.linalg.vector_norm(v, dim=-2, keepdim=True)
                v = v / torch.where(size > 0, size, torch.ones_like(size))
        return v

    def response(self, lam: Tensor) -> Tensor:
        """Return h at eigenvalues in units of tr(L) / n, with its sign; 1 at 0."""
        return (1 - lam[..., None] / self.rho.to(lam.dtype)).prod(-1)

    def config(self) -> dict[str, int | str | float]:
        """Return the constructor's arguments."""
        return {"count": self.count, "low": self.low, "high": self.high}
