"""Dense symmetric matrices and diagonal ones, one or a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
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
        _checks.square(matrix, "a matrix")
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


class DiagonalOperator(Operator):
    r"""The matrix $\Lambda = \mathrm{diag}(\lambda)$, one or a batch: an operator in its own eigenbasis.

    Krylov methods commute with orthogonal changes of basis: on $\Lambda = U^\top L U$ with the start vector $U^\top z$
    they compute the same coefficients as on $L$ with $z$, and $U^\top$ times the same vectors. A Gaussian z stays
    Gaussian. So a network that is trained on graphs whose spectra are known may be trained here, at n instead of
    n^2 operations a product.

    Parameters
    ----------
    eigenvalues
        ``(*batch, n)``.
    bounds
        Lower and upper bound of the spectrum, each ``(*batch,)``, that stand for those of the matrix it is the
        eigenbasis of: whatever scales by Gershgorin's bounds of L has to scale by the same here. None: the extreme
        eigenvalues.
    psd
        Whether all eigenvalues are known to be non-negative.

    >>> import torch
    >>> DiagonalOperator(torch.tensor([0.0, 2.0])) @ torch.tensor([1.0, 1.0])
    tensor([0., 2.])
    """

    def __init__(self, eigenvalues: Tensor, *, bounds: tuple[Tensor, Tensor] | None = None, psd: bool = False) -> None:
        shape = _checks.tensor(eigenvalues, "eigenvalues").shape
        if not shape:
            raise InputError("eigenvalues must be (*batch, n), got a number.")
        super().__init__(tuple(shape[:-1]), shape[-1], eigenvalues.dtype, eigenvalues.device, psd=psd)
        self.eigenvalues = eigenvalues
        batch = shape[:-1]
        self.bounds = bounds and (bounds[0].to(eigenvalues).expand(batch), bounds[1].to(eigenvalues).expand(batch))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The eigenvalues."""
        return (self.eigenvalues,)

    def _multiply(self, X: Tensor) -> Tensor:
        return self.eigenvalues[..., None] * X

    def diagonal(self) -> Tensor:
        """Return the eigenvalues."""
        return self.eigenvalues

    def gershgorin(self) -> tuple[Tensor, Tensor]:
        """Return the bounds given, or the extreme eigenvalues."""
        return self.bounds or (self.eigenvalues.amin(-1), self.eigenvalues.amax(-1))

    def detach(self) -> DiagonalOperator:
        """Return the same operator without a gradient."""
        return self._each(Tensor.detach)

    def _to(self, dtype: torch.dtype, device: torch.device) -> DiagonalOperator:
        return self._each(lambda part: part.to(device, dtype))

    def _items(self, places: Tensor) -> DiagonalOperator:
        return self._each(lambda part: part.flatten(0, len(self.batch_shape) - 1)[places])

    def _each(self, change: Callable[[Tensor], Tensor]) -> DiagonalOperator:
        """Return the operator whose eigenvalues and bounds are changed."""
        bounds = self.bounds and (change(self.bounds[0]), change(self.bounds[1]))
        return DiagonalOperator(change(self.eigenvalues), bounds=bounds, psd=self.psd)
