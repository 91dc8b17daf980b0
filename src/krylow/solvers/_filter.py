r"""The filter of one large graph: its polynomial, the end of its interval, and the precision it runs in."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from krylow._reduce import agreed, largest, seeded
from krylow.linalg.row_blocks import gram, lengths
from krylow.operators import DenseOperator, Operator, SparseOperator
from krylow.operators.distributed import LocalRows


@dataclass(frozen=True)
class Filter:
    r"""The scaled Chebyshev polynomial $p(\lambda) = T_d(t(\lambda)) / T_d(t(\lambda_1))$ of an interval [a, b].

    With $t(\lambda) = (2 \lambda - a - b) / (b - a)$ it is at most ``bound`` in size on [a, b], and grows below.

    Attributes
    ----------
    degree
        d.
    low, high
        a and b.
    first
        An estimate of $\lambda_1$, below a.
    """

    degree: int
    low: float
    high: float
    first: float

    @property
    def bound(self) -> float:
        r"""$\eta = 1 / |T_d(t(\lambda_1))|$, the largest size of p on the interval."""
        return 1 / math.cosh(self.degree * self.rate(self.first))

    def rate(self, at: float) -> float:
        r"""Return $\mathrm{arcosh} |t|$ at one frequency, 0 on the interval."""
        return math.acosh(1 + 2 * max(self.low - at, 0.0) / (self.high - self.low))

    def amplification(self, theta: Tensor) -> Tensor:
        """Return $|T_d(t)|$ at frequencies, 1 on the interval."""
        return torch.cosh(self.degree * rates(theta, self.low, self.high))

    def frequencies(self, values: Tensor) -> Tensor:
        """Return where p has these values; the interval's lower end for smaller ones than it has below."""
        x = torch.cosh(torch.acosh((values / self.bound).clamp(min=1)) / self.degree)
        return (self.high + self.low) / 2 - (self.high - self.low) / 2 * x

    def rounding(self, dtype: torch.dtype) -> float:
        """Return the norm of the rounding that the recurrence leaves in a vector of unit length."""
        return 4 * self.degree**0.5 * torch.finfo(dtype).eps


def rates(theta: Tensor, low: float, high: float, least: float = 0.0) -> Tensor:
    r"""Return $\mathrm{arcosh} |t(\theta)|$, the rate of amplification of frequencies below ``low`` with the degree."""
    return torch.acosh((1 + 2 * (low - theta) / (high - low)).clamp(min=1 + least))


def amplifying_degree(theta: Tensor, low: Tensor, high: Tensor, ratio: float = 1e3) -> int:
    """Return the degree, from 6 to 64, that amplifies frequencies ``(*batch,)`` by this ratio over ``low``."""
    x = 1 + 2 * (low - theta) / (high - low).clamp(min=torch.finfo(low.dtype).tiny)
    degree = math.acosh(ratio) / torch.acosh(x).amin().clamp(min=1e-6)
    return int(degree.clamp(6, 64).ceil())


def most_degree(bottom: Tensor, first: Tensor, theta: Tensor, low: Tensor, high: Tensor) -> int:
    """Return the degree, from 6 to 64, whose amplification at ``first`` is nearly 1 / eps of that at ``theta``.

    With more, rounding of what is amplified the most would hide the rest. Nor may what is as low as ``bottom``, and not
    yet a Ritz vector, overflow: the filter is 1 at ``first``. All are ``(*batch,)``.
    """
    width, limits = (high - low).clamp(min=torch.finfo(low.dtype).tiny), torch.finfo(low.dtype)
    rate = [torch.acosh(1 + 2 * (low - end).clamp(min=0) / width) for end in (bottom, first, theta)]
    hides, overflows = -math.log(100 * limits.eps), 0.5 * math.log(limits.max)
    most = torch.minimum(hides / (rate[1] - rate[2]).clamp(min=1e-6), overflows / (rate[0] - rate[1]).clamp(min=1e-6))
    return int(torch.where(high > low, most, torch.full_like(most, torch.inf)).amin().clamp(6, 64))


