"""SLEPc's eigensolvers on the same matrix and partition: the baseline, and for what krylow's own methods do not do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from krylow._checks import choice
from krylow.krylov.ritz import Evidence, Ritz
from krylow.linalg.perturbation import davis_kahan
from krylow.operators._ranks import _imported, petsc
from krylow.operators.distributed import LocalRows
from krylow.solvers._problem import Problem, Solver, solve_large

SOLVERS = ("lobpcg", "krylovschur", "shift_invert")


@dataclass(frozen=True)
class Slepc(Solver):
    """An eigensolver of SLEPc (Hernandez, Roman and Vidal, 2005) on a graph that ranks share.

    The error estimate is Davis and Kahan's by the residuals, which SLEPc's own convergence test is not.

    Parameters
    ----------
    solver
        "lobpcg" with PETSc's algebraic multigrid GAMG, "krylovschur", or "shift_invert": Krylov-Schur on the inverse,
        factorised by MUMPS.
    tolerance
        Residual over eigenvalue to stop at. None: a third of the root of the squared error that is asked for.
    """

    name: ClassVar[str] = "slepc"
    solver: str = "lobpcg"
    tolerance: float | None = None

    def describe(self, problem: Problem) -> str:
        """Return which of SLEPc's solvers runs."""
        return f"SLEPc's {choice(self.solver, SOLVERS, 'solver')}"

    def solve(self, problem: Problem) -> Ritz:
        """Return the lowest Ritz pairs."""
        return solve_large(problem, self._solve)

    def _solve(self, problem: Problem) -> Ritz:
        L, k = problem.operator, problem.k
        assert isinstance(L, LocalRows)
        SLEPc, A = _imported("slepc4py", "SLEPc"), as_petsc(L)
        null = problem.null if problem.null is not None and problem.null.lowest else None
        known = null.basis() if null is not None else torch.zeros(L.rows, 0, dtype=torch.float64)
        solver = self._solver(SLEPc, A, problem, float(L.norm_bound()))
        solver.setDimensions(k + 1 - known.shape[1])
        if known.shape[1]:
            solver.setDeflationSpace([_vector(A, column) for column in known.mT])
        solver.solve()
        found, vector = [known], A.createVecLeft()
        for i in range(min(solver.getConverged(), k + 1 - known.shape[1])):
            solver.getEigenvector(i, vector)
            found.append(torch.from_numpy(vector.getArray().copy())[:, None])
        X = torch.cat(found, dim=1)
        how = f"{solver.getIterationNumber()} iterations"
        solver.destroy()
        A.destroy()
        return _pairs(L, X, k, how)

    def _solver(self, SLEPc: Any, A: Any, problem: Problem, size: float) -> Any:
        """Return the solver with its settings."""
        PETSc = petsc()
        solver = SLEPc.EPS().create(comm=A.getComm())
        solver.setOperators(A)
        solver.setProblemType(SLEPc.EPS.ProblemType.HEP)
        solver.setWhichEigenpairs(SLEPc.EPS.Which.SMALLEST_REAL)
        solver.setTolerances(self.tolerance or problem.tol**0.5 / 3, 10_000)
        st = solver.getST()
        if self.solver == "shift_invert":
            solver.setWhichEigenpairs(SLEPc.EPS.Which.TARGET_REAL)
            solver.setTarget(-1e-6 * size)
            st.setType(SLEPc.ST.Type.SINVERT)
            st.getKSP().setType(PETSc.KSP.Type.PREONLY)
            st.getKSP().getPC().setType(PETSc.PC.Type.CHOLESKY)
            st.getKSP().getPC().setFactorSolverType("mumps")
        elif self.solver == "lobpcg":
            solver.setType(SLEPc.EPS.Type.LOBPCG)
            shifted = A.copy()
            shifted.shift(1e-6 * size)
            st.setPreconditionerMat(shifted)
            st.getKSP().setType(PETSc.KSP.Type.PREONLY)
            st.getKSP().getPC().setType(PETSc.PC.Type.GAMG)
        return solver


def as_petsc(L: LocalRows) -> Any:
    """Return the matrix as PETSc has it, with the rows of each rank in the order of L."""
    PETSc = petsc()
    ends = L.ranks.comm.allgather(L.rows)
    first = sum(ends[: L.ranks.rank])
    names = np.arange(first, first + L.rows)
    names = np.concatenate([names, L.halo.copy(names)]).astype(PETSc.IntType)
    rows = L.local_matrix
    parts = rows.indptr.astype(PETSc.IntType), names[rows.indices], rows.data
    A = PETSc.Mat().createAIJ(size=((L.rows, L.n), (L.rows, L.n)), csr=parts, comm=L.ranks.comm)
    A.setOption(PETSc.Mat.Option.SYMMETRIC, True)
    return A


def _vector(A: Any, column: torch.Tensor) -> Any:
    vector = A.createVecLeft()
    vector.setArray(column.numpy())
    return vector


def _pairs(L: LocalRows, X: torch.Tensor, k: int, how: str) -> Ritz:
    """Return Ritz pairs with their evidence by residuals: infinite where SLEPc has found fewer than k + 1."""
    theta, residuals = L.quotients(X.contiguous(), torch.zeros(X.shape[1], dtype=torch.float64))
    error, floor = math.inf, -math.inf
    if X.shape[1] > k:
        floor = float(theta[k] - residuals[k])
        error = float(davis_kahan(residuals[:k], floor - theta[:k]))
    else:
        X = torch.nn.functional.pad(X, (0, k - X.shape[1]))
        theta, residuals = (torch.nn.functional.pad(v, (0, k - v.numel()), value=torch.inf) for v in (theta, residuals))
    evidence = Evidence(error, floor, k if math.isfinite(error) else 0, residuals[:k])
    return Ritz(theta, X[:, :k], residuals, evidence=evidence, how=how)
