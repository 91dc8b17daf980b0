"""A basis that grows by columns."""

from __future__ import annotations

import torch
from torch import Tensor


class GrowingBasis:
    """Columns ``(*batch, n, j)`` appended one block at a time.

    Where a gradient is recorded the columns are kept apart and joined when asked for, since a tape cannot see into a
    buffer that is written later; otherwise they are written into one buffer and joined for free.
    """

    def __init__(self, first: Tensor, capacity: int, *, tracked: bool) -> None:
        self._columns: list[Tensor] = []
        self._buffer = None if tracked else first.new_zeros((*first.shape[:-1], capacity))
        self.width = 0
        self.append(first)

    def append(self, columns: Tensor) -> None:
        """Add columns ``(*batch, n, s)`` at the right."""
        if self._buffer is None:
            self._columns.append(columns)
        else:
            self._buffer[..., self.width : self.width + columns.shape[-1]] = columns
        self.width += columns.shape[-1]

    def matrix(self) -> Tensor:
        """Return the basis so far, ``(*batch, n, width)``."""
        if self._buffer is None:
            return torch.cat(self._columns, dim=-1)
        return self._buffer[..., : self.width]
