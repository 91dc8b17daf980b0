"""The lowest vectors of the graph whose clusters of heavy edges are one node each."""

from __future__ import annotations

import torch
from torch import Tensor

from krylow.operators import SparseOperator
from krylow.solvers._aggregation import Aggregation
from krylow.solvers._block import Block
from krylow.solvers._coarse import CoarseGraph, solve_coarsest
from krylow.solvers._filter import spectrum_top
from krylow.solvers._heavy import contracted
from krylow.solvers.chebyshev import Goal, first_cut, refine

#: Edges of so many times a frequency hold nodes together, or of so many times more where that leaves fewer than so many
#: clusters a vector: then there is nothing light among them.
HEAVY, HEAVIER, LEAST = 20.0, 4.0, 10
#: The error of the vectors, over that asked for in the end, and most passes over the graph of clusters.
PART, PASSES = 0.1, 4000


def lowest_of_clusters(
    L: SparseOperator, u: Tensor, frequency: float, k: int, count: int, tol: float
) -> tuple[Aggregation, Tensor] | None:
    """Return the contracted graph and at most ``count`` of its lowest vectors; None if no edge is heavy enough.

    Parameters
    ----------
    L
        The operator, of one graph.
    u
        ``(n,)`` a vector that L maps to zero, or nearly, nowhere zero itself.
    frequency
        The highest that is sought, or a little more.
    k
        How many are sought, less than ``count``.
    tol
        The error of them that is asked for in the end.
    """
    heaviest = -float(L.values.detach().min()) if L.values.numel() else 0.0
    weight = max(HEAVY * frequency, torch.finfo(torch.float64).eps * heaviest)
    level = contracted(L, u, weight) if weight > 0 else None
    while level is not None and level.coarse.n < LEAST * count:
        weight *= HEAVIER
        level = contracted(L, u, weight)
    return None if level is None else (level, _lowest(level.coarse, k, count, PART * tol))


def _lowest(C: SparseOperator, k: int, count: int, tol: float) -> Tensor:
    found = solve_coarsest(CoarseGraph(C), k, count, tol)
    if found is not None:
        return found.V
    source = torch.Generator(device=C.device).manual_seed(0)
    X = torch.randn(C.n, count, dtype=C.dtype, device=C.device, generator=source)
    block = Block(C, X, spectrum_top(C))
    outcome = refine(block, C, Goal(k, tol, PASSES * count), first_cut(block))
    if outcome.interrupted:  # which is the whole search's to answer
        raise KeyboardInterrupt
    return block.turned()
