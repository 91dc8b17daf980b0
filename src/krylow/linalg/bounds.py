"""Bounds on the error of an approximate invariant subspace."""

from __future__ import annotations

import torch
from torch import Tensor


def davis_kahan(residuals: Tensor, gap: Tensor) -> Tensor:
    r"""Bound the normalised squared subspace error by residuals and gap.

    For an orthonormal $\hat U$ with Ritz values at most $\theta_k$, residual
    $R = L \hat U - \hat U (\hat U^\top L \hat U)$ and $\delta = \lambda_{k+1} - \theta_k > 0$, Davis and Kahan's sine
    theorem says

    $$\frac1k \|(I - \hat U \hat U^\top) U_k\|_F^2 \le \frac{\|R\|_F^2}{k \, \delta^2} .$$

    Parameters
    ----------
    residuals
        ``(*batch, k)`` norms of the columns of R.
    gap
        ``(*batch,)`` a lower bound of $\delta$.

    Returns
    -------
    Tensor
        ``(*batch,)``, at most 1 (no error is larger), and infinite where the gap is not positive.
    """
    bound = (residuals.square().mean(-1) / gap.square()).clamp(max=1)
    return torch.where(gap > 0, bound, torch.full_like(bound, torch.inf))
