"""Nodes that heavy edges hold together, as one node each: what is left of a graph is as stiff as its light edges are.

Vectors of frequencies far below an edge's weight hardly differ over it. Where many edges are that heavy, a filter
through the diagonal cannot tell such vectors from each other, whatever their frequencies are; on the contracted graph
they are vectors like any others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from krylow.operators import SparseOperator


@dataclass(frozen=True)
class Contracted:
    """A graph of clusters.

    Attributes
    ----------
    operator
        $P^T L P$, on the host in float64.
    label, part
        ``(n,)`` the cluster of each node, and its entry in that column of P. Columns are orthonormal.
    """

    operator: SparseOperator
    label: Tensor
    part: Tensor

    def spread(self, V: Tensor) -> Tensor:
        """Return P V ``(n, s)`` of vectors ``(clusters, s)``."""
        return V[self.label].mul_(self.part[:, None])


def contracted(L: SparseOperator, u: Tensor, weight: float) -> Contracted | None:
    """Return L on vectors that are multiples of u on every cluster; None if no edge is that heavy.

    Parameters
    ----------
    L
        The operator, of one graph.
    u
        ``(n,)`` a vector that L maps to zero, or nearly, nowhere zero itself.
    weight
        Edges that are heavier join two nodes.
    """
    values, u = (x.detach().cpu().double() for x in (L.values, u))
    crow, col = L.host_indices()
    heavy = np.flatnonzero(values.numpy() < -weight)
    if not heavy.size:
        return None
    row = np.searchsorted(crow, heavy, side="right") - 1
    joined = csr_array((np.ones(heavy.size, dtype=np.int8), (row, col[heavy])), shape=(L.n, L.n))
    count, label = connected_components(joined, directed=False)
    length = np.sqrt(np.bincount(label, u.numpy() ** 2, count))
    part = u.numpy() / length[label]
    P = csr_array((part, label, np.arange(L.n + 1)), shape=(L.n, count))
    C = csr_array(P.T @ csr_array((values.numpy(), col, crow), shape=(L.n, L.n)) @ P)
    C = csr_array(C + C.T)
    parts = (torch.from_numpy(x) for x in (C.indptr, C.indices, C.data / 2))
    return Contracted(SparseOperator(*parts, psd=L.psd), torch.from_numpy(label).long(), torch.from_numpy(part))
