r"""Restarted Lanczos: thick restart of a block (Wu and Simon, 2000), and implicit restart with given shifts.

**Thick restart.** A basis V is grown with full orthogonalisation by $Q_{j+1} R = L Q_j - V (V^\top L Q_j)$. When it is
full it is compressed to its p lowest Ritz vectors, and growth goes on from the same residual block,
$L V_p = V_p \Theta + Q S$: the next cycle costs m - p products, and the space contains that of implicitly restarted
Lanczos with exact shifts.

**Implicit restart** (Sorensen, 1992). With shifts $r_1, \ldots, r_d$ the basis spans
$\mathcal K_m\big(L, \prod_i (L - r_i I) \, z\big)$, as if the start had been filtered first, at the same number of
products. But a start that is filtered well lies nearly in a space of k dimensions, and finding the weakest of them
divides by components near the rounding error; here the filter is applied to a basis that stays orthonormal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from krylow import _checks
from krylow._random import gaussian
from krylow.krylov.lanczos import Krylov, breakdown_threshold
from krylow.krylov.ritz import CONVERGED_PART, WARM_PART, Ritz, following_converged, rayleigh_ritz, tied
from krylow.linalg.gram_schmidt import polished
from krylow.operators import Operator


@dataclass(frozen=True)
class Restart:
    """Settings of a thick restart."""

    basis_size: int  # columns held, more than k
    max_products: int
    keep: int | None = None  # Ritz vectors kept at a restart, at least k; None: k and a third of the rest
    tol: float = 0.0  # estimated normalised squared subspace error to stop at; 0: after max_products
    recheck: bool = True  # look for missed eigenvectors before stopping


def thick_restart(
    L: Operator,
    X: Tensor,
    k: int,
    settings: Restart,
    *,
    rounding: Tensor | None = None,
    generator: torch.Generator | None = None,
    report: Callable[[float], None] | None = None,
) -> Ritz:
    r"""Return the lowest Ritz pairs from a restarted basis.

    Stops when the estimated error of the k lowest is at most ``tol``, when their residuals cannot fall further, or
    after ``max_products``. One Krylov sequence holds one vector of each eigenspace; so with ``recheck`` the answer is
    then tested: a random Krylov space orthogonal to it grows until its lowest pair has converged, to a residual well
    below its distance from the k-th value. A missed copy of a repeated eigenvalue comes up there, joins in, and the
    iteration goes on. Where the products end before that, the residuals of guard vectors are infinite: they show no
    gap.

    Parameters
    ----------
    L
        The operator.
    X
        ``(*batch, n, b)`` start block, b < ``basis_size``.
    k
        Wanted pairs.
    settings
        Sizes and stopping rule.
    rounding
        ``(*batch,)`` what residuals and differences of values have to be above to count. None: the breakdown threshold.
    generator
        Source of the random block.
    report
        Called with the estimated error after every cycle. Ctrl-C ends the iteration with what the last cycle found.
    """
    rounding = breakdown_threshold(L) if rounding is None else rounding
    generator = generator or torch.Generator(device=L.device).manual_seed(1)
    size, tol, left = settings.basis_size, settings.tol, settings.max_products
    keep = k + max(1, (size - k) // 3) if settings.keep is None else settings.keep
    growth = _Growth(L, X, size, generator=generator)
    latest: Ritz | None = None
    try:
        while True:
            left -= growth.fill(left)
            ritz = latest = growth.ritz(max(keep, k + 1))
            if report is not None:
                report(float(ritz.estimate(k).max()))
            if growth.exhausted:
                return growth.answer(ritz)
            if left < growth.next.shape[-1]:
                return growth.answer(ritz.untested(k) if settings.recheck and tol > 0 else ritz)
            if tol == 0 or not bool(_finished(ritz, k, tol, rounding).all()):
                growth.restart(ritz, keep)
                continue
            if not settings.recheck:
                return growth.answer(ritz)
            outside, used = _outside(growth, ritz, k, tol, rounding, left)
            left -= used
            latest = _beside(ritz, outside, k)
            if bool((_confirmed(latest, ritz, k, rounding) & _finished(latest, k, tol, rounding)).all()):
                return growth.answer(latest)
            left -= growth.join(ritz, outside, k, min(max(1, keep - k), left)) if left else 0
            if left < growth.next.shape[-1] or growth.width + growth.next.shape[-1] > growth.capacity:
                return growth.answer(latest.untested(k))
    except KeyboardInterrupt:
        if latest is None:
            raise
        return growth.answer(replace(latest, interrupted=True))


def block_lanczos(L: Operator, X: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return V ``(*batch, n, s b)``, T and the residual block of ``steps`` block steps from ``X`` ``(*batch, n, b)``.

    $L V = V T + R E^\top$ with T block tridiagonal and E the last b columns of the identity. Orthonormal to rounding by
    full reorthogonalisation. Dependent directions are replaced by none: their columns are zero.
    """
    growth = _Growth(L, X, steps * X.shape[-1], generator=None)
    growth.fill()
    return growth.V, growth.H, growth.residual


