r"""Chebyshev series on an interval that need not hold the spectrum, whose own recurrence tells whether it does.

A proved bound of the spectrum is often a third above it, and the degree grows with the interval. Where frequencies lie
beyond an interval, $T_d$ is large there; a signal whose $T_d(t(L)) x$ is no larger than x has little of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from krylow.expansion import Bank, Expansion, at_nodes, coefficients_of, least_within, left_out

#: Frequencies beyond a short interval that are looked at.
POINTS = 80
#: An interval is shortened for at most this part of the degree.
FEWER = 0.95


@torch.no_grad()
def shortened(g: Bank, series: Expansion, high: Tensor, dtype: torch.dtype, working: torch.dtype) -> Expansion | None:
    r"""Return a series of less degree on [low, high], which need not hold the spectrum; None where there is none.

    For one graph. ``series`` is on an interval [low, b] that does hold the spectrum, ``dtype`` what g is evaluated in,
    and the recurrence runs in ``working``. What lies beyond ``high`` can hide no more than it shows: where a signal has
    $\|T_d(t(L)) x\| \le \|x\|$, which is looked at, $\sum_i T_d(t(\lambda_i))^2 x_i^2 \le \|x\|^2$ and

    $$\|g(L) x - p_d(L) x\|^2 \le \Bigl(\max_{[\text{low}, \text{high}]} |g - p_d|^2
    + \max_{(\text{high}, b]} \frac{|g - p_d|^2}{T_d^2}\Bigr) \|x\|^2 .$$

    The second term takes in rounding that grows there. The degree is the least for which all is within the tolerance.
    """
    low, limit = series.low, series.tol * series.size
    C = coefficients_of(at_nodes(g, low, high, 2 ** math.ceil(math.log2(2 * series.degree)), dtype))
    inside = left_out(g, low, high, C, dtype)
    outside = _beyond(g, low, high, series.high, torch.finfo(working).eps)
    most = math.floor(FEWER * series.degree)
    degree = least_within(lambda d: bool((inside(d) <= limit).all()), 1, most + 1)
    while degree <= most:
        error = (inside(degree).square() + outside(C[: degree + 1]).square()).sqrt()
        if bool((error <= limit).all()):
            return Expansion(C[: degree + 1], error, series.size, low, high, series.tol, watched=True)
        degree += max(1, degree // 32)
    return None


def _beyond(g: Bank, low: Tensor, high: Tensor, end: Tensor, eps: float) -> Callable[[Tensor], Tensor]:
    r"""Return what gives the largest error of coefficients between ``high`` and ``end``, over $T_d$, ``(filters,)``.

    With $b_i = c_i + 2 t b_{i+1} - b_{i+2}$ (Clenshaw), rounding $e_i$ in step i adds $e_i b_i$ to the sum and
    $e_i U_{d-i}$ to $T_d x$: no more than $\max_i |b_i| / U_{d-i}$ where that is not seen, nor than
    $4 \epsilon \sum_i |b_i|$.
    """
    last = torch.acosh(1 + 2 * (end - high) / (high - low))

    def largest(C: Tensor) -> Tensor:
        d = C.shape[0] - 1
        first = torch.minimum(last, torch.full_like(last, 0.02 / d))
        # theta = arcosh t: what is looked at changes evenly with its logarithm.
        part = torch.linspace(0, 1, POINTS, dtype=C.dtype, device=C.device)
        theta = (first * (last / first) ** part)[:, None]
        steps = torch.arange(d, -1, -1, dtype=C.dtype, device=C.device)
        growth = torch.exp((steps * theta).clamp(max=600))
        scaled = C / growth[..., None]  # (points, d + 1, filters)
        q = torch.exp(-2 * theta)
        b = [torch.zeros_like(scaled[:, 0])] * 2
        for i in range(d, -1, -1):  # b_i over exp((d - i) theta)
            b.append(scaled[:, i] + (1 + q) * b[-1] - q * b[-2])
        p, T = b[-1] - (1 + q) / 2 * b[-2], (1 + q**d) / 2  # both over exp(d theta)
        lam = low + (high - low) / 2 * (1 + torch.cosh(theta[:, 0]))
        error = p / T - g(lam).double() / torch.cosh(d * theta)
        sizes = torch.stack(b[:1:-1], dim=-2).abs()  # (points, d + 1, filters)
        U = (1 - q * growth**-2) / (1 - q)  # over the same
        rounding = torch.minimum(4 * eps * (growth[..., None] * sizes).sum(-2), (sizes / U[..., None]).amax(-2))
        # A tenth for what lies between the frequencies looked at, and for the norms' own rounding.
        return 1.1 * (error.square() + rounding.square()).sqrt().amax(0)

    return largest
