r"""Inner products and rotations of tall blocks ``(n, s)``, by blocks of rows that stay in a cache.

Sums over nodes are float64 from block to block of rows, and float32 at most inside one.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

#: Rows that are multiplied together before their sums join the float64 ones: some blocks of them fit a cache.
ROWS = 2048


def gram(X: Tensor, Y: Tensor, inside: torch.dtype | None = None) -> Tensor:
    """Return X^T Y in float64, by blocks of rows; ``inside`` a block in float32 if both are, unless that is given."""
    return grams((X, Y), inside=inside)[0]


def _by_numpy(X: Tensor) -> bool:
    """Return whether numpy and scipy multiply X: faster than torch by a third on one thread, slower on more.

    Their threads and torch's wait for work in each other's way.
    """
    return X.device.type == "cpu" and torch.get_num_threads() == 1


def exact_gram(X: Tensor) -> Tensor:
    """Return X^T X, all in float64."""
    return gram(X, X, torch.float64)


def exact_product_(X: Tensor, C: Tensor, out: Tensor) -> Tensor:
    """Write X C to ``out``, which is float64 as C is, and return it."""
    if not _by_numpy(X):
        for i in range(0, X.shape[0], ROWS):
            out[i : i + ROWS] = X[i : i + ROWS].to(torch.float64) @ C
        return out
    rows, columns, into = X.detach().numpy(), np.ascontiguousarray(C.numpy()), out.numpy()
    for i in range(0, len(rows), ROWS):
        np.matmul(rows[i : i + ROWS].astype(np.float64), columns, out=into[i : i + ROWS])
    return out


def grams(*pairs: tuple[Tensor, Tensor], inside: torch.dtype | None = None) -> list[Tensor]:
    """Return :func:`gram` of each pair, in one pass over the rows of all of them."""
    totals = [torch.zeros(X.shape[1], Y.shape[1], dtype=torch.float64, device=X.device) for X, Y in pairs]
    dtypes = [inside or torch.promote_types(X.dtype, Y.dtype) for X, Y in pairs]
    for i in range(0, pairs[0][0].shape[0], ROWS):
        for total, dtype, (X, Y) in zip(totals, dtypes, pairs, strict=True):
            rows = X[i : i + ROWS].to(dtype)
            total += _own_gram(rows) if X is Y else rows.mT @ Y[i : i + ROWS].to(dtype)
    return totals


def _own_gram(X: Tensor) -> Tensor:
    """Return X^T X: numpy does half of the work, since it knows that the product is symmetric."""
    if not _by_numpy(X):
        return X.mT @ X
    rows = X.detach().numpy()
    return torch.from_numpy(rows.T @ rows)


def lengths(X: Tensor) -> Tensor:
    """Return the lengths of the columns of X in float64, by blocks of rows: a tenth of the time of torch's norm."""
    total = torch.zeros(X.shape[1], dtype=torch.float64, device=X.device)
    for i in range(0, X.shape[0], ROWS):
        total += X[i : i + ROWS].square().sum(0)
    return total.sqrt()


def residual_gram(X: Tensor, Y: Tensor, C: Tensor) -> Tensor:
    """Return the inner products of the columns of Y - X C in float64, by blocks of rows."""
    C = C.to(X.dtype)
    total = torch.zeros(Y.shape[1], Y.shape[1], dtype=torch.float64, device=X.device)
    for i in range(0, X.shape[0], ROWS):
        rest = torch.addmm(Y[i : i + ROWS], X[i : i + ROWS], C, alpha=-1)
        total += _own_gram(rest)
    return total


def rotate_(X: Tensor, C: Tensor) -> Tensor:
    """Replace X by X C, row block by row block, and return it."""
    C = C.to(X.dtype)
    for i in range(0, X.shape[0], ROWS):
        X[i : i + ROWS] = X[i : i + ROWS] @ C
    return X


def orthonormalize_(X: Tensor, inner: Tensor | None = None, Q: Tensor | None = None) -> Tensor:
    """Make the columns of X, or of X Q, whose inner products are known then, orthonormal in place.

    In their order, as Gram and Schmidt do, so that the first columns span what they did: a filtered guard holds much
    of the wanted vectors, which would else flow back into these. A column that depends on those before it to rounding
    becomes what rounding makes of it, a random one. Repeated as often as rounding asks for.
    """
    eps = torch.finfo(X.dtype).eps  # of the inner products, which are float32 inside a block of rows
    eye = torch.eye(X.shape[1], dtype=torch.float64, device=X.device)
    turn = eye if Q is None else Q
    if inner is not None and float(inner.diagonal().min()) <= eps * float(inner.diagonal().max()):
        rotate_(X, turn)  # lengths are below the rounding of sums that were rotated
        turn, inner = eye, None
    for _ in range(4):
        S = gram(X, X) if inner is None else inner
        scale = S.diagonal().clamp(min=torch.finfo(torch.float64).tiny).rsqrt()
        S = S * scale[:, None] * scale
        R, info = torch.linalg.cholesky_ex(S, upper=True)
        dependent = bool(info) or float(R.diagonal().min()) < 8 * eps**0.5
        if dependent:
            X.copy_(torch.linalg.qr(rotate_(X, turn * scale)).Q)
        else:
            rotate_(X, turn @ torch.linalg.solve_triangular(R, torch.diag(scale), upper=True, left=False))
        turn, inner = eye, None
        if not dependent and float(R.diagonal().min()) > 0.5:
            break
    return X
