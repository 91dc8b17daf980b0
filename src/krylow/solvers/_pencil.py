r"""A Laplacian seen through its diagonal: the scaled, shifted matrix whose spectrum degrees no longer stretch.

$$B = M^{-1/2} (L - \sigma I) M^{-1/2}, \qquad M = \max(|D - \sigma I|, \phi |D|)$$

Where degrees lie far apart, the spectrum of L reaches as high as the largest of them, and a polynomial of L spends its
degree up there. The spectrum of B ends near 2, and with $\sigma$ among the frequencies sought these are the ones at 0:
$L u = \sigma u$ is $B M^{1/2} u = 0$. So the lowest vectors of B are nearly $M^{1/2}$ times those of L, the nearer the
closer together the frequencies sought are, and its inverse is what a correction of them takes.

Where a node's degree is below $\sigma$, M is at least $m |\sigma|$: light nodes would else have frequencies of B as far
below 0 as its spectrum reaches above, which grow so much in a filter that its degree has to be low.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from krylow._memory import empty
from krylow.linalg.components import NullSpace
from krylow.operators import SparseOperator
from krylow.solvers._filter import spectrum_top

#: The part of a degree that M keeps at least: $\phi$.
FLOOR = 0.25
#: And the shifts, where a node is lighter than one: m.
LEAST = 8.0
#: The upper bound of the spectrum is an estimate, raised by this factor. It is no nearer to 0 than this part of how far
#: null vectors lie below: where nearly all frequencies are the shift (a complete graph), polynomials would overflow.
ABOVE, LEAST_TOP = 1.01, 0.5
#: Frequencies of B are told apart down to the first part of how far null vectors lie below 0, between the other two
#: parts of its top.
NEAR, LEAST_NEAR, MOST_NEAR = 1e-3, 1e-6, 1e-3
#: Steps of a solution between two removals of vectors far below 0.
CLEAN = 6
#: Entries that are scaled at a time, up to the end of a row.
ENTRIES = 1 << 14
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
    root
        ``(n, 1)`` the diagonal of M^1/2.
    top
        Upper bound of B's spectrum.
    near
        How near to each other frequencies of B are taken for one.
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

    def solve(
        self, right: Tensor, degree: int, low: float, deep: Tensor, room: Tensor, other: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Return $q(B)$ times ``right``, about $B^{-1}$ times that where B is at least ``low``, and a free room.

        q is Chebyshev's: $1 - x q(x)$ is as small on [low, top] as a polynomial of this degree that is 1 at 0 can be.
        The orthonormal vectors ``deep`` ``(n, p)`` of B, far below 0, are left out: their polynomial would cover all
        others by rounding; they are taken from ``right``, too. Costs degree - 1 products a column. The solution is in
        one of the two rooms, and the other one is free.
        """

        def without_(Y: Tensor) -> Tensor:
            return Y.addmm_(deep, deep.mT @ Y, alpha=-1) if deep.shape[1] else Y

        without_(right)
        center, half = (self.top + low) / 2, (self.top - low) / 2
        ratio = center / half
        rho = 1 / ratio
        y, previous = torch.div(right, center, out=room), other.zero_()
        for step_number in range(1, degree):
            following = 1 / (2 * ratio - rho)
            a = 2 * following / half
            step = self.operator.three_term(y, previous, -a, 1 + following * rho, -following * rho, out=previous)
            previous, y = y, step.add_(right, alpha=a)
            if step_number % CLEAN == 0:
                previous, y = without_(previous), without_(y)
            rho = following
        return y, previous


