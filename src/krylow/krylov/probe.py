r"""The paper's probe: a random vector through an inverse-polynomial low-pass filter.

$$v_1 \propto \Big(I + \sum_{t=1}^T a_t \tilde L^t\Big)^{-p} z, \qquad a_t \ge 0 .$$

With $L \succeq 0$ the response $h(\lambda) = (1 + \sum_t a_t \lambda^t)^{-p}$ falls with
$\lambda$: the paper's Lemma 2. $\tilde L$ is L mapped to [0, 1] by Gershgorin's bounds: unscaled, the polynomial's
condition number reaches 1e14. An L that may be indefinite is thereby shifted to be positive semidefinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from krylow import _checks
from krylow.autodiff.matrix_function import apply_function
from krylow.krylov.cg import conjugate_gradients, conjugate_gradients_with
from krylow.krylov.lanczos import lanczos, tridiagonal
from krylow.operators import FunctionOperator, Operator


def unit_interval(L: Operator) -> Operator:
    r"""Return $\tilde L = (L - l I) / (h - l)$ with h the upper bound of L, l its lower bound where negative.

    Products with it are products with L and counted there. The bounds carry their gradient.
    """
    low, high = L.gershgorin()
    low = low.clamp(max=0)
    width = high - low
    width = torch.where(width > 0, width, torch.ones_like(width))[..., None, None]
    shift = low[..., None, None]

    def multiply(X: Tensor) -> Tensor:
        Y = L.__matmul__(X)  # torch.compile knows no @ of other classes
        return (Y if L.psd else Y - shift * X) / width

    return function_of(L, multiply, (0.0, 1.0), psd=True)


def function_of(
    L: Operator, multiply: Callable[[Tensor], Tensor], bounds: tuple[float | Tensor, float | Tensor], *, psd: bool
) -> Operator:
    """Return an operator on the nodes of L by its product, with these bounds of its spectrum."""
    operator = FunctionOperator(
        multiply,
        L.n,
        batch_shape=tuple(L.batch_shape),
        dtype=L.dtype,
        device=L.device,
        bounds=bounds,
        parameters=L.tensors,
        psd=psd,
    )
    operator.mask = L.mask
    return operator


def polynomial_product(L: Operator, a: Tensor, X: Tensor) -> Tensor:
    r"""Return $(I + \sum_t a_t L^t) X$ by Horner's rule: T products a column.

    ``a`` is ``(*p, T)``, broadcastable over the batch.
    """
    Y = a[..., -1, None, None] * X
    for t in range(a.shape[-1] - 2, -1, -1):
        Y = L.__matmul__(Y) + a[..., t, None, None] * X
    return L.__matmul__(Y) + X


def response(a: Tensor, power: int) -> Callable[[Tensor], Tensor]:
    r"""Return the probe's frequency response $h(\lambda) = (1 + \sum_t a_t \lambda^t)^{-p}$ on [0, 1].

    >>> response(torch.tensor([1.0]), 2)(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 0.2500])
    """

    def h(lam: Tensor) -> Tensor:
        return torch.exp(-power * torch.log1p(_sum(a, lam)))

    return h


def _sum(a: Tensor, lam: Tensor) -> Tensor:
    r"""Return $\sum_t a_t \lambda^t$ by Horner's rule."""
    q = torch.zeros_like(lam)
    for t in range(a.shape[-1] - 1, -1, -1):
        q = (q + a[..., t, None]) * lam
    return q


def inverse_polynomial(
    L: Operator, z: Tensor, a: Tensor, power: int, steps: int, *, solver: str = "krylov", scaled: bool = True
) -> Tensor:
    r"""Return the normalised probe vector ``(*batch, n, 1)`` for a random ``z`` of that shape.

    Two solvers of the same linear systems, which agree once both have converged:

    - "krylov": $\|z\| V_s h(T_s) e_1$ from one Lanczos sequence of s = ``steps`` vectors: s products.
    - "cg": literally, p solves after each other, ``steps`` conjugate-gradient steps each, T products a step: p s T
      products. Its truncation is part of what the paper's network computes.

    Parameters
    ----------
    L
        The operator.
    z
        The random vector.
    a
        ``(*p, T)`` non-negative coefficients.
    power
        The exponent p.
    steps
        Krylov vectors, or conjugate-gradient steps a solve.
    solver
        "krylov" or "cg".
    scaled
        Whether the polynomial is one of L mapped to [0, 1], or of L as it is, which the paper's equation says. The
        latter is a much sharper filter for the same coefficients, and far from solved by a few steps of either solver.
    """
    A = unit_interval(L) if scaled else L
    if solver == "krylov":
        krylov = lanczos(A, z, min(steps, L.n), reorthogonalize=True)
        beta = krylov.beta[..., :-1]
        T = tridiagonal(krylov.alpha, beta, beta)
        e1 = torch.zeros_like(krylov.alpha)[..., None]
        e1[..., 0, :] = 1
        return _unit(krylov.V @ apply_function(T, response(a, power), e1))
    v = _unit(z)
    for _ in range(power):
        v = _unit(conjugate_gradients(lambda X: polynomial_product(A, a, X), v, steps=steps))
    return v


