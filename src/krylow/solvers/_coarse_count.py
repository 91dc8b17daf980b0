r"""How many frequencies of a graph lie up to a cutoff, estimated on a coarser graph by the signs of pivots.

Aggregates overrate a low frequency by a factor r, which is measured on a few coarse vectors that are smoothed on the
graph itself. By Sylvester's law as many frequencies of the coarser graph C are below $r \omega$ as $C - r \omega I$ has
negative pivots.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from krylow.krylov.chebyshev import chebyshev_filter
from krylow.operators import Operator
from krylow.solvers._aggregation import Aggregation, aggregate
from krylow.solvers._coarse import DECOMPOSED, CoarseGraph
from krylow.solvers._cycles import SMOOTH_CUT, SMOOTHING

#: Coarse vectors by which it is measured how much aggregates overrate a frequency, and inverse iterations for them.
SMOOTHED, INVERSES = 4, 3
#: Most by which they do, and most times that a graph is made coarser.
MOST_OVERRATED, LEVELS = 100.0, 8


def coarse_count(A: Operator, level: Aggregation, graph: CoarseGraph, cutoff: float, high: float) -> int | None:
    """Return an estimate of how many frequencies of A are up to a cutoff; None where no coarser graph is factorised.

    ``level`` is the step to its coarser graph, ``graph``, and ``high`` the top of its spectrum.
    """
    for _ in range(LEVELS):
        C = level.coarse
        if C.n <= DECOMPOSED or graph.is_factorised:
            break
        level = level.then(aggregate(C, level.vector, high / SMOOTH_CUT / 2))
        if level.coarse.n == C.n:
            return None
        graph = CoarseGraph(level.coarse)
    else:
        return None
    unit = torch.nn.functional.normalize(level.vector.double(), dim=0)[:, None]
    if C.n <= DECOMPOSED:
        values, vectors = torch.linalg.eigh(C.to_dense().double())
        return int((values <= _overrated(A, level, vectors[:, 1 : 1 + SMOOTHED], high) * cutoff).sum())
    shift, matrix, factor = graph.factor
    if not factor.counts:
        return None
    V = np.random.default_rng(0).standard_normal((C.n, SMOOTHED))
    for _ in range(INVERSES):
        V = factor.solve(_orthonormal(V, unit.numpy()))
    overrated = _overrated(A, level, torch.from_numpy(_orthonormal(V, unit.numpy())), high)
    shifted = matrix.copy()
    shifted.setdiag(matrix.diagonal() - shift - overrated * cutoff)
    return factor.inertia(shifted).below


def _orthonormal(V: np.ndarray, unit: np.ndarray) -> np.ndarray:
    return np.linalg.qr(V - unit @ (unit.T @ V))[0]


def _overrated(A: Operator, level: Aggregation, V: Tensor, high: float) -> float:
    """Return the factor by which coarse vectors, orthonormal, overrate the frequencies that they have when smoothed."""
    one = torch.ones((), dtype=A.dtype, device=A.device)
    X = level.prolong(V).to(A.dtype)
    Y = chebyshev_filter(A, X, SMOOTHING, one * high / SMOOTH_CUT, one * high, 0 * one)
    smooth = (Y * (A @ Y)).sum(0).double() / Y.square().sum(0).double()
    coarse = (V * (level.coarse.double() @ V)).sum(0)
    tiny = torch.finfo(torch.float64).tiny
    return float((coarse / smooth.clamp(min=tiny)).median().clamp(1, MOST_OVERRATED))