def scale(L: SparseOperator, shift: float, dtype: torch.dtype | None = None, room: Tensor | None = None) -> Pencil:
    """Return L scaled by its diagonal with this shift, in a dtype or its own.

    Its entries are written to a room if one is given: those of another pencil of L, which is spent. Costs the products
    of :func:`~krylow.solvers._filter.spectrum_top` with B, which its counters have.
    """
    graph, L, dtype = L, _with_diagonal(L), dtype or L.dtype
    mass = _mass(L.diagonal().double(), shift)
    root, values = mass.rsqrt(), torch.empty_like(L.values, dtype=dtype) if room is None else room
    for at, row in _by_rows(L):
        col = L.col[at]
        scaled = L.values[at].detach().double() * root[row] * root[col]
        values[at] = torch.where(row == col, scaled - shift / mass[row], scaled).to(dtype)
    B = L.like(values).counting_for(graph)
    depth = abs(shift) / float(mass.mean())
    top = max(ABOVE * spectrum_top(B), LEAST_TOP * depth)
    near = min(max(NEAR * depth, LEAST_NEAR * top), MOST_NEAR * top)
    return Pencil(B, shift, mass.sqrt_().to(dtype)[:, None], top, near)


def _mass(diagonal: Tensor, shift: float) -> Tensor:
    """Return the diagonal of M, in little room beside that of L, which is spent."""
    light = bool((diagonal < shift).any())
    mass = (diagonal - shift).abs_()
    torch.maximum(mass, diagonal.abs_().mul_(FLOOR), out=mass)
    if light:
        mass.clamp_(min=LEAST * abs(shift))
    fits = mass > torch.finfo(torch.float64).eps * mass.max()
    if not bool(fits.all()):
        mass.masked_fill_(~fits, float(mass[fits].mean()) if bool(fits.any()) else 1.0)
    return mass


def _by_rows(L: SparseOperator) -> Iterator[tuple[slice, Tensor]]:
    """Return where the entries of some rows are, and the row of each of them, for all rows in turn."""
    crow, entries = L.crow, L.col.numel()
    places = torch.arange(ENTRIES, entries + ENTRIES, ENTRIES, device=L.device, dtype=crow.dtype)
    ends = torch.unique(torch.searchsorted(crow, places).clamp(max=L.n)).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        rows = torch.arange(start, end, device=L.device)
        yield slice(int(crow[start]), int(crow[end])), torch.repeat_interleave(rows, crow[start : end + 1].diff())


def _with_diagonal(L: SparseOperator) -> SparseOperator:
    """Return L with an entry for every place on its diagonal, where those that are zero may be missing."""
    if sum(int((row == L.col[at]).sum()) for at, row in _by_rows(L)) == L.n:
        return L
    row = L.row
    nodes = torch.arange(L.n, device=L.device)
    values = torch.cat([L.values.detach(), L.values.new_zeros(L.n)])
    return SparseOperator.from_coo(torch.cat([row, nodes]), torch.cat([L.col, nodes]), values, L.n, psd=L.psd)


def first_frequency(L: SparseOperator, null: NullSpace | None, generator: torch.Generator) -> float:
    r"""Return the lowest frequency of L beside its null space, from above, to a few per cent where that is cheap.

    One vector x goes down the Rayleigh quotient by conjugate gradients that the diagonal preconditions (LOBPCG of one
    vector), at most 80 products. L must be in float64.
    """
    inverse = L.diagonal()
    inverse.masked_fill_(inverse <= 0, float(inverse.abs().max().clamp(min=1e-300))).reciprocal_()

    def clean_(v: Tensor) -> Tensor:
        return v if null is None else null.remove_(v[:, None])[:, 0]

    basis, products = empty(2, 3, L.n, dtype=L.dtype, device=L.device)
    x, count = clean_(basis[0].normal_(generator=generator).mul_(inverse.sqrt())), 1
    x /= torch.linalg.vector_norm(x)
    products[0] = L @ x
    theta, seen = float(basis[0] @ products[0]), []
    for step in range(FIRST_STEPS):
        seen.append(theta)
        if step >= LOOK and seen[-LOOK] - theta <= SETTLED * abs(theta):
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
        direction = y.clone()
        direction[0] = 0.0
        direction = direction - (direction @ y) * y
        size = torch.linalg.vector_norm(direction)
        kept = torch.stack([y, direction / size]) if float(size) > 0 else y[None]
        count = len(kept)
        basis[:count], products[:count] = kept @ V, kept @ LV
    return theta
