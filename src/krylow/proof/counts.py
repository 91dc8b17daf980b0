r"""One graph's answer proved by counting eigenvalues (:mod:`krylow.proof` has the theorem).

Columns are numpy arrays in float64; a counter knows the matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from krylow.certificate import Status
from krylow.linalg.inertia import UNIT, Count, EigenvalueCounter
from krylow.proof.shared import inverse_bound

#: Where between the last kept and the next Ritz value the eigenvalues are counted, until a count is as expected.
CUTS = (0.5, 0.1, 0.01)


class Answer(NamedTuple):
    """Ritz pairs of one graph: values ``(k,)``, vectors ``(n, k)``, residual norms ``(k,)``, and the next value."""

    theta: np.ndarray
    X: np.ndarray
    residuals: np.ndarray
    following: float


@dataclass(frozen=True)
class Proven:
    """What counts have shown of an answer.

    Attributes
    ----------
    floor
        Below it at most k eigenvalues lie; -inf where that is not proved.
    error
        Proved bound of the normalised squared subspace error, infinite where there is none.
    status
        NO_GAP or MISSED where that is proved; None: it was not.
    missing
        ``(n, s)`` vectors that nearly hold what is missing, or None.
    how
        In words.
    """

    floor: float = -math.inf
    error: float = math.inf
    status: Status | None = None
    missing: np.ndarray | None = None
    how: str = "no count shows a gap"


def prove_by_counts(counter: EigenvalueCounter, answer: Answer, cutoff: float | None, extend: bool) -> Proven:
    """Return what counts of eigenvalues below numbers above the answer's show of it.

    Parameters
    ----------
    counter
        Of the matrix.
    answer
        Its k columns are to be the lowest eigenvectors.
    cutoff
        Up to which all eigenvalues are meant to be there; None: k was given.
    extend
        Whether, where a first count is too large, vectors that hold what is missing are returned at once.
    """
    k, top = answer.theta.size, _top(counter, answer)
    noise = _noise(counter)
    base = top if cutoff is None else max(top, float(np.nextafter(cutoff, np.inf)))
    for part in CUTS:
        sigma = base + part * (answer.following - base)
        if not (math.isfinite(sigma) and sigma - top > noise):
            break
        count = counter.at_most(sigma)
        if count is not None and count.below == k:
            error = _bound(counter, answer.X, sigma, count) if k else 0.0
            return Proven(sigma, error, how=f"{k} eigenvalues below {sigma:.4g}")
        if count is not None and count.below > k and extend:
            missing = _missing(counter, answer.X, count, count.below - k)
            return Proven(missing=missing, how=f"{count.below} eigenvalues below {sigma:.4g} instead of {k}")
    return _diagnosed(counter, answer, noise) if cutoff is None else Proven()


def _bound(counter: EigenvalueCounter, X: np.ndarray, sigma: float, count: Count) -> float:
    """Return the proved bound of the error of X, whose complement has no eigenvalue below sigma."""
    Y = count.solve(X)
    Y = Y + count.solve(X - (counter.multiply(Y) - sigma * Y))

    def multiply(block: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(counter.multiply(block.numpy()))

    at = torch.tensor(sigma, dtype=torch.float64)
    first, second = torch.from_numpy(np.ascontiguousarray(X)), torch.from_numpy(Y)
    return float(inverse_bound(multiply, first, second, at, float(counter.sums.max()), counter.longest))


def ritz_answer(counter: EigenvalueCounter, X: np.ndarray, k: int) -> Answer:
    """Return the k lowest Ritz pairs of a block of independent columns, and the value after them."""
    Q, _ = np.linalg.qr(np.linalg.qr(X)[0])
    image = counter.multiply(Q)
    H = Q.T @ image
    theta, V = np.linalg.eigh((H + H.T) / 2)
    X, image = Q @ V[:, :k], image @ V[:, :k]
    following = float(theta[k]) if theta.size > k else math.inf
    return Answer(theta[:k], X, np.linalg.norm(image - X * theta[:k], axis=0), following)


def _top(counter: EigenvalueCounter, answer: Answer) -> float:
    """Return the last kept Ritz value; a number below all eigenvalues where nothing is kept."""
    return float(answer.theta.max(initial=-2 * float(counter.sums.max(initial=0.0)) - 1))


def _noise(counter: EigenvalueCounter) -> float:
    """Return a gap that no count can tell from none."""
    return float(16 * math.sqrt(counter.n) * UNIT * counter.sums.max(initial=0.0))


def _missing(counter: EigenvalueCounter, X: np.ndarray, count: Count, missing: int) -> np.ndarray:
    """Return an orthonormal block outside X that nearly holds what is missing below the number counted below.

    Block Krylov spaces of two inverses: at that number, and at the lower end of the spectrum.
    """
    width = max(1, min(missing + 2, counter.n - X.shape[1]))
    lowest = counter.at_most(counter.low - 1e-6 * (float(counter.sums.max()) or 1.0))
    start = np.random.default_rng(1).standard_normal((counter.n, width))
    basis = X
    for solve in [count.solve] + ([] if lowest is None else [lowest.solve]):
        Z = start
        for _ in range(min(8, (counter.n - basis.shape[1]) // width)):
            for _ in range(2):
                Z = np.linalg.qr(Z - basis @ (basis.T @ Z))[0]
            basis = np.concatenate([basis, Z], axis=1)
            Z = solve(Z)
    return basis[:, X.shape[1] :]


def _diagnosed(counter: EigenvalueCounter, answer: Answer, noise: float) -> Proven:
    """Return whether counts prove that the k-th and the next eigenvalue cannot be told apart, or that one is missing.

    Ritz values are off by squares of residuals over the gap to what is dropped.
    """
    k, top, total = answer.theta.size, _top(counter, answer), float(np.linalg.norm(answer.residuals))
    span = answer.following - top
    off = min(total, total**2 / span) if span > 0 else total
    for width in (noise, 30 * noise, 1000 * noise):
        low, high = top - 10 * off - width, top + 10 * off + width
        below = int((answer.theta < low).sum())
        least = counter.at_least(low)
        if least is not None and least.below > below:
            return Proven(
                status=Status.MISSED, how=f"{least.below} eigenvalues below {low:.4g} where the answer has {below}"
            )
        least = counter.at_least(high)
        if least is None or least.below <= k or off > math.sqrt(UNIT) * counter.sums.max():
            continue
        most = counter.at_most(low)
        if most is not None and most.below < k:
            how = f"eigenvalues {most.below + 1} to {least.below} between {low:.10g} and {high:.10g}"
            return Proven(status=Status.NO_GAP, how=how)
    return Proven()
