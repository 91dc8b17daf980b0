"""What corrections of a block leave of its error, told from how far they move it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from krylow.krylov.ritz import Ritz
from krylow.solvers._estimate import Outcome, Stopping

#: What the first step is believed to leave of the squared error, and the least and the most that any step is: where one
#: took nearly all of a vector's error, what is left is what steps take less of.
FIRST_RATIO, LEAST_RATIO, MOST_RATIO = 0.25, 0.12, 0.95
#: Vectors are off by somewhat more than a step moves them.
CAUTION = 2.0
#: Units of rounding, relative to the wanted frequencies, by which vectors are coupled anyway.
ROUNDING = 2.0
#: Steps that add more than this part of the least that one has added, so many in turn (``PATIENCE``), lead nowhere.
STALLED = 0.9


class Step(NamedTuple):
    """What one correction of all wanted vectors did.

    Attributes
    ----------
    moved
        ``(wanted,)`` how far the first 1, 2, ... wanted vectors moved, each as a normalised squared subspace error.
    new
        ``(wanted,)`` the part of each of them, squared, that was outside the block's span.
    coupled
        ``(s, s)`` by which what was joined coupled the vectors.
    """

    moved: Tensor
    new: Tensor
    coupled: Tensor


class Leftover:
    """What is left after each of several steps.

    Parameters
    ----------
    known
        Whether theory holds of the first step: nothing lies where steps do not see it.

    Attributes
    ----------
    most, last
        What all steps that would follow would add, over what the last one did: of the first vectors of which that is
        most, and of all.
    leaks
        The part of the wanted vectors that is still to come.
    doubt
        ``(s,)`` by how much each frequency of the block may still fall, as it was judged last.
    stalled
        Whether steps lead nowhere.
    """

    def __init__(self, *, known: bool = True) -> None:
        self._first = FIRST_RATIO if known else MOST_RATIO
        self._before: Tensor | None = None
        self._ratio: Tensor | None = None
        self._least, self._idle = math.inf, 0
        self.most = self.last = self.leaks = math.inf
        self.doubt = torch.empty(0, dtype=torch.float64)

    @property
    def stalled(self) -> bool:
        """Whether steps lead nowhere."""
        return self._idle >= Stopping.patience

    def take(self, step: Step, theory: float) -> None:
        """Judge one more step, which leaves the part ``theory`` of the squared error at least.

        By experience it leaves as much as the one before did, or the one before that: where much lies between the
        wanted frequencies and those that steps see, they take more and less in turn. That is told of the first 1, 2,
        ... vectors: a step takes less of frequencies that are far from the shift. What vectors of the block hold of
        each other is taken at once, and tells nothing of the steps that follow.
        """
        gone = step.new.cumsum(0)
        if self._before is None:
            ratio = worst = torch.full_like(gone, self._first)
        else:
            ratio = (gone / self._before).nan_to_num()
            worst = ratio if self._ratio is None else torch.maximum(ratio, self._ratio)
            self._ratio = ratio
        self._before = gone
        left, last = (_following(part.clamp(max(theory, LEAST_RATIO), MOST_RATIO)) for part in (worst, ratio))
        total = float(gone[-1])
        self.most = float((left * gone).max()) / max(total, torch.finfo(gone.dtype).tiny)
        self.last, self.leaks = float(last[-1]), self.most * total / gone.numel()
        self._idle = self._idle + 1 if total > STALLED * self._least else 0
        self._least = min(self._least, total)

    def judged(self, step: Step, theta: Tensor, hidden: int, tol: float, eps: float) -> Outcome:
        """Return what is left of the error after every number of vectors.

        Parameters
        ----------
        step
            The last one.
        theta
            ``(s,)`` frequencies of the block.
        hidden
            Null vectors beside it.
        tol
            The error asked for.
        eps
            Of the block's dtype.
        """
        moved, wanted = CAUTION * self.most * step.moved, step.moved.numel()
        S = self.last * step.coupled.abs() + ROUNDING * eps * theta[:wanted].abs().max()
        doubt = self.doubt = S.diagonal()
        apart = (theta - theta[:, None]).abs() - (doubt + doubt[:, None])
        mixing = (S / apart.clamp(min=torch.finfo(torch.float64).tiny)).square().clamp(max=1)
        counts = torch.arange(1, wanted + 1)
        mixed = torch.stack([mixing[:j, j:].sum() / j for j in range(1, wanted + 1)])
        total = (moved + mixed) * counts / (counts + hidden)
        good = counts[total <= tol]
        unique = int(good[-1]) if good.numel() else 0
        return Outcome(float(total[-1].clamp(max=1)), hidden + unique)


def _following(ratio: Tensor) -> Tensor:
    """Return the squared size of all steps that would follow one, over its own, as a geometric series."""
    return ratio / (1 - ratio.sqrt()).square()


def beyond_rounding(pairs: Ritz, theta: Tensor, k: int, hidden: int) -> Ritz:
    """Return pairs whose evidence knows by how much the frequencies ``theta`` of a search are off.

    These are behind those of the ``hidden`` null vectors. What exact quotients differ from them by is rounding of
    products with heavy nodes: it shows gaps where there are none, and couples vectors on either side of a cut as much.
    """
    evidence, exact = pairs.evidence, pairs.theta.double().cpu()
    assert evidence is not None
    off = (exact[hidden:k] - theta[: k - hidden]).abs()
    apart = torch.nonzero(exact[1 : k + 1] - exact[:k] > 2 * off.max())
    unique = int(apart[-1]) + 1 if apart.numel() else 0
    mixed = float((off / (exact[k] - exact[hidden:k] - off).clamp(min=off)).nan_to_num().square().sum()) / k
    error = min(1.0, evidence.error + Stopping.safety * mixed)
    evidence = replace(evidence, error=error, well_defined=min(evidence.well_defined, unique))
    return replace(pairs, evidence=evidence)
