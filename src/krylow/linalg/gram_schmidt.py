"""Orthonormal bases of spans whose vectors may depend on each other, column by column, twice."""

from __future__ import annotations

import torch
from torch import Tensor

from krylow import _checks, _native
from krylow.linalg.row_blocks import gram


def polished(X: Tensor) -> Tensor:
    """Return nearly orthonormal columns, or zero ones, orthonormal to rounding: a step of :func:`newton_schulz`."""
    return X @ newton_schulz(X)


def newton_schulz(X: Tensor) -> Tensor:
    r"""Return what takes nearly orthonormal columns to the nearest orthonormal ones: $(3 I - X^\top X) / 2$.

    A step of Newton and Schulz: a deviation d becomes one of order $d^2$. Sums over the nodes are made by blocks, since
    those of many equal numbers, as of a null vector, would be off by as many eps.
    """
    inner = gram(X, X).to(X.dtype) if X.ndim == 2 else X.mT @ X
    return 1.5 * torch.eye(X.shape[-1], dtype=X.dtype, device=X.device) - 0.5 * inner


def outside(Z: Tensor, V: Tensor, *, least: float = 0.1) -> Tensor:
    """Return orthonormal columns that span what Z has outside the span of V, orthonormal but for zero columns.

    Columns that depend on V or on earlier ones are zero. The second pass removes the rounding of the first; of a column
    that it shortens to less than ``least`` nothing but rounding was there.
    """
    size = torch.linalg.vector_norm(Z, dim=-2, keepdim=True)
    Q = Z / torch.where(size > 0, size, torch.ones_like(size))
    for tiny in (10 * Z.shape[-2] * torch.finfo(Z.dtype).eps, least):
        X = Q - V @ (V.mT @ Q)
        Q, R = torch.linalg.qr(X)
        if X.shape[-1] > X.shape[-2] or _checks.traced() or bool((R.diagonal(dim1=-2, dim2=-1).abs() <= tiny).any()):
            Q = gram_schmidt(X, tiny)[0]
    return Q


def gram_schmidt(X: Tensor, tiny: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return Q, R with X = Q R, dependent columns of Q zero, and which columns are not, ``(*batch, k)``.

    Parameters
    ----------
    X
        ``(*batch, n, k)``, columns of norm 1 or 0.
    tiny
        What is left of a column that depends on those before it, at most.
    """
    if X.device.type != "cpu" or _checks.traced():
        return _by_columns(X, tiny)
    n, k = X.shape[-2:]
    rows = X.detach().mT.reshape(-1, k, n).contiguous()  # a column is a row here: one after the other in memory
    Q, R = torch.empty_like(rows), rows.new_zeros(rows.shape[0], k, k)
    alive = torch.zeros(rows.shape[:2], dtype=torch.bool)
    _native.gram_schmidt(rows.numpy(), Q.numpy(), R.numpy(), alive.numpy(), tiny)
    batch = X.shape[:-2]
    return Q.mT.reshape(*batch, n, k), R.reshape(*batch, k, k), alive.reshape(*batch, k)


def _by_columns(X: Tensor, tiny: float) -> tuple[Tensor, Tensor, Tensor]:
    Q = torch.zeros_like(X)
    alive = torch.zeros((*X.shape[:-2], X.shape[-1]), dtype=torch.bool, device=X.device)
    for j in range(X.shape[-1]):
        x = X[..., j : j + 1]
        for _ in range(2):
            x = x - Q @ (Q.mT @ x)
        size = torch.linalg.vector_norm(x, dim=-2, keepdim=True)
        alive[..., j] = size[..., 0, 0] > tiny
        Q[..., j : j + 1] = torch.where(size > tiny, x / torch.where(size > 0, size, torch.ones_like(size)), 0)
    return Q, (Q.mT @ X).triu(), alive
