r"""The Lanczos recurrence, classical and relaxed.

From a unit vector $v_1$, for j = 1, ..., m (the paper's eqs. (Lanczos_alpha) to (Lanczos_beta), and its relaxed
orthogonalisation (Lanczos_iterative2)):

$$w_j = L v_j, \quad \alpha_j = v_j^\top w_j, \quad
r_j = w_j - \gamma^{(1)}_j \alpha_j v_j - \gamma^{(2)}_j \beta_{j-1} v_{j-1}, \quad
\beta_j = \|r_j\|, \quad v_{j+1} = r_j / \beta_j .$$

With $\gamma^{(1)} = \gamma^{(2)} = 1$ it is the classical recurrence. For any gammas,
$L V_m = V_m T_m + r_m e_m^\top$ with the tridiagonal $T_m$ of :func:`krylow.krylov.ritz.relaxed_matrix`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from krylow._checks import InputError
from krylow.operators import Operator


@dataclass(frozen=True)
class Krylov:
    r"""What m steps of the recurrence leave behind.

    Attributes
    ----------
    V
        ``(*batch, n, m)`` Lanczos vectors as columns; columns after a breakdown are zero.
    alpha, beta
        ``(*batch, m)``; ``beta[..., j]`` is the norm of the j-th residual, the last one that of ``residual``.
    residual
        ``(*batch, n, 1)``, $r_m$.
    steps
        ``(*batch,)``, live columns of V: less than m where the recurrence broke down.
    gamma1, gamma2
        The factors used, broadcastable to ``(*batch, m)``; None for the classical recurrence.
    """

    V: Tensor
    alpha: Tensor
    beta: Tensor
    residual: Tensor
    steps: Tensor
    gamma1: Tensor | None = None
    gamma2: Tensor | None = None


def relaxed_step(
    L: Operator, v: Tensor, v_prev: Tensor, beta: Tensor, gamma1: Tensor | float, gamma2: Tensor | float
) -> tuple[Tensor, Tensor]:
    r"""Return $\alpha_j$ and $r_j = L v_j - \gamma^{(1)}_j \alpha_j v_j - \gamma^{(2)}_j \beta_{j-1} v_{j-1}$."""
    w = L.__matmul__(v)  # the only product with L; torch.compile knows no @ of other classes
    alpha = (v * w).sum(-2, keepdim=True)  # (*batch, 1, 1)
    return alpha, w - gamma1 * alpha * v - gamma2 * beta * v_prev


def lanczos(
    L: Operator,
    v: Tensor,
    m: int,
    *,
    gamma1: Tensor | None = None,
    gamma2: Tensor | None = None,
    reorthogonalize: bool = False,
) -> Krylov:
    r"""Run m steps of the (relaxed) Lanczos recurrence from ``v``.

    Exact arithmetic gives a basis of $\mathcal{K}_m(L, v)$. Where the space closes early (an invariant subspace, fewer
    than m nodes, v = 0), that item of the batch is frozen: its further columns are zero and ``steps`` says how many
    live. Costs m products, memory (m + 2) n; no value is read back to the host.

    Parameters
    ----------
    L
        The operator.
    v
        ``(*batch, n, 1)`` start; need not be normalised.
    m
        Number of steps.
    gamma1, gamma2
        Relaxation factors, broadcastable to ``(*batch, m)``. None: 1.
    reorthogonalize
        Orthogonalise each residual twice against all earlier vectors ("twice is enough"): 4 n m^2 operations more,
        and V stays orthonormal to rounding. For the classical recurrence only, whose coefficients it does not change.
    """
    if reorthogonalize and not (gamma1 is None and gamma2 is None):
        raise InputError("reorthogonalize is for the classical recurrence, got gammas: leave one of them out.")
    return recurrence(L, v, m, gamma1, gamma2, reorthogonalize=reorthogonalize)


def recurrence(
    L: Operator,
    v: Tensor,
    m: int,
    gamma1: Tensor | None,
    gamma2: Tensor | None,
    *,
    sizes: Tensor | None = None,
    noise: bool = True,
    reorthogonalize: bool = False,
) -> Krylov:
    """Return what :func:`lanczos` does.

    ``sizes`` ``(*batch,)`` are the most steps an item takes, None: as many as it has nodes. ``noise`` says whether a
    residual that is below what rounding has left ends the recurrence.
    """
    tiny = breakdown_threshold(L)[..., None, None]
    # Relaxed residuals may grow with every step; once L v is rounding beside them, the next vector is an old one.
    eps, norm = torch.finfo(L.dtype).eps, L.norm_bound()[..., None, None]
    huge = norm / eps
    noisy = noise and not reorthogonalize
    smallest = torch.full_like(norm, torch.inf)
    sizes = (L.sizes if sizes is None else sizes)[..., None, None]
    tracked = torch.is_grad_enabled() and (L.requires_grad or v.requires_grad or _needs_grad(gamma1, gamma2))
    size = torch.linalg.vector_norm(v, dim=-2, keepdim=True)
    alive = size > 0
    v = v / torch.where(alive, size, torch.ones_like(size))
    v_prev, beta = torch.zeros_like(v), torch.zeros_like(size)
    V = _Columns(v, m, tracked=tracked)
    alphas, betas, lives = [], [], [alive]
    for j in range(m):
        g1 = 1.0 if gamma1 is None else gamma1[..., j, None, None]
        g2 = 1.0 if gamma2 is None else gamma2[..., j, None, None]
        alpha, r = relaxed_step(L, v, v_prev, beta, g1, g2)
        if reorthogonalize:
            basis = V.matrix()
            for _ in range(2):
                r = r - basis @ (basis.mT @ r)
        beta = torch.linalg.vector_norm(r, dim=-2, keepdim=True)
        alphas.append(alpha)
        betas.append(beta)
        if j + 1 < m:
            least = torch.maximum(tiny, lost_below(norm) / smallest) if noisy else tiny
            alive = alive & (beta > least) & (beta < huge) & (j + 1 < sizes)
            smallest = torch.where(alive, torch.minimum(smallest, beta.detach()), smallest)
            zero = torch.zeros_like(beta)
            betas[-1] = torch.where(alive, beta, zero)
            v_prev, v = v, torch.where(alive, r / torch.where(alive, beta, zero + 1), torch.zeros_like(r))
            beta = betas[-1]
            V.append(v)
            lives.append(alive)
    steps = torch.stack(lives).sum(0)[..., 0, 0]
    alpha, beta = (torch.cat(c, dim=-1)[..., 0, :] for c in (alphas, betas))  # (*batch, m)
    return Krylov(V.matrix(), alpha, beta, r, steps, gamma1, gamma2)


def breakdown_threshold(L: Operator) -> Tensor:
    r"""Return the residual norm below which a step is rounding and the Krylov space closed, ``(*batch,)``."""
    return closed_below(L.norm_bound(), L.n)


def closed_below(norm: Tensor, n: int) -> Tensor:
    r"""Return $4 \epsilon \sqrt n \|L\|$ for the norm of L."""
    return 4 * n**0.5 * torch.finfo(norm.dtype).eps * norm


def lost_below(norm: Tensor) -> Tensor:
    r"""Return $2 \epsilon \|L\|^2$: without reorthogonalisation, a residual below this over $\min \beta$ is rounding.

    A vector is then right to $\epsilon \|L\| / \beta$ only, and what is wrong with it is multiplied by L.
    """
    return 2 * torch.finfo(norm.dtype).eps * norm.square()


def tridiagonal(diagonal: Tensor, below: Tensor, above: Tensor) -> Tensor:
    """Return the matrix ``(*batch, m, m)`` with these diagonals, ``(*batch, m)`` and twice ``(*batch, m - 1)``.

    >>> tridiagonal(torch.tensor([1.0, 2.0]), torch.tensor([3.0]), torch.tensor([4.0]))
    tensor([[1., 4.],
            [3., 2.]])
    """
    T = torch.diag_embed(diagonal)
    if diagonal.shape[-1] == 1:  # diag_embed takes no empty diagonal
        return T
    return T + torch.diag_embed(below, offset=-1) + torch.diag_embed(above, offset=1)


class _Columns:
    """A basis ``(*batch, n, j)`` that grows by columns.

    Where a gradient is recorded they are kept apart and joined when asked for, since a tape cannot see into a buffer
    that is written later; otherwise they are written into one buffer.
    """

    def __init__(self, first: Tensor, capacity: int, *, tracked: bool) -> None:
        self._columns: list[Tensor] = []
        self._buffer = None if tracked else first.new_zeros((*first.shape[:-1], capacity))
        self._width = 0
        self.append(first)

    def append(self, column: Tensor) -> None:
        if self._buffer is None:
            self._columns.append(column)
        else:
            self._buffer[..., self._width : self._width + 1] = column
        self._width += 1

    def matrix(self) -> Tensor:
        return torch.cat(self._columns, dim=-1) if self._buffer is None else self._buffer[..., : self._width]


def _needs_grad(*tensors: Tensor | None) -> bool:
    return any(t is not None and t.requires_grad for t in tensors)
