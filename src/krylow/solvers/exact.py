"""The eigendecomposition itself: all of a small graph, or its k lowest pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from krylow._floor import lifted_dense
from krylow.autodiff.projector import lowest_eigenspace
from krylow.krylov.ritz import Ritz
from krylow.linalg.eigh import eigh, lowest_eigenpairs
from krylow.operators import Operator
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
        values, vectors = lowest_eigenpairs(lifted_dense(problem.operator), min(problem.k + 1, problem.operator.n))
        return Ritz(values, vectors, torch.zeros_like(values))

    def subspace(self, problem: Problem) -> Subspace:
        """Return the exact subspace, with the gradient of its projector."""
        L, k = problem.operator, problem.k
        dense = lifted_dense(L)
        more = min(k + 1, L.n)  # one eigenvalue beyond the cut, for the gap
        if torch.is_grad_enabled() and dense.requires_grad:
            values, vectors = lowest_eigenspace(dense, k)
        else:
            values, vectors = lowest_eigenpairs(dense, more)
        following = values[..., k] if more > k else torch.full_like(values[..., 0], torch.inf)
        return Subspace(vectors[..., :k], values[..., :k], L, following=following.detach(), exact=True)


def exact_up_to(L: Operator, cutoff: float) -> Subspace:
    """Return all eigenpairs up to a cutoff, and the others' values after them, before they are cut off."""
    dense = lifted_dense(L)
    values, _ = eigh(dense)
    real = torch.arange(L.n, device=L.device) < L.sizes[..., None]
    kept = ((values <= cutoff) & real).sum(-1)
    _, basis = lowest_eigenspace(dense, max(1, int(kept.max())), kept)
    return Subspace(basis, torch.where(real, values, torch.inf), L, exact=True)
