r"""A Laplacian seen through its diagonal: the scaled, shifted matrix whose spectrum degrees no longer stretch.

$$B = M^{-1/2} (L - \sigma I) M^{-1/2}, \qquad M = \max(|D - \sigma I|, \phi |D|)$$

Where degrees lie far apart, the spectrum of L reaches as high as the largest of them, and a polynomial of L spends its
degree up there. The spectrum of B ends near 2, and with $\sigma$ among the frequencies sought these are the ones at 0:
$L u = \sigma u$ is $B M^{1/2} u = 0$. So the lowest vectors of B are nearly $M^{1/2}$ times those of L, the nearer the
closer together the frequencies sought are, and its inverse is what a correction of them takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from krylow.linalg.components import NullSpace
from krylow.operators import SparseOperator
from krylow.refine.spectrum import spectrum_top

#: The part of a degree that M keeps at least: $\phi$.
FLOOR = 0.25
#: The upper bound of the spectrum is an estimate, raised by this factor.
ABOVE = 1.01
#: Steps of a solution between two removals of vectors far below 0.
CLEAN = 6
#: Steps of the search for the first frequency, how many of them make one look, and the relative change that ends it.
FIRST_STEPS, LOOK, SETTLED = 80, 4, 2e-2


@dataclass(frozen=True)
class Pencil:
    """L through its diagonal.

    Attributes
    ----------
    operator
        B, of L's dtype, with counters of its own.
    shift
        The number that was subtracted from L.
    mass
        ``(n, 1)`` the diagonal of M.
    top
        Upper bound of B's spectrum.
    """

    operator: SparseOperator
    shift: float
    mass: Tensor
    top: float

    def to_graph(self, Y: Tensor) -> Tensor:
        r"""Return $M^{-1/2} Y$: vectors of B as vectors of L."""
        return Y * self.mass.rsqrt()

    def from_graph(self, X: Tensor) -> Tensor:
        r"""Return $M^{1/2} X$: vectors of L as vectors of B."""
        return X * self.mass.sqrt()

    def solve(self, R: Tensor, degree: int, low: float, deep: Tensor) -> Tensor:
        r"""Return $M^{-1/2} q(B) M^{-1/2} R$, about $(L - \sigma)^{-1} R$ where B is at least ``low``.

        q is Chebyshev's: $1 - x q(x)$ is as small on [low, top] as a polynomial of this degree that is 1 at 0 can be.
        The orthonormal vectors ``deep`` ``(n, p)`` of B, far below 0, are left out: their polynomial would cover all
        others by rounding. Costs degree - 1 products a column.
        """

        def without(Y: Tensor) -> Tensor:
            return torch.addmm(Y, deep, deep.mT @ Y, alpha=-1) if deep.shape[1] else Y

        right = without(self.to_graph(R))
        center, half = (self.top + low) / 2, (self.top - low) / 2
        ratio = center / half
        rho = 1 / ratio
        y, previous = right / center, torch.zeros_like(right)
        for step_number in range(1, degree):
            following = 1 / (2 * ratio - rho)
            a = 2 * following / half
            step = self.operator.three_term(y, previous, -a, 1 + following * rho, -following * rho, out=previous)
            previous, y = y, step.add_(right, alpha=a)
            if step_number % CLEAN == 0:
                previous, y = without(previous), without(y)
            rho = following
        return self.to_graph(y)


def scale(L: SparseOperator, shift: float) -> Pencil:
    """Return L scaled by its diagonal with this shift. Costs 14 products with B, which its counters have."""
    L = _with_diagonal(L)
    row = L.row
    diagonal = L.diagonal().double()
    mass = torch.maximum((diagonal - shift).abs(), FLOOR * diagonal.abs())
    fits = mass > torch.finfo(torch.float64).eps * mass.max()
    mass = torch.where(fits, mass, mass[fits].mean() if bool(fits.any()) else torch.ones_like(mass))
    root = mass.rsqrt()
    values = L.values.detach().double() * root[row]
    values = values * root[L.col]
    values = torch.where(row == L.col, values - shift / mass[row], values)
    B = L.like(values.to(L.dtype))
    return Pencil(B, shift, mass.to(L.dtype)[:, None], ABOVE * spectrum_top(B))


def _with_diagonal(L: SparseOperator) -> SparseOperator:
    """Return L with an entry for every place on its diagonal, where those that are zero may be missing."""
    row = L.row
    if int((row == L.col).sum()) == L.n:
        return L
    nodes = torch.arange(L.n, device=L.device)
    values = torch.cat([L.values.detach(), L.values.new_zeros(L.n)])
    return SparseOperator.from_coo(torch.cat([row, nodes]), torch.cat([L.col, nodes]), values, L.n, psd=L.psd)


def first_frequency(L: SparseOperator, null: NullSpace | None, generator: torch.Generator) -> float:
    r"""Return the lowest frequency of L beside its null space, from above, to a few per cent where that is cheap.

    One vector x goes down the Rayleigh quotient by conjugate gradients that the diagonal preconditions (LOBPCG of one
    vector), at most 80 products. L must be in float64.
    """
    diagonal = L.diagonal()
    inverse = torch.where(diagonal > 0, diagonal, diagonal.abs().max().clamp(min=1e-300)).reciprocal()

    def clean(v: Tensor) -> Tensor:
        return v if null is None else null.remove(v[:, None])[:, 0]

    x = clean(torch.randn(L.n, dtype=L.dtype, device=L.device, generator=generator) * inverse.sqrt())
    basis = (x / torch.linalg.vector_norm(x))[None]
    products = (L @ basis[0])[None]
    theta, seen = float(basis[0] @ products[0]), []
    for step in range(FIRST_STEPS):
        seen.append(theta)
        if step >= LOOK and seen[-LOOK] - theta <= SETTLED * abs(theta):
            break
        w = clean(inverse * (products[0] - theta * basis[0]))
        for _ in range(2):
            w = w - (basis @ w) @ basis
            size = torch.linalg.vector_norm(w)
            if float(size) == 0:
                return theta
            w = w / size
        basis, products = torch.cat([basis, w[None]]), torch.cat([products, (L @ w)[None]])
        H = basis @ products.mT
        values, vectors = torch.linalg.eigh((H + H.mT) / 2)
        theta, y = float(values[0]), vectors[:, 0]
        direction = y.clone()
        direction[0] = 0.0
        direction = direction - (direction @ y) * y
        size = torch.linalg.vector_norm(direction)
        kept = torch.stack([y, direction / size]) if float(size) > 0 else y[None]
        basis, products = kept @ basis, kept @ products
    return theta
