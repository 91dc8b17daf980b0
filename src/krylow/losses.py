"""What a network is trained on."""

from __future__ import annotations

from torch import Tensor

from krylow import _checks
from krylow.krylov.lanczos import Krylov
from krylow.metrics import subspace_error


def theory_loss(krylov: Krylov, weight: float | Tensor = 1.0, *, reduction: str = "sum") -> Tensor:
    r"""Return the paper's theory-guided objective, eq. (theory_loss), per batch item ``(*batch,)``.

    $$\mathcal J_{\mathrm{theory}} = \sum_{j=1}^m |\alpha_j|^2 - \lambda \sum_{j=2}^m |\beta_{j-1}|^2$$

    It needs no eigendecomposition and no knowledge of the spectrum. It is unbounded below in the gammas, since beta
    grows with them: stop early.

    Parameters
    ----------
    krylov
        Coefficients of m steps.
    weight
        lambda, broadcastable to the batch.
    reduction
        "sum" as in the paper's equation, or "mean": over the m alphas and over the m - 1 betas, which does not depend
        on m. A public code by the paper's first author minimises .01 times the latter with lambda = 1.
    """
    _checks.choice(reduction, ("sum", "mean"), "reduction")
    alpha, beta = krylov.alpha.square(), krylov.beta[..., :-1].square()
    if reduction == "sum":
        return alpha.sum(-1) - weight * beta.sum(-1)
    return alpha.mean(-1) - weight * beta.sum(-1) / max(beta.shape[-1], 1)


def subspace_loss(basis: Tensor, U: Tensor) -> Tensor:
    """Return the normalised squared subspace error ``(*batch,)`` of a differentiable basis against the exact ``U``."""
    return subspace_error(basis, U)
