"""The symmetric eigendecomposition of a batch, whole or in part."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from scipy.linalg import eigh as _partial
from torch import Tensor

from krylow.linalg.partial_eigh import available, partial_eigh

LinAlgError = torch.linalg.LinAlgError  # type: ignore[attr-defined]  # public, and missing from its list of names

#: Below this many matrices a thread, or above this size, LAPACK's own threads are the better ones.
MATRICES_A_THREAD = 16
LARGEST = 192
#: LAPACK's partial solver pays for matrices of at least this size, and at most this share of the pairs.
PARTIAL_SIZE = 128
PARTIAL_SHARE = 4
#: Fewer matrices are not worth loading a compiler for.
KERNEL_BATCH = 16


def eigh(S: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues ``(*batch, m)`` and eigenvectors ``(*batch, m, m)``, as ``torch.linalg.eigh`` does.

    On CPU torch decomposes the matrices of a batch one after the other; here the batch is cut into one part a thread.
    LAPACK fails on some finite float32 matrices whose eigenvalues repeat and whose entries span all magnitudes, with an
    error or, by divide and conquer, with NaN and without one: those are decomposed again in float64. Without a
    gradient.
    """
    S = S.detach()
    m, count = S.shape[-1], S[..., 0, 0].numel()
    threads = 1 if torch.compiler.is_compiling() else torch.get_num_threads()
    if S.device.type != "cpu" or threads == 1 or m > LARGEST or count < threads * MATRICES_A_THREAD:
        values, vectors = _eigh(S)
        return _mended(S, values, vectors)
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(_eigh, S.reshape(count, m, m).chunk(threads)))
    values, vectors = (torch.cat(part) for part in zip(*parts, strict=True))
    return _mended(S, values.reshape(S.shape[:-1]), vectors.reshape(S.shape))


def eigvalsh(S: Tensor) -> Tensor:
    """Return the eigenvalues ``(*batch, m)``, ascending, without a gradient; mended as those of :func:`eigh`."""
    S = S.detach()
    try:
        values = torch.linalg.eigvalsh(S)
    except LinAlgError:
        values = _eigh(S)[0]
    return _mended(S, values, None)[0]


def _eigh(S: Tensor) -> tuple[Tensor, Tensor]:
    """Decompose, all of it in float64 where float32 fails for one matrix."""
    try:
        values, vectors = torch.linalg.eigh(S)
    except LinAlgError:
        if S.dtype == torch.float64 or not bool(S.isfinite().all()):
            raise
        values, vectors = (part.to(S.dtype) for part in torch.linalg.eigh(S.double()))
    return values, vectors


def _mended(S: Tensor, values: Tensor, vectors: Tensor | None) -> tuple[Tensor, Tensor]:
    """Decompose again, in float64, what came out as NaN from finite matrices; vectors None: values alone matter."""
    vectors = values[..., None] if vectors is None else vectors
    if S.device.type != "cpu" or S.dtype == torch.float64 or torch.compiler.is_compiling():
        return values, vectors  # elsewhere a look would make the host wait, and the fault has not been seen
    whole = values.isfinite().all(-1) & vectors.isfinite().all(-1).all(-1)
    if bool(whole.all()):
        return values, vectors
    bad = ~whole & S.isfinite().all(-1).all(-1)
    again, turned = torch.linalg.eigh(S[bad].double())
    values, vectors = values.clone(), vectors.clone()
    values[bad] = again.to(values.dtype)
    vectors[bad] = turned[..., : vectors.shape[-1]].to(vectors.dtype)
    return values, vectors


def lowest_eigenpairs(S: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k lowest eigenvalues ``(*batch, k)`` and eigenvectors ``(*batch, m, k)``, without a gradient.

    On CPU few of many pairs take up to three times less than all: by our own kernel where numba is there to compile it
    and a batch to share its start, by LAPACK's partial solver for larger matrices.
    """
    S = S.detach()
    m, count = S.shape[-1], S[..., 0, 0].numel()
    if count >= KERNEL_BATCH and available(S, k):
        return partial_eigh(S, k)
    if S.device.type != "cpu" or m < PARTIAL_SIZE or k > m // PARTIAL_SHARE:
        values, vectors = eigh(S)
        return values[..., :k], vectors[..., :k]
    pairs = [_partial(matrix, subset_by_index=[0, k - 1], driver="evr") for matrix in S.reshape(-1, m, m).numpy()]
    values, vectors = (torch.from_numpy(np.stack(part)) for part in zip(*pairs, strict=True))
    return values.reshape(*S.shape[:-2], k), vectors.reshape(*S.shape[:-1], k)
