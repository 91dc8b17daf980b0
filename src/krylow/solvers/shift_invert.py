r"""Shift-invert Lanczos (Ericsson and Ruhe, 1980): a factorisation once, then the lowest frequencies dominate.

$(L + \sigma I)^{-1}$ has the eigenvectors of L and the values $1 / (\lambda_i + \sigma)$: the lowest frequencies, which
are clustered in L, are well separated there. One solve a vector; the price is the factorisation, which is cheap where a
graph is nearly a tree or planar (road networks) and hopeless where it is not (three-dimensional meshes, random graphs):
a factor that is estimated to be too large is refused before it is begun.

A sparse graph is iterated for on its Schur complement (:mod:`krylow.solvers._schur`), which bounds the error and, by
inertia, proves it. Null vectors are read off the components and deflated, and one node of each such component is
grounded, so that L needs no shift. Dense batches take a Cholesky factorisation and thick restarts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from krylow._checks import InputError
from krylow._random import gaussian
from krylow._threads import sharing
from krylow.krylov.restart import Restart, thick_restart
from krylow.krylov.ritz import Ritz, rotate
from krylow.linalg.components import NullSpace
from krylow.linalg.elimination import (
    EliminationSettings,
    Factor,
    SchurComplement,
    SingularFactorError,
    condense,
    float64_matrix,
)
from krylow.linalg.fill import refuse
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.solvers._problem import SAFETY, Problem, Solver, null_answer
from krylow.solvers._schur import InverseProblem, SchurSettings, grounded, lowest_pairs, ritz_pairs


@dataclass(frozen=True)
class ShiftInvert(Solver):
    """Shift-invert Lanczos (Ericsson and Ruhe, 1980) on a Schur complement of the graph.

    Parameters
    ----------
    basis_size
        Most basis vectors. None: 2 k + 24, or for dense matrices 2 k, at least k + 16.
    max_fill
        Most entries of a triangular factor, by estimate; more raise an error. 1.3e8 take 3.2 GB with their indices.
    condense
        Whether nodes of degree 1 and 2 are eliminated by static condensation.
    inertia
        Whether eigenvalues below the gap are counted by a second factorisation, where it is affordable: a proof.
    dense
        Most nodes of a sparse graph that is solved by a dense factor where rounding of the inverse exceeds tol: wanted
        frequencies that differ by many orders of magnitude.
    shift
        Over the norm of L, where a shift is needed: small against the frequencies sought, large against rounding.
    """

    name: ClassVar[str] = "shift_invert"
    basis_size: int | None = None
    max_fill: float = 1.3e8
    condense: bool = True
    inertia: bool = True
    dense: int = 500
    shift: float = 1e-6

    def _size(self, problem: Problem) -> int:
        k = problem.k
        if isinstance(problem.operator, SparseOperator):
            return self.basis_size or 2 * k + 24
        return max(self.basis_size or 0, 2 * k, k + 16)

    def describe(self, problem: Problem) -> str:
        """Return the size of the basis."""
        return f"a factorisation, then a basis of at most {self._size(problem)} vectors"

    def solve(self, problem: Problem) -> Ritz:
        """Return the lowest Ritz pairs."""
        L = problem.operator
        if isinstance(L, SparseOperator) and problem.k < L.n:
            pairs = self._solve_sparse(L, problem)
            found = pairs.evidence
            unresolved = found is not None and found.error > problem.tol and found.well_defined == problem.k
            if L.n > self.dense or not unresolved:
                return pairs
        return self._solve_dense(L, problem)

    @sharing()
    def _solve_sparse(self, L: SparseOperator, problem: Problem) -> Ritz:
        """Invert without a shift where no frequency is below zero, unless L is singular but for its null vectors."""
        null = problem.profile.null_space
        if null is not None and null.lowest and null.count >= problem.k:
            return null_answer(L, null, problem.k)
        refuse(problem.profile.fill, self.max_fill)
        if null is None or not null.lowest:
            return self._inverted(L, problem, None, float(self._positive_shift(L.double())[1]))
        try:
            return self._inverted(L, problem, null, 0.0)
        except SingularFactorError:
            return self._inverted(L, problem, null, L.n * torch.finfo(torch.float64).eps * float(L.norm_bound()))

    def _inverted(self, L: SparseOperator, problem: Problem, null: NullSpace | None, shift: float) -> Ritz:
        """Return the pairs from Lanczos on the inverse of L + shift I."""
        generator, k = problem.generator, problem.k
        seed = 0 if generator is None else int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
        vectors = np.zeros((L.n, 0)) if null is None else null.basis().cpu().numpy()
        norm = max(abs(float(bound)) for bound in L.detach().gershgorin())
        products = problem.max_products or 200 * self._size(problem)
        for schur in self._condensed(L, problem, shift):
            factor = Factor(grounded(schur, null), schur.order, EliminationSettings(inertia=self.inertia))
            budget = max(products, k + 2)
            inverse = InverseProblem(schur, factor, k, vectors, norm, problem.tol, budget, SchurSettings())
            found = lowest_pairs(inverse, self._size(problem), np.random.default_rng(seed))
            if found is not None:
                return ritz_pairs(L, inverse, found)
            products = inverse.products
        raise AssertionError("a matrix of which nothing was eliminated has no slow pieces")

    def _condensed(self, L: SparseOperator, problem: Problem, shift: float) -> Iterator[SchurComplement]:
        """Return Schur complements with smaller and smaller pieces, at last the whole matrix."""
        if self.condense and shift == 0:
            schur = problem.profile.condensed
            yield schur
            if schur.M is not None:
                yield condense(schur.matrix, 0.0, schur.piece / 16)
        yield condense(float64_matrix(L), shift, 0.0)

    def _solve_dense(self, L: Operator, problem: Problem) -> Ritz:
        """Return the pairs from a Cholesky factorisation in float64 and thick restarts on the inverse."""
        if isinstance(L, FunctionOperator):
            raise InputError('method="shift_invert" factorises L, so its entries must be known, got a function.')
        A, k, tol = L.double(), problem.k, SAFETY * problem.tol
        size = max(self._size(problem), 2 * k, k + 16)  # restarts need more than k
        low, shift = self._positive_shift(A)
        factor = torch.linalg.cholesky(A.to_dense() + torch.diag_embed(shift[..., None].expand(*shift.shape, A.n)))
        inverse = FunctionOperator(
            lambda Y: -torch.cholesky_solve(Y, factor),
            A.n,
            batch_shape=tuple(A.batch_shape),
            dtype=A.dtype,
            device=A.device,
            bounds=(-1 / (low + shift), torch.zeros_like(shift)),
        )
        inverse.mask = A.mask
        pairs = thick_restart(
            inverse,
            gaussian(L, 1, generator=problem.generator).double(),
            k,
            Restart(size, max(problem.max_products or 20 * size, k + 2), tol=tol),
            rounding=torch.finfo(A.dtype).eps ** 0.5 / A.norm_bound().clamp(min=torch.finfo(A.dtype).tiny),
            generator=problem.generator,
        )
        there = pairs.theta.isfinite()
        if not bool(there.all()):  # a graph of fewer nodes than the block: no rotation among zero columns
            values = torch.where(there, -1 / pairs.theta - shift[..., None], pairs.theta)
            return Ritz(values, pairs.X, pairs.residuals).to(L.dtype)
        vectors = pairs.X
        for _ in range(3):  # a small residual of the inverse need not be one of L: block inverse iteration makes it so
            vectors = torch.cholesky_solve(vectors, factor)
            found = rotate(L, (vectors / torch.linalg.vector_norm(vectors, dim=-2, keepdim=True)).to(L.dtype))
            if bool((found.estimate(k) <= tol).all()):
                break
        return found

    def _positive_shift(self, A: Operator) -> tuple[Tensor, Tensor]:
        """Return a lower bound of the spectrum, and a shift that makes A positive definite."""
        low = A.gershgorin()[0]
        shift = self.shift * A.norm_bound() - low.clamp(max=0)
        return low, torch.where(shift > 0, shift, torch.ones_like(shift))
