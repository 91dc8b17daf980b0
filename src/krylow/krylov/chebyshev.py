"""The Chebyshev filter of a block."""

from __future__ import annotations

from torch import Tensor

from krylow.operators import Operator


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
