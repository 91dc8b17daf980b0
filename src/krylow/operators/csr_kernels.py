r"""A sparse matrix times a block of columns, $\text{out} = a L X + b X + c Y$, its rows shared among threads.

By the compiled kernels of ``_kernels.csr``. Rows are shared by their entries, and the answer does not depend on the
number of threads. Without numba (the extra ``large``) :func:`~krylow.operators.sparse.SparseOperator` multiplies by
torch or scipy, to the same answer up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from krylow import _kernels
from krylow._threads import shared, thread_count

#: Narrower blocks go to scipy, whose scalar loop is faster there.
LEAST_COLUMNS = 2
#: Smaller products (entries times columns) cost less than the way into compiled code, and are left to torch.
LEAST_WORK = 200_000
#: Entries times columns that are worth a thread of their own.
WORK_PER_THREAD = 1_000_000


def kernel_in_use(dtype: torch.dtype, columns: int, device: str = "cpu") -> str:
    """Return what multiplies a large sparse matrix by a block: "numba", "scipy" or "torch", for ``krylow info``.

    Parameters
    ----------
    dtype
        Of matrix and block.
    columns
        Of the block.
    device
        Of both.

    >>> import torch
    >>> kernel_in_use(torch.float32, 32, "cuda")
    'torch'
    """
    if device != "cpu" or dtype not in (torch.float32, torch.float64):
        return "torch"
    if columns < LEAST_COLUMNS:
        return "scipy"
    return "numba" if _kernels.available() else "scipy"


def three_term(
    crow: np.ndarray,
    col: np.ndarray,
    values: np.ndarray,
    X: np.ndarray,
    Y: np.ndarray | None,
    a: float,
    b: float,
    c: float,
    out: np.ndarray,
) -> None:
    """Write a L X + b X + c Y to ``out``, which may be Y.

    Parameters
    ----------
    crow, col, values
        The matrix in rows; both indices int32 or both int64.
    X, Y, out
        ``(n, s)`` blocks whose rows are contiguous, of the dtype of ``values``; None: no Y.
    a, b, c
        Numbers; a b of zero leaves the middle term out altogether.
    """
    number, second = X.dtype.type, X if Y is None else Y
    arguments = (crow, col, values, X, second, out, number(a), number(b), number(c), b != 0, Y is not None)
    _shared(_kernels.csr.three_term, arguments, crow, X.shape[1])


def quotients(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, X: np.ndarray, near: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return x^T (L - s) x and the squared length of (L - s) x for each column of X, without room for L X; all float64.

    ``near`` are the numbers s, one a column.
    """
    parts = _shared(_kernels.csr.quotients, (crow, col, values, X, near), crow, X.shape[1])
    products, squares = (sum(part) for part in zip(*parts, strict=True))
    return products, squares


def exact_rows(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, X: np.ndarray, start: int, stop: int, out: np.ndarray
) -> None:
    """Write rows ``start`` to ``stop`` of L X to ``out`` in float64, whatever values and X are in."""
    _kernels.csr.exact_rows(crow, col, values, X, start, stop, out)


def _shared(kernel: Callable[..., Any], arguments: tuple[Any, ...], crow: np.ndarray, columns: int) -> list[Any]:
    """Call a kernel for ranges of rows, one a thread, that end its arguments; return what the calls do."""
    n, entries = crow.size - 1, int(crow[-1])
    threads = max(1, min(thread_count(), entries * columns // WORK_PER_THREAD))
    if threads == 1:
        return [kernel(*arguments, 0, n)]
    # Of crow's dtype: numbers of another would have a copy of it made.
    ends = np.searchsorted(crow, np.array([entries * t // threads for t in range(1, threads)], dtype=crow.dtype))
    return shared(lambda start, stop: kernel(*arguments, start, stop), [0, *(int(end) for end in ends), n])
