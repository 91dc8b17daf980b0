r"""The k lowest eigenpairs of a batch of small dense symmetric matrices, without the other n - k.

$$S = Q T Q^\top, \qquad T Z = Z \Lambda, \qquad Y = Q Z, \quad Y^\top Y = I_k$$

Each matrix stays in the cache of one core from beginning to end:

1. Householder reflections bring S to tridiagonal T. The rank-2 update that one reflection leaves behind and the product
   with the next one are made in a single pass over the matrix.
2. Bisection on the number of negative eigenvalues of $T - x I$ gives the k lowest values. That number is read from the
   signs of the leading principal minors, whose recurrence has no division; all shifts advance together.
3. Inverse iteration gives the vectors of T, again for all shifts together, with every new vector made orthogonal to
   every earlier one. Between values far apart that changes nothing beyond rounding; inside a cluster it is what keeps
   the vectors independent.
4. The reflections are applied to the k vectors alone.

Steps 2 and 3 cost O(nk) and run in float64 whatever the dtype of S. The loops are in
``_kernels.eigh``; without numba :func:`available` says no.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krylow import _kernels

#: Smaller matrices are decomposed faster by LAPACK, larger ones leave the cache, and more than this part of the vectors
#: cost about as much as all of them.
SMALLEST = 20
LARGEST = 512
LARGEST_PART = 1 / 3

#: Matrices in one piece of work, and the fewest elements of S that are worth a second thread.
PIECE = 16
ELEMENTS_A_THREAD = 40_000


def available(S: Tensor, k: int) -> bool:
    """Say whether :func:`partial_eigh` applies to S and is expected to be faster than ``torch.linalg.eigh``.

    >>> available(torch.eye(10, dtype=torch.float16), 1)
    False
    """
    n = S.shape[-1]
    return (
        S.device.type == "cpu"
        and S.layout == torch.strided
        and S.dtype in (torch.float32, torch.float64)
        and 1 <= k <= LARGEST_PART * n
        and SMALLEST <= n <= LARGEST
        and _kernels.available()
    )


def partial_eigh(S: Tensor, k: int) -> tuple[Tensor, Tensor]:
    r"""Return the k lowest eigenvalues ``(*batch, k)``, ascending, and orthonormal eigenvectors ``(*batch, n, k)``.

    Exact to rounding: residuals and loss of orthogonality are a modest multiple of eps and the norm of S, as those of
    ``torch.linalg.eigh``. For every item the residuals of T are checked, and that the last orthogonalisation had little
    left to do; an item that fails, such as one that is not finite, is decomposed by ``torch.linalg.eigh`` instead. The
    cost is $\frac43 n^3 + O(n^2 k)$ operations a matrix; the batch is
    spread over ``torch.get_num_threads()`` threads. Without a gradient.

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
    return _partial_eigh(S, k)[:2]


def _partial_eigh(S: Tensor, k: int) -> tuple[Tensor, Tensor, int]:
    """Return values, vectors, and how many items were left to ``torch.linalg.eigh``."""
    S = S.detach()
    batch, n = S.shape[:-2], S.shape[-1]
    if not 1 <= k <= n:
        raise ValueError(f"expected 1 <= k <= {n}, got {k}.")
    flat = S.reshape(math.prod(batch), n, n).contiguous()
    values = flat.new_empty(flat.shape[0], k)
    vectors = flat.new_empty(flat.shape[0], n, k)
    failed = torch.zeros(flat.shape[0], dtype=torch.bool)
    arrays = [x.numpy() for x in (flat, values, vectors, failed)]
    start = np.random.default_rng(0).uniform(-1.0, 1.0, (n, _up(k, 4)))
    lowest = _kernels.eigh.lowest

    def work(first: int) -> None:
        space = _workspace(n, k, arrays[0].dtype)
        lowest(*(x[first : first + PIECE] for x in arrays), start, *space, float(np.finfo(arrays[0].dtype).eps))

    pieces = range(0, flat.shape[0], PIECE)
    threads = min(torch.get_num_threads(), len(pieces), flat.numel() // ELEMENTS_A_THREAD)
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, pieces))
    else:
        for first in pieces:
            work(first)
    again = failed.nonzero()[:, 0]
    if len(again):
        theta, Y = torch.linalg.eigh(flat[again])
        values[again], vectors[again] = theta[:, :k], Y[..., :k]
    return values.reshape(*batch, k), vectors.reshape(*batch, n, k), len(again)


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _workspace(n: int, k: int, dtype: Any) -> tuple[Any, ...]:
    """Return the arrays that the kernel works in; rows are whole cache lines, lanes whole vectors."""
    wide, lanes = _up(n, 16), _up(k, 4)
    flat = np.zeros((n + 8 + lanes) * wide + 16, dtype)
    flat = flat[-flat.ctypes.data % 64 // flat.itemsize :][: (n + 8 + lanes) * wide].reshape(-1, wide)
    A, rows, Y = flat[: n + 3], flat[n + 3 : n + 8], flat[n + 8 :]
    T = np.zeros((3, _up(n + 1, 4)))  # d, e and e^2; beyond n a diagonal that no shift reaches
    T[0], T[2] = 2.0, _kernels.eigh.TINY
    return A, rows, Y, T, np.zeros((6, lanes)), np.zeros((5, n, lanes)), np.zeros((n + 2, lanes)), np.zeros((k, n))
