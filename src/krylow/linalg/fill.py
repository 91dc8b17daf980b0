r"""Entries of a sparse factor, estimated without factorising.

Nodes of degree 1 and 2 are eliminated first, at two entries each. The remaining graph is taken for one with nested
dissection by separators, each a level set of a breadth-first search: one of s nodes leaves a dense front of about $1.5
s^2$ entries, and the halves have separators of $s \, 2^{-\alpha}$ nodes, where $\alpha = \log s / \log n$ is 1/2 for
planar graphs (George, 1973; Lipton, Rose and Tarjan, 1979) and 2/3 for three-dimensional ones. The estimate is within a
factor of 4 or so, which is enough to choose a method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from krylow import _native
from krylow._checks import InputError
from krylow.linalg.elimination import SchurComplement, condense
from krylow.operators import SparseOperator
from krylow.operators.ordering import components_of_rows


@dataclass(frozen=True)
class Fill:
    """Estimated fill of a factor.

    Attributes
    ----------
    entries
        Of one triangular factor.
    ratio
        Entries over those of the matrix's own lower triangle.
    remaining
        Nodes after static condensation.
    separator
        Nodes of their first separator; 0 where the entries were counted.
    """

    entries: float
    ratio: float
    remaining: int
    separator: int


def estimate_fill(L: SparseOperator) -> Fill:
    """Return the estimated entries of a factor of L + shift I in a good order; costs a few products. On the host."""
    return _estimate(_condensed_pattern(*L.host_indices()))


def condensed_fill(condensed: SchurComplement) -> Fill:
    """Return the estimate for a matrix after static condensation."""
    if condensed.M is None:
        return _estimate(_condensed_pattern(condensed.matrix.indptr, condensed.matrix.indices))
    return _estimate(condensed, condensed.order)


def refuse(fill: Fill, most: float) -> None:
    """Raise an error where a factor would have more entries than ``most``."""
    if fill.entries > most:
        raise InputError(
            f'method="shift_invert" takes graphs whose factor has at most {most:.2g} entries, got one of about '
            f'{fill.entries:.2g} (a separator of {fill.separator} nodes): use method="chebyshev".'
        )


def _condensed_pattern(crow: np.ndarray, col: np.ndarray) -> SchurComplement:
    """Return the Schur complement of a matrix of this pattern whose diagonal dominates, with pieces of any size."""
    matrix = csr_array((np.full(col.size, -1.0), col, crow), shape=(crow.size - 1, crow.size - 1))
    return condense(matrix, 2.0 * (1.0 + float(np.diff(crow).max(initial=0))), math.inf)


def _estimate(condensed: SchurComplement, order: Any = None) -> Fill:
    n, S = condensed.matrix.shape[0], condensed.S
    lower = (condensed.matrix.nnz - n) / 2 + n
    eliminated = n + 2.0 * (n - S.shape[0])
    linked = int((np.diff(S.indptr) > 1).sum())
    separator = 0
    if order is not None:
        eliminated += order[1]
    elif linked:
        separator = _separator(S.indptr, S.indices, linked)
        eliminated += _dissected(linked, separator)
    return Fill(eliminated, max(1.0, eliminated / lower), linked, separator)


def _separator(crow: np.ndarray, col: np.ndarray, linked: int) -> int:
    """Return the smallest level set with a quarter of the largest component on either side, at most a quarter of all.

    The search starts from a far node of that component.
    """
    labels, _ = components_of_rows(crow, col)
    start = int(np.argmax(labels == np.bincount(labels).argmax()))
    for _ in range(2):
        widths, start = _native.levels(crow, col, int(start))
    reached = np.cumsum(widths) / widths.sum()
    middle = widths[(reached >= 0.25) & (reached - widths / widths.sum() <= 0.75)]
    return int(min(middle.min(), max(1, 0.25 * linked)))


def _dissected(n: int, separator: int) -> float:
    """Return the entries of nested fronts."""
    alpha = math.log(max(separator, 2)) / math.log(max(n, 3))
    total, pieces, size = 0.0, 1.0, float(separator)
    while pieces < n and size >= 1:
        total += pieces * 1.5 * size**2
        pieces, size = 2 * pieces, size * 2.0**-alpha
    return min(total + n, n * (n + 1) / 2)
