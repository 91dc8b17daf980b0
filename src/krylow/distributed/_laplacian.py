"""The Laplacian of a graph from each rank's rows of its adjacency."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    _check_symmetry(ranks, given)
    psd, null_vector = False, None
    if kind == GIVEN:
        given = replace(given, col=given.col.copy(), values=given.values.copy())  # not to change with the user's
    else:
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
    found = _sums(ranks, given)
    negative, looped, size = ranks.largest([-found.low, _size(found.loops), _size(found.degree)])
    _checks.in_range(size, torch.float64, "W")
    highest, least = ranks.largest([found.off, float(-found.loops.min(initial=0))])
    if looped and highest <= 0 and least <= 0 and size <= _checks.SYMMETRY_EPS * np.finfo(np.float64).eps * looped:
        raise InputError('the rows must be those of an adjacency, got a Laplacian already: say so by kind="given".')
    kind = kind or ("generalized" if looped else "combinatorial")
    diagonal = found.degree if kind == "generalized" else found.degree - found.loops
    if kind != "normalized":
        return _assembled(ranks, given, n, diagonal), negative <= 0, None
    null_vector = np.sqrt(np.where(found.sizes > 0, found.sizes, 1.0))
    root = np.divide(1.0, null_vector, out=np.zeros(given.rows), where=found.sizes > 0)
    return _assembled(ranks, given, n, diagonal * root**2, root), negative <= 0, null_vector


@dataclass(frozen=True)
class _Sums:
    """What a pass over this rank's rows of W finds."""

    degree: np.ndarray  #: ``(rows,)`` sums of the weights,
    loops: np.ndarray  #: of those on the diagonal,
    sizes: np.ndarray  #: and of absolute values
    low: float  #: the least weight, or zero
    off: float  #: the largest one off the diagonal that is not zero


def _sums(ranks: Ranks, given: Rows) -> _Sums:
    start, low, off = int(given.starts[ranks.rank]), 0.0, -np.inf
    degree, loops, sizes = (np.zeros(given.rows) for _ in range(3))
    for first, end, row, part in given.pieces():
        values, rows = given.values[part], end - first
        loop = given.col[part] == row + (start + first)
        degree[first:end] = row_sums(row, values, rows)
        loops[first:end] = row_sums(row[loop], values[loop], rows)
        sizes[first:end] = row_sums(row, np.abs(values), rows)
        low = min(low, float(values.min(initial=0.0)))
        off = max(off, float(values[~loop & (values != 0)].max(initial=-np.inf)))
    return _Sums(degree, loops, sizes, low, off)


def _assembled(ranks: Ranks, given: Rows, n: int, diagonal: np.ndarray, root: np.ndarray | None = None) -> Rows:
    """Return the rows with this diagonal and -W beside it, which ``root`` scales from both sides."""
    start, there, scales = int(given.starts[ranks.rank]), None, np.zeros(0)
    if root is not None:
        there = given.neighbours(ranks)
        scales = np.concatenate([root, Star(ranks, given.rows, *owners(given.starts, there.nodes)).copy(root)])
    most = given.col.size + given.rows
    crow, col, values = np.zeros(given.rows + 1, dtype=np.int64), np.empty(most, given.col.dtype), np.empty(most)
    for first, end, row, part in given.pieces():
        columns, own = given.col[part], np.arange(end - first)
        off = columns != row + (start + first)
        row, columns, entries = row[off], columns[off], -given.values[part][off]
        if root is not None and there is not None:
            entries = entries * root[first + row] * scales[there.place(columns)]
        places = np.concatenate([row, own]), np.concatenate([columns, own + (start + first)])
        rows = csr_array((np.concatenate([entries, diagonal[first:end]]), places), shape=(end - first, n))
        begin = int(crow[first])
        crow[first + 1 : end + 1] = rows.indptr[1:].astype(np.int64) + begin
        col[begin : begin + rows.nnz], values[begin : begin + rows.nnz] = rows.indices, rows.data
    total = int(crow[-1])
    return Rows(crow, col[:total], values[:total], given.starts)


def _size(x: np.ndarray) -> float:
    return float(np.abs(x).max(initial=0.0))


def _check_symmetry(ranks: Ranks, given: Rows) -> None:
    """Refuse a matrix whose two forms x^T W y and y^T W x differ for random x and y: some partitioners never end."""
    there = given.neighbours(ranks)
    X = np.random.default_rng(ranks.rank).standard_normal((given.rows, 2))
    Y = np.concatenate([X, Star(ranks, given.rows, *owners(given.starts, there.nodes)).copy(X)])
    products, sizes, size_of_Y = np.zeros((2, 2)), np.zeros((2, 2)), abs(Y)
    for first, end, _, part in given.pieces():
        crow = given.crow[first : end + 1] - given.crow[first]
        # Not abs(W), which sorts the rows of W in place.
        col, shape = there.place(given.col[part]), (end - first, len(Y))
        products += X[first:end].T @ (csr_array((given.values[part], col, crow), shape=shape) @ Y)
        size_of_W = csr_array((np.abs(given.values[part]), col, crow), shape=shape)
        sizes += abs(X[first:end]).T @ (size_of_W @ size_of_Y)
    S, size = ranks.sum([torch.from_numpy(products), torch.from_numpy(sizes)])
    gap = abs(float(S[0, 1] - S[1, 0]))
    if ranks.agree(gap > 1e-12 * float(size.max())):
        raise InputError(
            "the matrix must be symmetric (an undirected graph), got entries that differ from their mirror image: pass "
            "both directions of every edge."
        )
