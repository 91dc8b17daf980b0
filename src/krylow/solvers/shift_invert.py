r"""Lanczos on the inverse: a factorisation once, then the lowest frequencies are the dominant ones.

$(L + \sigma I)^{-1}$ has the eigenvectors of L and the values $1 / (\lambda_i + \sigma)$, so that the lowest
frequencies, which are crowded together in L, stand far apart. One solve a vector; the price is the factorisation, which
is cheap where a graph is nearly a tree or a plane (road networks) and hopeless where it is not (three-dimensional
meshes, random graphs): a factor that is estimated to be too large is refused before it is begun. Null vectors that the
graph's components show are not iterated for; of a graph with more than k components nothing is factorised at all.

One large sparse graph goes without its chains and twigs (:mod:`krylow.solvers._schur`), and comes back with the
evidence for its answer; small graphs and dense batches are iterated for by thick restarts, and certified afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import splu
from torch import Tensor

from krylow._checks import InputError
from krylow._random import gaussian
from krylow._threads import sharing
from krylow.krylov.ritz import Ritz, rotate
from krylow.linalg.components import NullSpace, null_space
from krylow.linalg.elimination import Condensed, SingularFactorError
from krylow.linalg.fill import estimate_fill, refuse
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.solvers._problem import SAFETY, Problem, Solver, null_answer
from krylow.solvers._schur import condensed_inverse
from krylow.solvers.thick_restart import thick_restart

#: The shift below the spectrum over the norm of L: small against the frequencies sought, large against rounding.
SHIFT = 1e-6
#: Most block solves that follow the iteration.
POLISH = 3
#: Entries of a triangular factor, by estimate, that are still factorised: 3.2 GB with both factors and their indices.
MOST_FILL = 1.3e8
#: Sparse graphs of more nodes are condensed to a Schur complement, whose factor proves.
FACTORISED = 500


@dataclass(frozen=True)
class ShiftInvert(Solver):
    """Shift-invert Lanczos (Ericsson and Ruhe, 1980) on a Schur complement of the graph.

    Parameters
    ----------
    basis_size
        Most basis vectors. None: 2 k + 24, or for small graphs 2 k, at least k + 16.
    """

    name: ClassVar[str] = "shift_invert"
    basis_size: int | None = None

    def _is_large(self, problem: Problem) -> bool:
        return isinstance(problem.operator, SparseOperator) and problem.is_large(FACTORISED)

    def _size(self, problem: Problem) -> int:
        k = problem.k
        if self._is_large(problem):
            return self.basis_size or 2 * k + 24
        return max(self.basis_size or 0, 2 * k, k + 16)

    def describe(self, problem: Problem) -> str:
        """Return the size of the basis."""
        return f"a factorisation, then a basis of at most {self._size(problem)} vectors"

    def solve(self, problem: Problem) -> Ritz:
        """Return the lowest Ritz pairs."""
        L, k, size = problem.operator, problem.k, self._size(problem)
        if self._is_large(problem):
            return self._solve_large(problem, size)
        return shift_invert(
            L,
            gaussian(L, 1, generator=problem.generator),
            k,
            basis_size=size,
            tol=SAFETY * problem.tol,
            max_products=problem.max_products or 200 * size,
            generator=problem.generator,
        )

    @sharing()
    def _solve_large(self, problem: Problem, size: int) -> Ritz:
        L, k, core = problem.operator, problem.k, problem.profile.core
        null = problem.profile.null_space
        assert isinstance(L, SparseOperator)
        if null is not None and null.lowest and null.count >= k:
            return null_answer(L, null, k)
        return large_shift_invert(
            L,
            k,
            null,
            core,
            basis_size=size,
            tol=problem.tol,
            max_products=problem.max_products or 200 * size,
            generator=problem.generator,
        )


def shift_invert(
    L: Operator,
    X: Tensor,
    k: int,
    *,
    basis_size: int,
    tol: float,
    max_products: int,
    generator: torch.Generator | None = None,
    max_fill: float = MOST_FILL,
) -> Ritz:
    """Return the lowest Ritz pairs of L by thick-restarted Lanczos on the inverse of its shift.

    Parameters are those of :func:`~krylow.solvers.thick_restart.thick_restart`; ``max_products`` bounds the solves. The
    factorisation is a library's: scipy's sparse LU with a minimum-degree ordering for a sparse graph (on CPU), a
    Cholesky factorisation for a dense batch. It and the iteration are in float64, since the shifted matrix is nearly
    singular. Only the Rayleigh-Ritz step at the end costs products with L. ``max_fill`` is the most entries of a factor
    of a sparse graph (:func:`~krylow.linalg.fill.estimate_fill`); more raise an error.
    """
    null = null_space(L)
    null = null if null is not None and null.lowest and null.count else None
    if null is not None and null.count > k:  # k of the null vectors are as good as any other k
        return rotate(L, null.basis(k + 1, L.dtype))
    if isinstance(L, SparseOperator):
        refuse(estimate_fill(L), max_fill)
    A = L.double()
    low, shift = _shift(A)
    solve = _sparse_factor(A, shift) if isinstance(A, SparseOperator) else _dense_factor(A, shift)
    deflated = solve if null is None else _outside(null, solve)
    inverse = FunctionOperator(
        lambda Y: -deflated(Y),
        A.n,
        batch_shape=tuple(A.batch_shape),
        dtype=A.dtype,
        device=A.device,
        bounds=(-1 / (low + shift), torch.zeros_like(shift)),
    )
    inverse.mask = A.mask
    wanted = k if null is None else max(1, k - null.count)
    start = X.double() if null is None else null.remove(X.double())
    pairs = thick_restart(
        inverse,
        start,
        wanted,
        basis_size=basis_size,
        tol=tol,
        max_products=max(max_products, k + 2),  # a Subspace has k columns
        scale=1 / A.norm_bound().clamp(min=torch.finfo(A.dtype).tiny),  # the least that a value of the inverse can be
        generator=generator,
    )
    live = pairs.theta.isfinite()
    vectors = pairs.X
    if null is not None:
        vectors = torch.cat([null.basis(), vectors[:, live]], dim=-1)[:, : A.n]
        live = torch.ones(vectors.shape[-1], dtype=torch.bool)
    if not bool(live.all()):  # a graph of fewer nodes than the block: no rotation among zero columns
        values = torch.where(live, -1 / pairs.theta - shift[..., None], pairs.theta)
        return Ritz(values.to(L.dtype), vectors.to(L.dtype), pairs.residuals.to(L.dtype))
    # What is small against the inverse need not be small against L: a solve more of the whole block makes it so.
    for _ in range(POLISH):
        vectors = solve(vectors)
        found = rotate(L, (vectors / torch.linalg.vector_norm(vectors, dim=-2, keepdim=True)).to(L.dtype))
        if bool((found.estimate(k) <= tol).all()):
            break
    return found


def large_shift_invert(
    L: SparseOperator,
    k: int,
    null: NullSpace | None,
    core: Condensed,
    *,
    basis_size: int,
    tol: float,
    max_products: int,
    generator: torch.Generator | None = None,
    max_fill: float = MOST_FILL,
) -> Ritz:
    """Return the k lowest Ritz pairs of one large sparse graph, with the evidence for them.

    Parameters are those of :func:`shift_invert`; ``null`` are the graph's null vectors, fewer
    than k, and ``core`` is its Schur complement. A graph that
    cannot have frequencies below zero is inverted without a shift (:mod:`krylow.solvers._schur`), unless that is
    singular but for rounding.
    """
    lowest = null is not None and null.lowest

    def invert(shift: float) -> Ritz:
        return condensed_inverse(
            L,
            k,
            null if lowest else None,
            shift=shift,
            basis_size=basis_size,
            tol=tol,
            max_products=max_products,
            max_fill=max_fill,
            core=core,
            generator=generator,
        )

    if not lowest:
        return invert(float(_shift(L.double())[1]))
    try:
        return invert(0.0)
    except SingularFactorError:  # beside its null vectors L has frequencies that are zero but for rounding
        return invert(L.n * torch.finfo(torch.float64).eps * float(L.norm_bound()))


def _shift(A: Operator) -> tuple[Tensor, Tensor]:
    """Return a lower bound of the spectrum, and a shift that makes A positive definite."""
    low = A.gershgorin()[0]
    shift = SHIFT * A.norm_bound() - low.clamp(max=0)
    return low, torch.where(shift > 0, shift, torch.ones_like(shift))


def _outside(null: NullSpace, solve: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the solve without the null vectors, which it maps to zero: the far end of the inverse's spectrum."""
    return lambda Y: null.remove(solve(null.remove(Y)))


def _sparse_factor(A: SparseOperator, shift: Tensor) -> Callable[[Tensor], Tensor]:
    matrix = csc_array(A.to_scipy() + float(shift) * eye_array(A.n))
    factor = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    return lambda Y: torch.from_numpy(factor.solve(np.asfortranarray(Y.cpu().numpy()))).to(Y)


def _dense_factor(A: Operator, shift: Tensor) -> Callable[[Tensor], Tensor]:
    if isinstance(A, FunctionOperator):
        raise InputError('method="shift_invert" factorises L, so its entries must be known, got a function.')
    eye = torch.eye(A.n, dtype=A.dtype, device=A.device)
    factor = torch.linalg.cholesky(A.to_dense() + shift[..., None, None] * eye)
    return lambda Y: torch.cholesky_solve(Y, factor)
