r"""The equation of the gradient on one large graph, by preconditioned conjugate gradients.

For each kept pair $(L - \theta_i I) \, w_i = -Q \bar u_i$ on the complement of U (:mod:`krylow.autodiff.implicit`).
Three things make it as cheap as the solve before it:

- It is solved as exactly as the subspace is known, in float32 where that suffices.
- The preconditioner is an approximate inverse of L: a symmetric multigrid cycle on graphs with a geometry, a factor of
  a graph whose factor is sparse, and elsewhere the diagonal.
- The guard vectors of the solver are nearly eigenvectors $\theta_g$ just above the cut, where the matrix is nearly
  singular: what that inverse lacks of $X_g (\Theta_g - \theta_i I)^{-1} X_g^\top$ is added.

On graphs with a geometry U is smoothed first: what it has at high frequencies would be most of the error of a gradient
with respect to edges, in which differences along these stand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from krylow._memory import empty
from krylow._threads import sharing
from krylow.autodiff.implicit import ACCURACY
from krylow.krylov.cg import conjugate_gradients
from krylow.krylov.chebyshev import chebyshev_solve, chebyshev_steps
from krylow.krylov.ritz import Ritz
from krylow.linalg.elimination import Factor, condense, float64_matrix
from krylow.operators import Operator, SparseOperator
from krylow.operators.ordering import reordered_if_it_pays
from krylow.solvers._aggregation import Aggregation, aggregate
from krylow.solvers._coarse import CoarseGraph
from krylow.solvers._filter import Filter, single, spectrum_top
from krylow.solvers._problem import Problem

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class AdjointSettings:
    """Settings of the adjoint solve."""

    single: float = 1e-6  # squared errors of the subspace from which float32 suffices
    steps: int = 2000  # most steps of conjugate gradients
    columns: int = 4  # blocks are as wide as a multiple of this, which is faster than odd widths
    geometric: float = 0.1  # largest level set of a breadth-first search, over the nodes, of a graph with a geometry
    shrinks: float = 0.6  # most nodes of a coarse graph over those of the fine one
    degree: int = 4  # of the smoother, before and after the coarse solve
    interval: float = 1 / 20  # where its interval begins, over the spectrum's upper bound
    over: float = 1.3  # factor of the coarse correction, since piecewise constant vectors overestimate frequencies
    again: int = 2  # cycles of a coarse graph that is too large for a factor
    smooth: int = 8  # degree of the filter of U
    shift: float = 0.1  # of a matrix that is factorised, over the first frequency above the cut


SETTINGS = AdjointSettings()


class LargeAdjoint:
    """Solves for W of one large sparse graph.

    ``factorised`` says whether a factor of it is known to be sparse; ``pairs`` has guard vectors behind the k-th where
    the solver has kept any.
    """

    def __init__(
        self, problem: Problem, pairs: Ritz | None, *, factorised: bool, settings: AdjointSettings = SETTINGS
    ) -> None:
        k = problem.k
        self.problem, self.factorised, self.settings = replace(problem, start=None), factorised, settings
        self.theta: Tensor | None = None if pairs is None else pairs.theta[k:]
        self.guards: Tensor | None = None if pairs is None else pairs.X[:, k:]

    @sharing()
    def __call__(self, U: Tensor, theta: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Return W and the smoothed U."""
        profile, tol, k, dtype = self.problem.profile, self.problem.tol, U.shape[1], U.dtype
        L = profile.operator
        assert isinstance(L, SparseOperator)
        other, null = reordered_if_it_pays(L.detach(), lambda: profile.search), profile.null_space
        if other is not None:
            null = null and null.reordered(other.order)
        D = (L.detach() if other is None else other.operator).counting_for(L)
        A = (single(D) if tol >= self.settings.single else D.double()).counting_for(D)

        def moved(X: Tensor) -> Tensor:
            rows = X.to(A.dtype)
            return self._padded(rows if other is None else rows.index_select(0, other.order))

        def back(X: Tensor) -> Tensor:
            rows = X[:, :k].contiguous()
            return (rows if other is None else other.back(rows)).to(dtype)

        U, theta, grad = moved(U), self._padded(theta.to(A.dtype)), moved(grad)
        inverse, shift, smoother = self._inverse(replace(self.problem, operator=D, null=null), A, theta[:k])
        size = torch.linalg.vector_norm(grad)
        right = grad / -(size if bool(size > 0) else 1.0)  # float32 holds its squares
        right.addmm_(U, U.mT @ right, alpha=-1)
        if smoother is not None:
            U = _filtered(A, U, theta, smoother)
        known, guards, above = None, self.guards, self.theta
        if guards is not None and above is not None and guards.shape[1]:
            known = moved(guards), self._lacking(above[: guards.shape[1], None].to(theta), theta, shift)
        W = self._solve(A, U, theta, right, inverse, known, geometric=math.isfinite(shift))
        return back(W.mul_(size)), back(U)

    def _padded(self, X: Tensor) -> Tensor:
        """Return X with columns of zeros up to a width that is fast."""
        return torch.nn.functional.pad(X, (0, -X.shape[-1] % self.settings.columns))

    def _lacking(self, above: Tensor, theta: Tensor, shift: float) -> Tensor:
        r"""Return what $(L + s I)^{-1}$ lacks of $(L - \theta_i I)^{-1}$ on guards ``(guards, k)``, not negative."""
        gaps = above - theta
        # A guard that is no further above the cut than rounding is none.
        scale = torch.where(gaps > 1e-6 * theta.abs().max(), 1 / gaps - 1 / (above + shift), torch.zeros_like(gaps))
        return self._padded(scale.mT).mT

    def _solve(
        self,
        A: Operator,
        U: Tensor,
        theta: Tensor,
        right: Tensor,
        inverse: Product,
        guards: tuple[Tensor, Tensor] | None,
        *,
        geometric: bool,
    ) -> Tensor:
        """Return W for the right-hand sides; ``geometric`` says whether the inverse is a good one."""

        def project_(X: Tensor) -> Tensor:
            return X.addmm_(U, U.mT @ X, alpha=-1)

        def shifted(X: Tensor) -> Tensor:
            return project_(A.three_term(X, None, 1.0, 0.0)).addcmul_(theta, X, value=-1)

        def precondition(R: Tensor) -> Tensor:
            Z = inverse(R)
            if guards is not None:
                X, scale = guards
                Z.addmm_(X, scale * (X.mT @ R))
            return project_(Z)

        steps, least = self.settings.steps, torch.finfo(A.dtype).eps ** 0.75
        W = conjugate_gradients(
            shifted,
            project_(right),
            steps=steps,
            tol=least,
            energy=ACCURACY * self.problem.tol**0.5,
            geometric=geometric,
            preconditioner=precondition,
        )
        return project_(W)

    def _inverse(self, problem: Problem, A: Operator, theta: Tensor) -> tuple[Product, float, Filter | None]:
        """Return about $(L + s I)^{-1}$, positive definite, the shift s, and its smoother if it has one."""
        D, lowest, settings = problem.operator, float(theta[0]), self.settings
        assert isinstance(D, SparseOperator)
        high = spectrum_top(A)
        following = float(theta[-1]) if self.theta is None or not self.theta.numel() else float(self.theta[0])
        shift = max(settings.shift * following, 1e-7 * high)
        if lowest < -1e-5 * high:  # it would be indefinite
            return _diagonal(D, A, theta), math.inf, None
        if self.factorised:
            schur = condense(float64_matrix(D), shift, problem.profile.condensed.piece)
            factor = Factor(schur.S, schur.order)
            return lambda R: torch.from_numpy(schur.solve(factor, R.double().numpy())).to(R), shift, None
        if problem.profile.width <= settings.geometric:
            cycle = multigrid(A, D, problem.null_vector(), high, shift, settings)
            if cycle is not None:
                return cycle, shift, replace(cycle.smoother, degree=settings.smooth)
        return _diagonal(D, A, theta), math.inf, None


