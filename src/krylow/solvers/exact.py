"""The eigendecomposition itself: all of a small graph, or its k lowest pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from krylow._floor import lifted_dense
from krylow.autodiff.projector import lowest_eigenspace
from krylow.krylov.ritz import Ritz
from krylow.linalg.eigh import eigh, lowest_eigenpairs
from krylow.operators import DenseOperator, Operator
from krylow.result import Subspace
from krylow.solvers._problem import Problem, Solver


@dataclass(frozen=True)
class Exact(Solver):
    """The k lowest eigenpairs of the dense matrix, by LAPACK or a batched partial eigensolver; no products."""

    name: ClassVar[str] = "exact"

    def describe(self, problem: Problem) -> str:
        """Return nothing: its name says it."""
        return ""

    def solve(self, problem: Problem) -> Ritz:
        """Return the k lowest eigenpairs and the next one."""
        values, vectors = _lowest(problem.operator, min(problem.k + 1, problem.operator.n))
        return Ritz(values, vectors, torch.zeros_like(values))

    def subspace(self, problem: Problem) -> Subspace:
        """Return the exact subspace, with the gradient of its projector."""
        L, k = problem.operator, problem.k
        more = min(k + 1, L.n)  # one eigenvalue beyond the cut, for the gap
        if torch.is_grad_enabled() and L.requires_grad:
            values, vectors = lowest_eigenspace(lifted_dense(L), k)
        else:
            values, vectors = _lowest(L, more)
        following = values[..., k] if more > k else torch.full_like(values[..., 0], torch.inf)
        return Subspace(vectors[..., :k], values[..., :k], L, following=following.detach(), exact=True)


def _lowest(L: Operator, k: int) -> tuple[Tensor, Tensor]:
    """Return the k lowest eigenpairs; of a batch of graphs of different sizes in groups of about one size."""
    groups = 8
    if not isinstance(L, DenseOperator) or L.mask is None or len(L.batch_shape) != 1 or len(L.sizes) < 16 * groups:
        return lowest_eigenpairs(lifted_dense(L), k)
    values = L.matrix.new_empty(*L.batch_shape, k)
    vectors = L.matrix.new_zeros(*L.batch_shape, L.n, k)
    for group in L.sizes.argsort().tensor_split(groups):
        n = max(int(L.sizes[group].max()), k)
        part = DenseOperator(L.matrix.detach()[group, :n, :n], mask=L.mask[group, :n], psd=L.psd)
        values[group], vectors[group, :n] = lowest_eigenpairs(lifted_dense(part), k)
    return values, vectors


def exact_up_to(L: Operator, cutoff: float) -> Subspace:
    """Return all eigenpairs up to a cutoff, and the others' values after them, before they are cut off."""
    dense = lifted_dense(L)
    values, _ = eigh(dense)
    real = torch.arange(L.n, device=L.device) < L.sizes[..., None]
    kept = ((values <= cutoff) & real).sum(-1)
    _, basis = lowest_eigenspace(dense, max(1, int(kept.max())), kept)
    return Subspace(basis, torch.where(real, values, torch.inf), L, exact=True)
