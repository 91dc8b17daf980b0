"""Clusters of heavy edges, contracted to one node each.

Vectors of frequencies far below an edge's weight hardly differ over it. Where many edges are that heavy, all vectors
that are constant on their clusters are near 0 for the scaled matrix B, which cannot order them; on the contracted graph
they are vectors like any others.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from krylow.operators import SparseOperator
from krylow.solvers._aggregation import Aggregation, galerkin
from krylow.solvers._block import Block
from krylow.solvers._coarse import CoarseGraph, solve_coarsest
from krylow.solvers._filter import spectrum_top
from krylow.solvers.chebyshev import Goal, first_cut, refine


def contracted(L: SparseOperator, vector: Tensor, weight: float) -> Aggregation | None:
    """Return the graph whose aggregates are the components of edges above a weight; None if there is no such edge.

    ``vector`` ``(n,)`` is one that L maps to zero, or nearly, nowhere zero itself.
    """
    crow, col = L.host_indices()
    heavy = np.flatnonzero(L.values.detach().cpu().numpy() < -weight)
    if not heavy.size:
        return None
    row = np.searchsorted(crow, heavy, side="right") - 1
    edges = csr_array((np.ones(heavy.size, dtype=np.int8), (row, col[heavy])), shape=(L.n, L.n))
    count, labels = connected_components(edges, directed=False)
    return galerkin(L, vector.double(), labels, count)


def clusters(
    L: SparseOperator, u: Tensor, frequency: float, count: int, *, heavy: float, least: float
) -> list[Aggregation]:
    """Return graphs whose clusters of heavy edges are one node each, that of the fewest first; none without such edges.

    The first has all vectors of low frequency, though not well where these vary along a path of heavy edges: for that
    there is a second one, with more clusters.

    Parameters
    ----------
    L
        The operator, of one graph.
    u
        ``(n,)`` a vector that L maps to zero, or nearly, nowhere zero itself.
    frequency
        The highest that is sought, or a little more.
    count
        Vectors that are to be computed.
    heavy
        Edges above so many times ``frequency`` are contracted, or above four times as much until there are enough
        clusters.
    least
        Clusters a vector that are enough, and half as many as nodes are.
    """
    heaviest = -float(L.values.detach().min()) if L.values.numel() else 0.0
    weight = max(heavy * frequency, torch.finfo(torch.float64).eps * heaviest)
    first = level = contracted(L, u, weight) if weight > 0 else None
    while level is not None and level.coarse.n < min(least * count, L.n / 2):
        weight *= 4
        level = contracted(L, u, weight)
    return [one for one in dict.fromkeys((first, level)) if one is not None and one.coarse.n > 1]


def lowest_of_clusters(C: SparseOperator, k: int, count: int, tol: float) -> Tensor:
    """Return ``count`` of the lowest vectors of a contracted graph, or fewer, the first k with an error of ``tol``."""
    found = solve_coarsest(CoarseGraph(C), k, count, tol)
    if found is not None:
        return found.V
    source = torch.Generator(device=C.device).manual_seed(0)
    block = Block(C, torch.randn(C.n, count, dtype=C.dtype, device=C.device, generator=source), spectrum_top(C))
    if refine(block, C, Goal(k, tol, 4000 * count), first_cut(block)).interrupted:
        raise KeyboardInterrupt  # which the whole search answers
    return block.turned()