class Multigrid:
    r"""A symmetric multigrid cycle as an approximate inverse of A: smoother, coarse solve, smoother.

    The smoother is a Chebyshev iteration, the coarse solve any positive definite one.
    """

    def __init__(self, A: Operator, level: Aggregation, smoother: Filter, coarse: Product, over: float) -> None:
        self.A, self.level, self.smoother, self.coarse, self.over = A, level, smoother, coarse, over
        self._work: list[Tensor] = []  # blocks of all calls: memory that is new costs its first touch

    def __call__(self, R: Tensor) -> Tensor:
        """Return the approximate inverse times R ``(n, s)``, until the next call."""
        A, p = self.A, self.smoother
        if not self._work or self._work[0].shape != R.shape:
            self._work = [empty(*R.shape, dtype=R.dtype) for _ in range(4)]
        one, other, Y, rest = self._work
        Z = chebyshev_solve(A, R, p.degree, p.low, p.high, work=(one, other))
        A.three_term(Z, R, -1.0, 0.0, 1.0, out=rest)
        self.level.prolong(self.coarse(self.level.restrict(rest)).mul_(self.over), Y)
        A.three_term(Y, rest, -1.0, 0.0, 1.0, out=rest)
        Z.add_(Y)
        return Z.add_(chebyshev_solve(A, rest, p.degree, p.low, p.high, work=(other if Z is one else one, Y)))


