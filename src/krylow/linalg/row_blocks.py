r"""Inner products and rotations of tall blocks ``(n, s)``, by blocks of rows that stay in a cache.

Sums over nodes are float64 from block to block of rows, and float32 at most inside one. Threads share the rows; where
ranks do, sums are those over all of them (:mod:`krylow._reduce`).
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow._reduce import agreed, stacked, summed
from krylow._threads import shared, thread_count, uninterrupted

#: Rows whose products are summed before they join the float64 sums.
ROWS = 2048
#: Entries of a block that are gone through at once, and that are worth a thread: a cache holds them.
PIECE = 1 << 18

_buffers = threading.local()


def gram(X: Tensor, Y: Tensor, inside: torch.dtype | None = None) -> Tensor:
    """Return X^T Y in float64, by blocks of rows; ``inside`` a block in float32 if both are, unless that is given."""
    return grams((X, Y), inside=inside)[0]


def exact_gram(X: Tensor) -> Tensor:
    """Return X^T X, all in float64."""
    return gram(X, X, torch.float64)


def grams(*pairs: tuple[Tensor, Tensor], inside: torch.dtype | None = None) -> list[Tensor]:
    """Return :func:`gram` of each pair, in one pass over the rows of all of them."""
    dtypes = [inside or torch.promote_types(X.dtype, Y.dtype) for X, Y in pairs]
    blocks = [(_array(X), _array(Y)) for X, Y in pairs]

    def products(i: int, j: int) -> list[Any]:
        found = []
        for dtype, (x, y), (X, Y) in zip(dtypes, blocks, pairs, strict=True):
            left = _cast(x[i:j], dtype, 0)
            found.append(_block_gram(left, left if X is Y else _cast(y[i:j], dtype, 1)))
        return found

    return _summed(pairs[0][0], products)


def lengths(X: Tensor) -> Tensor:
    """Return the lengths of the columns of X in float64, by blocks of rows: a tenth of the time of torch's norm."""
    x = _array(X)

    def squares(i: int, j: int) -> list[Any]:
        rows = x[i:j]
        if isinstance(rows, Tensor):
            return [rows.square().sum(0, dtype=torch.float64)]
        blocks, rest = _in_blocks(rows)
        return [np.einsum("bij,bij->bj", blocks, blocks).sum(0, dtype=np.float64) + np.einsum("ij,ij->j", rest, rest)]

    return _summed(X, squares)[0].sqrt()


def residual_gram(X: Tensor, Y: Tensor, C: Tensor) -> Tensor:
    """Return the inner products of the columns of Y - X C in float64, by blocks of rows."""
    x, y, c = _array(X), _array(Y), _array(C.to(X.dtype))

    def products(i: int, j: int) -> list[Any]:
        rest = _product(x[i:j], c)
        rest -= y[i:j]
        return [_block_gram(rest, rest)]

    return _summed(X, products)[0]


def image_gram(image: Callable[[int, int, Any], None], X: Tensor, out: Tensor) -> Tensor:
    """Return X^T Y in float64 and write Y to ``out``, where ``image(i, j, buffer)`` writes rows i to j of Y.

    On the host, and without all of Y in float64.
    """
    x, into = _array(X), _array(out)

    def products(i: int, j: int) -> list[Any]:
        y = _buffer((j - i, x.shape[1]), np.dtype(np.float64))
        image(i, j, y)
        into[i:j] = y
        return [_block_gram(_cast(x[i:j], torch.float64, 1), y)]

    return _summed(X, products)[0]


def exact_product_(X: Tensor, C: Tensor, out: Tensor) -> Tensor:
    """Write X C to ``out``, which is float64 as C is, and return it."""
    x, c, into = _array(X), _array(C.contiguous()), _array(out)

    def write(i: int, j: int) -> None:
        (torch if isinstance(x, Tensor) else np).matmul(_cast(x[i:j], torch.float64, 1), c, out=into[i:j])

    _shares(X, write)
    return out


