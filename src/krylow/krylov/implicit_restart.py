r"""Implicitly restarted Lanczos with given shifts: a polynomial filter of the start that never forms what it filters.

With shifts $r_1, \ldots, r_d$ the basis spans $\mathcal K_m\big(L, \prod_i (L - r_i I) \, z\big)$, as if the start had
been filtered first, at the same number of products. But a start that is filtered well lies nearly in a space of k
dimensions, and finding the weakest of them divides by components near the rounding error; here the filter is applied to
a basis that stays orthonormal, a few shifts at a time (Sorensen, 1992).
"""

from __future__ import annotations

import torch
from torch import Tensor

from krylow.krylov.lanczos import Krylov, breakdown_threshold
from krylow.operators import Operator


def implicit_restart(L: Operator, z: Tensor, k: int, m: int, shifts: Tensor) -> Krylov:
    r"""Return an orthonormal basis of $\mathcal K_m\big(L, \prod_i (L - r_i I) \, z\big)$ and its coefficients.

    A cycle applies m - k shifts by QR steps on the small matrix, $T - r I = Q R$, $T \leftarrow R Q + r I$,
    $V \leftarrow V Q$, which shortens the basis by as many columns, and grows it again. Costs m + d products for d
    shifts, memory (m + 1) n.

    Parameters
    ----------
    L
        The operator.
    z
        ``(*batch, n, 1)`` start.
    k, m
        Columns left by a full cycle, and columns of the basis, k < m.
    shifts
        ``(*batch, d)``; d of any size.
    """
    tiny = breakdown_threshold(L)[..., None, None]
    V = torch.zeros_like(z)[..., :0]
    T = z.new_zeros((*z.shape[:-2], 0, 0))
    V, T, f = _grow(L, V, T, z, 1, torch.zeros_like(tiny))  # the start has a size of its own, unlike residuals
    V, T, f = _grow(L, V, T, f, m, tiny)
    for group in shifts.split(m - k, dim=-1) if shifts.shape[-1] else ():
        V, T, f = _compress(V, T, f, group)
        V, T, f = _grow(L, V, T, f, m, tiny)
    beta = T.diagonal(offset=1, dim1=-2, dim2=-1)
    last = torch.linalg.vector_norm(f, dim=-2)
    steps = (torch.linalg.vector_norm(V, dim=-2) > 0.5).sum(-1)
    return Krylov(V, T.diagonal(dim1=-2, dim2=-1), torch.cat([beta, last], dim=-1), f, steps)


def _grow(L: Operator, V: Tensor, T: Tensor, f: Tensor, m: int, tiny: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Continue L V = V T + f e^T until V has m columns, orthogonalising twice against all of them."""
    while V.shape[-1] < m:
        beta = torch.linalg.vector_norm(f, dim=-2, keepdim=True)
        alive = beta > tiny
        v = torch.where(alive, f / torch.where(alive, beta, torch.ones_like(beta)), torch.zeros_like(f))
        V = torch.cat([V, v], dim=-1)
        w = L @ v
        alpha = (v * w).sum(-2, keepdim=True)
        for _ in range(2):
            w = w - V @ (V.mT @ w)
        f = w
        T = torch.nn.functional.pad(T, (0, 1, 0, 1))
        T[..., -1, -1] = alpha[..., 0, 0]
        if T.shape[-1] > 1:
            T[..., -1, -2] = T[..., -2, -1] = torch.where(alive, beta, torch.zeros_like(beta))[..., 0, 0]
    return V, T, f


def _compress(V: Tensor, T: Tensor, f: Tensor, shifts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Apply shifts to the basis; each costs it a column."""
    m = T.shape[-1]
    eye = torch.eye(m, dtype=T.dtype, device=T.device)
    Q = eye.expand_as(T)
    for shift in shifts.unbind(-1):
        r = shift[..., None, None] * eye
        q, R = torch.linalg.qr(T - r)
        T = R @ q + r
        T = (T + T.mT) / 2
        Q = Q @ q
    left = m - shifts.shape[-1]
    W = V @ Q[..., : left + 1]
    f = W[..., left:] * T[..., left, left - 1, None, None] + f * Q[..., m - 1, left - 1, None, None]
    V = W[..., :left]
    return V, T[..., :left, :left].clone(), f - V @ (V.mT @ f)
