"""Room for large arrays."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

#: Bytes of a line of the cache, at which an array begins.
LINE = 64


def empty(*shape: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """Return a tensor of any content.

    On the host it is numpy's, which asks the system for large pages. torch's own room comes in pages of 4 KiB, whose
    first touch costs several times what a pass over them does.

    >>> block = empty(2, 3, dtype=torch.float32)
    >>> block.shape, block.data_ptr() % LINE
    (torch.Size([2, 3]), 0)
    """
    if torch.device(device).type != "cpu":
        return torch.empty(*shape, dtype=dtype, device=device)
    room = np.empty(math.prod(shape) * dtype.itemsize + LINE, dtype=np.uint8)
    start = -room.ctypes.data % LINE
    return torch.from_numpy(room[start : room.size - LINE + start]).view(dtype).view(*shape)
