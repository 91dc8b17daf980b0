r"""The symmetric eigendecomposition of a batch of dense matrices, whole, or the k lowest eigenpairs alone.

$$S = Q T Q^\top, \qquad T Z = Z \Lambda, \qquad Y = Q Z, \quad Y^\top Y = I_k$$

The lowest pairs of small matrices are found one matrix at a time, which stays in the cache from beginning to end:

1. Householder reflections bring S to tridiagonal T. The rank-2 update of one reflection and the product with the next
   are one pass over the matrix.
2. Bisection on the number of negative eigenvalues of $T - x I$ (Sturm sequences of leading principal minors) gives the
   k lowest values, all shifts together.
3. Inverse iteration gives the vectors of T, every new vector made orthogonal to every earlier one: inside a cluster
   that keeps them independent.
4. The reflections are applied to the k vectors alone.

Steps 2 and 3 cost O(nk) and run in float64 whatever the dtype of S (Golub and Van Loan, Matrix Computations, 8.3, 8.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import eigh as _lapack
from torch import Tensor

from krylow import _checks, _native
from krylow._threads import shared
from krylow.linalg.gram_schmidt import polished

LinAlgError = torch.linalg.LinAlgError  # type: ignore[attr-defined]  # public, and missing from its list of names


@dataclass(frozen=True)
class _Limits:
    """Where each way to decompose is the fastest."""

    batch: int = 16  # fewest matrices for the compiled kernel
    smallest: int = 20  # nodes, below which LAPACK is faster than the kernel
    largest: int = 512  # beyond which a matrix leaves the cache
    share: float = 1 / 3  # of the pairs, beyond which they cost as much as all
    lapack_smallest: int = 128  # for LAPACK's partial solver, which pays for at most this share of the pairs
    lapack_share: float = 1 / 4
    threaded: int = 192  # largest matrices that are shared among threads, and how many a thread has at least
    a_thread: int = 16


limits = _Limits()


def eigh(S: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues ``(*batch, m)`` and eigenvectors ``(*batch, m, m)``, as ``torch.linalg.eigh`` does.

    On CPU torch decomposes the matrices of a batch one after the other; here threads share them. LAPACK fails on some
    finite float32 matrices whose eigenvalues repeat and whose entries span all magnitudes, with an error or, by divide
    and conquer, with NaN and without one: those are decomposed again in float64. Without a gradient.
    """
    S = S.detach()
    if _checks.traced():
        values, vectors = torch.linalg.eigh(S)
        return values, vectors
    m, count = S.shape[-1], S[..., 0, 0].numel()
    threads = 1 if S.device.type != "cpu" else torch.get_num_threads()
    if threads == 1 or m > limits.threaded or count < threads * limits.a_thread:
        return _repaired(S, *_eigh(S))
    flat = S.reshape(count, m, m)
    parts = shared(lambda start, stop: _eigh(flat[start:stop]), [count * t // threads for t in range(threads + 1)])
    values, vectors = (torch.cat(part) for part in zip(*parts, strict=True))
    return _repaired(S, values.reshape(S.shape[:-1]), vectors.reshape(S.shape))


def eigvalsh(S: Tensor) -> Tensor:
    """Return the eigenvalues ``(*batch, m)``, ascending, without a gradient; repaired as those of :func:`eigh`."""
    S = S.detach()
    if _checks.traced():
        return torch.linalg.eigvalsh(S)
    try:
        values = torch.linalg.eigvalsh(S)
    except LinAlgError:
        values = _eigh(S)[0]
    return _repaired(S, values, values[..., None])[0]


def _eigh(S: Tensor) -> tuple[Tensor, Tensor]:
    """Decompose, all of it in float64 where float32 fails for one matrix."""
    try:
        values, vectors = torch.linalg.eigh(S)
    except LinAlgError:
        if S.dtype == torch.float64 or not bool(S.isfinite().all()):
            raise
        values, vectors = (part.to(S.dtype) for part in torch.linalg.eigh(S.double()))
    return values, vectors


def _repaired(S: Tensor, values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Decompose again, in float64, what came out as NaN from finite matrices."""
    if S.device.type != "cpu" or S.dtype == torch.float64:
        return values, vectors  # elsewhere a look would make the host wait, and the fault has not been seen
    sound = values.isfinite().all(-1) & vectors.isfinite().all(-1).all(-1)
    if bool(sound.all()):
        return values, vectors
    bad = ~sound & S.isfinite().all(-1).all(-1)
    theta, Y = torch.linalg.eigh(S[bad].double())
    values, vectors = values.clone(), vectors.clone()
    values[bad] = theta.to(values.dtype)
    vectors[bad] = Y[..., : vectors.shape[-1]].to(vectors.dtype)
    return values, vectors


def lowest_eigenpairs(S: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k lowest eigenvalues ``(*batch, k)`` and eigenvectors ``(*batch, m, k)``, without a gradient.

    On CPU few of many pairs take up to three times less than all: by the compiled kernel for batches of small matrices,
    by LAPACK's partial solver for larger ones.
    """
    S = S.detach()
    m, count = S.shape[-1], S[..., 0, 0].numel()
    if not _checks.traced() and S.device.type == "cpu" and S.dtype in (torch.float32, torch.float64):
        if count >= limits.batch and limits.smallest <= m <= limits.largest and k <= limits.share * m:
            return partial_eigh(S, k)
        if m >= limits.lapack_smallest and k <= limits.lapack_share * m:
            flat = S.reshape(-1, m, m).numpy()
            pairs = [_lapack_lowest(matrix, k) for matrix in flat]
            values, vectors = (torch.from_numpy(np.stack(part)) for part in zip(*pairs, strict=True))
            return values.reshape(*S.shape[:-2], k), vectors.reshape(*S.shape[:-1], k)
    values, vectors = eigh(S)
    return values[..., :k], vectors[..., :k]


def _lapack_lowest(matrix: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k lowest pairs by relatively robust representations, or by :func:`eigh` where these fail.

    In float32 vectors of clusters, as of many components, come out far from orthogonal now and then; and among many
    equal eigenvalues those of either routine are off by hundreds of eps, which one step towards orthonormality mends.
    """
    eps = np.finfo(matrix.dtype).eps
    try:
        values, vectors = _lapack(matrix, subset_by_index=[0, k - 1], driver="evr")
    except np.linalg.LinAlgError:
        values, vectors = np.empty(0), np.full((1, k), np.nan)
    if not np.abs(vectors.T @ vectors - np.eye(k)).max() <= 32 * eps:
        theta, Y = eigh(torch.from_numpy(matrix))
        values, vectors = theta[:k].numpy(), Y[:, :k].numpy()
    return values, polished(torch.from_numpy(vectors)).numpy()


def partial_eigh(S: Tensor, k: int) -> tuple[Tensor, Tensor]:
    r"""Return the k lowest eigenvalues ``(*batch, k)``, ascending, and orthonormal eigenvectors ``(*batch, n, k)``.

    Exact to rounding: residuals and loss of orthogonality are a modest multiple of eps and the norm of S, as those of
    ``torch.linalg.eigh``. For every item the residuals of T and its last orthogonalisation are checked; an item that
    fails, such as one that is not finite, is decomposed by ``torch.linalg.eigh`` instead. The cost is
    $\frac43 n^3 + O(n^2 k)$ operations a matrix; threads share the batch. Without a gradient.

    Parameters
    ----------
    S
        ``(*batch, n, n)`` symmetric, on CPU, float32 or float64.
    k
        Number of eigenpairs, up to n.

    Examples
    --------
    >>> values, vectors = partial_eigh(torch.diag(torch.tensor([2.0, 1.0, 5.0])), 2)
    >>> values
    tensor([1., 2.])
    """
    S = S.detach()
    batch, n = S.shape[:-2], S.shape[-1]
    if not 1 <= k <= n:
        raise ValueError(f"expected 1 <= k <= {n}, got {k}.")
    flat = S.reshape(math.prod(batch), n, n).contiguous()
    count = len(flat)
    values, vectors = flat.new_empty(count, k), flat.new_empty(count, n, k)
    failed = torch.zeros(count, dtype=torch.bool)
    lanes = -(-k // 4) * 4  # shifts advance four at a time
    start = np.random.default_rng(0).uniform(-1.0, 1.0, (n, lanes))
    entries_a_thread = 40_000
    threads = max(1, min(torch.get_num_threads(), flat.numel() // entries_a_thread))
    eps = torch.finfo(flat.dtype).eps
    _native.lowest(flat.numpy(), values.numpy(), vectors.numpy(), failed.numpy(), start, eps, threads)
    again = failed.nonzero()[:, 0]
    if len(again):
        theta, Y = torch.linalg.eigh(flat[again])
        values[again], vectors[again] = theta[:, :k], Y[..., :k]
    return values.reshape(*batch, k), vectors.reshape(*batch, n, k)
