"""A diagonal matrix: an operator seen in its own eigenbasis."""

from __future__ import annotations

import torch
from torch import Tensor

from krylow.operators.base import Operator


class DiagonalOperator(Operator):
    r"""The matrix $\Lambda = \mathrm{diag}(\lambda)$, one or a batch.

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
        super().__init__(
            tuple(eigenvalues.shape[:-1]), eigenvalues.shape[-1], eigenvalues.dtype, eigenvalues.device, psd=psd
        )
        self.eigenvalues = eigenvalues
        self.bounds = bounds

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
        if self.bounds is not None:
            return self.bounds
        return self.eigenvalues.amin(-1), self.eigenvalues.amax(-1)

    def detach(self) -> DiagonalOperator:
        """Return the same operator without a gradient."""
        return self._like(self.eigenvalues.dtype)

    def double(self) -> DiagonalOperator:
        """Return the same operator in float64, without a gradient."""
        return self._like(torch.float64)

    def _to(self, dtype: torch.dtype, device: torch.device) -> DiagonalOperator:
        bounds = None if self.bounds is None else (self.bounds[0].to(device, dtype), self.bounds[1].to(device, dtype))
        return DiagonalOperator(self.eigenvalues.to(device, dtype), bounds=bounds, psd=self.psd)

    def _items(self, places: Tensor) -> DiagonalOperator:
        bounds = None
        if self.bounds is not None:
            low, high = (bound.expand(self.batch_shape).reshape(-1)[places] for bound in self.bounds)
            bounds = (low, high)
        return DiagonalOperator(self.eigenvalues.reshape(-1, self.n)[places], bounds=bounds, psd=self.psd)

    def _like(self, dtype: torch.dtype) -> DiagonalOperator:
        bounds = None
        if self.bounds is not None:
            bounds = (self.bounds[0].detach().to(dtype), self.bounds[1].detach().to(dtype))
        return DiagonalOperator(self.eigenvalues.detach().to(dtype), bounds=bounds, psd=self.psd)