def multigrid(
    A: Operator, D: SparseOperator, vector: Tensor, high: float, shift: float, settings: AdjointSettings
) -> Multigrid | None:
    """Return a cycle for A, which is D in some precision; None where aggregates are too small for one.

    A coarse graph is solved with a factor of its Laplacian plus a shift small against the frequencies that count; where
    that is too large, by cycles of its own.
    """
    smoother = Filter(settings.degree, settings.interval * high, high, 0.0)
    level, fine = aggregate(D, vector, smoother.low / 2), D.n
    while level.coarse.n > settings.shrinks * D.n:
        if level.coarse.n > 0.9 * fine:
            return None
        fine = level.coarse.n
        level = level.then(aggregate(level.coarse, level.vector, smoother.low / 2))
    C = level.coarse
    assert isinstance(C, SparseOperator)
    if CoarseGraph(C).is_factorised:
        matrix = C.to_scipy()
        matrix.setdiag(matrix.diagonal() + shift)
        factor = Factor(matrix)
        return Multigrid(A, level, smoother, lambda R: torch.from_numpy(factor.solve(R.numpy())), settings.over)
    B = C.to(A.dtype)
    below = multigrid(B, C, level.vector, spectrum_top(B), shift, settings)
    if below is None:
        return None

    def cycles(R: Tensor) -> Tensor:
        R = R.to(B.dtype)
        Y = below(R).clone()
        for _ in range(settings.again - 1):
            Y.add_(below(B.three_term(Y, R, -1.0, 0.0, 1.0)))
        return Y

    return Multigrid(A, level, smoother, cycles, settings.over)


def _diagonal(D: SparseOperator, A: Operator, theta: Tensor) -> Product:
    """Return the inverse of the diagonal, where that is well above zero."""
    diagonal = D.diagonal().double()
    least = torch.maximum(theta.abs().max().double(), 1e-3 * diagonal.abs().mean())
    inverse = torch.where(diagonal > least, diagonal, least).reciprocal_().to(A.dtype)[:, None]
    return lambda R: inverse * R


def _filtered(A: Operator, U: Tensor, theta: Tensor, p: Filter) -> Tensor:
    """Return p(L) U, each column over what p is at its frequency: what U has on the filter's interval is gone."""
    inside = theta < p.low / 2
    work = empty(*U.shape, dtype=U.dtype), empty(*U.shape, dtype=U.dtype)
    Y = U
    for Y in chebyshev_steps(A, U, p.degree, p.low, p.high, 0.0, work):  # noqa: B007
        pass
    return torch.where(inside, Y / (p.amplification(theta) * p.bound), U)
