"""Bounds on the error of an approximate invariant subspace."""

from __future__ import annotations

import torch
from torch import Tensor


def davis_kahan(residuals: Tensor, gaps: Tensor) -> Tensor:
    r"""Bound the normalised squared subspace error by residuals and gaps.

    Let $x_1, \ldots, x_k$ be orthonormal Ritz vectors with values $\theta_i$ and residual norms $\rho_i$. For an
    eigenvector v of a dropped eigenvalue $\lambda \ge \lambda_{k+1}$,
    $(\lambda - \theta_i) \, v^\top x_i = v^\top (L x_i - \theta_i x_i)$, and summing over all of them,

    $$\frac1k \|(I - \hat U \hat U^\top) U_k\|_F^2 = \frac1k \sum_{i, v} (v^\top x_i)^2
    \le \frac1k \sum_{i \le k} \frac{\rho_i^2}{(\lambda_{k+1} - \theta_i)^2} ,$$

    which is Davis and Kahan's sine theorem with a gap for each vector.

    Parameters
    ----------
    residuals
        ``(*batch, k)``.
    gaps
        ``(*batch, k)``, or ``(*batch, 1)`` for a common one: lower bounds of $\lambda_{k+1} - \theta_i$.

    Returns
    -------
    Tensor
        ``(*batch,)``, at most 1 (no error is larger), and infinite where a gap is not positive.
    """
    bound = (residuals / gaps).square().mean(-1).clamp(max=1)
    return torch.where((gaps > 0).all(-1), bound, torch.full_like(bound, torch.inf))