def learned_inverse(
    L: Operator, z: Tensor, a: Tensor, step: Tensor, momentum: Tensor, *, scaled: bool = True
) -> Tensor:
    r"""Return the normalised ``(*batch, n, 1)`` that p solves with learned numbers of conjugate gradients leave of z.

    Solve i runs :func:`krylow.krylov.cg.conjugate_gradients_with` on $I + \sum_t a_{it} \tilde L^t$. Nothing is solved
    unless the numbers say so: it is a learned polynomial of degree p (s - 1) T, in as many products.

    Parameters
    ----------
    L, z
        The operator and the random vector.
    a
        ``(*p, p, T)`` non-negative coefficients, one set a solve.
    step, momentum
        ``(*p, p, s)``.
    scaled
        As in :func:`inverse_polynomial`.
    """
    A = unit_interval(L) if scaled else L
    v = _unit(z)
    for i in range(a.shape[-2]):

        def multiply(X: Tensor, a: Tensor = a[..., i, :]) -> Tensor:
            return polynomial_product(A, a, X)

        v = _unit(conjugate_gradients_with(multiply, v, step[..., i, :], momentum[..., i, :]))
    return v


def learned_response(a: Tensor, step: Tensor, momentum: Tensor) -> Callable[[Tensor], Tensor]:
    r"""Return the frequency response of :func:`learned_inverse`: a polynomial, 1 at 0, of either sign elsewhere.

    Each of its factors is what the recurrence makes of 1 where $A = q_i(\lambda)$, over what it makes where $q_i = 1$.

    >>> one = torch.ones(1, 1)
    >>> learned_response(one, one, one)(torch.tensor([0.0, 1.0]))  # a single step: x = b
    tensor([1., 1.])
    """

    def h(lam: Tensor) -> Tensor:
        out = torch.ones_like(lam)
        for i in range(a.shape[-2]):
            q = 1 + _sum(a[..., i, :], lam)
            ends = [_factor(v, step[..., i, :], momentum[..., i, :]) for v in (q, torch.ones_like(q[..., :1]))]
            out = out * ends[0] / ends[1]
        return out

    return h


def _factor(q: Tensor, step: Tensor, momentum: Tensor) -> Tensor:
    return conjugate_gradients_with(lambda d: q[..., None] * d, torch.ones_like(q)[..., None], step, momentum)[..., 0]


def _unit(v: Tensor) -> Tensor:
    size = torch.linalg.vector_norm(v, dim=-2, keepdim=True)
    return v / torch.where(size > 0, size, torch.ones_like(size))


def power_of_two(L: Operator) -> Tensor | None:
    """Return powers of 2 that bring norms near 1, ``(*batch,)``; None where all are far from under- and overflow.

    The recurrence squares what it measures, and a probe multiplies norms.
    """
    norm, limits = L.norm_bound(), torch.finfo(L.dtype)
    outside = ((norm < limits.tiny**0.25) & (norm > 0)) | (norm > limits.max**0.25)
    if not _checks.traced() and not bool(outside.any()):
        return None
    largest = math.floor(math.log2(limits.max)) - 1
    exponent = torch.where(norm > 0, norm, torch.ones_like(norm)).log2().round().clamp(-largest, largest)
    return torch.where(outside, torch.exp2(-exponent), torch.ones_like(norm))


def rescaled(L: Operator, factor: Tensor) -> Operator:
    """Return L times ``factor`` ``(*batch,)``; its products count as those of L."""
    low, high = L.gershgorin()
    return function_of(L, lambda X: factor[..., None, None] * L.__matmul__(X), (factor * low, factor * high), psd=L.psd)
