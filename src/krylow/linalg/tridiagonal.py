"""Tridiagonal matrices from their diagonals."""

from __future__ import annotations

import torch
from torch import Tensor


def tridiagonal(diagonal: Tensor, below: Tensor, above: Tensor) -> Tensor:
    """Return the matrix ``(*batch, m, m)`` with these diagonals, ``(*batch, m)`` and twice ``(*batch, m - 1)``.

    >>> tridiagonal(torch.tensor([1.0, 2.0]), torch.tensor([3.0]), torch.tensor([4.0]))
    tensor([[1., 4.],
            [3., 2.]])
    """
    T = torch.diag_embed(diagonal)
    if diagonal.shape[-1] == 1:  # diag_embed takes no empty diagonal
        return T
    return T + torch.diag_embed(below, offset=-1) + torch.diag_embed(above, offset=1)
