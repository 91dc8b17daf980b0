r"""The Laplacian scaled by its diagonal and shifted, and a polynomial in it that approximates its inverse.

$$B = M^{-1/2} (L - \sigma I) M^{-1/2}, \qquad M = \max(|D - \sigma I|, \tfrac14 |D|)$$

Where degrees are spread widely, the spectrum of L reaches as high as the largest of them, and a polynomial of L needs
its degree there. The spectrum of B ends near 2, and with $\sigma$ among the wanted frequencies these are at 0:
$L u = \sigma u$ is $B M^{1/2} u = 0$. By Sylvester's law of inertia B has as many negative eigenvalues as L has below
$\sigma$. Its lowest vectors are nearly $M^{1/2}$ times those of L, the closer the wanted frequencies are together, and
its inverse preconditions a correction of them.

Where a degree is below $\sigma$, M is at least $8 |\sigma|$: such nodes would otherwise have eigenvalues of B as far
below 0 as its spectrum reaches above, whose amplification limits the degree of a filter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from krylow._memory import empty
from krylow.krylov.chebyshev import chebyshev_solve
from krylow.linalg.components import NullSpace
from krylow.operators import SparseOperator
from krylow.solvers._filter import spectrum_top


@dataclass(frozen=True)
class Pencil:
    r"""L with a shift, scaled by its diagonal.

    Attributes
    ----------
    operator
        B.
    shift
        $\sigma$.
    root
        ``(n, 1)`` the diagonal of $M^{1/2}$.
    top
        Upper bound of B's spectrum.
    near
        Distance at which eigenvalues of B are taken for equal.
    """

    operator: SparseOperator
    shift: float
    root: Tensor
    top: float
    near: float

    def to_graph_(self, Y: Tensor) -> Tensor:
        r"""Replace vectors of B by vectors of L, $M^{-1/2} Y$, and return them."""
        return Y.div_(self.root)

    def from_graph_(self, X: Tensor) -> Tensor:
        r"""Replace vectors of L by vectors of B, $M^{1/2} X$, and return them."""
        return X.mul_(self.root)

    def times(self, X: Tensor) -> Tensor:
        """Return L X."""
        LX = self.operator.three_term(X * self.root, None, 1.0, 0.0)
        return self.from_graph_(LX).add_(X, alpha=self.shift)

    def residual(self, X: Tensor, theta: Tensor) -> Tensor:
        r"""Return $M^{-1/2} (L X - X \Theta)$."""
        R = self.operator.three_term(X * self.root, None, 1.0, 0.0)
        return R.add_((X / self.root).mul_((self.shift - theta).to(X)))

    def precondition(self, R: Tensor, degree: int, low: float, deep: Tensor) -> Tensor:
        r"""Return $q(B) R$, about $B^{-1} R$ where B is at least ``low``; R is overwritten.

        $1 - x q(x)$ is the Chebyshev residual polynomial of [low, top], 1 at 0. Eigenvectors ``deep`` ``(n, p)`` of B
        far below 0 are deflated: amplified by the polynomial, their rounding would cover all others. Costs degree - 1
        products a column.
        """

        def deflated_(Y: Tensor) -> Tensor:
            return Y.addmm_(deep, deep.mT @ Y, alpha=-1) if deep.shape[1] else Y

        return chebyshev_solve(self.operator, deflated_(R), degree, low, self.top, deflated_)

    def reduction(self, degree: int, end: float, low: float) -> float:
        """Return the part of the squared error on [low, top] that a correction of vectors at ``end`` leaves."""
        x = (self.top + low - 2 * min(max(end, 0.0), low)) / (self.top - low)
        return math.cosh(degree * math.acosh(max(x, 1.0))) ** -2


def scale(L: SparseOperator, shift: float, dtype: torch.dtype | None = None) -> Pencil:
    """Return L scaled by its diagonal with this shift, in a dtype or its own; costs about 5 products."""
    graph, L, dtype = L, _with_diagonal(L), dtype or L.dtype
    weight = mass_of(L.diagonal().double(), shift)
    root, row, col = weight.rsqrt(), L.row, L.col
    values = (L.values.detach().double() * root[row]).mul_(root[col])
    values[row == col] -= shift / weight
    B = L.like(values.to(dtype)).counting_for(graph)
    # Null vectors are at -|shift| / mass. Where nearly all frequencies equal the shift (a complete graph), the top is
    # no nearer to 0 than half of that, so that polynomials do not overflow.
    depth = abs(shift) / float(weight.mean())
    top = max(1.01 * spectrum_top(B), 0.5 * depth)
    near = min(max(1e-3 * depth, 1e-6 * top), 1e-3 * top)
    return Pencil(B, shift, weight.sqrt_().to(dtype)[:, None], top, near)


def mass_of(diagonal: Tensor, shift: float) -> Tensor:
    """Return the diagonal of M, which is positive everywhere."""
    mass = torch.maximum((diagonal - shift).abs(), 0.25 * diagonal.abs())
    if bool((diagonal < shift).any()):
        mass.clamp_(min=8 * abs(shift))
    fits = mass > torch.finfo(torch.float64).eps * mass.max()
    if not bool(fits.all()):
        mass.masked_fill_(~fits, float(mass[fits].mean()) if bool(fits.any()) else 1.0)
    return mass


def _with_diagonal(L: SparseOperator) -> SparseOperator:
    """Return L with an entry at every place on its diagonal, where zeros may not be stored."""
    row = L.row
    if int((row == L.col).sum()) == L.n:
        return L
    nodes = torch.arange(L.n, device=L.device)
    values = torch.cat([L.values.detach(), L.values.new_zeros(L.n)])
    return SparseOperator.from_coo(torch.cat([row, nodes]), torch.cat([L.col, nodes]), values, L.n, psd=L.psd)


def first_frequency(
    L: SparseOperator, null: NullSpace | None, generator: torch.Generator, steps: int = 80, change: float = 2e-2
) -> float:
    r"""Return an upper bound of the lowest frequency of L outside its null space, within a few per cent where cheap.

    LOBPCG (Knyazev, 2001) of one vector with the diagonal as preconditioner, until the quotient falls by less than the
    relative ``change`` in three steps. L must be in float64.
    """
    inverse = L.diagonal()
    inverse.masked_fill_(inverse <= 0, float(inverse.abs().max().clamp(min=1e-300))).reciprocal_()

    def clean_(v: Tensor) -> Tensor:
        return v if null is None else null.remove_(v[:, None])[:, 0]

    basis, products = empty(2, 3, L.n, dtype=L.dtype, device=L.device)
    x, count = clean_(basis[0].normal_(generator=generator).mul_(inverse.sqrt())), 1
    x /= torch.linalg.vector_norm(x)
    products[0] = L @ x
    theta, former = float(basis[0] @ products[0]), [math.inf] * 3
    for _ in range(steps):
        former.append(theta)
        if former[-4] - theta <= change * abs(theta):
            break
        w = clean_(torch.sub(products[0], basis[0], alpha=theta).mul_(inverse))
        for _ in range(2):
            w.addmv_(basis[:count].mT, basis[:count] @ w, alpha=-1)
            size = torch.linalg.vector_norm(w)
            if float(size) == 0:
                return theta
            w /= size
        basis[count], products[count] = w, L @ w
        V, LV = basis[: count + 1], products[: count + 1]
        H = V @ LV.mT
        values, vectors = torch.linalg.eigh((H + H.mT) / 2)
        theta, y = float(values[0]), vectors[:, 0]
        direction = y.clone()  # the new vector without its component along x, orthogonal to the new x
        direction[0] = 0.0
        direction = direction - (direction @ y) * y
        size = torch.linalg.vector_norm(direction)
        kept = torch.stack([y, direction / size]) if float(size) > 0 else y[None]
        count = len(kept)
        basis[:count], products[:count] = kept @ V, kept @ LV
    return theta
