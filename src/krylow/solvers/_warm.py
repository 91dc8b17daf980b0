r"""A warm start from an earlier answer that comes with its own bound of the next frequency.

An earlier :class:`~krylow.result.Subspace` of nearly the same graph has k vectors near the wanted ones, and an estimate
of $\lambda_{k+1}$. With that as lower end of the filter's interval no guard vectors are needed: the k vectors alone are
filtered until Davis and Kahan's bound, for the filter in place of L, is small enough. What they have missed below the
cut, since the graph has changed, they would never show. So this is used only where a proof follows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from krylow.autodiff.projector import orthonormalize
from krylow.krylov.chebyshev import chebyshev_filter
from krylow.krylov.ritz import Ritz, rotate
from krylow.linalg.perturbation import davis_kahan
from krylow.operators import Operator


def refine_start(
    L: Operator, start: Tensor, following: Tensor, tol: float, *, sweeps: int = 12, reduction: float = 2.0
) -> Ritz | None:
    r"""Return the Ritz pairs of a filtered start, with ``following`` behind them.

    None where the start is no basis, or does not come to an estimated error of ``tol``.

    Parameters
    ----------
    L
        The operator.
    start
        ``(*batch, n, k)``.
    following
        ``(*batch,)`` the estimate of $\lambda_{k+1}$.
    tol
        Normalised squared subspace error to stop at, by estimate.
    sweeps, reduction
        Most sweeps, and the factor that one is to reduce the error of the k-th vector by.
    """
    X, high = orthonormalize(start), L.gershgorin()[1]
    if not bool((torch.linalg.vector_norm(X, dim=-2) > 0.5).all()):
        return None
    found = rotate(L, X)
    for _ in range(sweeps):
        X, theta = found.X, found.theta
        gap = following - theta[..., -1]
        if not bool(((gap > 0) & (following < high)).all()):
            return None
        rate = torch.acosh(1 + 2 * gap / (high - following)).clamp(min=1e-6).amin()
        degree = int((torch.acosh(torch.tensor(reduction).to(rate)) / rate).clamp(2, 256).ceil())
        Y = chebyshev_filter(L, X, degree, following, high, theta[..., 0])
        # Davis and Kahan's bound for p(L) before the sweep, |p| <= eta above the cut, contracted by the sweep.
        eta = 1 / torch.cosh(degree * torch.acosh(1 + 2 * (following - theta[..., 0]) / (high - following)))
        G = X.mT @ Y
        mu, Q = torch.linalg.eigh((G + G.mT) / 2)
        residuals = torch.linalg.vector_norm((Y - X @ G) @ Q, dim=-2)
        left = residuals * eta[..., None] / mu.abs().clamp(min=torch.finfo(mu.dtype).tiny)
        found = rotate(L, Y)
        if bool((davis_kahan(left, mu - eta[..., None]) <= tol).all()):
            theta = torch.cat([found.theta, following[..., None]], dim=-1)
            unknown = torch.full_like(following[..., None], torch.inf)
            return Ritz(theta, found.X, torch.cat([found.residuals, unknown], dim=-1), how="from the earlier answer")
    return None
