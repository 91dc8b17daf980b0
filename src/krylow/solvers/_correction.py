r"""The error after corrections of a block, estimated from how far they move it.

A correction removes nearly all of the error of the vectors that it changes, so that what it changes measures the error
before it. All corrections that would follow are a geometric series, whose ratio is that of the last two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from krylow.krylov.ritz import Ritz
from krylow.solvers._estimate import Outcome, Stopping


@dataclass(frozen=True)
class Step:
    """One correction of all wanted vectors.

    Attributes
    ----------
    moved
        ``(wanted,)`` change of the span of the first 1, 2, ... wanted vectors, as normalised squared subspace errors.
    new
        ``(wanted,)`` the squared part of each of them from outside the block's span.
    coupled
        ``(s, s)`` by which the new directions couple the block's vectors.
    """

    moved: Tensor
    new: Tensor
    coupled: Tensor

    @classmethod
    def taken(cls, C: Tensor, coupled: Tensor, wanted: int) -> Step:
        """Return the step to Ritz vectors of coefficients C ``(s, s)`` over the former ones of those couplings."""
        kept = C[:wanted, :wanted].square().cumsum(0).cumsum(1).diagonal()
        moved = 1 - kept / torch.arange(1, wanted + 1)
        return cls(moved, (1 - C[:, :wanted].square().sum(0)).clamp(min=0), C.mT @ coupled @ C)


@dataclass(frozen=True)
class Ratios:
    """Bounds of the part of the squared error that a correction leaves, and what is added to estimates."""

    first: float = 0.25  # of the first step
    least: float = 0.12  # where one removes nearly everything, the rest is what later ones remove less of
    most: float = 0.95  # of any step, and of the first where the block may lack vectors that corrections hardly see
    caution: float = 2.0  # squared error over that of the corrections to come
    rounding: float = 2.0  # couplings by rounding, in eps of the largest wanted frequency
    stalled: float = 0.9  # a step that adds more than this part of the least so far is no progress


class Corrections:
    """What all corrections that would follow the last one would add.

    Attributes
    ----------
    most, last
        Their squared size over that of the last one: of the first vectors of which that is most, and of all.
    outside
        Their normalised squared size, by the last ratio alone: that of rounding is now above 1, now below.
    delta
        ``(s,)`` by how much each frequency of the block may still fall.
    """

    def __init__(self, *, complete: bool = True, ratios: Ratios | None = None) -> None:
        self._ratios = ratios or Ratios()
        self._first = self._ratios.first if complete else self._ratios.most
        self._before: Tensor | None = None
        self._ratio: Tensor | None = None
        self._least, self._idle = math.inf, 0
        self.most = self.last = self.outside = math.inf
        self.delta = torch.empty(0, dtype=torch.float64)

    @property
    def stalled(self) -> bool:
        """Whether several steps in turn were no progress."""
        return self._idle >= Stopping.patience

    def take(self, step: Step, theory: float) -> None:
        """Take one more step into account, which by theory leaves at least this part of the squared error.

        Measured is the larger ratio of the last two steps, as far as vectors were new: a polynomial removes more and
        less in turn where much lies below its interval. The first 1, 2, ... vectors are measured each, since it removes
        less of those far from the shift. Rotations inside the block are complete at once, and say nothing of the rest.
        """
        new, bounds = step.new.cumsum(0), self._ratios
        if self._before is None:
            ratio = worst = torch.full_like(new, self._first)
        else:
            ratio = (new / self._before).nan_to_num()
            worst = ratio if self._ratio is None else torch.maximum(ratio, self._ratio)
            self._ratio = ratio
        self._before = new
        least = max(theory, bounds.least)
        series, last = (_series(part.clamp(least, bounds.most)) for part in (worst, ratio))
        total = float(new[-1])
        self.most = float((series * new).max()) / max(total, torch.finfo(new.dtype).tiny)
        self.last, self.outside = float(last[-1]), float(last[-1]) * total / new.numel()
        self._idle = self._idle + 1 if total > bounds.stalled * self._least else 0
        self._least = min(self._least, total)

    def judge(self, step: Step, theta: Tensor, known: int, tol: float, eps: float) -> Outcome:
        """Return the error after the last step, and the largest number of vectors whose error is at most ``tol``.

        ``theta`` ``(s,)`` are the block's frequencies, behind those of ``known`` null vectors, and ``eps`` is that of
        its dtype.
        """
        wanted = step.moved.numel()
        coupled = self.last * step.coupled.abs() + self._ratios.rounding * eps * theta[:wanted].abs().max()
        delta = self.delta = coupled.diagonal()
        gaps = (theta - theta[:, None]).abs() - (delta + delta[:, None])
        mixing = (coupled / gaps.clamp(min=torch.finfo(torch.float64).tiny)).square().clamp(max=1)
        counts = torch.arange(1, wanted + 1)
        mixed = torch.stack([mixing[:j, j:].sum() / j for j in range(1, wanted + 1)])
        total = (self._ratios.caution * self.most * step.moved + mixed) * counts / (counts + known)
        good = counts[total <= tol]
        return Outcome(float(total[-1].clamp(max=1)), known + (int(good[-1]) if good.numel() else 0))


def _series(ratio: Tensor) -> Tensor:
    """Return the squared sum of all steps that would follow one, over its square, if their squares have this ratio."""
    return ratio / (1 - ratio.sqrt()).square()


def beyond_rounding(pairs: Ritz, theta: Tensor, k: int, known: int) -> Ritz:
    """Return pairs whose evidence includes the rounding of the frequencies ``theta`` that the search ended with.

    These are behind those of ``known`` null vectors. They differ from exact quotients by the rounding of products with
    nodes of large degree, which shows gaps where there are none, and couples vectors across a cut as much.
    """
    evidence, exact = pairs.evidence, pairs.theta.double().cpu()
    assert evidence is not None
    off = (exact[known:k] - theta[: k - known]).abs()
    gaps = torch.nonzero(exact[1 : k + 1] - exact[:k] > 2 * off.max())
    unique = int(gaps[-1]) + 1 if gaps.numel() else 0
    mixed = float((off / (exact[k] - exact[known:k] - off).clamp(min=off)).nan_to_num().square().sum()) / k
    error = min(1.0, evidence.error + Stopping.safety * mixed)
    return replace(pairs, evidence=replace(evidence, error=error, well_defined=min(evidence.well_defined, unique)))
