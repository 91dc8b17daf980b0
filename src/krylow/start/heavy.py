"""Nodes that heavy edges hold together: such a cluster that little else holds has a low frequency of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from krylow.operators import SparseOperator


def clusters(L: SparseOperator, u: Tensor, weight: float, most: float) -> Tensor | None:
    """Return the cluster of each node, ``(n,)`` on the host, by its rank; -1: of none. None if there is no cluster.

    Ranks rise with the Rayleigh quotient of the vector that is u on a cluster's nodes and zero elsewhere.

    Parameters
    ----------
    L
        The operator, of one graph.
    u
        ``(n,)`` a vector that L maps to zero, or nearly.
    weight
        Edges that are heavier join two nodes. A cluster has two at least.
    most
        The largest quotient.
    """
    values, part = (x.detach().cpu().numpy() for x in (L.values, u))
    crow, col = L.host_indices()
    heavy = np.flatnonzero(values < -weight)
    if not heavy.size:
        return None
    row = np.searchsorted(crow, heavy, side="right") - 1
    joined = csr_array((np.ones(heavy.size, dtype=np.int8), (row, col[heavy])), shape=(L.n, L.n))
    count, label = connected_components(joined, directed=False)
    nodes = np.flatnonzero(np.bincount(label)[label] > 1)
    row, at = _entries(crow, nodes)
    inside = label[row] == label[col[at]]
    row, at = row[inside], at[inside]
    products = values[at] * part[row] * part[col[at]]
    energy, length = np.bincount(label[row], products, count), np.bincount(label[nodes], part[nodes] ** 2, count)
    found = np.flatnonzero(length)
    quotient = energy[found] / length[found]
    found = found[np.argsort(quotient, kind="stable")][: int((quotient <= most).sum())]
    rank = np.full(count, -1)
    rank[found] = np.arange(found.size)
    return torch.from_numpy(rank[label]) if found.size else None


def _entries(crow: Any, nodes: Any) -> tuple[Any, Any]:
    """Return the row and the place of every entry in these nodes' rows."""
    counts = crow[nodes + 1] - crow[nodes]
    ends = np.cumsum(counts)
    return np.repeat(nodes, counts), np.arange(ends[-1]) + np.repeat(crow[nodes] - (ends - counts), counts)
