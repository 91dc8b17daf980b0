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

from krylow import _kernels
from krylow._checks import InputError
from krylow.linalg.elimination import WIDEST, Condensed, eliminated
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
        Nodes of the core's separator; 0 where the entries were counted.
    """

    entries: float
    ratio: float
    core: int
    separator: int


def estimate_fill(L: SparseOperator) -> Fill:
    """Return the estimated entries of a triangular factor of L + shift I in a good order.

    Costs about as much as a few products with L, if numba is installed. No gradient, on the host.
    """
    return pattern_fill(*L.host_indices())


def pattern_fill(crow: np.ndarray, col: np.ndarray) -> Fill:
    """Return the estimate for a symmetric pattern in rows, which is left alone."""
    n = crow.size - 1
    return _estimate(n, *_core(crow, col, n))


def core_fill(condensed: Condensed) -> Fill:
    """Return the estimate for a graph whose chains and twigs are gone already, as far as they are."""
    crow, col = condensed.matrix.indptr, condensed.matrix.indices
    if condensed.M is None:
        return pattern_fill(crow, col)
    n, S = crow.size - 1, condensed.S
    spent, lower = 2.0 * (n - S.shape[0]), (col.size - n) / 2 + n
    if condensed.order is not None:  # then they are counted
        entries = n + spent + condensed.order[1]
        return Fill(entries, max(1.0, entries / lower), S.shape[0], 0)
    return _estimate(n, _without_diagonal(S.indptr, S.indices), spent, lower)


def _estimate(n: int, core: Any, spent: float, lower: float) -> Fill:
    m = core.shape[0]
    separator = _separator(core) if m else 0
    entries = n + spent + (_dissected(m, separator) if m else 0.0)
    return Fill(entries, max(1.0, entries / lower), m, separator)


def refuse(fill: Fill, most: float) -> None:
    """Raise an error that says so where a factor would have more entries than ``most``."""
    if fill.entries > most:
        raise InputError(
            f'method="shift_invert" takes graphs whose factor has at most {most:.2g} entries, got one of about '
            f'{fill.entries:.2g} (a separator of {fill.separator} nodes): use method="chebyshev".'
        )


def _core(crow: np.ndarray, col: np.ndarray, n: int) -> tuple[Any, float, float]:
    """Return the pattern without thin nodes and diagonal, the entries that costs, and those of the lower triangle."""
    rows = csr_array((np.full(col.size, -1.0), col, crow), shape=(n, n))
    if _kernels.available() and rows.has_canonical_format and col.size < 2**31:
        dominant = 1.0 + float(np.diff(crow).max(initial=0))  # any numbers serve that no pivot vanishes for
        found = eliminated(crow, col, rows.data, 2 * dominant, math.inf, WIDEST)
        if found.symmetric:
            return _without_diagonal(found.rows, found.columns), 2.0 * len(found.order), found.joined / 2 + n
    pattern = csr_array((np.ones(col.size, dtype=np.int8), col, crow), shape=(n, n), copy=True)
    pattern.setdiag(0)  # writes into the indices, which are the operator's own without the copy
    pattern.eliminate_zeros()
    return *_without_thin_nodes(pattern), pattern.nnz / 2 + n


def _without_diagonal(start: np.ndarray, columns: np.ndarray) -> Any:
    """Return a pattern without its diagonal, which is the first entry of each row, and without lone nodes."""
    linked = np.diff(start) > 1
    place = np.cumsum(linked) - 1
    columns = place[np.delete(columns, start[:-1])].astype(np.int32)
    counts = np.diff(start)[linked] - 1
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return csr_array((np.ones(columns.size, dtype=np.int8), columns, start), shape=(counts.size, counts.size))


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
    if _kernels.available():
        widths, last = _kernels.graph.levels(crow, col, start)
        return widths, int(last)
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
