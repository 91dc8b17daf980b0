r"""How many entries a sparse factor of a graph will have, estimated without factorising.

Nodes with one or two neighbours are eliminated at no more than two entries each, whole chains and twigs at a time; on
road networks they are most of the nodes. What is left is taken for a graph that is dissected by separators, each a
level of a breadth-first walk: one of s nodes leaves a dense front of about $1.5 s^2$ entries, and the halves have
separators of $s \, 2^{-\alpha}$ nodes, where $\alpha = \log s / \log n$ is 1/2 for planes and 2/3 for solids. The
estimate is for a choice of method, right within a small factor: the factorisations it has to tell apart differ by
hundreds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from krylow.operators import SparseOperator

#: Rounds of elimination, and the share of nodes that a round must take for another to follow.
ROUNDS, WORTHWHILE = 12, 0.02
#: Entries of a front over the square of its separator.
FRONT = 1.5
#: No separator is a larger share of the nodes than this, however wide the levels are (random graphs).
MOST_SEPARATED = 0.25


@dataclass(frozen=True)
class Fill:
    """The estimate.

    Attributes
    ----------
    entries
        Of one triangular factor.
    ratio
        Entries over those of the matrix's own lower triangle.
    core
        Nodes that are left after those with one or two neighbours are gone.
    separator
        Nodes of the core's separator.
    """

    entries: float
    ratio: float
    core: int
    separator: int


def estimate_fill(L: SparseOperator) -> Fill:
    """Return the estimated entries of a triangular factor of L + shift I in a good order.

    Costs about as much as a few products with L. No gradient, on the host.
    """
    crow, col = L.host_indices()
    pattern = csr_array((np.ones(col.size, dtype=np.int8), col, crow), shape=(L.n, L.n), copy=True)
    pattern.setdiag(0)  # writes into the indices, which are the operator's own without the copy
    pattern.eliminate_zeros()
    lower = pattern.nnz / 2 + L.n
    core, spent = _without_thin_nodes(pattern)
    m = core.shape[0]
    separator = _separator(core) if m else 0
    entries = L.n + spent + (_dissected(m, separator) if m else 0.0)
    return Fill(entries, max(1.0, entries / lower), m, separator)


def _without_thin_nodes(pattern: Any) -> tuple[Any, float]:
    """Return the pattern after nodes of at most two neighbours are eliminated, and the entries that this costs."""
    spent = 0.0
    for _ in range(ROUNDS):
        n = pattern.shape[0]
        thin = np.diff(pattern.indptr) <= 2
        if n == 0 or thin.sum() <= WORTHWHILE * n:
            break
        spent += 2.0 * thin.sum()
        pattern = _contract(pattern, thin)
    return pattern, spent


def _contract(pattern: Any, thin: np.ndarray) -> Any:
    """Return the pattern on the nodes that are not thin, with an edge for each chain of thin ones between two."""
    inside, outside = np.nonzero(thin)[0], np.nonzero(~thin)[0]
    rows = pattern[inside]
    chains, label = connected_components(rows[:, inside], directed=False)
    ends = csr_array(rows[:, outside]).tocoo()
    touch = csr_array(
        (np.ones(ends.nnz, dtype=np.int8), (label[ends.row], ends.col)), shape=(chains, outside.size)
    )  # at most two entries a row
    bridged = csr_array(pattern[outside][:, outside] + touch.T @ touch)
    bridged.setdiag(0)
    bridged.eliminate_zeros()
    bridged.data[:] = 1
    return bridged


def _separator(pattern: Any) -> int:
    """Return the narrowest level that leaves a quarter on either side, of a walk from a far node of the main part."""
    _, label = connected_components(pattern, directed=False)
    start = int(np.nonzero(label == np.bincount(label).argmax())[0][0])
    for _ in range(2):  # from anywhere to the far end, and from there
        widths, start = _levels(pattern, start)
    reached = np.cumsum(widths) / widths.sum()
    middle = widths[(reached >= 0.25) & (reached - widths / widths.sum() <= 0.75)]
    return int(min(middle.min(), max(1, MOST_SEPARATED * pattern.shape[0])))


def _levels(pattern: Any, start: int) -> tuple[np.ndarray, int]:
    """Return the widths of the levels of a breadth-first walk, and a node of the last one."""
    crow, col = pattern.indptr, pattern.indices
    seen = np.zeros(pattern.shape[0], dtype=bool)
    seen[start] = True
    level = np.array([start])
    widths = []
    while level.size:
        widths.append(level.size)
        last = level
        counts = (crow[level + 1] - crow[level]).astype(np.int64)
        places = np.repeat(crow[level] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        following = col[places]
        level = np.unique(following[~seen[following]])
        seen[level] = True
    return np.array(widths), int(last[0])


def _dissected(n: int, separator: int) -> float:
    """Return the entries of nested fronts."""
    alpha = math.log(max(separator, 2)) / math.log(max(n, 3))
    total, pieces, size = 0.0, 1.0, float(separator)
    while pieces < n and size >= 1:
        total += pieces * FRONT * size**2
        pieces, size = 2 * pieces, size * 2.0**-alpha
    return min(total + n, n * (n + 1) / 2)