def _finished(ritz: Ritz, k: int, tol: float, rounding: Tensor) -> Tensor:
    """Return where the estimate is at most ``tol``, or cannot get there: residuals are rounding, or values are tied."""
    rounded = ritz.residuals[..., :k].amax(-1) <= rounding
    return (ritz.estimate(k) <= tol) | rounded | tied(ritz, k, rounding)


def _outside(growth: _Growth, ritz: Ritz, k: int, tol: float, rounding: Tensor, budget: int) -> tuple[Ritz, int]:
    """Return the lowest Ritz pairs of a random Krylov space outside the k lowest vectors, and its products.

    It holds nothing of the space that found these: a guard vector that comes back from there would converge before a
    random start has shown what lies below it.
    """
    growth.lock(ritz, k)
    used, keep = 0, max(1, (growth.capacity - k) // 3)
    while True:
        used += growth.fill(budget - used)
        outside = growth.ritz(keep)
        both = _beside(ritz, outside, k)
        enough = _finished(both, k, tol, rounding) | following_converged(both, k, WARM_PART**2)
        # No distance from the k-th, though better known than that: those inside have to be known better first.
        level = (outside.residuals[..., 0] <= ritz.residuals[..., :k].amax(-1)) & ~following_converged(both, k)
        told = _missed(both, ritz, k, rounding) | _confirmed(both, ritz, k, rounding) & enough | level
        if growth.exhausted or budget - used < growth.next.shape[-1] or bool(told.all()):
            return outside, used
        growth.restart(outside, keep)


def _beside(ritz: Ritz, outside: Ritz, k: int) -> Ritz:
    """Return the k lowest pairs, and those outside them as guard vectors."""
    theta = torch.cat([ritz.theta[..., :k], outside.theta], dim=-1)
    X = torch.cat([ritz.X[..., :k], outside.X], dim=-1)
    return Ritz(theta, X, torch.cat([ritz.residuals[..., :k], outside.residuals], dim=-1))


def _missed(both: Ritz, ritz: Ritz, k: int, rounding: Tensor) -> Tensor:
    """Return where the lowest value outside is below the k-th, and known well enough to say so."""
    depth = ritz.theta[..., k - 1] - both.theta[..., k]
    return (depth > rounding) & (both.residuals[..., k] <= CONVERGED_PART * depth)


def _confirmed(both: Ritz, ritz: Ritz, k: int, rounding: Tensor) -> Tensor:
    """Return where the lowest pair outside has converged, and its value is no higher than that of the guard vector.

    The latter is an upper bound of the (k+1)-st eigenvalue: a pair far above it has yet to fall, however small its
    residual is, as where many eigenvalues lie near the lowest ones. Or where no gap will show any more. The lowest Ritz
    vector of a Krylov space has at least the random start's share of what lies below it, so that its residual is no
    less than that times their distance.
    """
    lowest, last, following = both.theta[..., k], ritz.theta[..., k - 1], ritz.theta[..., k]
    low = lowest <= following + CONVERGED_PART * (following - last)
    return following_converged(both, k, WARM_PART) & low | tied(both, k, rounding) & (lowest >= last - rounding)


class _Growth:
    """An orthonormal basis V, its projected matrix H = V^T L V, and the block Q that continues it: L V = V H + Q S."""

    #: A step this many times the breakdown threshold is orthogonalised once more.
    nearly_dependent = 1e3
    #: Part of a column that the last projection has to leave; a projection that leaves it everywhere suffices.
    kept = 0.5
    #: Restarts after which the deviation from orthonormality, to which rotations add, is removed.
    polish = 16

    def __init__(self, L: Operator, X: Tensor, capacity: int, *, generator: torch.Generator | None) -> None:
        block = X.shape[-1]
        self.L, self.generator = L, generator
        self.capacity = min(capacity, -(-L.n // block) * block)  # a full basis may end in zero columns
        self.tiny = breakdown_threshold(L)[..., None]  # (*batch, 1)
        self._V = X.new_zeros((*L.batch_shape, L.n, self.capacity))
        self._H = X.new_zeros((*L.batch_shape, self.capacity, self.capacity))
        self.width, self.rotations = 0, 0
        self.locked = 0  # columns that the rest is orthogonal to, and that take no part in Ritz pairs
        self.columns = block
        self._aside = X
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
        """``(*batch, width)``: which columns are not zero."""
        return torch.linalg.vector_norm(self.V, dim=-2) > 0.5

    @property
    def exhausted(self) -> bool:
        return bool((self.live.sum(-1) >= self.L.sizes).all())

    def fill(self, budget: int | None = None) -> int:
        """Grow until the basis is full or the budget is used; return the products."""
        used, block = 0, self.next.shape[-1]
        while self.width + block <= self.capacity and (budget is None or used + block <= budget):
            Q = self.next
            here = slice(self.width, self.width + block)
            self._V[..., here] = Q
            self.width += block
            W = self.L.__matmul__(Q)  # torch.compile knows no @ of other classes
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
        block, free = self.coupling.shape[-1], slice(self.locked, None)
        theta, Y = rayleigh_ritz(self.H[..., free, free], self.live[..., free])
        theta, Y = theta[..., :count], Y[..., :count]
        residuals = torch.linalg.vector_norm(self.coupling @ Y[..., Y.shape[-2] - block :, :], dim=-2)
        return Ritz(theta, self.V[..., free] @ Y, residuals.masked_fill(theta.isinf(), 0.0))

    def answer(self, ritz: Ritz) -> Ritz:
        """Return pairs with what rotations since the last polish have added to their deviation removed."""
        return replace(ritz, X=polished(ritz.X)) if self.rotations else ritz

    def restart(self, ritz: Ritz, keep: int) -> None:
        """Compress to the ``keep`` lowest Ritz vectors, and what is locked."""
        first = self.locked
        keep = min(keep, ritz.theta.shape[-1], self.capacity - first - self.next.shape[-1])  # the next block has to fit
        theta, X = ritz.theta[..., :keep], ritz.X[..., :keep]
        self.rotations += 1
        self.width = first + keep
        self._V[..., first : self.width] = X if self.rotations % self.polish else polished(X)
        self._H.zero_()
        diagonal = torch.where(theta.isinf(), torch.zeros_like(theta), theta)
        self._H[..., first : self.width, first : self.width] = torch.diag_embed(diagonal)

    def lock(self, ritz: Ritz, k: int) -> None:
        """Hold the k lowest Ritz vectors, put the block that continues them aside, and go on from a random one."""
        self.restart(ritz, k)
        self.locked, self._aside = self.width, self.next
        start = gaussian(self.L, self.columns, generator=self.generator)
        self._continue(start / torch.linalg.vector_norm(start, dim=-2, keepdim=True))

    def join(self, ritz: Ritz, outside: Ritz, k: int, count: int) -> int:
        """Go on from the k lowest vectors, ``count`` of those outside, and what continues both; return the products."""
        tail, self.locked = self.next, 0
        self.restart(ritz, k)
        self.next = outside.X[..., :count]
        used = self.fill(self.next.shape[-1])  # L times these gives their part of H
        self._continue(torch.cat([self._aside, tail], dim=-1))
        return used

    def _continue(self, block: Tensor) -> None:
        """Take a block of columns of unit length, made orthogonal to the basis, as the next one."""
        rounding = torch.full_like(self.tiny, torch.finfo(block.dtype).eps ** 0.5)
        self.next, self.coupling = self._orthonormal(self._project_out(block), rounding)

    def _project_out(self, Z: Tensor) -> Tensor:
        for _ in range(2):
            Z = Z - self.V @ (self.V.mT @ Z)
        return Z

    def _orthonormal(self, W: Tensor, tiny: Tensor) -> tuple[Tensor, Tensor]:
        """Return Q, R with W = Q R, Q orthonormal and orthogonal to V; dependent columns become random, or zero."""
        Q, R = torch.linalg.qr(W)
        size = R.diagonal(dim1=-2, dim2=-1).abs()  # (*batch, block)
        dependent = size <= tiny
        if _checks.traced():
            return self._renewed(W, dependent)
        # Nearly dependent columns of W, and those that are hardly more than rounding, are orthogonal to V only relative
        # to their size before they were normalised.
        near = W.shape[-1] > 1 or bool((size <= self.nearly_dependent * tiny).any())
        if self.width and near and not bool(dependent.any()):
            for _ in range(3):
                Q, again = torch.linalg.qr(self._project_out(Q))
                R = again @ R
                if bool((again.diagonal(dim1=-2, dim2=-1).abs() >= self.kept).all()):
                    break
            dependent = R.diagonal(dim1=-2, dim2=-1).abs() <= tiny
        return self._renewed(W, dependent) if bool(dependent.any()) else (Q, R)

    def _renewed(self, W: Tensor, dependent: Tensor) -> tuple[Tensor, Tensor]:
        """Return Q, R as :meth:`_orthonormal` does, with random columns, or zero ones, for the dependent ones."""
        order = dependent.to(torch.int8).argsort(dim=-1, stable=True)  # independent columns first
        dependent = dependent.gather(-1, order)[..., None, :]
        columns = order[..., None, :].expand(*W.shape[:-1], -1)
        Q = torch.linalg.qr(W.gather(-1, columns) * ~dependent).Q
        Z = torch.zeros_like(Q)
        if self.generator is not None:
            Z = gaussian(self.L, Q.shape[-1], generator=self.generator)
            Z = Z / torch.linalg.vector_norm(Z, dim=-2, keepdim=True)
        Q = torch.where(dependent, Z, Q)
        # A random vector keeps something of order n^-1/2 where V does not span everything; less is rounding, and so is
        # what the last projection still shortens.
        for least in (torch.finfo(Q.dtype).eps ** 0.5, self.kept, self.kept):
            Q, R = torch.linalg.qr(self._project_out(Q))
            Q = Q * (R.diagonal(dim1=-2, dim2=-1).abs() > least)[..., None, :]
        return Q, Q.mT @ W


def implicit_restart(L: Operator, z: Tensor, k: int, m: int, shifts: Tensor) -> Krylov:
    r"""Return an orthonormal basis of $\mathcal K_m\big(L, \prod_i (L - r_i I) \, z\big)$ and its coefficients.

    A cycle applies m - k shifts by QR steps on the small matrix, $T - r I = Q R$, $T \leftarrow R Q + r I$,
    $V \leftarrow V Q$, which shortens the basis by as many columns, and grows it again. Costs m + d products for d
    shifts, memory (m + 1) n. Differentiable.

    Parameters
    ----------
    L
        The operator.
    z
        ``(*batch, n, 1)`` start.
    k, m
        Columns left by a full cycle, and columns of the basis, k < m.
    shifts
        ``(*batch, d)``; d of any size.
    """
    tiny = breakdown_threshold(L)[..., None, None]
    V, T = torch.zeros_like(z)[..., :0], z.new_zeros((*z.shape[:-2], 0, 0))
    V, T, f = _extended(L, V, T, z, 1, torch.zeros_like(tiny))  # the start has a size of its own, unlike residuals
    V, T, f = _extended(L, V, T, f, m, tiny)
    for group in shifts.split(m - k, dim=-1) if shifts.shape[-1] else ():
        V, T, f = _compressed(V, T, f, group)
        V, T, f = _extended(L, V, T, f, m, tiny)
    beta = T.diagonal(offset=1, dim1=-2, dim2=-1)
    last = torch.linalg.vector_norm(f, dim=-2)
    steps = (torch.linalg.vector_norm(V, dim=-2) > 0.5).sum(-1)
    return Krylov(V, T.diagonal(dim1=-2, dim2=-1), torch.cat([beta, last], dim=-1), f, steps)


def _extended(L: Operator, V: Tensor, T: Tensor, f: Tensor, m: int, tiny: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Continue L V = V T + f e^T until V has m columns, orthogonalising twice against all of them."""
    while V.shape[-1] < m:
        beta = torch.linalg.vector_norm(f, dim=-2, keepdim=True)
        alive = beta > tiny
        v = torch.where(alive, f / torch.where(alive, beta, torch.ones_like(beta)), torch.zeros_like(f))
        V = torch.cat([V, v], dim=-1)
        f = L.__matmul__(v)
        alpha = (v * f).sum(-2, keepdim=True)
        for _ in range(2):
            f = f - V @ (V.mT @ f)
        T = torch.nn.functional.pad(T, (0, 1, 0, 1))
        T[..., -1, -1] = alpha[..., 0, 0]
        if T.shape[-1] > 1:
            T[..., -1, -2] = T[..., -2, -1] = torch.where(alive, beta, torch.zeros_like(beta))[..., 0, 0]
    return V, T, f


def _compressed(V: Tensor, T: Tensor, f: Tensor, shifts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Apply shifts to the basis; each costs it a column."""
    m = T.shape[-1]
    eye = torch.eye(m, dtype=T.dtype, device=T.device)
    Q = eye.expand_as(T)
    for shift in shifts.unbind(-1):
        r = shift[..., None, None] * eye
        q, R = torch.linalg.qr(T - r)
        T = R @ q + r
        T = (T + T.mT) / 2
        Q = Q @ q
    left = m - shifts.shape[-1]
    W = V @ Q[..., : left + 1]
    f = W[..., left:] * T[..., left, left - 1, None, None] + f * Q[..., m - 1, left - 1, None, None]
    V = W[..., :left]
    return V, T[..., :left, :left].clone(), f - V @ (V.mT @ f)
