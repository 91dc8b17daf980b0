"""What has to be known of a large graph's spectrum before it is filtered: its top, and whether float32 holds it."""

from __future__ import annotations

import torch

from krylow.operators import DenseOperator, Operator, SparseOperator

#: Sizes of a spectrum's larger end for which float32 serves.
SINGLE_RANGE = 1e-12, 1e15
#: Steps of the Lanczos run that bounds the spectrum from above; its start is larger at heavy nodes by this power of
#: their degrees, beside this part of the largest at all, which makes it as tight as 8 steps from a random one.
TOP_STEPS, TOP_POWER, TOP_LIGHT = 5, 4, 0.01


def fits_single(L: Operator) -> bool:
    """Return whether the spectrum lies where float32 holds squares of frequencies, and differences of them."""
    low, high = (abs(float(bound)) for bound in L.gershgorin())
    return SINGLE_RANGE[0] <= max(low, high) <= SINGLE_RANGE[1]


def single_dtype(L: Operator) -> torch.dtype:
    """Return float32 where the entries of L are known and fit; else its own dtype."""
    known = isinstance(L, (SparseOperator, DenseOperator))
    return torch.float32 if known and fits_single(L) else L.dtype


def single(L: Operator) -> Operator:
    """Return L on float32 blocks, without a gradient, where its entries are known and fit; else L."""
    if single_dtype(L) != torch.float32:
        return L.detach()
    if isinstance(L, SparseOperator):
        return L.float()
    if isinstance(L, DenseOperator):
        return DenseOperator(L.matrix.detach().float(), mask=L.mask, psd=L.psd)
    return L.detach()


def spectrum_top(L: Operator, *, generator: torch.Generator | None = None) -> float:
    """Return a number that hardly any spectrum exceeds: Lanczos' largest Ritz value plus the norm of what follows it.

    Gershgorin's bound is used where it is lower. Costs 5 products, or 8 where no entries are known.
    """
    bound = float(L.gershgorin()[1])
    known = isinstance(L, (SparseOperator, DenseOperator))
    steps = min(TOP_STEPS if known else 8, L.n - 1)
    if steps < 2 or bound <= 0:
        return max(bound, 0.0)
    generator = generator or torch.Generator(device=L.device).manual_seed(3)
    v = torch.randn(L.n, 1, dtype=L.dtype, device=L.device, generator=generator)
    if known:
        degrees = L.diagonal().abs()
        degrees /= degrees.max().clamp(min=torch.finfo(v.dtype).tiny)
        v *= degrees.pow_(TOP_POWER).add_(TOP_LIGHT)[:, None]
    v /= torch.linalg.vector_norm(v)
    previous, size = torch.zeros_like(v), 0.0
    alpha, beta = [], []
    for _ in range(steps):
        w = L @ v
        alpha.append(float((v * w).sum()))
        w.add_(v, alpha=-alpha[-1]).add_(previous, alpha=-size)
        size = float(torch.linalg.vector_norm(w))
        beta.append(size)
        if size <= 1e-6 * bound:
            break
        previous, v = v, w.div_(size)
    T = torch.diag(torch.tensor(alpha, dtype=torch.float64))
    off = torch.tensor(beta[:-1], dtype=torch.float64)
    theta = torch.linalg.eigvalsh(T + torch.diag(off, 1) + torch.diag(off, -1))
    return min(bound, float(theta[-1]) + beta[-1])
