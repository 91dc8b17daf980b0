r"""Block Lanczos with full orthogonalisation, thick-restarted within a bounded basis.

A basis V of at most m columns is grown by $Q_{j+1} R = L Q_j - V (V^\top L Q_j)$. When it is full it is compressed to
its p lowest Ritz vectors, after which the growth goes on from the same residual block: $L V_p = V_p \Theta + Q S$, so
that the next cycle costs m - p products and the space contains that of implicitly restarted Lanczos (Wu and Simon,
2000).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from krylow._checks import InputError
from krylow._random import gaussian
from krylow.krylov.lanczos import breakdown_threshold
from krylow.krylov.ritz import CONVERGED_PART, Ritz, following_converged, settled
from krylow.linalg.gram_schmidt import polished
from krylow.operators import DenseOperator, Operator
from krylow.solvers._problem import SAFETY, Problem, Solver, Watch, start_vectors

#: A step this many times the breakdown threshold is orthogonalised once more; a projection that keeps this part of
#: every column suffices, and so many are tried.
NEARLY_SPENT, KEPT, MOST_PROJECTIONS = 1e3, 0.5, 3
#: Rotations of a restart add to a deviation from orthonormality, which is removed after so many of them.
ROTATIONS = 16


@dataclass(frozen=True)
class ThickRestart(Solver):
    """Thick-restarted block Lanczos (Wu and Simon, 2000).

    Parameters
    ----------
    basis_size
        Most basis vectors. None: 2 k, at least k + 24.
    """

    name: ClassVar[str] = "thick_restart"
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
            basis_size=size,
            tol=SAFETY * problem.tol,
            max_products=problem.max_products or max(200 * size, 20 * L.n),
            generator=problem.generator,
            watch=problem.watch(SAFETY),
        )


def block_lanczos(L: Operator, X: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return V ``(*batch, n, s b)``, T and the residual block of ``steps`` block steps from ``X`` ``(*batch, n, b)``.

    $L V = V T + R E^\top$ with T block tridiagonal and E the last b columns of the identity. Orthonormal to rounding by
    full reorthogonalisation. Directions that run out are replaced by none: their columns are zero.
    """
    growth = _Growth(L, X, steps * X.shape[-1], generator=None)
    growth.fill()
    return growth.V, growth.H, growth.residual


