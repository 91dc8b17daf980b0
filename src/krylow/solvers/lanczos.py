"""The classical Lanczos method with full reorthogonalisation: a fixed number of steps from one random vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from krylow.krylov.lanczos import lanczos
from krylow.krylov.ritz import Ritz, ritz
from krylow.result import Subspace
from krylow.solvers._problem import Problem, Solver, start_vectors


@dataclass(frozen=True)
class Lanczos(Solver):
    """m Lanczos steps (Lanczos, 1950), then the k lowest Ritz vectors. It does not stop by ``tol``, it only reports.

    Parameters
    ----------
    m
        Steps. None: 2 k, at least 20.
    """

    name: ClassVar[str] = "lanczos"
    m: int | None = None

    def _steps(self, problem: Problem) -> int:
        return self.m or min(problem.operator.n, max(2 * problem.k, 20))

    def describe(self, problem: Problem) -> str:
        """Return the number of steps."""
        return f"{self._steps(problem)} steps from one random vector"

    def solve(self, problem: Problem) -> Ritz:
        """Return the k lowest Ritz pairs."""
        found = self.subspace(problem)
        return Ritz(found.ritz_values, found.basis, torch.full_like(found.ritz_values, torch.inf))

    def subspace(self, problem: Problem) -> Subspace:
        """Return the k lowest Ritz vectors, differentiable through the recurrence."""
        L = problem.operator
        products, passes = L.products, L.passes
        z = start_vectors(problem, 1)
        theta, basis, following = ritz(lanczos(L, z, self._steps(problem), reorthogonalize=True), problem.k)
        cost = L.products - products, L.passes - passes
        return Subspace(basis, theta, L, *cost, why=self.describe(problem), following=following)
