r"""The small problem: from a Krylov basis and its coefficients to the k lowest Ritz vectors.

The relaxed recurrence leaves the nonsymmetric tridiagonal matrix (the paper's eq. (Tm_relaxed))

$$T_m = \begin{pmatrix} \gamma^{(1)}_1 \alpha_1 & \gamma^{(2)}_2 \beta_1 & & \\
\beta_1 & \gamma^{(1)}_2 \alpha_2 & \gamma^{(2)}_3 \beta_2 & \\ & \beta_2 & \ddots & \ddots \end{pmatrix} .$$

By the paper's Lemma 1, $T_m = D S D^{-1}$ with S symmetric, off-diagonal $\sqrt{\gamma^{(2)}_{j+1}} \beta_j$, and
$d_{j+1} = d_j / \sqrt{\gamma^{(2)}_{j+1}}$. So the eigenvectors of T_m are D times those of S.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from krylow.autodiff.projector import lowest_eigenspace, orthonormalize
from krylow.krylov.lanczos import Krylov, tridiagonal


def relaxed_matrix(krylov: Krylov) -> Tensor:
    """Return T_m as the paper writes it, ``(*batch, m, m)``: gamma1 alpha, gamma2 beta above, beta below."""
    diagonal, beta, gamma2 = _coefficients(krylov)
    return tridiagonal(diagonal, beta, gamma2 * beta)


def symmetrized_matrix(krylov: Krylov) -> tuple[Tensor, Tensor]:
    r"""Return the symmetric S similar to T_m, ``(*batch, m, m)``, and $\log d$, ``(*batch, m)``, of $T_m = D S D^{-1}$.

    The logarithm, because the product of m factors leaves the range of floating point long before m = 200.
    """
    diagonal, beta, gamma2 = _coefficients(krylov)
    off = gamma2.sqrt() * beta
    log_d = torch.nn.functional.pad(-0.5 * gamma2.log().cumsum(-1), (1, 0)).expand_as(diagonal)
    return tridiagonal(diagonal, off, off), log_d


def ritz(krylov: Krylov, k: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return the k lowest Ritz values, an orthonormal basis of their Ritz vectors' span, and the next Ritz value.

    $$T_m y_i = \theta_i y_i, \qquad \hat U = \mathrm{orth}(V_m [y_1, \ldots, y_k])$$

    Differentiable through the span only (see :mod:`krylow.autodiff.projector`). Where fewer than k steps live, the
    missing columns are zero and their values infinite.

    Returns
    -------
    theta
        ``(*batch, k)``, ascending.
    basis
        ``(*batch, n, k)``.
    following
        ``(*batch,)``, the (k+1)-st Ritz value, infinite where there is none. No gradient.
    """
    m = krylov.alpha.shape[-1]
    S, log_d = symmetrized_matrix(krylov)
    live = torch.arange(m, device=S.device) < krylov.steps[..., None]  # (*batch, m)
    # Dead steps are decoupled: put them above every live Ritz value, so that they come last.
    with torch.no_grad():
        top = 2 * S.abs().sum(-1).amax(-1, keepdim=True)
        top = torch.where(top > 0, top, torch.ones_like(top))
    S = S + torch.diag_embed(torch.where(live, torch.zeros_like(top), top))
    values, Y = lowest_eigenspace(S, min(k, m))  # (*batch, m), (*batch, m, min(k, m))
    basis = orthonormalize(krylov.V @ _scaled(Y, log_d))  # (*batch, n, min(k, m))
    inf = torch.full_like(values, torch.inf)
    values = torch.where(live, values, inf)
    theta, following = values[..., :k], (values[..., k] if k < m else inf[..., 0]).detach()
    # Ritz vectors that depend on lower ones, as a degenerate relaxed basis gives, are missing too: put them last.
    gone = torch.linalg.vector_norm(basis.detach(), dim=-2) == 0  # (*batch, min(k, m))
    order = gone.to(torch.int8).argsort(dim=-1, stable=True)
    theta = torch.take_along_dim(torch.where(gone, inf[..., : min(k, m)], theta), order, dim=-1)
    basis = torch.take_along_dim(basis, order[..., None, :], dim=-1)
    if m < k:
        theta = torch.cat([theta, inf[..., :1].expand(*theta.shape[:-1], k - m)], dim=-1)
        basis = torch.cat([basis, torch.zeros_like(basis[..., :1]).expand(*basis.shape[:-1], k - m)], dim=-1)
    return theta, basis, following


def _coefficients(krylov: Krylov) -> tuple[Tensor, Tensor, Tensor]:
    """Return the diagonal of T_m, the m - 1 inner betas and the gamma2 that goes with each of them."""
    gamma1 = torch.ones_like(krylov.alpha) if krylov.gamma1 is None else krylov.gamma1
    gamma2 = torch.ones_like(krylov.alpha) if krylov.gamma2 is None else krylov.gamma2
    return gamma1 * krylov.alpha, krylov.beta[..., :-1], gamma2[..., 1:]


def _scaled(Y: Tensor, log_d: Tensor) -> Tensor:
    """Return D Y with every column scaled to size about 1, which does not change the span.

    An entry of Y below eps is rounding; the clamp keeps it from being blown up to a number that counts.
    """
    with torch.no_grad():
        size = log_d[..., None] + Y.abs().clamp(min=torch.finfo(Y.dtype).tiny).log()
        shift = size.amax(-2, keepdim=True)  # (*batch, 1, k)
    ceiling = -math.log(torch.finfo(Y.dtype).eps)
    return Y * (log_d[..., None] - shift).clamp(max=ceiling).exp()