def thick_restart(
    L: Operator,
    X: Tensor,
    k: int,
    *,
    basis_size: int,
    keep: int | None = None,
    tol: float = 0.0,
    max_products: int,
    recheck: bool = True,
    scale: Tensor | None = None,
    generator: torch.Generator | None = None,
    watch: Watch | None = None,
) -> Ritz:
    r"""Return the lowest Ritz pairs from a restarted basis of at most ``basis_size`` vectors.

    Stops when the estimated error of the k lowest is at most ``tol``, when their residuals cannot fall further, or when
    ``max_products`` are spent. One Krylov sequence holds one vector of each eigenspace; so with ``recheck`` the answer
    is then put to the test: the guard vectors are dropped, a random block joins in, and the iteration goes on until the
    (k+1)-st pair has converged anew, to a residual well below its distance from the k-th. A missed copy of a repeated
    eigenvalue comes up there.

    Parameters
    ----------
    L
        The operator.
    X
        ``(*batch, n, b)`` start block, b < ``basis_size``.
    k
        Wanted pairs.
    basis_size
        Columns held, k < ``basis_size``.
    keep
        Ritz vectors kept at a restart, k <= keep < ``basis_size``. None: k and a third of the rest.
    tol
        Estimated normalised squared subspace error to stop at; 0: spend ``max_products``.
    max_products
        Most products with L.
    recheck
        Whether to look for missed eigenvectors before stopping.
    scale
        ``(*batch,)`` the size of the wanted values, where that is far below the norm of L. None: the norm.
    generator
        Source of the random block.
    watch
        Told of every cycle. Ctrl-C ends the iteration with what the last whole cycle found.
    """
    scale = L.norm_bound() if scale is None else scale
    generator = generator or torch.Generator(device=L.device).manual_seed(1)
    block = X.shape[-1]
    growth = _Growth(L, X, basis_size, generator=generator)
    keep = k + max(1, (basis_size - k) // 3) if keep is None else keep
    reference: Ritz | None = None
    latest: Ritz | None = None
    while True:
        try:
            used = growth.fill(max_products)
        except KeyboardInterrupt:
            if latest is None:
                raise
            return replace(latest, interrupted=True)
        if used == 0 and reference is not None:  # the products left do not pay for the recheck's wider block
            return reference
        max_products -= used
        ritz = latest = growth.ritz(max(keep, k + 1))
        if watch is not None:
            watch.report(float(ritz.estimate(k).max()))
        if max_products < growth.next.shape[-1] or growth.exhausted:
            return ritz
        if tol == 0 or not bool(((ritz.estimate(k) <= tol) | settled(scale, ritz.residuals[..., : k + 1])).all()):
            growth.restart(ritz, keep)
        elif not recheck:
            return ritz
        elif reference is None or _lower(ritz, reference, k):
            reference = ritz
            growth.restart(ritz, k, fresh=block)
        elif bool((_found_anew(ritz, reference, k) | settled(scale, ritz.residuals[..., : k + 1])).all()):
            return ritz
        else:
            growth.restart(ritz, keep)


def _lower(ritz: Ritz, reference: Ritz, k: int) -> bool:
    """Return whether any of the k lowest values fell by more than its residual explains."""
    slack = 2 * reference.residuals[..., :k].amax(-1, keepdim=True)
    return bool((ritz.theta[..., :k] < reference.theta[..., :k] - slack).any())


def _found_anew(ritz: Ritz, reference: Ritz, k: int) -> Tensor:
    """Return where the (k+1)-st pair has converged, and its value is no higher than that of the reference.

    The latter is an upper bound of the (k+1)-st eigenvalue: a pair far above it has yet to fall, however small its
    residual is, as where many eigenvalues lie near the lowest ones.
    """
    if min(ritz.theta.shape[-1], reference.theta.shape[-1]) <= k:
        return following_converged(ritz, k)
    gap = reference.theta[..., k] - reference.theta[..., k - 1]
    return following_converged(ritz, k) & (ritz.theta[..., k] <= reference.theta[..., k] + CONVERGED_PART * gap)


class _Growth:
    """An orthonormal basis V, its projected matrix H = V^T L V, and the block Q that continues it: L V = V H + Q S."""

    def __init__(self, L: Operator, X: Tensor, capacity: int, *, generator: torch.Generator | None) -> None:
        block = X.shape[-1]
        self.L, self.generator = L, generator
        self.capacity = min(capacity, -(-L.n // block) * block)  # a full basis may end in zero columns
        self.tiny = breakdown_threshold(L)[..., None]  # (*batch, 1)
        self._V = X.new_zeros((*L.batch_shape, L.n, self.capacity))
        self._H = X.new_zeros((*L.batch_shape, self.capacity, self.capacity))
        self.width, self.rotations = 0, 0
        self.residual = X
        self.next, self.coupling = self._orthonormal(X, torch.zeros_like(self.tiny))

    @property
    def V(self) -> Tensor:
        return self._V[..., : self.width]

    @property
    def H(self) -> Tensor:
        H = self._H[..., : self.width, : self.width]
        return (H + H.mT) / 2

    @property
    def live(self) -> Tensor:
        """``(*batch,)``: how many columns are not zero."""
        return (torch.linalg.vector_norm(self.V, dim=-2) > 0.5).sum(-1)

    @property
    def exhausted(self) -> bool:
        return bool((self.live >= self.L.sizes).all())

    def fill(self, budget: int | None = None) -> int:
        """Grow until the basis is full or the budget spent; return the products used."""
        used, block = 0, self.next.shape[-1]
        while self.width + block <= self.capacity and (budget is None or used + block <= budget):
            Q = self.next
            here = slice(self.width, self.width + block)
            self._V[..., here] = Q
            self.width += block
            W = self.L @ Q
            C = self.V.mT @ W
            W = W - self.V @ C
            again = self.V.mT @ W
            self.residual = W - self.V @ again
            self._H[..., : self.width, here] = C + again
            self._H[..., here, : self.width] = (C + again).mT
            self.next, self.coupling = self._orthonormal(self.residual, self.tiny)
            used += block
        return used

    def ritz(self, count: int) -> Ritz:
        """Return the lowest Ritz pairs of the basis, ``count`` at most."""
        block = self.coupling.shape[-1]
        zero = torch.linalg.vector_norm(self.V, dim=-2) <= 0.5  # (*batch, width)
        H = self.H
        top = 2 * H.abs().sum(-1).amax(-1, keepdim=True)
        top = torch.where(top > 0, top, torch.ones_like(top))
        theta, Y = torch.linalg.eigh(H + torch.diag_embed(torch.where(zero, top, torch.zeros_like(top))))
        residuals = torch.linalg.vector_norm(self.coupling @ Y[..., self.width - block : self.width, :], dim=-2)
        absent = torch.arange(self.width, device=H.device) >= self.live[..., None]
        theta = torch.where(absent, torch.full_like(theta, torch.inf), theta)
        residuals = torch.where(absent, torch.zeros_like(residuals), residuals)
        return Ritz(theta[..., :count], self.V @ Y[..., :count], residuals[..., :count])

    def restart(self, ritz: Ritz, keep: int, *, fresh: int = 0) -> None:
        """Compress to the ``keep`` lowest Ritz vectors, going on with the same block or a fresh random one."""
        keep = min(keep, ritz.theta.shape[-1], self.capacity - self.next.shape[-1])  # the next block has to fit
        theta = ritz.theta[..., :keep]
        self.rotations += 1
        X = ritz.X[..., :keep]
        self._V[..., :keep] = X if self.rotations % ROTATIONS else polished(X)
        self._H.zero_()
        self._H[..., :keep, :keep] = torch.diag_embed(torch.where(theta.isinf(), torch.zeros_like(theta), theta))
        self.width = keep
        if fresh:
            self._refresh(fresh)

    def _refresh(self, columns: int) -> None:
        """Put random columns beside the block that continues the basis, or in its place where both do not fit."""
        start = gaussian(self.L, columns, generator=self.generator)
        start = self._project_out(start / torch.linalg.vector_norm(start, dim=-2, keepdim=True))
        if self.width + self.next.shape[-1] + columns <= self.capacity:
            start = start - self.next @ (self.next.mT @ start)
            start = torch.cat([self.next, start], dim=-1)
        rounding = torch.full_like(self.tiny, torch.finfo(start.dtype).eps ** 0.5)  # of columns of unit length
        self.next, self.coupling = self._orthonormal(start, rounding)

    def _project_out(self, Z: Tensor) -> Tensor:
        for _ in range(2):
            Z = Z - self.V @ (self.V.mT @ Z)
        return Z

    def _orthonormal(self, W: Tensor, tiny: Tensor) -> tuple[Tensor, Tensor]:
        """Return Q, R with W = Q R and Q orthonormal, orthogonal to V; spent columns become random ones, or zero."""
        Q, R = torch.linalg.qr(W)
        size = R.diagonal(dim1=-2, dim2=-1).abs()  # (*batch, block)
        spent = size <= tiny
        # Nearly dependent columns of W, and those that are hardly more than rounding, are orthogonal to V only relative
        # to their size before they were normalised.
        if self.width and not bool(spent.any()) and (W.shape[-1] > 1 or bool((size <= NEARLY_SPENT * tiny).any())):
            for _ in range(MOST_PROJECTIONS):
                Q, again = torch.linalg.qr(self._project_out(Q))
                R = again @ R
                if bool((again.diagonal(dim1=-2, dim2=-1).abs() >= KEPT).all()):
                    break
            spent = R.diagonal(dim1=-2, dim2=-1).abs() <= tiny
        return self._renewed(W, spent) if bool(spent.any()) else (Q, R)

    def _renewed(self, W: Tensor, spent: Tensor) -> tuple[Tensor, Tensor]:
        """Return Q, R as :meth:`_orthonormal` does, with random columns, or zero ones, in place of the spent ones."""
        order = spent.to(torch.int8).argsort(dim=-1, stable=True)  # live columns first: no spent one is taken from them
        spent = torch.take_along_dim(spent, order, dim=-1)[..., None, :]
        Q = torch.linalg.qr(torch.take_along_dim(W, order[..., None, :], dim=-1) * ~spent).Q
        Z = torch.zeros_like(Q)
        if self.generator is not None:
            Z = gaussian(self.L, Q.shape[-1], generator=self.generator)
            Z = Z / torch.linalg.vector_norm(Z, dim=-2, keepdim=True)
        Q = torch.where(spent, Z, Q)
        # Of a random vector something of order n^-1/2 is left where V does not span everything; less is rounding, and
        # so is what the last projection still shortens.
        for least in (torch.finfo(Q.dtype).eps ** 0.5, KEPT, KEPT):
            Q, R = torch.linalg.qr(self._project_out(Q))
            Q = Q * (R.diagonal(dim1=-2, dim2=-1).abs() > least)[..., None, :]
        return Q, Q.mT @ W