def block_width(k: int, n: int, *, guards: int | None = None, line: int = 16) -> int:
    """Return the columns of a block for k frequencies of n nodes.

    ``guards`` are its least columns beyond k; None: as many as a filter needs, whose speed they set. The width is a
    multiple of ``line``: 16 numbers in float32 fill a cache line, and rows across lines take half as long again.
    """
    guards = max(6, k // 4) if guards is None else guards
    return min(n, -(-(k + guards) // line) * line)


def least_guards(kept: int) -> int:
    """Return the least guards of a block that is cut at a frequency, and keeps so many vectors."""
    return max(3, kept // 8)


@dataclass(frozen=True)
class Precision:
    """Which errors and spectra need which precision."""

    single: float = 1e-8  # squared errors down to this one are reached by a filter in float32
    exact: float = 1e-4  # below this one, inner products of L X are accumulated in float64 throughout
    least: float = 1e-12  # least norm whose squares float32 holds
    most: float = 1e15  # largest


def _known(L: Operator) -> bool:
    """Return whether the entries of L are known."""
    return isinstance(L, (SparseOperator, DenseOperator, LocalRows))


def fits_single(L: Operator) -> bool:
    """Return whether the spectrum lies where float32 holds squares of frequencies, and differences of them."""
    low, high = (abs(float(bound)) for bound in L.gershgorin())
    return Precision.least <= max(low, high) <= Precision.most


def single_dtype(L: Operator) -> torch.dtype:
    """Return float32 where the entries of L are known and fit; else its own dtype."""
    return torch.float32 if _known(L) and fits_single(L) else L.dtype


def single(L: Operator) -> Operator:
    """Return L on float32 blocks, without a gradient, where its entries are known and fit; else L."""
    if single_dtype(L) != torch.float32:
        return L.detach()
    return L.float()


def working_precision(L: Operator, tol: float) -> Operator:
    """Return L in the precision that the filter needs for an error of ``tol``, with counters of its own."""
    return single(L) if in_single(L, tol) and L.dtype != torch.float32 else L.detach()


def in_single(L: Operator, tol: float) -> bool:
    """Return whether the filter runs in float32 for an error of ``tol``."""
    return tol >= Precision.single and single_dtype(L) == torch.float32


def rough(tol: float) -> bool:
    """Return whether products in float32 suffice to judge an error of ``tol``, which is twice its estimate."""
    return tol >= 2 * Precision.exact


def spectrum_top(
    L: Operator, *, generator: torch.Generator | None = None, steps: int | None = None, residual: bool = False
) -> float:
    """Return a number that hardly any spectrum exceeds: Lanczos' largest Ritz value plus the norm of what follows it.

    With ``residual`` plus the residual of its Ritz vector: within a few hundredths of the largest eigenvalue after 8
    steps, for those who notice one beyond. Gershgorin's bound is used where it is lower. Costs ``steps`` products, 5
    unless told, or 8 where no entries are known. The start is weighted by the fourth power of the degrees, which makes
    5 steps as tight as 8 from a random one.
    """
    bound = float(L.gershgorin()[1])
    known = _known(L)
    steps = min(steps or (5 if known else 8), L.n - 1)
    if steps < 2 or bound <= 0:
        return max(bound, 0.0)
    generator = generator or seeded(3, L.device)
    v = torch.randn(L.rows, 1, dtype=L.dtype, device=L.device, generator=generator)
    if known:
        degrees = L.diagonal().abs()
        degrees /= max(*largest(float(degrees.max()) if degrees.numel() else 0.0), torch.finfo(v.dtype).tiny)
        v *= degrees.pow_(4).add_(0.01)[:, None]
    v /= float(lengths(v))
    previous, size = torch.zeros_like(v), 0.0
    alpha, beta = [], []
    for _ in range(steps):
        w = L @ v
        alpha.append(float(gram(v, w)))
        w.add_(v, alpha=-alpha[-1]).add_(previous, alpha=-size)
        size = float(lengths(w))
        beta.append(size)
        if agreed(size <= 1e-6 * bound):
            break
        previous, v = v, w.div_(size)
    off = torch.tensor(beta[:-1], dtype=torch.float64)
    T = torch.diag(torch.tensor(alpha, dtype=torch.float64)) + torch.diag(off, 1) + torch.diag(off, -1)
    theta, S = torch.linalg.eigh(T)
    rest = beta[-1] * (abs(float(S[-1, -1])) if residual else 1.0)
    return agreed(min(bound, float(theta[-1]) + rest))
