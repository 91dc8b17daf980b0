"""Dense symmetric matrices, one or a batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from krylow import _checks
from krylow.operators.base import Operator


class DenseOperator(Operator):
    """A dense matrix ``(*batch, n, n)``, taken as symmetric without a check (:func:`as_operator` checks).

    Arrays and nested lists of numbers become tensors. A matrix that is no Laplacian, but whose lowest eigenvectors are
    wanted all the same, is given to :func:`~krylow.subspace` as this operator.

    One product costs 2 n^2 operations; a block of up to about 8 columns costs hardly more time than one column.

    >>> import torch
    >>> L = DenseOperator(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    >>> L @ torch.tensor([1.0, 0.0])
    tensor([ 1., -1.])
    >>> L.products
    1
    """

    def __init__(self, matrix: Any, *, mask: Tensor | None = None, psd: bool = False) -> None:
        if not isinstance(matrix, Tensor):
            matrix = _checks.numbers(matrix, "a matrix")
        if not matrix.is_floating_point():
            matrix = _checks.floating(matrix, "a matrix")
        super().__init__(tuple(matrix.shape[:-2]), matrix.shape[-1], matrix.dtype, matrix.device, mask=mask, psd=psd)
        self.matrix = matrix

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The matrix."""
        return (self.matrix,)

    def _multiply(self, X: Tensor) -> Tensor:
        if X.shape[-1] == 1:  # a row times a matrix is several times faster than a matrix times a column on CPU
            return (X.mT @ self.matrix).mT
        return self.matrix @ X

    def diagonal(self) -> Tensor:
        """Return the diagonal, ``(*batch, n)``."""
        return self.matrix.diagonal(dim1=-2, dim2=-1)

    def gershgorin(self) -> tuple[Tensor, Tensor]:
        """Return Gershgorin's lower and upper bound, each ``(*batch,)``."""
        diagonal = self.diagonal()
        radius = self.matrix.abs().sum(-1) - diagonal.abs()
        low, high = (diagonal - radius).amin(-1), (diagonal + radius).amax(-1)
        return (low.clamp(min=0) if self.psd else low), high

    def detach(self) -> DenseOperator:
        """Return the same operator without a gradient."""
        return DenseOperator(self.matrix.detach(), mask=self.mask, psd=self.psd)

    def double(self) -> DenseOperator:
        """Return the same operator in float64, without a gradient."""
        return DenseOperator(self.matrix.detach().to(torch.float64), mask=self.mask, psd=self.psd)

    def _to(self, dtype: torch.dtype, device: torch.device) -> DenseOperator:
        mask = None if self.mask is None else self.mask.to(device)
        return DenseOperator(self.matrix.to(device, dtype), mask=mask, psd=self.psd)

    def _items(self, places: Tensor) -> DenseOperator:
        matrix = self.matrix.reshape(-1, self.n, self.n)[places]
        mask = None if self.mask is None else self.mask.reshape(-1, self.n)[places]
        if mask is not None and mask.ndim == 1:  # one graph: without the nodes that only pad it
            matrix, mask = matrix[mask][:, mask], None
        return DenseOperator(matrix, mask=mask, psd=self.psd)

    def to_dense(self) -> Tensor:
        """Return the matrix itself."""
        return self.matrix
