r"""Inner products and rotations of tall blocks ``(n, s)``, by blocks of rows that stay in a cache.

Sums over nodes are float64 from block to block of rows, and float32 at most inside one.
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

from krylow._interrupts import uninterrupted
from krylow._memory import discard
from krylow._threads import shared, thread_count

#: Rows whose products are summed before they join the float64 sums.
ROWS = 2048
#: Numbers of a block that are gone through at once, in whole blocks of rows: few calls, and a cache holds them.
PIECE = 1 << 18
#: Numbers of a block that are worth a thread.
PER_THREAD = 1 << 18


class _Rooms(threading.local):
    """Arrays of one thread, by their place and dtype."""

    def __init__(self) -> None:
        self.of: dict[tuple[int, Any], Any] = {}


_rooms = _Rooms()


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
    """Return X^T Y in float64 and write Y to ``out``, where ``image(i, j, room)`` writes rows i to j of Y to a room.

    On the host: there is never room for all of Y in float64.
    """
    x, into = _array(X), _array(out)

    def products(i: int, j: int) -> list[Any]:
        y = _room((j - i, x.shape[1]), np.dtype(np.float64))
        image(i, j, y)
        into[i:j] = y
        return [_block_gram(_cast(x[i:j], torch.float64, 1), y)]

    return _summed(X, products)[0]


def exact_product_(X: Tensor, C: Tensor, out: Tensor) -> Tensor:
    """Write X C to ``out``, which is float64 as C is, and return it; X is spent, and its room given back on the way."""
    x, c, into = _array(X), _array(C.contiguous()), _array(out)

    def write(i: int, j: int) -> None:
        (torch if isinstance(x, Tensor) else np).matmul(_cast(x[i:j], torch.float64, 1), c, out=into[i:j])
        if not isinstance(x, Tensor):
            discard(x[i:j])

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


def _cast(x: Any, dtype: torch.dtype, room: int) -> Any:
    """Return x in a dtype, in one of this thread's rooms if that is another one."""
    if isinstance(x, Tensor):
        return x.to(dtype)
    kind = np.dtype(np.float64 if dtype == torch.float64 else np.float32)
    if x.dtype == kind:
        return x
    there = _room(x.shape, kind, room)
    there[...] = x
    return there


def _product(x: Any, c: Any, room: int = 0) -> Any:
    """Return x c, in a room of this thread."""
    return x @ c if isinstance(x, Tensor) else np.matmul(x, c, out=_room((len(x), c.shape[1]), x.dtype, room))


def _room(shape: tuple[int, ...], dtype: Any, which: int = 0) -> Any:
    """Return an array of any content until this thread asks for it again: memory that is new costs its first touch."""
    size = math.prod(shape)
    found = _rooms.of.get((which, dtype))
    if found is None or found.size < size:
        found = _rooms.of[which, dtype] = np.empty(size, dtype)
    return found[:size].reshape(shape)


def _block_gram(x: Any, y: Any) -> Any:
    """Return x^T y in float64, the sums over ``ROWS`` rows each in the dtype of both."""
    (a, a_rest), (b, b_rest) = _in_blocks(x), _in_blocks(y)
    if isinstance(x, Tensor):
        return (a.mT @ b).sum(0, dtype=torch.float64) + a_rest.mT @ b_rest
    return np.matmul(a.swapaxes(1, 2), b).sum(0, dtype=np.float64) + a_rest.T @ b_rest


def _in_blocks(x: Any) -> tuple[Any, Any]:
    """Return x as blocks of ``ROWS`` rows, and the rows that are left."""
    whole = x.shape[0] // ROWS * ROWS
    return x[:whole].reshape(-1, ROWS, x.shape[1]), x[whole:]


def _summed(X: Tensor, work: Callable[[int, int], list[Any]]) -> list[Tensor]:
    """Return the sums of what ``work(i, j)`` returns for all pieces i to j of the rows of X."""
    parts = zip(*_shares(X, work), strict=True)
    return [torch.as_tensor(functools.reduce(lambda a, b: a + b, each)) for each in parts]


def _shares(X: Tensor, work: Callable[[int, int], Any]) -> list[Any]:
    """Return ``work(i, j)`` of all pieces i to j of the rows of X, in their order; threads share them."""
    n, step = X.shape[0], max(1, PIECE // (ROWS * max(1, X.shape[1]))) * ROWS
    pieces = -(-n // step)
    threads = min(thread_count(), max(1, X.numel() // PER_THREAD)) if X.device.type == "cpu" else 1

    def share(first: int, last: int) -> list[Any]:
        return [work(p * step, min((p + 1) * step, n)) for p in range(first, last)]

    return [done for part in shared(share, [pieces * t // threads for t in range(threads + 1)]) for done in part]


def orthonormalize_(X: Tensor, inner: Tensor | None = None, Q: Tensor | None = None) -> Tensor:
    """Make the columns of X, or of X Q, whose inner products are known then, orthonormal in place.

    In their order, as Gram and Schmidt do, so that the first columns span what they did: a filtered guard holds much
    of the wanted vectors, which would else flow back into these. A column that depends on those before it to rounding
    becomes what rounding makes of it, a random one. Repeated as often as rounding asks for.
    """
    eps = torch.finfo(X.dtype).eps  # of the inner products, which are float32 inside a block of rows
    eye = torch.eye(X.shape[1], dtype=torch.float64, device=X.device)
    turn = eye if Q is None else Q
    if inner is not None and float(inner.diagonal().min()) <= eps * float(inner.diagonal().max()):
        rotate_(X, turn)  # lengths are below the rounding of sums that were rotated
        turn, inner = eye, None
    for _ in range(4):
        S = gram(X, X) if inner is None else inner
        size = S.diagonal()
        scale = torch.where(size > torch.finfo(X.dtype).tiny, size.rsqrt(), torch.zeros_like(size))
        S = S * scale[:, None] * scale
        R, info = torch.linalg.cholesky_ex(S, upper=True)
        dependent = bool(info) or float(R.diagonal().min()) < 8 * eps**0.5
        if dependent:
            X.copy_(torch.linalg.qr(rotate_(X, turn * scale)).Q)
        else:
            rotate_(X, turn @ torch.linalg.solve_triangular(R, torch.diag(scale), upper=True, left=False))
        turn, inner = eye, None
        if not dependent and float(R.diagonal().min()) > 0.5:
            break
    return X
