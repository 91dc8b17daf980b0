"""A second look at an answer of ranks: how many eigenvalues lie below the cut, counted by MUMPS."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from krylow.certificate import Certificate, Status
from krylow.distributed._slepc import as_petsc
from krylow.operators._ranks import petsc
from krylow.operators.distributed import LocalRows
from krylow.proof import ProofSettings
from krylow.result import Subspace


def inertia(L: LocalRows, at: float) -> int | None:
    """Return how many eigenvalues of L lie below ``at`` (Sylvester), as MUMPS counts them; None where it fails.

    Its threshold pivoting has no bound of the rounding that comes with it, so that the count is no proof.
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
        for option in (13, 24):  # without ScaLAPACK for the last block, which counts nothing; with null pivots seen
            factor.getFactorMatrix().setMumpsIcntl(option, 1)
        factor.setUp()
        below, zero, _ = factor.getFactorMatrix().getInertia()
    except PETSc.Error:
        return None
    finally:
        solver.destroy()
        A.destroy()
    return None if zero else int(below)


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
        return unproved, "not checked: MUMPS has failed"
    if count > found.k:
        missed = replace(certificate, statuses=torch.full_like(certificate.statuses, int(Status.MISSED)))
        return missed, f"MUMPS's inertia counts {count} eigenvalues below {at:.4g}, of which {found.k} were found"
    return replace(certificate, checked=True), f"checked: MUMPS's inertia counts {count} eigenvalues below {at:.4g}"
