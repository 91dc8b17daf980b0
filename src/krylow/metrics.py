r"""Distances between subspaces, none of which sees signs or the choice of a basis.

All take orthonormal bases ``(*batch, n, k)`` and return one value per batch item, ``(*batch,)``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError


def subspace_error(U_hat: Tensor, U: Tensor, *, squared: bool = True) -> Tensor:
    r"""Return how much of span(U) the approximation misses, the paper's eq. (subspace_error).

    $$\bar{\mathcal E}^2_{\mathrm{sub}} = \frac1k \, \|(I - \hat U \hat U^\top) U\|_F^2 \in [0, 1],$$

    or, with ``squared=False``, $\mathcal E_{\mathrm{sub}} = \|(I - \hat U \hat U^\top) U\|_F$. Differentiable in both.

    >>> eye = torch.eye(3)
    >>> subspace_error(eye[:, :2], eye[:, 1:])
    tensor(0.5000)
    """
    _same_space(U_hat, U)
    missed = U - U_hat @ (U_hat.mT @ U)
    if not _checks.flag(squared, "squared"):
        return torch.linalg.matrix_norm(missed)
    return missed.square().sum(dim=(-2, -1)) / U.shape[-1]


def principal_angles(U_hat: Tensor, U: Tensor) -> Tensor:
    r"""Return the angles between the subspaces, ``(*batch, k)`` radians, ascending.

    Small angles are taken from their sines, large ones from their cosines, so that both are right to rounding.

    >>> eye = torch.eye(3)
    >>> torch.rad2deg(principal_angles(eye[:, :2], eye[:, 1:]))
    tensor([ 0., 90.])
    """
    _same_space(U_hat, U, finite=True)
    if max(U.shape[-1], U_hat.shape[-1]) > U.shape[-2]:
        raise InputError(f"bases must have at most n = {U.shape[-2]} columns, got {U_hat.shape[-1]} and {U.shape[-1]}.")
    k = min(U.shape[-1], U_hat.shape[-1])
    cosines = torch.linalg.svdvals(U_hat.mT @ U)[..., :k].clamp(max=1)
    sines = torch.linalg.svdvals(U - U_hat @ (U_hat.mT @ U)).flip(-1)[..., :k].clamp(max=1)
    return torch.where(cosines.square() > 0.5, torch.asin(sines), torch.acos(cosines))


def orthogonality_loss(V: Tensor) -> Tensor:
    r"""Return $\|V^\top V - I\|_F$.

    >>> orthogonality_loss(torch.eye(3)[:, :2])
    tensor(0.)
    """
    _same_space(V, V)
    eye = torch.eye(V.shape[-1], dtype=V.dtype, device=V.device)
    return torch.linalg.matrix_norm(V.mT @ V - eye)


def krylov_ceiling(V: Tensor, U: Tensor) -> Tensor:
    r"""Return the least error that any k-dimensional subspace of span(V) can have.

    $$\min_{\hat U \subset \mathrm{span}(V)} \bar{\mathcal E}^2_{\mathrm{sub}}(\hat U, U)
    = 1 - \frac1k \sum_{i \le k} \sigma_i(Q^\top U)^2,$$

    with Q an orthonormal basis of span(V), ``(*batch, n, m)`` with any columns (zero and dependent ones do not count).
    Whatever an extraction does with V, it cannot do better. Past a condition number of V of about 1 / sqrt(eps) the
    span itself is rounding.

    >>> eye = torch.eye(3, dtype=torch.float64)
    >>> krylov_ceiling(eye[:, :2], eye[:, 1:])
    tensor(0.5000, dtype=torch.float64)
    """
    _same_space(V, U, finite=True)
    size = torch.linalg.vector_norm(V, dim=-2, keepdim=True)
    Q, sigma, _ = torch.linalg.svd(V / torch.where(size > 0, size, torch.ones_like(size)), full_matrices=False)
    Q = Q * (sigma > V.shape[-2] * torch.finfo(V.dtype).eps * sigma[..., :1])[..., None, :]
    missed = U - Q @ (Q.mT @ U)
    return missed.square().sum(dim=(-2, -1)) / U.shape[-1]


def _same_space(A: Tensor, B: Tensor, *, finite: bool = False) -> None:
    """Check that two bases are tensors of one dtype in one space, and can be divided if ``finite``."""
    for basis in (A, B):
        _checks.tensor(basis, "a basis")
        if finite:
            _checks.finite(basis.square(), "the squares of a basis")
    if A.dtype != B.dtype:
        raise InputError(f"both bases must have one dtype, got {A.dtype} and {B.dtype}: convert one with .to().")
    if A.ndim < 2 or B.ndim < 2 or A.shape[-2] != B.shape[-2]:
        raise InputError(
            f"both bases must be (*batch, n, k) with the same n, got shapes {tuple(A.shape)} and {tuple(B.shape)}."
        )
