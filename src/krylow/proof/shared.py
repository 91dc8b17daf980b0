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
from krylow.linalg.inertia import UNIT
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
    rounds
        How often what was found missing is added to the answer.
    """

    max_fill: float = 2e7
    max_work: float = 2e11
    dense: int = 4096
    block: int = 8
    failure: float = 1e-9
    max_products: int = 200_000
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


def inverse_bound(
    multiply: Callable[[Tensor], Tensor], X: Tensor, Y: Tensor, sigma: Tensor, norm: Tensor | float, longest: int
) -> Tensor:
    r"""Return the bound of the error of X ``(*batch, n, k)`` from the inverse (see the package), ``(*batch,)``.

    Parameters
    ----------
    multiply
        The product with L.
    X, Y
        Orthonormal columns, and anything near $(L - \sigma I)^{-1} X$ in span.
    sigma
        ``(*batch,)`` at most k eigenvalues lie below it.
    norm, longest
        A bound of the norm of the absolute entries of L, and the entries of its longest row: what rounding adds.
    """
    at, k = sigma[..., None, None], X.shape[-1]
    image = multiply(Y) - at * Y
    G = X.mT @ image
    if not bool(G.isfinite().all()):
        return torch.full_like(sigma, torch.inf)
    back = torch.linalg.pinv(G)
    Y, R = Y @ back, X - image @ back
    H = X.mT @ Y
    nu, Q = torch.linalg.eigh((H + H.mT) / 2)
    H = Q @ (nu[..., None] * Q.mT)
    E = Y - X @ ((H + H.mT) / 2)
    lengths, largest = torch.linalg.matrix_norm(Y), nu[..., 0].abs()
    terms = 2 * UNIT * (longest + 4 * k + 8)
    of_r = terms * ((norm + sigma.abs()) * lengths + k)
    of_e = terms * (lengths + k * largest)
    # The last term: H has the eigenvalues nu but for rounding.
    sizes = -nu - (terms * k * largest)[..., None]
    columns = torch.linalg.vector_norm(E @ Q, dim=-2) + of_e[..., None], torch.linalg.vector_norm(R @ Q, dim=-2)
    parts = columns[0] / sizes + columns[1] + of_r[..., None]
    bound = parts.square().mean(-1).clamp(max=1).nan_to_num(nan=torch.inf)
    return torch.where((sizes > 0).all(-1), bound, torch.full_like(bound, torch.inf))
