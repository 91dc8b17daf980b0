r"""Perturbation of invariant subspaces: Davis and Kahan's bound, and rounding of a Laplacian to float32.

The entries of a float32 operator are those of the graph's Laplacian but for rounding, a perturbation of
$\epsilon \|L\|$: more than the lowest frequencies of many graphs. Most of it is in the diagonal, where $L u = 0$ holds
for a known u no more. With the diagonal that makes it hold again, in float64, there remains a relative change of the
edges' weights, $L = G^\top G$ and $\tilde L = G^\top (I + E) G$ with E diagonal and $\|E\| \le \eta$. For an
eigenvector u of L with value $\lambda$ and v of $\tilde L$ with value $\mu$, $(\mu - \lambda) v^\top u = (G v)^\top E G
u$; so, summed over all v that are dropped,

$$\frac1k \sum_{i, v} (v^\top u_i)^2 \le \frac{\eta^2}{k} \sum_{i \le k} \frac{\lambda_i \phi}{(\phi - \lambda_i)^2}$$

with $\phi$ below what is dropped: relative gaps count, and null vectors stay what they are.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from krylow.linalg.components import candidates
from krylow.operators import DenseOperator, FunctionOperator, Operator, SparseOperator


def davis_kahan(residuals: Tensor, gaps: Tensor) -> Tensor:
    r"""Bound the normalised squared subspace error by residuals and gaps.

    Let $x_1, \ldots, x_k$ be orthonormal Ritz vectors with values $\theta_i$ and residual norms $\rho_i$. For an
    eigenvector v of a dropped eigenvalue $\lambda \ge \lambda_{k+1}$,
    $(\lambda - \theta_i) \, v^\top x_i = v^\top (L x_i - \theta_i x_i)$, and summing over all of them,

    $$\frac1k \|(I - \hat U \hat U^\top) U_k\|_F^2 = \frac1k \sum_{i, v} (v^\top x_i)^2
    \le \frac1k \sum_{i \le k} \frac{\rho_i^2}{(\lambda_{k+1} - \theta_i)^2} ,$$

    which is Davis and Kahan's sine theorem with a gap for each vector.

    Parameters
    ----------
    residuals
        ``(*batch, k)``.
    gaps
        ``(*batch, k)``, or ``(*batch, 1)`` for a common one: lower bounds of $\lambda_{k+1} - \theta_i$.

    Returns
    -------
    Tensor
        ``(*batch,)``, at most 1 (no error is larger), and infinite where a gap is not positive.
    """
    bound = (residuals / gaps).square().mean(-1).clamp(max=1)
    return torch.where((gaps > 0).all(-1), bound, torch.full_like(bound, torch.inf))


def restored(L: Operator) -> Operator:
    """Return L in float64, without a gradient; a sparse float32 Laplacian with rows that add up to zero again.

    These are the rows that do so but for rounding, weighted by a vector that is known or measured to be null.
    """
    return L.like(_values(L)) if _rounded(L) and isinstance(L, SparseOperator) else L.double()


def restored_values(L: SparseOperator) -> np.ndarray:
    """Return the values of :func:`restored`, on the host."""
    return np.asarray((_values(L) if _rounded(L) else L.values.detach().cpu().double()).numpy())


def entry_error(L: Operator, theta: Tensor, floor: Tensor, X: Tensor | None = None) -> Tensor:
    r"""Return by how much the subspace of a graph may differ from that of its Laplacian in float32, ``(*batch,)``.

    A bound of the normalised subspace error, not squared: what is added to that of an answer. Zero in float64, for
    whole numbers, and for functions, whose entries are not known. Infinite where no gap remains.

    Parameters
    ----------
    L
        The operator.
    theta
        ``(*batch, k)`` the lowest frequencies; infinite where one is missing.
    floor
        ``(*batch,)`` lower bound of the others.
    X
        ``(n, k)`` their vectors where they were found with the rounded diagonal; None: with the restored one.
    """
    if not _rounded(L):
        return torch.zeros_like(floor)
    relative, absolute = _entry_rounding(L)
    low, high, off = theta.double(), floor.double()[..., None], absolute[..., None]
    gaps = high - low - relative * high - off
    if X is not None and isinstance(L, SparseOperator):
        change = torch.from_numpy(_diagonal_change(L)).to(L.device)
        off = off + torch.linalg.vector_norm(change[:, None] * X.double(), dim=0)
    parts = (relative * (low * high).clamp(min=0).sqrt() + off) / gaps
    # Null vectors are those of any weights; missing columns, or a complement of zero, are judged elsewhere.
    sure = (off == 0) & (low <= 0) | low.isinf() | high.isinf()
    bound = torch.where(sure, torch.zeros_like(parts), parts).square().mean(-1).sqrt()
    return torch.where(((gaps > 0) | sure).all(-1), bound, torch.full_like(bound, torch.inf)).to(floor.dtype)


def by_construction(L: Operator) -> bool:
    """Return whether null vectors are known to be null, and not only seen to be but for rounding to float32."""
    return L.dtype == torch.float64 or (isinstance(L, SparseOperator) and (L.closed or not _rounded(L)))


def _rounded(L: Operator) -> bool:
    """Return whether entries of L may be off by rounding to float32."""
    if L.dtype == torch.float64 or isinstance(L, FunctionOperator):
        return False
    if isinstance(L, SparseOperator):
        return not _integers(L.values)
    return not (isinstance(L, DenseOperator) and _integers(L.matrix))


def _integers(values: Tensor) -> bool:
    """Return whether all values are integers that float32 holds exactly, block by block."""
    exact = 2.0**24
    return all(
        bool(((part == part.round()) & (part.abs() <= exact)).all())
        for part in values.detach().reshape(-1).split(1 << 18)
    )


def _entry_rounding(L: Operator) -> tuple[float, Tensor]:
    """Return the relative rounding of the weights, and ``(*batch,)`` the norm of all other rounding, once restored."""
    eps, norm = torch.finfo(torch.float32).eps, L.norm_bound().double()
    if isinstance(L, SparseOperator) and L.closed and L.psd:
        return (0.0 if L.null_vector is None else eps), torch.zeros_like(norm)
    return 0.0, 4 * eps * norm  # an entry may have gone through several roundings


def _values(L: SparseOperator) -> Tensor:
    values = L.values.detach().cpu().double().clone()
    crow, col = L.host_indices()
    diagonal = np.flatnonzero(np.repeat(np.arange(L.n), np.diff(crow)) == col)
    values[torch.from_numpy(diagonal)] += torch.from_numpy(_diagonal_change(L)[col[diagonal]])
    return values.to(L.device)


def _diagonal_change(L: SparseOperator) -> np.ndarray:
    """Return ``(n,)`` what is added to the diagonal to restore it."""
    crow, col = L.host_indices()
    matrix = csr_array((L.values.detach().cpu().double().numpy(), col, crow), shape=(L.n, L.n), copy=False)
    change, remaining = np.zeros(L.n), np.ones(L.n, dtype=bool)
    for u in candidates(L):
        rows = remaining if L.closed else L.null_rows(u)[0] & remaining
        u = np.ones(L.n) if u is None else u
        change[rows] = -(matrix @ u)[rows] / u[rows]
        remaining = remaining & ~rows
        if not remaining.any():
            break
    return change
