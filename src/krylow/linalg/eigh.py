"""The symmetric eigendecomposition of a batch, over all the threads that torch may use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

#: Below this many matrices a thread, or above this size, LAPACK's own threads are the better ones.
MATRICES_A_THREAD = 16
LARGEST = 192


def eigh(S: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues ``(*batch, m)`` and eigenvectors ``(*batch, m, m)``, as ``torch.linalg.eigh`` does.

    On CPU torch decomposes the matrices of a batch one after the other; here the batch is cut into one part a thread.
    Without a gradient.
    """
    S = S.detach()
    m, count = S.shape[-1], S[..., 0, 0].numel()
    threads = torch.get_num_threads()
    if S.device.type != "cpu" or threads == 1 or m > LARGEST or count < threads * MATRICES_A_THREAD:
        values, vectors = torch.linalg.eigh(S)
        return values, vectors
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(torch.linalg.eigh, S.reshape(count, m, m).chunk(threads)))
    values, vectors = (torch.cat(part) for part in zip(*parts, strict=True))
    return values.reshape(S.shape[:-1]), vectors.reshape(S.shape)
