r"""Lanczos on the inverse: a factorisation once, then the lowest frequencies are the dominant ones.

$(L + \sigma I)^{-1}$ has the eigenvectors of L and the values $1 / (\lambda_i + \sigma)$, so that the lowest
frequencies, which are crowded together in L, stand far apart. One solve a vector; the price is the factorisation, which
is cheap where a graph is nearly a tree or a plane (road networks) and hopeless where it is not (three-dimensional
meshes, random graphs): a factor that is estimated to be too large is refused before it is begun. Null vectors that the
graph's components show are not iterated for; of a graph with more than k components nothing is factorised at all.

One large sparse graph goes without its chains and twigs (:mod:`krylow.refine.condensed`), and comes back with the
evidence for its answer; small graphs and dense batches are iterated for by thick restarts, and certified afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import splu
from torch import Tensor

from krylow._checks import InputError
from krylow.linalg.components import NullSpace, null_space
from krylow.linalg.elimination import SingularFactorError
from krylow.linalg.fill import estimate_fill, refuse
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.refine.condensed import condensed_inverse
from krylow.refine.ritz import Ritz, rotate
from krylow.refine.thick_restart import thick_restart

#: The shift below the spectrum over the norm of L: small against the frequencies sought, large against rounding.
SHIFT = 1e-6
#: Most block solves that follow the iteration.
POLISH = 3
#: Entries of a triangular factor, by estimate, that are still factorised: 3.2 GB with both factors and their indices.
MOST_FILL = 1.3e8


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

    Parameters are those of :func:`~krylow.refine.thick_restart.thick_restart`; ``max_products`` bounds the solves. The
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
    *,
    basis_size: int,
    tol: float,
    max_products: int,
    generator: torch.Generator | None = None,
    max_fill: float = MOST_FILL,
) -> Ritz:
    """Return the k lowest Ritz pairs of one large sparse graph, with the evidence for them.

    Parameters are those of :func:`shift_invert`; ``null`` are the graph's null vectors, fewer than k. A graph that
    cannot have frequencies below zero is inverted without a shift (:mod:`krylow.refine.condensed`), unless that is
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
