r"""The lowest frequencies of a coarse graph, by decomposition or from a factor.

A coarse graph of some hundred nodes is decomposed. One of some ten thousand nodes whose factor stays sparse, as that
of a surface does, is factorised: Lanczos on the inverse finds its lowest frequencies, and the same factor serves
the solves by which a finer graph's answer is corrected. What a coarse answer lacks, no finer graph would miss: a
recurrence of few starts finds few copies of a repeated frequency, and the gap behind those looks like any other. So the
frequencies below the cut are counted, by the signs of the pivots there (Sylvester).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krylow.linalg.eigh import lowest_eigenpairs
from krylow.linalg.elimination import Factor
from krylow.linalg.fill import estimate_fill
from krylow.operators import SparseOperator
from krylow.solvers._inverse_lanczos import InverseLanczos

#: Graphs of up to this many nodes are decomposed.
DECOMPOSED = 400
#: Graphs of up to this many nodes are factorised if a row of the factor has at most this many entries by estimate, and
#: up to the third whatever it has.
FACTORISED, ENTRIES, SMALL = 40_000, 80.0, 1000
#: The shift below the spectrum, over its top.
SHIFT = 1e-6
#: Least starts of Lanczos' recurrence, as many copies of a repeated frequency being found for sure, and frequencies a
#: start: those of one step go through the factor together.
STARTS, PER_START = 3, 7
#: Steps between two looks at the error, and most restarts' worth of steps.
LOOK, MOST = 6, 40
#: Frequencies are counted behind the first gap from the k-th on that is this part of them, or else behind the widest.
APART = 1e-3


@dataclass(frozen=True)
class Coarsest:
    """The lowest frequencies of a coarse graph.

    Attributes
    ----------
    theta, V
        ``(s,)`` and ``(n, s)`` float64, ascending.
    inverse
        An approximate inverse on blocks ``(n, c)``, symmetric positive definite; None: none is known.
    """

    theta: Tensor
    V: Tensor
    inverse: Callable[[Tensor], Tensor] | None = None


class CoarseGraph:
    """A coarse graph with the factor that counts and solves on it, made once.

    Parameters
    ----------
    operator
        Its Laplacian.
    """

    def __init__(self, operator: SparseOperator) -> None:
        self.operator = operator

    @cached_property
    def is_factorised(self) -> bool:
        """Whether it is small enough for a factor."""
        C = self.operator
        if C.n > FACTORISED or C.device.type != "cpu":
            return False
        return C.n <= SMALL or estimate_fill(C).entries <= ENTRIES * C.n

    @cached_property
    def factor(self) -> tuple[float, Any, Factor]:
        """A small shift, the matrix with that added, and a factor of it."""
        low, high = (float(bound) for bound in self.operator.gershgorin())
        shift = SHIFT * high - min(low, 0.0)
        matrix = self.operator.to_scipy()
        matrix.setdiag(matrix.diagonal() + shift)
        return shift, matrix, Factor(matrix)


def solve_coarsest(graph: CoarseGraph, k: int, width: int, tol: float) -> Coarsest | None:
    """Return the ``width`` lowest frequencies in float64, the first k with a squared error of at most ``tol``.

    None where the graph is too large for it.
    """
    C = graph.operator
    if C.n <= max(DECOMPOSED, 3 * width):
        return Coarsest(*lowest_eigenpairs(C.to_dense(), width))
    if not graph.is_factorised:
        return None
    shift, matrix, factor = graph.factor
    found = _lanczos(factor, matrix, k, width, tol)
    if found is None:
        return None
    values, vectors = found

    def inverse(Y: Tensor) -> Tensor:
        return torch.from_numpy(factor.solve(Y.numpy()))

    return Coarsest(torch.from_numpy(1 / values - shift), torch.from_numpy(vectors), inverse)


def _lanczos(factor: Factor, matrix: Any, k: int, width: int, tol: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the largest values of the inverse and their vectors, or None where they do not converge."""
    n = matrix.shape[0]
    size = min(n, 3 * width + 24)
    rng, none = np.random.default_rng(0), np.empty((0, n))
    iteration = InverseLanczos(factor.solve, None, none, size, 2 * width, rng)
    # Where nothing can be counted, there are as many starts as frequencies can be copies of one.
    starts = max(STARTS, width // PER_START) if factor.counts else width
    iteration.start(starts)
    for step in range(MOST * size):
        if not iteration.advance():
            return None
        if step % max(LOOK, width // 5) or iteration.expanded <= width + starts:
            continue
        values, Y, residuals = iteration.ritz()
        gaps = values[:k] - values[k] - residuals[k]
        if gaps[-1] > 0 and np.square(residuals[:k] / gaps).mean() <= tol:
            missed = _missed(factor, matrix, 1 / values[:width], k) if factor.counts else 0
            if missed == 0:
                return values[:width].copy(), np.ascontiguousarray(iteration.vectors(Y[:, :width]))
            if missed is None or starts + missed > width:
                return None
            iteration.start(missed)
            starts += missed
    return None


def _missed(factor: Factor, matrix: Any, theta: np.ndarray, k: int) -> int | None:
    """Return how many frequencies of a matrix are not among those found, ascending, below a gap from the k-th on.

    None where rounding covers that.
    """
    gaps = np.diff(theta[k - 1 :])
    wide = np.flatnonzero(gaps > APART * theta[k - 1 : -1])
    below = int(wide[0] if wide.size else np.argmax(gaps))
    at = theta[k - 1 + below] + gaps[below] / 2
    shifted = matrix.copy()
    shifted.setdiag(matrix.diagonal() - at)
    count = factor.inertia(shifted)
    return max(0, count.below - (k + below)) if count.rounding < gaps[below] / 2 else None
