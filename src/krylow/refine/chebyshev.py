r"""Chebyshev-filtered subspace iteration.

A block X is multiplied by $T_d\big((2L - (a + b) I) / (b - a)\big)$, which is at most 1 in size on the unwanted
interval [a, b] and grows like $\cosh(d \, \mathrm{arcosh})$ below a, then made orthonormal and rotated to its Ritz
vectors. The interval is found on the way: a is the block's own largest Ritz value, b an upper bound of the spectrum.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from krylow.operators import Operator
from krylow.refine.progress import Watch
from krylow.refine.ritz import Ritz, rotate, settled

#: The filter's degree aims at this much growth of the k-th vector over the block's last one in one sweep.
GROWTH = 1e3
DEGREES = (6, 64)


def chebyshev_filter(L: Operator, X: Tensor, degree: int, low: Tensor, high: Tensor, first: Tensor) -> Tensor:
    r"""Return $p_d(L) X$, the Chebyshev polynomial of the interval [low, high] scaled to $p_d(\text{first}) = 1$.

    Costs ``degree`` products a column. ``low``, ``high``, ``first`` are ``(*batch,)``; first < low. The scaling is
    folded into the three-term recurrence, so that nothing overflows whatever the degree.
    """
    e, c = ((high - low) / 2)[..., None, None], ((high + low) / 2)[..., None, None]
    sigma1 = e / (first[..., None, None] - c)
    sigma = sigma1
    previous, current = X, (L @ X - c * X) * (sigma1 / e)
    for _ in range(degree - 1):
        following = 1 / (2 / sigma1 - sigma)
        previous, current = current, (L @ current - c * current) * (2 * following / e) - sigma * following * previous
        sigma = following
    return current


def chebyshev_subspace(
    L: Operator,
    X: Tensor,
    k: int,
    *,
    tol: float,
    max_products: int,
    degree: int | None = None,
    watch: Watch | None = None,
) -> Ritz:
    """Return Ritz pairs of a filtered block, the k lowest of which have an estimated error of at most ``tol``.

    A block holds as many copies of a repeated eigenvalue as it has columns, so nothing below the cut is missed unless
    the random block happens to be orthogonal to it.

    Parameters
    ----------
    L
        The operator.
    X
        ``(*batch, n, s)`` start block with s > k; the s - k guards set the speed of convergence.
    k
        Wanted pairs.
    tol
        Estimated normalised squared subspace error to stop at.
    max_products
        Most products with L.
    degree
        Of the filter. None: chosen before each sweep from the Ritz values.
    watch
        Told of every sweep. Ctrl-C ends the iteration with what the last sweep found.
    """
    high = L.gershgorin()[1]
    ritz = rotate(L, X)
    spent = X.shape[-1]
    while not bool(((ritz.estimate(k) <= tol) | settled(L.norm_bound(), ritz.residuals[..., : k + 1])).all()):
        first, cut = ritz.theta[..., 0], ritz.theta[..., -1]
        sweep = degree or _degree(ritz.theta[..., k - 1], cut, high)
        if spent + (sweep + 1) * X.shape[-1] > max_products:
            break
        flat = cut <= first  # one eigenvalue in the whole block: any interval above it serves
        cut = torch.where(flat, (first + high) / 2, cut)
        high_now = torch.where(high > cut, high, cut + 1)
        first = torch.where(first < cut, first, cut - 1)
        try:
            ritz = rotate(L, chebyshev_filter(L, ritz.X, sweep, cut, high_now, first))
            spent += (sweep + 1) * X.shape[-1]
            if watch is not None:
                watch.report(float(ritz.estimate(k).max()))
        except KeyboardInterrupt:
            return replace(ritz, interrupted=True)
    return ritz


def _degree(theta_k: Tensor, cut: Tensor, high: Tensor) -> int:
    """Return the degree at which the k-th vector grows by ``GROWTH`` over the block's last."""
    x = 1 + 2 * (cut - theta_k) / (high - cut).clamp(min=torch.finfo(cut.dtype).tiny)
    rate = torch.acosh(x).amin()
    wanted = torch.acosh(torch.tensor(GROWTH)) / rate.clamp(min=1e-6)
    return int(wanted.clamp(*DEGREES).ceil())
