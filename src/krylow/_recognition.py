r"""Whether a bare matrix can be a Laplacian, so that an adjacency is not taken for one.

With M the matrix, it is one where one of the kinds of :func:`krylow.laplacian` explains it:

- combinatorial: every row sums to zero, whatever the signs;
- generalized: no positive entry off the diagonal, and no row sums to less than zero (the sums are the self-loops);
- normalized: entries within [-1, 1] and a positive vector s with M s = 0, the roots of the degrees. Without positive
  entries off the diagonal, 1 is then the Perron eigenvalue of I - M >= 0; with some (negative weights), s is looked for
  in the null space of every component, and |M_ij| s_j summed over j != i is at most s_i. Components of more than
  ``LARGEST_COMPONENT`` nodes with such entries are not recognised.

A matrix without entries off the diagonal is its own Laplacian. One whose diagonal alone is zero is refused: it may be
the Laplacian of a signed graph in balance, but then it is an adjacency just as well.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from krylow._checks import InputError, in_range

#: What a row may sum to instead of zero, relative to the sum of its moduli: entries may have been rounded to a few
#: digits in a file, and an adjacency is far from it.
BALANCE = 1e-4
#: The largest part of such a sum that rounding of a long row explains.
MOST = 0.1
#: Steps of the power iteration for a Perron eigenvalue: its Rayleigh quotients only grow, from that of ones.
POWER_STEPS = 16
#: Largest component whose null space is computed.
LARGEST_COMPONENT = 1024


def check_laplacian(M: Any) -> None:
    """Refuse a symmetric matrix, a tensor ``(*batch, n, n)`` or scipy's in rows, that no kind of Laplacian explains.

    Parameters
    ----------
    M
        Finite and symmetric; sparse rows have sorted, unique entries.
    """
    if isinstance(M, Tensor):
        M = M.detach()
        if not _balanced(M):
            M = M.cpu().numpy().reshape(-1, *M.shape[-2:])
            _check_sizes(M, M)
            _check_each(M, np.diagonal(M, axis1=-2, axis2=-1), M.sum(-1))
        return
    _check_sizes(M, M.data)
    diagonal, sums = M.diagonal(), M @ np.ones(M.shape[0], dtype=M.dtype)
    # Nearly always: rows that sum to zero, beside the diagonal alone, which is less than the moduli of a row.
    if not ((np.abs(sums) <= BALANCE * np.abs(diagonal)).all() and diagonal.any()):
        _check_each(M, diagonal, sums)


def _balanced(M: Tensor) -> bool:
    """Whether all rows sum to zero beside their diagonal, which has no zero, and no sum comes near an overflow."""
    share = (M.sum(-1) / M.diagonal(dim1=-2, dim2=-1)).abs().max()  # NaN where there is an isolated node
    return float(share) <= BALANCE and math.isfinite(torch.linalg.vector_norm(M))


def _check_sizes(M: Any, entries: np.ndarray) -> None:
    """Refuse rows whose sums may overflow."""
    limit = np.finfo(M.dtype).max / 2
    if entries.size and not np.abs(entries).max() <= limit / M.shape[-1]:
        with np.errstate(over="ignore"):
            largest = float(abs(M).sum(axis=-1).max())
        in_range(largest, torch.from_numpy(entries).dtype, "L")


def _check_each(M: Any, diagonal: np.ndarray, sums: np.ndarray) -> None:
    """Refuse the first matrix of a batch that none of the three kinds explains."""
    sparse = scipy.sparse.issparse(M)
    sizes, eps = abs(M).sum(axis=-1), np.finfo(M.dtype).eps
    counts = np.diff(M.indptr) if sparse else np.full(sums.shape, M.shape[-1])
    entries = M.data[None] if sparse else M.reshape(len(M), -1)
    positive = (entries > 0).sum(-1) > (diagonal > 0).sum(-1)  # some entry off the diagonal
    noise = np.minimum(BALANCE + 2 * counts * eps, MOST) * sizes
    edges = (sizes - np.abs(diagonal) > 4 * eps * sizes).any(-1)
    explained = (np.abs(sums) <= noise).all(-1) | (~positive & (sums >= -noise).all(-1))
    known = ~edges | (diagonal.any(-1) & explained)
    for i in np.flatnonzero(~known):
        one, d, s = (M, diagonal, sums) if sparse else (M[i], diagonal[i], sums[i])
        if not d.any() or not _normalized(one, d, bool(positive[i])):
            raise _refused(d, s, sparse)


def _normalized(M: Any, diagonal: np.ndarray, positive: bool) -> bool:
    """Whether one matrix is the normalised Laplacian of some graph."""
    largest = 1 + BALANCE
    if max(abs(M.max()), abs(M.min())) > largest:
        return False
    if positive or (diagonal < 0).any():
        return _positive_null_vector(scipy.sparse.csr_array(M))
    x = np.ones(M.shape[-1])
    for _ in range(POWER_STEPS):
        x = x + (x - M @ x)  # I + (I - M), which has no negative eigenvalue where M is a normalised Laplacian
        x /= x.max()
    image = x - M @ x
    return bool(x @ image <= largest * (x @ x) and (image >= (1 - BALANCE) * x).any())


def _positive_null_vector(M: Any) -> bool:
    """Whether every component has a positive vector s with M s = 0 and |M - diag M| s <= s."""
    from scipy.optimize import linprog

    count, labels = scipy.sparse.csgraph.connected_components(M, directed=False)
    if np.bincount(labels).max() > LARGEST_COMPONENT:
        return False
    for which in range(count):
        nodes = np.flatnonzero(labels == which)
        if len(nodes) == 1:
            continue
        part = M[nodes][:, nodes].toarray()
        values, vectors = np.linalg.eigh(part.astype(np.float64))
        null = vectors[:, np.abs(values) <= 64 * np.sqrt(len(nodes)) * np.finfo(M.dtype).eps]
        if null.shape[1] == 0:
            return False
        # With negative weights a null space may have several dimensions: N c >= 1 and |M - diag M| N c <= N c.
        excess = np.abs(part - np.diag(np.diagonal(part))) @ null - (1 + BALANCE) * null
        limits = np.r_[-np.ones(len(nodes)), np.zeros(len(nodes))]
        found = linprog(np.zeros(null.shape[1]), np.r_[-null, excess], limits, bounds=(None, None))
        if found.status != 0:
            return False
    return True


def _refused(diagonal: np.ndarray, sums: np.ndarray, sparse: bool) -> InputError:
    if not diagonal.any():
        came = "a matrix with a zero diagonal: that is an adjacency"
    else:
        worst = sums[np.abs(sums).argmax()]
        came = f"a matrix whose rows sum to up to {worst:.3g}, as in an adjacency, and no kind of Laplacian explains it"
    line = "SparseOperator.from_matrix(L)" if sparse else "DenseOperator(L)"
    return InputError(
        f"L must be a Laplacian, got {came}. Pass krylow.laplacian(W); or, for a matrix that is "
        f"meant as it is, krylow.operators.{line}."
    )
