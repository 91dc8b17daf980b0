r"""A second look at an answer of ranks: how many eigenvalues lie below the cut, counted by MUMPS.

Its factor F is that of a matrix nearby, $A - \sigma I = F + E$, and gives no access to its entries, from which E is
bounded on one machine (:mod:`krylow.linalg.inertia`). But all $F + t E = (I + t E F^{-1}) F$ are regular, and so have
one inertia, if $\|E F^{-1}\| < 1$. For standard normal b, and x the solution with the factor, $(A - \sigma I) x - b = E
F^{-1} b$, and $\|E F^{-1}\|$ is at most $10 \sqrt{2 / \pi}$ times the longest of ten such vectors but for a probability
of $10^{-10}$ (Halko, Martinsson and Tropp, 2011, lemma 4.1). What the solutions are rounded by has no bound, so that
the count is checked, not proved.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from krylow._reduce import seeded
from krylow.certificate import Certificate, Status
from krylow.distributed._slepc import as_petsc
from krylow.operators._ranks import petsc
from krylow.operators.distributed import LocalRows
from krylow.proof import ProofSettings
from krylow.result import Subspace

#: Random vectors that the factor is tried on.
SAMPLES = 10


def inertia(L: LocalRows, at: float) -> int | None:
    """Return how many eigenvalues of L lie below ``at`` (Sylvester), as MUMPS counts them.

    None where it fails, or where its rounding may have changed the count.
    """
    PETSc, A = petsc(), as_petsc(L)
    A.shift(-at)
    solver = PETSc.KSP().create(comm=A.getComm())
    solver.setOperators(A)
    solver.setType(PETSc.KSP.Type.PREONLY)
    factor = solver.getPC()
    factor.setType(PETSc.PC.Type.CHOLESKY)
    factor.setFactorSolverType("mumps")
    try:
        factor.setFactorSetUpSolverType()
        # Without refinement of the solutions; without ScaLAPACK for the last block, which counts nothing; with null
        # pivots seen.
        for option, value in ((10, 0), (13, 1), (24, 1)):
            factor.getFactorMatrix().setMumpsIcntl(option, value)
        factor.setUp()
        below, zero, _ = factor.getFactorMatrix().getInertia()
        rounding = 10 * math.sqrt(2 / math.pi) * _residual(L, A, factor)
    except PETSc.Error:
        return None
    finally:
        solver.destroy()
        A.destroy()
    return int(below) if not zero and rounding < 1 else None


def _residual(L: LocalRows, A: Any, factor: Any) -> float:
    """Return the longest residual of solutions with the factor for standard normal right-hand sides."""
    right, solution, residual = (A.createVecLeft() for _ in range(3))
    generator, longest = seeded(0), 0.0
    for _ in range(SAMPLES):
        right.setArray(torch.randn(L.rows, generator=generator, dtype=torch.float64).numpy())
        factor.apply(right, solution)
        A.mult(solution, residual)
        residual.axpy(-1.0, right)
        norm = residual.norm()
        longest = max(longest, norm if math.isfinite(norm) else math.inf)
    return longest


def checked(found: Subspace, L: LocalRows, geometric: bool, settings: ProofSettings) -> tuple[Certificate, str]:
    """Return the certificate after a count of the eigenvalues below the cut, and what was done.

    The count is made in the middle of the gap that the Ritz values show. Where a factor would be too full, which graphs
    without a geometry are always taken to be, nothing is done but said, and the answer is not CONVERGED.
    """
    certificate, theta, following = found.certificate, found.ritz_values, found.following
    unproved = replace(
        certificate, statuses=torch.where(certificate.statuses == 0, int(Status.MAX_STEPS), certificate.statuses)
    )
    fill = 8 * L.n * math.log2(max(2, L.n))  # of a graph in the plane, by nested dissection (George, 1973)
    if not geometric or fill > settings.max_fill * L.ranks.size:
        return unproved, f"not checked: MUMPS's factor would have about {fill:.0e} entries, or many more"
    if following is None or not float(following) > float(theta[-1]):
        return unproved, "not checked: no gap shows behind the cut"
    at = (float(theta[-1]) + float(following)) / 2
    count = L.ranks.agree(inertia(L, at))
    if count is None:
        return unproved, "not checked: MUMPS has failed, or its factor is too inaccurate"
    if count > found.k:
        missed = replace(certificate, statuses=torch.full_like(certificate.statuses, int(Status.MISSED)))
        return missed, f"MUMPS's inertia counts {count} eigenvalues below {at:.4g}, of which {found.k} were found"
    return replace(certificate, checked=True), f"checked: MUMPS's inertia counts {count} eigenvalues below {at:.4g}"
