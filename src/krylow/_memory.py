"""Room for large arrays."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def empty(*shape: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """Return a tensor of any content.

    On the host it is numpy's, which asks the system for large pages. torch's own room comes in pages of 4 KiB, whose
    first touch costs several times what a pass over them does.

    >>> empty(2, 3, dtype=torch.float32).shape
    torch.Size([2, 3])
    """
    if torch.device(device).type != "cpu":
        return torch.empty(*shape, dtype=dtype, device=device)
    return torch.from_numpy(np.empty(shape, dtype=torch.empty(0, dtype=dtype).numpy().dtype))
