"""Room for large arrays."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Bytes of a line of the cache, at which an array begins.
LINE = 64
#: Bytes of a large page. Arrays of so many are mapped by themselves, and begin at one.
PAGE = 1 << 21
#: An end that would fill no more than this part of another one comes in small pages.
PART = 0.75


def empty(*shape: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """Return a tensor of any content.

    On the host it comes in large pages where the system has them. torch's own room comes in pages of 4 KiB, whose first
    touch costs several times what a pass over them does. The largest are mapped by themselves, so that they go back to
    the system when they are given up, not to the heap.

    >>> block = empty(2, 3, dtype=torch.float32)
    >>> block.shape, block.data_ptr() % LINE
    (torch.Size([2, 3]), 0)
    """
    if torch.device(device).type != "cpu":
        return torch.empty(*shape, dtype=dtype, device=device)
    room = _room(math.prod(shape) * dtype.itemsize)
    return torch.from_numpy(room).view(dtype).view(*shape)


def arrays(*wanted: tuple[int | tuple[int, ...], Any]) -> list[np.ndarray]:
    """Return numpy arrays of any content, each given by its shape and dtype, side by side in one room as of `empty`.

    >>> ids, values = arrays((3, np.int32), ((2, 2), np.float64))
    >>> ids.shape, values.shape, values.ctypes.data - ids.ctypes.data
    ((3,), (2, 2), 64)
    """
    sizes = [np.dtype(dtype).itemsize * int(np.prod(shape)) for shape, dtype in wanted]
    *starts, end = np.cumsum([0, *(-(-size // LINE) * LINE for size in sizes)]).tolist()
    room = _room(end)
    return [
        room[start : start + size].view(dtype).reshape(shape)
        for start, size, (shape, dtype) in zip(starts, sizes, wanted, strict=True)
    ]


def discard(x: np.ndarray) -> None:
    """Give the whole pages inside a contiguous array back to the system, where it takes them; the content is lost.

    For a block that is spent row by row while another one is filled: both together then take the room of one.
    """
    advice = getattr(mmap, "MADV_DONTNEED", None)
    if advice is None or not x.flags.c_contiguous:
        return
    start = -(-x.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (x.ctypes.data + x.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start:
        _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), ctypes.c_int(advice))


def trim(beside: Tensor) -> None:
    """Give what is free on the heap back to the system, where the C library can, before rooms like this one are taken.

    Nothing is done where they are so small that this would cost more than it saves.
    """
    if os.name == "posix" and beside.device.type == "cpu" and beside.nbytes >= PAGE:
        getattr(_libc(), "malloc_trim", lambda keep: 0)(0)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _room(size: int) -> np.ndarray:
    """Return so many bytes, from a line of the cache or a large page on."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if size < PAGE or advice is None:
        return _aligned(np.empty(size + LINE, dtype=np.uint8), size, LINE)
    mapped = mmap.mmap(-1, (size // PAGE + 2) * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(mapped, dtype=np.uint8)
    room = _aligned(whole, size, PAGE)
    pages, rest = divmod(size, PAGE)
    if rest > PART * PAGE:
        pages += 1
    mapped.madvise(advice, room.ctypes.data - whole.ctypes.data, pages * PAGE)
    return room


def _aligned(room: np.ndarray, size: int, step: int) -> np.ndarray:
    start = -room.ctypes.data % step
    return room[start : start + size]