def rotate_(X: Tensor, C: Tensor) -> Tensor:
    """Replace X by X C, row block by row block, and return it."""
    x, c = _array(X), _array(C.to(X.dtype))

    def turn(i: int, j: int) -> None:
        x[i:j] = _product(x[i:j], c)

    with uninterrupted():
        _shares(X, turn)
    return X


def recombine_(parts: Sequence[Tensor], C: Tensor, into: Sequence[Tensor]) -> None:
    """Write [parts] C side by side to blocks that may be some of the parts, row block by row block."""
    split = C.to(parts[0]).split([part.shape[1] for part in parts])
    (first, *others) = [(_array(part), _array(c.contiguous())) for part, c in zip(parts, split, strict=True)]
    targets, ends = [_array(block) for block in into], np.cumsum([0, *(block.shape[1] for block in into)])

    def work(i: int, j: int) -> None:
        total = _product(first[0][i:j], first[1], 1)
        for part, c in others:
            total += _product(part[i:j], c)
        for target, start, end in zip(targets, ends[:-1], ends[1:], strict=True):
            target[i:j] = total[:, start:end]

    with uninterrupted():
        _shares(parts[0], work)


def subtract_(X: Tensor, parts: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    """Subtract each part times its factor from X, row block by row block."""
    x, pairs = _array(X), [(_array(part), _array(C.to(X.dtype))) for part, C in zip(parts, factors, strict=True)]

    def work(i: int, j: int) -> None:
        for part, c in pairs:
            x[i:j] -= _product(part[i:j], c)

    _shares(X, work)


def _array(X: Tensor) -> Any:
    """Return X for numpy where that can multiply it: faster than torch on narrow blocks, and X^T X is half the work."""
    return X.detach().numpy() if X.device.type == "cpu" else X.detach()


def _cast(x: Any, dtype: torch.dtype, which: int) -> Any:
    """Return x in a dtype, in one of this thread's buffers if that is another one."""
    if isinstance(x, Tensor):
        return x.to(dtype)
    kind = np.dtype(np.float64 if dtype == torch.float64 else np.float32)
    if x.dtype == kind:
        return x
    buffer = _buffer(x.shape, kind, which)
    buffer[...] = x
    return buffer


def _product(x: Any, c: Any, which: int = 0) -> Any:
    """Return x c, in a buffer of this thread."""
    return x @ c if isinstance(x, Tensor) else np.matmul(x, c, out=_buffer((len(x), c.shape[1]), x.dtype, which))


def _buffer(shape: tuple[int, ...], dtype: Any, which: int = 0) -> Any:
    """Return an array of any content until this thread asks for it again: memory that is new costs its first touch."""
    size, name = math.prod(shape), f"{which} {dtype}"
    found = getattr(_buffers, name, None)
    if found is None or found.size < size:
        found = np.empty(size, dtype)
        setattr(_buffers, name, found)
    return found[:size].reshape(shape)


def _block_gram(x: Any, y: Any) -> Any:
    """Return x^T y in float64, the sums over ``ROWS`` rows each in the dtype of both."""
    (a, a_rest), (b, b_rest) = _in_blocks(x), _in_blocks(y)
    if isinstance(x, Tensor):
        return (a.mT @ b).sum(0, dtype=torch.float64) + a_rest.mT @ b_rest
    return np.matmul(a.swapaxes(1, 2), b).sum(0, dtype=np.float64) + a_rest.T @ b_rest


def _in_blocks(x: Any) -> tuple[Any, Any]:
    """Return x as blocks of ``ROWS`` rows, and the remaining rows."""
    end = x.shape[0] // ROWS * ROWS
    return x[:end].reshape(end // ROWS, ROWS, x.shape[1]), x[end:]


def _summed(X: Tensor, work: Callable[[int, int], list[Any]]) -> list[Tensor]:
    """Return the sums of what ``work(i, j)`` returns for all pieces i to j of the rows of X."""
    parts = zip(*_shares(X, work), strict=True)
    return summed(*(torch.as_tensor(functools.reduce(lambda a, b: a + b, each)) for each in parts))


def _shares(X: Tensor, work: Callable[[int, int], Any]) -> list[Any]:
    """Return ``work(i, j)`` of all pieces i to j of the rows of X, in their order; threads share them."""
    n, step = X.shape[0], max(1, PIECE // (ROWS * max(1, X.shape[1]))) * ROWS
    pieces = max(1, -(-n // step))  # a rank without rows adds nothing to a sum, but takes part in it
    threads = min(thread_count(), max(1, X.numel() // PIECE)) if X.device.type == "cpu" else 1

    def share(first: int, last: int) -> list[Any]:
        return [work(p * step, min((p + 1) * step, n)) for p in range(first, last)]

    return [done for part in shared(share, [pieces * t // threads for t in range(threads + 1)]) for done in part]


def orthonormalize_(X: Tensor, inner: Tensor | None = None, Q: Tensor | None = None) -> Tensor:
    """Make the columns of X, or of X Q, whose inner products are known then, orthonormal in place.

    By Cholesky factors of the inner products, repeated as often as rounding asks for. In the columns' order, as Gram
    and Schmidt, so that the first columns span what they did: a filtered guard vector has large components along the
    wanted vectors. A column that depends on those before it to rounding becomes a random one, as rounding makes it.
    """
    eps = torch.finfo(X.dtype).eps  # of the inner products, which are float32 inside a block of rows
    eye = torch.eye(X.shape[1], dtype=torch.float64, device=X.device)
    turn = eye if Q is None else Q
    if inner is not None and agreed(float(inner.diagonal().min()) <= eps * float(inner.diagonal().max())):
        rotate_(X, turn)  # lengths are below the rounding of sums that were rotated
        turn, inner = eye, None
    for _ in range(4):
        S = gram(X, X) if inner is None else inner
        size = S.diagonal()
        scale = torch.where(size > torch.finfo(X.dtype).tiny, size.rsqrt(), torch.zeros_like(size))
        S = S * scale[:, None] * scale
        R, info = agreed(torch.linalg.cholesky_ex(S, upper=True))
        dependent = bool(info) or float(R.diagonal().min()) < 8 * eps**0.5
        if dependent:
            X.copy_(_orthonormal(rotate_(X, turn * scale)))
        else:
            rotate_(X, turn @ torch.linalg.solve_triangular(R, torch.diag(scale), upper=True, left=False))
        turn, inner = eye, None
        if not dependent and float(R.diagonal().min()) > 0.5:
            break
    return X


def _orthonormal(X: Tensor) -> Tensor:
    """Return the Q of a QR factorisation; over ranks by that of their R, stacked (TSQR, Demmel et al., 2012)."""
    Q, R = torch.linalg.qr(X)
    found = stacked(R)
    if found is None:
        return Q
    every, first = found
    return Q @ torch.linalg.qr(every).Q[first : first + R.shape[0]]


def project_by_blocks(
    U: Tensor, x: np.ndarray, out: np.ndarray | None = None, *, most_columns: int = 4096, entries: int = 2**22
) -> np.ndarray:
    r"""Return $U U^\top x$ for more signals than memory holds, such as a ``numpy.memmap``.

    Beyond U and the result, ``k * most_columns + 2 * entries`` numbers are in memory, whatever the number of signals.

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
    for first in range(0, width, most_columns):
        columns = slice(first, min(first + most_columns, width))
        height = max(1, entries // (columns.stop - columns.start))
        chunks = [slice(top, min(top + height, n)) for top in range(0, n, height)]
        inside = torch.zeros(U.shape[-1], columns.stop - columns.start, dtype=U.dtype)
        for rows in chunks:
            part = torch.from_numpy(np.array(x[rows, columns], dtype=numbers, order="C"))
            inside += U[rows].mT @ _checks.finite(part, "the signal")
        for rows in chunks:
            out[rows, columns] = (U[rows] @ inside).numpy()
    return out
