"""What a proof may cost, what it shows, and what its parts share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from krylow._floor import Inside
from krylow.certificate import next_value
from krylow.result import Subspace
from krylow.solvers._problem import Problem, Progress


@dataclass(frozen=True)
class ProofSettings:
    """What a proof may cost, and how a check is made.

    Parameters
    ----------
    max_fill
        Most entries of a sparse triangular factor; 2e7 take about 1.5 GB with what bounds its rounding.
    max_work
        Most multiplications of a sparse factor, of which a proof takes two to six.
    dense
        Most nodes of a graph that is factorised as a dense matrix where no sparse factor is light.
    block, failure
        Random vectors of a check, and the probability with which it may overlook an eigenvector.
    max_products
        Most products of a check.
    max_degree
        Largest degree of the polynomial that bounds the error of a checked answer.
    rounds
        How often what was found missing is added to the answer.
    """

    max_fill: float = 2e7
    max_work: float = 2e11
    dense: int = 4096
    block: int = 8
    failure: float = 1e-9
    max_products: int = 100_000
    max_degree: int = 4096
    rounds: int = 4


class Shown(NamedTuple):
    """What a proof or a check has shown of all graphs."""

    inside: Inside
    floor: Tensor  # (*batch,) below which nothing was missed; -inf where that was not shown
    error: Tensor  # (*batch,) bound of the error, infinite where none was shown
    codes: Tensor  # (*batch,) of Status where another one was shown, else -1
    how: str


#: Called with what is done next and its price, or how far it is.
Tell = Callable[[str], None]


def report(problem: Problem, found: Subspace, text: str, seconds: float = 0.0, remaining: float | None = None) -> None:
    """Tell the callback what is done; of a proof no error is known on the way."""
    if problem.callback is not None:
        problem.callback(Progress(found.passes, found.products, math.inf, seconds, remaining, text))


def inside_of(found: Subspace, basis: Tensor) -> Inside:
    """Return the Ritz pairs inside the span of a basis for the answer, in float64."""
    kept = torch.full_like(found.operator.sizes, basis.shape[-1]) if found.kept is None else found.kept
    return Inside.of(found.operator, basis, kept)


def next_of(found: Subspace, inside: Inside) -> Tensor:
    """Return what the solver takes for the next eigenvalue, else what a Lanczos run in the complement finds."""
    known = torch.full_like(inside.theta_k, -torch.inf)
    if found.following is not None:
        known = torch.maximum(known, found.following.detach().to(known))
    if found.evidence is not None and math.isfinite(found.evidence.floor):
        known = known.clamp(min=found.evidence.floor)
    return next_value(inside, torch.where(known > inside.theta_k, known, torch.full_like(known, torch.inf)), None)[0]


def replaced(X: np.ndarray, other: np.ndarray) -> int:
    """Return how many directions of X are not in the span of another orthonormal block."""
    return round(X.shape[1] - float(np.square(X.T @ other).sum()))


def extends(found: Subspace) -> bool:
    """Return whether what is found missing may be added: not to the answer of methods that only report."""
    fixed = found.method in ("lanczos", "unrolled") or found.interrupted
    return not (found.operator.batch_shape or found.cutoff is not None or fixed)
