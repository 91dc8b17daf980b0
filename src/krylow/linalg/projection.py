r"""The projection $U U^\top X$ of more signals than memory holds, such as a ``numpy.memmap``."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError

#: Columns that are filtered together, and entries of the signal that are in memory at a time.
COLUMNS, ENTRIES = 4096, 2**22


def project_by_blocks(U: Tensor, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Return U U^T x, reading x and writing the result a few rows and columns at a time.

    Beside U and the result, ``k * COLUMNS + 2 * ENTRIES`` numbers are in memory, whatever the number of signals.

    Parameters
    ----------
    U
        ``(n, k)`` orthonormal columns.
    x
        ``(n, c)``; each entry is read twice.
    out
        ``(n, c)`` of U's dtype, or of x's, that the result is written to, such as a ``numpy.memmap``; it may be x
        itself. None: a new array in memory, of x's dtype where that is floating.
    """
    n, width = x.shape
    numbers = torch.empty(0, dtype=U.dtype).numpy().dtype
    own = x.dtype if x.dtype.kind == "f" else numbers
    out = np.empty((n, width), dtype=own) if out is None else out
    fits = isinstance(out, np.ndarray) and out.shape == x.shape and out.dtype in (numbers, own)
    if not fits or not out.flags.writeable:
        came = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InputError(f"out must be a writable numpy array of {numbers} and shape {x.shape}, got {came}.")
    U = U.detach().cpu()
    for first in range(0, width, COLUMNS):
        columns = slice(first, min(first + COLUMNS, width))
        height = max(1, ENTRIES // (columns.stop - columns.start))
        chunks = [slice(top, min(top + height, n)) for top in range(0, n, height)]
        inside = torch.zeros(U.shape[-1], columns.stop - columns.start, dtype=U.dtype)
        for rows in chunks:
            part = torch.from_numpy(np.array(x[rows, columns], dtype=numbers, order="C"))
            inside += U[rows].mT @ _checks.finite(part, "the signal")
        for rows in chunks:
            out[rows, columns] = (U[rows] @ inside).numpy()
    return out
