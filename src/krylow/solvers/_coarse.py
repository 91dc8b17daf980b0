r"""The coarsest graph: its lowest eigenpairs, and how many frequencies lie below a cutoff.

A graph of some hundred nodes is decomposed. One of some ten thousand nodes whose factor is sparse is factorised:
shift-invert Lanczos finds its lowest eigenpairs, and the same factor preconditions the coarse corrections of the finer
graph. An eigenvector that the coarse solve misses would be missed on every finer graph, and a Krylov sequence of few
starting vectors contains few copies of a repeated eigenvalue. So the eigenvalues below the cut are counted by the
inertia of the shifted matrix (Sylvester's law), and as many starting vectors are added as are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krylow.krylov.chebyshev import chebyshev_filter
from krylow.linalg.eigh import lowest_eigenpairs
from krylow.linalg.elimination import Factor, Inertia
from krylow.linalg.fill import estimate_fill
from krylow.operators import Operator, SparseOperator
from krylow.operators.distributed import LocalRows
from krylow.solvers._aggregation import Aggregation, aggregate
from krylow.solvers._filter import Filter
from krylow.solvers._inverse_lanczos import InverseLanczos


@dataclass(frozen=True)
class CoarsestSettings:
    """Settings of the coarse solve."""

    decomposed: int = 400  #: most nodes of a graph that is decomposed
    factorised: int = 40_000  #: most nodes of one that is factorised,
    fill: float = 80.0  #: if a row of its factor has at most this many entries by estimate,
    any_fill: int = 1000  #: or up to this many nodes whatever the fill
    shift: float = 1e-6  #: shift below the spectrum, over its upper bound
    starts: int = 3  #: least starting vectors of Lanczos: as many copies of an eigenvalue are found in any case;
    values_per_start: int = 7  #: and at least one for so many wanted values
    check_every: int = 6  #: steps between two convergence tests
    gap: float = 1e-3  #: eigenvalues are counted behind the first gap from the k-th on that is this part of them


SETTINGS = CoarsestSettings()


@dataclass(frozen=True)
class Coarsest:
    """The lowest eigenpairs of a coarse graph."""

    theta: Tensor  #: ``(s,)`` float64, ascending
    V: Tensor  #: ``(n, s)`` float64
    inverse: Callable[[Tensor], Tensor] | None = None  #: approximate inverse on blocks ``(n, c)``, positive definite


class CoarseGraph:
    """A coarse Laplacian with the factor that counts and solves on it, made once."""

    def __init__(self, operator: SparseOperator | LocalRows, settings: CoarsestSettings = SETTINGS) -> None:
        self.operator, self.settings = operator, settings

    @cached_property
    def is_factorised(self) -> bool:
        """Whether it is small enough for a factor."""
        C, settings = self.operator, self.settings
        if not isinstance(C, SparseOperator) or C.n > settings.factorised or C.device.type != "cpu":
            return False
        return C.n <= settings.any_fill or estimate_fill(C).entries <= settings.fill * C.n

    @cached_property
    def factor(self) -> tuple[float, Any, Factor]:
        """A small shift, the matrix with that added, and a factor of it."""
        low, high = (float(bound) for bound in self.operator.gershgorin())
        shift = self.settings.shift * high - min(low, 0.0)
        assert isinstance(self.operator, SparseOperator)
        matrix = self.operator.to_scipy()
        matrix.setdiag(matrix.diagonal() + shift)
        return shift, matrix, Factor(matrix)

    def below(self, at: float) -> Inertia:
        """Return the number of eigenvalues of the shifted matrix below ``at``."""
        _, matrix, factor = self.factor
        shifted = matrix.copy()
        shifted.setdiag(matrix.diagonal() - at)
        return factor.inertia(shifted)


def solve_coarsest(graph: CoarseGraph, k: int, width: int, tol: float) -> Coarsest | None:
    """Return the ``width`` lowest eigenpairs in float64, the first k with a squared error of at most ``tol``.

    None where the graph is too large for it.
    """
    C = graph.operator
    if not isinstance(C, SparseOperator):  # ranks share it, since it is too large for one
        return None
    if C.n <= max(graph.settings.decomposed, 3 * width):
        return Coarsest(*lowest_eigenpairs(C.to_dense(), width))
    if not graph.is_factorised:
        return None
    shift, _, factor = graph.factor
    found = _shift_invert(graph, k, width, tol)
    if found is None:
        return None
    values, vectors = found
    return Coarsest(
        torch.from_numpy(1 / values - shift),
        torch.from_numpy(vectors),
        lambda Y: torch.from_numpy(factor.solve(Y.numpy())),
    )


def _shift_invert(graph: CoarseGraph, k: int, width: int, tol: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the largest eigenvalues of the inverse and their vectors, or None where Lanczos does not converge."""
    _, matrix, factor = graph.factor
    n, settings = matrix.shape[0], graph.settings
    size = min(n, 3 * width + 24)
    rng, none = np.random.default_rng(0), np.empty((0, n))
    iteration = InverseLanczos(factor.solve, None, none, size, 2 * width, rng)
    # Where no inertia is affordable, as many starting vectors as an eigenvalue can have wanted copies.
    starts = max(settings.starts, width // settings.values_per_start) if factor.counts else width
    iteration.start(starts)
    for step in range(40 * size):
        if not iteration.advance():
            return None
        if step % max(settings.check_every, width // 5) or iteration.expanded <= width + starts:
            continue
        values, Y, residuals = iteration.ritz()
        gaps = values[:k] - values[k] - residuals[k]
        if gaps[-1] > 0 and np.square(residuals[:k] / gaps).mean() <= tol:  # Davis and Kahan
            missing = _missing(graph, 1 / values[:width], k) if factor.counts else 0
            if missing == 0:
                return values[:width].copy(), np.ascontiguousarray(iteration.vectors(Y[:, :width]))
            if missing is None or starts + missing > width:
                return None
            iteration.start(missing)
            starts += missing
    return None


def _missing(graph: CoarseGraph, theta: np.ndarray, k: int) -> int | None:
    """Return how many eigenvalues of the shifted matrix below a gap from the k-th on are not among those found.

    The gap is the first clear one, or else the widest. None where it is within the rounding of the count.
    """
    gaps = np.diff(theta[k - 1 :])
    clear = np.flatnonzero(gaps > graph.settings.gap * theta[k - 1 : -1])
    below = int(clear[0] if clear.size else np.argmax(gaps))
    count = graph.below(theta[k - 1 + below] + gaps[below] / 2)
    return max(0, count.below - (k + below)) if count.rounding < gaps[below] / 2 else None


def coarse_count(A: Operator, level: Aggregation, graph: CoarseGraph, cutoff: float, smoother: Filter) -> int | None:
    r"""Estimate how many eigenvalues of A are up to a cutoff; None where no coarse graph is factorised.

    Aggregation overestimates a low eigenvalue by a factor $\tau$, measured on four of the lowest coarse vectors, which
    are prolonged and smoothed. The count is the inertia of $L_c - \tau \omega I$, of a graph that is made coarser until
    it can be factorised.
    """
    while not graph.is_factorised:
        fine = level.coarse.n
        level = level.then(aggregate(level.coarse, level.vector, smoother.low / 2))
        if level.coarse.n > 0.9 * fine:
            return None
        graph = CoarseGraph(level.coarse, graph.settings)
    shift, _, factor = graph.factor
    if not factor.counts:
        return None
    unit = torch.nn.functional.normalize(level.vector.double(), dim=0)[:, None].numpy()
    V = np.random.default_rng(0).standard_normal((level.coarse.n, 4))
    for _ in range(3):  # inverse iterations
        V = factor.solve(np.linalg.qr(V - unit @ (unit.T @ V))[0])
    V = np.linalg.qr(V - unit @ (unit.T @ V))[0]
    return graph.below(shift + _overestimation(A, level, torch.from_numpy(V), smoother) * cutoff).below


def _overestimation(A: Operator, level: Aggregation, V: Tensor, smoother: Filter) -> float:
    """Return the median ratio, from 1 to 100, of Rayleigh quotients of coarse vectors before and after smoothing."""
    one = torch.ones((), dtype=A.dtype, device=A.device)
    low, high = one * smoother.low, one * smoother.high
    Y = chebyshev_filter(A, level.prolong(V).to(A.dtype), smoother.degree, low, high, 0 * one)
    smooth = (Y * (A @ Y)).sum(0).double() / Y.square().sum(0).double()
    coarse = (V * (level.coarse.double() @ V)).sum(0)
    tiny = torch.finfo(torch.float64).tiny
    return float((coarse / smooth.clamp(min=tiny)).median().clamp(1, 100))
