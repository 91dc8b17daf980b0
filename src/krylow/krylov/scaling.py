"""Operators scaled so that a recurrence neither under- nor overflows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from krylow.operators import Operator

#: Norms between this power of the least and of the largest number of a dtype are used as they are.
RANGE = 0.25


def power_of_two(L: Operator) -> Tensor | None:
    """Return powers of 2 that bring norms near 1, ``(*batch,)``; None where all are far from under- and overflow.

    The recurrence squares what it measures, and a probe multiplies norms.
    """
    norm, limits = L.norm_bound(), torch.finfo(L.dtype)
    outside = ((norm < limits.tiny**RANGE) & (norm > 0)) | (norm > limits.max**RANGE)
    if not bool(outside.any()):
        return None
    largest = math.floor(math.log2(limits.max)) - 1
    exponent = torch.where(norm > 0, norm, torch.ones_like(norm)).log2().round().clamp(-largest, largest)
    return torch.where(outside, torch.exp2(-exponent), torch.ones_like(norm))


class _Scaled(Operator):
    """An operator times a positive number a graph, ``(*batch,)``; its products count as those of the operator."""

    def __init__(self, whole: Operator, factor: Tensor) -> None:
        super().__init__(tuple(whole.batch_shape), whole.n, whole.dtype, whole.device, mask=whole.mask, psd=whole.psd)
        self.whole, self.factor = whole, factor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.whole.tensors

    def _multiply(self, X: Tensor) -> Tensor:
        return self.factor[..., None, None] * (self.whole @ X)

    def diagonal(self) -> Tensor:
        return self.factor[..., None] * self.whole.diagonal()

    def gershgorin(self) -> tuple[Tensor, Tensor]:
        low, high = self.whole.gershgorin()
        return self.factor * low, self.factor * high

    def detach(self) -> Operator:
        return _Scaled(self.whole.detach(), self.factor)

    def double(self) -> _Scaled:
        return _Scaled(self.whole.double(), self.factor.double())


def scaled(L: Operator, factor: Tensor) -> Operator:
    """Return L times ``factor`` ``(*batch,)``; its products count as those of L."""
    return _Scaled(L, factor)
