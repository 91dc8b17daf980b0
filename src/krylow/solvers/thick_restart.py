"""Thick-restarted block Lanczos within a bounded basis (Wu and Simon, 2000): :mod:`krylow.krylov.restart`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from krylow._checks import InputError
from krylow.krylov.restart import Restart, thick_restart
from krylow.krylov.ritz import Ritz
from krylow.operators import DenseOperator
from krylow.solvers._problem import SAFETY, Problem, Solver, start_vectors


@dataclass(frozen=True)
class ThickRestart(Solver):
    """Thick-restarted block Lanczos (Wu and Simon, 2000).

    Parameters
    ----------
    basis_size
        Most basis vectors. None: 2 k, at least k + 24.
    """

    name: ClassVar[str] = "thick_restart"
    iterates: ClassVar[bool] = True
    takes_start: ClassVar[bool] = True
    basis_size: int | None = None

    def _sizes(self, problem: Problem) -> tuple[int, int]:
        """Return the block size and the most basis vectors."""
        L, k = problem.operator, problem.k
        block = 1 if not isinstance(L, DenseOperator) else max(1, min(8, k))
        size = self.basis_size or max(2 * k, k + 24, 4 * block)
        if size >= L.n:  # nothing has to be restarted: do not, however few nodes some graph of a batch has
            size = max(size, 2 * k, k + 24, 4 * block)
        return block, max(size, k + 2 * block)

    def describe(self, problem: Problem) -> str:
        """Return the size of the basis."""
        return f"a basis of at most {self._sizes(problem)[1]} vectors"

    def solve(self, problem: Problem) -> Ritz:
        """Return the lowest Ritz pairs."""
        L, k = problem.operator, problem.k
        block, size = self._sizes(problem)
        least = -(-k // block) * block
        if problem.max_products is not None and problem.max_products < least:
            raise InputError(
                f'max_products of method="thick_restart" must be at least {least}, since a basis of k = {k} vectors '
                f"takes as many (blocks of {block}), got {problem.max_products}."
            )
        return thick_restart(
            L,
            start_vectors(problem, block),
            k,
            Restart(size, problem.max_products or max(200 * size, 20 * L.n), tol=SAFETY * problem.tol),
            generator=problem.generator,
            report=problem.watch(SAFETY).report,
        )
