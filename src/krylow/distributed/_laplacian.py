"""The Laplacian of a graph from each rank's rows of its adjacency."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array

from krylow import _checks
from krylow._checks import InputError
from krylow.graph import KINDS
from krylow.operators._ranks import Ranks, Star, owners
from krylow.operators.distributed import Rows, row_sums
from krylow.operators.partition import DistributedOperator, distributed

#: Says that the rows are those of a Laplacian, or of another symmetric matrix whose lowest eigenvectors are wanted.
GIVEN = "given"


def laplacian_of_rows(
    ranks: Ranks, given: Rows, n: int, kind: str | None, partition: bool | None
) -> DistributedOperator:
    """Return the Laplacian, of the kinds of :func:`krylow.laplacian` or "given", of this rank's rows of W."""
    ranks.fail_together(_problem(given, n, kind))
    _check_symmetry(ranks, given, n)
    psd, null_vector = False, None
    if kind != GIVEN:
        given, psd, null_vector = _laplacian(ranks, given, n, kind)
    return distributed(ranks, given, n, psd=psd, null_vector=null_vector, partition=partition)


def _problem(given: Rows, n: int, kind: str | None) -> str | None:
    """Return what is wrong with this rank's rows, None if nothing is."""
    if kind is not None and kind not in (*KINDS, GIVEN):
        return f"kind must be one of {', '.join(map(repr, (*KINDS, GIVEN)))}, got {kind!r}."
    if given.crow[0] != 0 or given.crow[-1] != given.col.size or bool((np.diff(given.crow) < 0).any()):
        return "crow must begin with 0, ascend and end with the number of entries of this rank's rows."
    if given.col.size != given.values.size:
        return f"col and values must have one entry each, got {given.col.size} and {given.values.size}."
    if given.col.size and not (given.col.min() >= 0 and given.col.max() < n):
        return f"columns must be numbers of nodes, from 0 to {n - 1}, got {given.col.min()} to {given.col.max()}."
    if not np.isfinite(given.values).all():
        return "the weights must be finite, got NaN or infinity."
    return None


def _laplacian(ranks: Ranks, given: Rows, n: int, kind: str | None) -> tuple[Rows, bool, np.ndarray | None]:
    """Return the rows of the Laplacian, whether it is positive semidefinite, and the vector it maps to zero."""
    start, rows = int(given.starts[ranks.rank]), given.rows
    row = np.repeat(np.arange(rows), np.diff(given.crow))
    loop = given.col == row + start
    degree = row_sums(row, given.values, rows)
    loops = row_sums(row[loop], given.values[loop], rows)
    low = given.values.min(initial=0.0)
    negative, looped, size = ranks.largest([float(-low), _size(loops), _size(degree)])
    _checks.in_range(size, torch.float64, "W")
    off = given.values[~loop & (given.values != 0)].max(initial=-np.inf)
    highest, spread, least = ranks.largest([float(off), _size(degree), float(-loops.min(initial=0))])
    if looped and highest <= 0 and least <= 0 and spread <= _checks.SYMMETRY_EPS * np.finfo(np.float64).eps * looped:
        raise InputError('the rows must be those of an adjacency, got a Laplacian already: say so by kind="given".')
    kind = kind or ("generalized" if looped else "combinatorial")
    diagonal = degree if kind == "generalized" else degree - loops
    values, null_vector = -given.values[~loop], None
    if kind == "normalized":
        sizes = row_sums(row, np.abs(given.values), rows)
        null_vector = np.sqrt(np.where(sizes > 0, sizes, 1.0))
        root = np.divide(1.0, null_vector, out=np.zeros(rows), where=sizes > 0)
        there, place = np.unique(given.col[~loop], return_inverse=True)
        values = values * root[row[~loop]] * Star(ranks, rows, *owners(given.starts, there)).copy(root)[place]
        diagonal = diagonal * root**2
    places = np.concatenate([row[~loop], np.arange(rows)]), np.concatenate([given.col[~loop], np.arange(rows) + start])
    L = csr_array((np.concatenate([values, diagonal]), places), shape=(rows, n))
    return Rows(L.indptr, L.indices, L.data, given.starts), negative <= 0, null_vector


def _size(x: np.ndarray) -> float:
    return float(np.abs(x).max(initial=0.0))


def _check_symmetry(ranks: Ranks, given: Rows, n: int) -> None:
    """Refuse a matrix whose two forms x^T W y and y^T W x differ for random x and y: some partitioners never end."""
    X = np.random.default_rng(ranks.rank).standard_normal((given.rows, 2))
    there, place = np.unique(given.col, return_inverse=True)
    Y = Star(ranks, given.rows, *owners(given.starts, there)).copy(X)
    W = csr_array((given.values, place, given.crow), shape=(given.rows, there.size))
    S, size = ranks.sum([torch.from_numpy(X.T @ (W @ Y)), torch.from_numpy(abs(X).T @ (abs(W) @ abs(Y)))])
    gap = abs(float(S[0, 1] - S[1, 0]))
    if ranks.agree(gap > 1e-12 * float(size.max())):
        raise InputError(
            "the matrix must be symmetric (an undirected graph), got entries that differ from their mirror image: pass "
            "both directions of every edge."
        )
