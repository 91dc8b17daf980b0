"""Room for large arrays."""

from __future__ import annotations

import math
import mmap

import numpy as np
import torch
from torch import Tensor

#: Bytes of a line of the cache, at which an array begins.
LINE = 64
#: Bytes from which on an array is mapped by itself.
LARGE = 1 << 23


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
    room = _room(math.prod(shape) * dtype.itemsize + LINE)
    start = -room.ctypes.data % LINE
    return torch.from_numpy(room[start : room.size - LINE + start]).view(dtype).view(*shape)


def _room(size: int) -> np.ndarray:
    """Return so many bytes."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if size < LARGE or advice is None:
        return np.empty(size, dtype=np.uint8)
    room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    room.madvise(advice)
    return np.frombuffer(room, dtype=np.uint8)
