"""Buffers for large arrays, aligned to cache lines and huge pages."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
import torch
from torch import Tensor


def empty(*shape: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """Return a tensor of any content; on the host it begins at a cache line, and is in huge pages if it is large.

    The first touch of torch's own memory, in pages of 4 KiB, costs several times what a pass over it does.

    >>> block = empty(2, 3, dtype=torch.float32)
    >>> block.shape, block.data_ptr() % 64
    (torch.Size([2, 3]), 0)
    """
    if torch.device(device).type != "cpu":
        return torch.empty(*shape, dtype=dtype, device=device)
    return torch.from_numpy(_buffer(math.prod(shape) * dtype.itemsize)).view(dtype).view(*shape)


def arrays(*wanted: tuple[int | tuple[int, ...], Any]) -> list[np.ndarray]:
    """Return numpy arrays of any content, each given by its shape and dtype, in such buffers."""
    return [
        _buffer(np.dtype(dtype).itemsize * int(np.prod(shape))).view(dtype).reshape(shape) for shape, dtype in wanted
    ]


def _buffer(size: int) -> np.ndarray:
    """Return so many bytes; from 2 MiB on they are mapped by themselves, and go back to the system when given up."""
    line, page, advice = 64, 1 << 21, getattr(mmap, "MADV_HUGEPAGE", None)
    if size < page or advice is None:
        step, whole = line, np.empty(size + line, dtype=np.uint8)
    else:
        mapped = mmap.mmap(-1, size + page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        mapped.madvise(advice)
        step, whole = page, np.frombuffer(mapped, dtype=np.uint8)
    start = -whole.ctypes.data % step
    return whole[start : start + size]


def overlapping(X: Tensor, Y: Tensor) -> bool:
    """Return whether the ranges of memory of two blocks overlap."""

    def ends(block: Tensor) -> tuple[int, int]:
        last = sum((size - 1) * stride for size, stride in zip(block.shape, block.stride(), strict=True))
        return block.data_ptr(), block.data_ptr() + (last + 1) * block.element_size()

    if not X.numel() or X.device != Y.device:
        return False
    (start, end), (other_start, other_end) = ends(X), ends(Y)
    return start < other_end and other_start < end
