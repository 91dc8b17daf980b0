"""Learned starts: modules that turn a random vector into the first Lanczos vector."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from krylow import _checks
from krylow._checks import InputError
from krylow.krylov.probe import inverse_polynomial, learned_inverse, learned_response, response
from krylow.operators import Operator


class Probe(nn.Module):
    """A start: ``probe(L, z)`` returns the first Lanczos vector ``(*batch, n, 1)`` from a random one of that shape.

    ``scale_invariant`` says that the start of c L is that of L, for any number c > 0. A probe that does not say so is
    always given the operator as it is.
    """

    scale_invariant: bool = False

    @abstractmethod
    def forward(self, L: Operator, z: Tensor) -> Tensor:
        """Return the start vector."""

    @abstractmethod
    def response(self, lam: Tensor) -> Tensor:
        """Return the probe's frequency response at the eigenvalues ``lam`` of the operator it scales to."""

    def shifts(self, L: Operator) -> Tensor | None:
        """Return the roots ``(*batch, d)`` of a polynomial probe, which may then be applied as shifts; else None."""
        return None

    def config(self) -> dict[str, int | str | float]:
        """Return the constructor's arguments, for saving."""
        return {}


#: Largest degree, power and number of steps or roots: beyond, a start would take days, and Ctrl-C is all that ends it.
MOST = 10**4
#: First value of the unconstrained learned steps of conjugate gradients: a softplus near 0, so that z is left as it is.
NEAR_ZERO = -6.0


class GaussianProbe(Probe):
    """The random vector itself: no parameters, no products."""

    scale_invariant = True

    def forward(self, L: Operator, z: Tensor) -> Tensor:
        """Return z as it is; the recurrence normalises it."""
        return z

    def response(self, lam: Tensor) -> Tensor:
        """Return 1 everywhere."""
        return torch.ones_like(lam)


class InversePolynomialProbe(Probe):
    r"""The paper's probe, an inverse-polynomial filter with learned coefficients.

    $$v_1 \propto \Big(I + \sum_{t=1}^T a_t \tilde L^t\Big)^{-p} z, \qquad a_t = \log(1 + e^{b_t})$$

    $\tilde L$ is L scaled to [0, 1] by Gershgorin's bounds, or L itself. See
    :func:`krylow.krylov.probe.inverse_polynomial`.

    Parameters
    ----------
    degree
        T, the number of coefficients.
    power
        p.
    cg_steps
        Krylov vectors, or conjugate-gradient steps a solve.
    solver
        "krylov": one Krylov sequence, ``cg_steps`` products. "cg": the paper's p truncated solves, p * cg_steps * T
        products. "learned_cg": p recurrences of conjugate gradients whose step sizes and momenta are parameters,
        ``(p, cg_steps)`` each, with coefficients of their own for each, ``(p, T)``; p * (cg_steps - 1) * T products.
        Softplus keeps all of them positive. The steps start near 0, where the probe returns z: untrained it is a
        Gaussian start.
    scaled
        False: the polynomial of L as it is, which is what the paper's equation says.
    """

    def __init__(
        self, degree: int = 7, power: int = 3, cg_steps: int = 10, solver: str = "krylov", scaled: bool = True
    ) -> None:
        super().__init__()
        self.degree = _checks.count(degree, "degree", 1, MOST)
        self.power = _checks.count(power, "power", 1, MOST)
        self.cg_steps = _checks.count(cg_steps, "cg_steps", 1, MOST)
        self.solver = _checks.choice(solver, ("krylov", "cg", "learned_cg"), "solver")
        self.scaled = _checks.flag(scaled, "scaled")
        self.scale_invariant = self.scaled
        if self.solver == "learned_cg":
            self.b = nn.Parameter(torch.zeros(self.power, self.degree))
            self.step = nn.Parameter(torch.full((self.power, self.cg_steps), NEAR_ZERO))
            self.momentum = nn.Parameter(torch.full((self.power, self.cg_steps), NEAR_ZERO))
        else:
            self.b = nn.Parameter(torch.zeros(self.degree))

    @property
    def coefficients(self) -> Tensor:
        """``(T,)``, or ``(p, T)`` with learned steps: a_t >= 0."""
        return nn.functional.softplus(self.b)

    @property
    def learned_steps(self) -> tuple[Tensor, Tensor]:
        """``(p, cg_steps)`` step sizes and momenta of "learned_cg", positive."""
        if self.solver != "learned_cg":
            raise InputError(f"only the solver 'learned_cg' has learned steps, got a probe with {self.solver!r}.")
        return nn.functional.softplus(self.step), nn.functional.softplus(self.momentum)

    def forward(self, L: Operator, z: Tensor) -> Tensor:
        """Return the start vector ``(*batch, n, 1)``."""
        a = self.coefficients.to(z.dtype)
        if self.solver == "learned_cg":
            step, momentum = (t.to(z.dtype) for t in self.learned_steps)
            return learned_inverse(L, z, a, step, momentum, scaled=self.scaled)
        return inverse_polynomial(L, z, a, self.power, self.cg_steps, solver=self.solver, scaled=self.scaled)

    def response(self, lam: Tensor) -> Tensor:
        """Return h at eigenvalues of the operator it is a polynomial of: in [0, 1] where that is the scaled one.

        With learned steps it is what they compute, with its sign, and not the inverse that they were to approach.
        """
        a = self.coefficients.to(lam.dtype)
        if self.solver == "learned_cg":
            return learned_response(a, *(t.to(lam.dtype) for t in self.learned_steps))(lam)
        return response(a, self.power)(lam)

    def config(self) -> dict[str, int | str | float]:
        """Return the constructor's arguments."""
        return {
            "degree": self.degree,
            "power": self.power,
            "cg_steps": self.cg_steps,
            "solver": self.solver,
            "scaled": self.scaled,
        }


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
    #: Where roots may begin: beyond, what is between two normalisations overflows in float32.
    highest: ClassVar[float] = 1e8

    def __init__(self, count: int, low: float = 0.5, high: float = 2.5) -> None:
        super().__init__()
        self.count = _checks.count(count, "count", 1, MOST)
        self.low, self.high = _checks.positive(low, "low"), _checks.positive(high, "high")
        if not self.low < self.high <= self.highest:
            raise InputError(f"low must be below high, and high at most {self.highest:g}, got [{low}, {high}].")
        roots = leja_order(chebyshev_roots(self.count, self.low, self.high))
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
            v = v - inverse[..., i, None, None] * L.__matmul__(v)
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
