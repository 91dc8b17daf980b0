"""The Rayleigh-Ritz step: the best eigenpairs inside a given orthonormal basis."""

from __future__ import annotations

import torch
from torch import Tensor


def rayleigh_ritz(V: Tensor, LV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the Ritz values ``(*batch, k)`` and the rotation ``(*batch, s, k)`` of an orthonormal V, given L V."""
    H = V.mT @ LV
    theta, Y = torch.linalg.eigh((H + H.mT) / 2)
    return theta[..., :k], Y[..., :k]
