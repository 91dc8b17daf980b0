"""What a network is trained on."""

from __future__ import annotations

from torch import Tensor

from krylow.metrics import subspace_error
from krylow.refine.lanczos import Krylov


def theory_loss(krylov: Krylov, weight: float | Tensor = 1.0) -> Tensor:
    r"""Return the paper's theory-guided objective, eq. (theory_loss), per batch item ``(*batch,)``.

    $$\mathcal J_{\mathrm{theory}} = \sum_{j=1}^m |\alpha_j|^2 - \lambda \sum_{j=2}^m |\beta_{j-1}|^2$$

    It needs no eigendecomposition and no knowledge of the spectrum. It is unbounded below in the gammas, since beta
    grows with them: stop early.
    """
    return krylov.alpha.square().sum(-1) - weight * krylov.beta[..., :-1].square().sum(-1)


def subspace_loss(basis: Tensor, U: Tensor) -> Tensor:
    """Return the normalised squared subspace error ``(*batch,)`` of a differentiable basis against the exact ``U``."""
    return subspace_error(basis, U)
