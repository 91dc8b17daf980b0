"""The Chebyshev filter of a block."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from krylow.operators import Operator
from krylow.operators.base import Scalar


def chebyshev_filter(L: Operator, X: Tensor, degree: int, low: Tensor, high: Tensor, first: Tensor) -> Tensor:
    r"""Return $p_d(L) X$, the Chebyshev polynomial of the interval [low, high] scaled to $p_d(\text{first}) = 1$.

    Costs ``degree`` products a column. ``low``, ``high``, ``first`` are ``(*batch,)``; first < low.
    """
    Y = X
    low, high, first = (end[..., None, None] for end in (low, high, first))
    for Y in chebyshev_steps(L, X, degree, low, high, first):  # noqa: B007
        pass
    return Y


def chebyshev_steps(
    L: Operator,
    X: Tensor,
    degree: int,
    low: Scalar,
    high: Scalar,
    first: Scalar,
    work: tuple[Tensor, Tensor] | None = None,
) -> Iterator[Tensor]:
    r"""Yield $p_1(L) X, \ldots, p_d(L) X$, each of which the next but one overwrites in the two ``work`` blocks.

    The scaling $\sigma_j = T_j / T_{j+1}$ at ``first`` is folded into the recurrence, so that nothing overflows
    whatever the degree. X is kept.
    """
    e, c = (high - low) / 2, (high + low) / 2
    start = e / (first - c)
    sigma, free = start, work and work[1]
    previous, current = X, L.three_term(X, None, start / e, -c * start / e, out=work and work[0])
    yield current
    for _ in range(degree - 1):
        following = 1 / (2 / start - sigma)
        a, b = 2 * following / e, -2 * c * following / e
        Y = L.three_term(current, previous, a, b, -sigma * following, out=free)
        previous, current, sigma = current, Y, following
        free = work and previous
        yield current
