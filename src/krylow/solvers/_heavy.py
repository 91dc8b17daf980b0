"""Nodes that heavy edges hold together, as one node each: what is left of a graph is as stiff as its light edges are.

Vectors of frequencies far below an edge's weight hardly differ over it. Where many edges are that heavy, a filter
through the diagonal cannot tell such vectors from each other, whatever their frequencies are; on the contracted graph
they are vectors like any others.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from krylow.operators import SparseOperator
from krylow.solvers._aggregation import Aggregation, galerkin


def contracted(L: SparseOperator, vector: Tensor, weight: float) -> Aggregation | None:
    """Return the graph whose aggregates are the pieces of heavy edges; None if no edge is that heavy.

    Parameters
    ----------
    L
        The operator, of one graph.
    vector
        ``(n,)`` a vector that L maps to zero, or nearly, nowhere zero itself.
    weight
        Edges that are heavier join two nodes.
    """
    crow, col = L.host_indices()
    heavy = np.flatnonzero(L.values.detach().cpu().numpy() < -weight)
    if not heavy.size:
        return None
    row = np.searchsorted(crow, heavy, side="right") - 1
    edges = csr_array((np.ones(heavy.size, dtype=np.int8), (row, col[heavy])), shape=(L.n, L.n))
    count, labels = connected_components(edges, directed=False)
    return galerkin(L, vector.double(), labels, count)
