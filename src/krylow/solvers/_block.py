"""An orthonormal block of vectors of one large graph, its filter, and its Rayleigh-Ritz step."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from krylow._memory import empty
from krylow._reduce import agreed
from krylow.krylov.chebyshev import chebyshev_steps
from krylow.krylov.ritz import Evidence, Ritz
from krylow.linalg.components import NullSpace
from krylow.linalg.row_blocks import (
    exact_gram,
    exact_product_,
    gram,
    grams,
    image_gram,
    lengths,
    orthonormalize_,
    residual_gram,
    rotate_,
    subtract_,
)
from krylow.operators import Operator
from krylow.solvers._correction import beyond_rounding
from krylow.solvers._estimate import Estimate, Outcome, Stopping, cautious_floor, mixed
from krylow.solvers._filter import Filter, Precision, rough


class Image(NamedTuple):
    """L X of a block X."""

    LX: Tensor  # (n, s) in the block's dtype
    H: Tensor  # (s, s) float64, X^T L X
    squares: Tensor | None  # (s, s) float64, (L X)^T L X from float32 sums; None where H is exact
    rounding: Tensor  # (s,) how far H may be off in each row, on the host


class Block:
    """An orthonormal block of one graph with an estimate of its error.

    Parameters
    ----------
    L
        The operator of the filter; its dtype is the block's.
    X
        ``(n, s)`` start, taken over and overwritten.
    high
        Upper bound of the spectrum.
    null
        Null vectors that are known, the lowest frequencies: the block is kept orthogonal to them until :meth:`finish`.
    orthonormal
        Whether X is that already.
    undetected
        See :class:`Estimate`.

    Attributes
    ----------
    X
        ``(n, s)`` orthonormal, in the order of rising frequency after ``turn``.
    turn
        ``(s, s)`` float64 by which X has to be multiplied for that; None: it need not be.
    estimate
        What is known of its vectors.
    """

    def __init__(
        self,
        L: Operator,
        X: Tensor,
        high: float,
        *,
        null: NullSpace | None = None,
        orthonormal: bool = False,
        undetected: float = 0.0,
    ) -> None:
        self.L, self.high, self.null = L, high, null
        self.lowest = float(L.gershgorin()[0])
        self.X = X if orthonormal else orthonormalize_(self._deflated_(X))
        self.turn: Tensor | None = None
        self.estimate = Estimate.unknown(X.shape[1], undetected)
        self._work: tuple[Tensor, Tensor] | None = None

    def _deflated_(self, X: Tensor) -> Tensor:
        """Take the null vectors, whose rounding is amplified the most, out of X in place; return it."""
        return X if self.null is None else self.null.remove_(X)

    def _buffers(self) -> tuple[Tensor, Tensor]:
        if self._work is None:
            one, other = (empty(*self.X.shape, dtype=self.X.dtype, device=self.X.device) for _ in range(2))
            self._work = one, other
        return self._work

    def filter(self, p: Filter) -> tuple[Tensor, Tensor]:
        r"""Replace X by $Y = p(L) X$, orthogonal to the null vectors; return $X^\top Y$ and $Y^\top Y$.

        An interruption leaves the last iterate of the recurrence.
        """
        X = Y = self.X
        one, other = self._buffers()
        try:
            for Y in chebyshev_steps(self.L, X, p.degree, p.low, p.high, p.first, (one, other)):  # noqa: B007
                pass
        finally:
            if Y is not X:
                self.X, self.turn, self._work = Y, None, (X, other if Y is one else one)
        self._deflated_(Y)
        G, S = grams((X, Y), (Y, Y))
        return G, S

    def sweep(self, k: int, p: Filter) -> None:
        """Filter the block, make a Rayleigh-Ritz step for p(L), which needs no product, and estimate the error of k."""
        p = self._limited(p)
        G, S = (part.cpu() for part in self.filter(p))
        mu, Q = _descending(G)
        S = Q.mT @ S @ Q
        new = (S - Q.mT @ G.mT @ G @ Q).diagonal().clamp(min=0).sqrt()
        self.estimate = agreed(self.estimate.swept(p, k, mu, S.diagonal(), new, p.rounding(self.X.dtype)))
        self.X = orthonormalize_(self.X, S.to(self.X.device), Q.to(self.X.device))
        # What is small before that and large after it, as guards are, has the rounding of what was large.
        if self.null is not None and agreed(float(self.null.coefficients(self.X).abs().max()) > 1e-5):
            self.X = orthonormalize_(self._deflated_(self.X))

    def probe(self, k: int, p: Filter) -> None:
        """Filter the guards alone for eigenvectors that the block may lack; the first k vectors stay as they are."""
        p, kept = self._limited(p), self.X[:, :k]
        guards = Block(self.L, self.X[:, k:].contiguous(), self.high, orthonormal=True)
        G, S = guards.filter(p)
        Y, inside = guards.X, gram(kept, guards.X)
        mu, Q = _descending(G.cpu())
        S = Q.mT @ (S - inside.mT @ inside).cpu() @ Q
        self.estimate = agreed(self.estimate.probed(p, k, mu, S.diagonal()))
        subtract_(Y, [kept], [inside])
        self.X[:, k:] = orthonormalize_(Y, S.to(Y.device), Q.to(Y.device))

    def _limited(self, p: Filter) -> Filter:
        """Return the filter with a degree that amplifies the spectrum's lower end by no more than float32 can square.

        ``first`` is an estimate from above: in the first sweeps the lowest frequency may be far below it.
        """
        excess = p.rate(self.lowest) - p.rate(p.first)
        most = int(math.log(1e10) / excess) if excess > 0 else p.degree
        return agreed(replace(p, degree=max(1, min(p.degree, most))))

    def settle(self) -> None:
        """Make orthonormal what an interruption has left of the block."""
        self.X, self.turn = orthonormalize_(self._deflated_(self.X)), None

    def image(self, D: Operator, tol: float, *, squared: bool = True) -> Image:
        r"""Return L X, as exactly as an error of ``tol`` needs it: by D, which is L in any dtype, for a small one.

        X has columns of unit length. ``squared`` says whether $(L X)^\top L X$ is wanted where it is of use.
        """
        X, out, eps, squares = self.X, self._buffers()[0], torch.finfo(self.X.dtype).eps, None
        if tol < Precision.exact:
            H, inside, products = _exact_image(D, X, out), torch.finfo(torch.float64).eps, 0.0
        else:
            self.L.three_term(X, None, 1.0, 0.0, out=out)
            H, *others = grams((X, out), (out, out)) if squared else grams((X, out))
            squares = others[0] if others else None
            inside, products = eps, eps * self.high / self.L.n**0.5
        size = lengths(out) if squares is None else squares.diagonal().sqrt()
        H = (H + H.mT) / 2
        # The vectors are orthonormal to their own rounding, which scales H.
        return Image(out, H, squares, 2 * (inside * size + products + eps * H.diagonal().abs()).cpu())

    def rayleigh_ritz(self, D: Operator, tol: float) -> Tensor:
        r"""Turn to the Ritz vectors of L and return how they may be mixed, $m_{ij}$ ``(s, s)``.

        Vectors i and j are coupled by the product of their residuals, which is known, over the frequency at which they
        have components outside; to that is added 0.02 of the largest size that it could have.
        """
        made = self.image(D, tol, squared=False)
        residuals = residual_gram(self.X, made.LX, made.H).cpu()
        theta, Q = agreed(torch.linalg.eigh(made.H.cpu()))
        self.turn = Q.to(self.X.device)
        residuals = Q.mT @ residuals @ Q
        size = residuals.diagonal().clamp(min=0).sqrt() + made.rounding
        outside = (Q.square().mT @ self.estimate.outside.square()).sqrt()
        self.estimate = agreed(self.estimate.turned(theta, outside, size, made.rounding))
        outside = outside.cummax(0).values  # a vector beyond another has no less outside, whatever was measured
        at = (size / outside).clamp(max=self.high - min(self.lowest, 0.0)).sqrt()
        coupling = residuals.abs() / at / at[:, None] + 0.02 * size[:, None] * outside + made.rounding
        return mixed(coupling, theta, self.estimate.delta)

    def turned(self) -> Tensor:
        """Return the block's Ritz vectors, in place."""
        if self.turn is not None:
            rotate_(self.X, self.turn)
            self.turn = None
        return self.X

    def finish(self, D: Operator, k: int, *, again: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return Rayleigh quotients, vectors and residuals of the first k in float64; the block is given up.

        The vectors are ``(n, k)`` after the known null vectors. With ``again`` quotients and residuals are computed by
        D, and else they are what the last product has shown.
        """
        X, self.X, self._work = self.X, self.X.new_empty(0, self.X.shape[1]), None
        C = torch.eye(X.shape[1], dtype=torch.float64, device=X.device) if self.turn is None else self.turn
        R, failed = agreed(torch.linalg.cholesky_ex(C.mT @ exact_gram(X) @ C, upper=True))
        if not int(failed):
            C = torch.linalg.solve_triangular(R, C, upper=True, left=False)
        known = 0 if self.null is None else self.null.count
        basis = empty(X.shape[0], known + k, dtype=torch.float64, device=X.device)
        found = exact_product_(X, C[:, :k], basis[:, known:])
        del X
        if self.null is not None:
            basis[:, :known] = self.null.basis()
            self.null.remove_(found)
        # Columns that held much of a null vector are shorter without it, and no longer orthonormal to rounding.
        off = exact_gram(found) - torch.eye(k, dtype=basis.dtype, device=basis.device)
        if int(failed) or float(off.abs().max()) > 16 * torch.finfo(basis.dtype).eps:
            orthonormalize_(found)
        theta, residuals = self.estimate.theta, self.estimate.residuals
        near = torch.nn.functional.pad(theta[:k].nan_to_num(posinf=0.0), (known, 0)).to(basis)
        if again or residuals is None:
            quotients, residuals = D.quotients(basis, near)
            return quotients, basis, residuals
        return near, basis, torch.nn.functional.pad(residuals[:k], (known, 0)).to(basis)


def _descending(G: Tensor) -> tuple[Tensor, Tensor]:
    mu, Q = agreed(torch.linalg.eigh((G + G.mT) / 2))
    return mu.flip(0), Q.flip(1)


def _exact_image(D: Operator, X: Tensor, out: Tensor) -> Tensor:
    r"""Write L X, made in float64, to ``out``; return $X^\top L X$."""
    by_rows = D.exact_rows(X)
    if by_rows is not None:
        return image_gram(by_rows, X, out)
    A, inner = D.double().counting_for(D), []
    for x, y in zip(X.split(8, dim=1), out.split(8, dim=1), strict=True):
        LX = A @ x.double()
        inner.append(gram(X, LX))
        y.copy_(LX)
    return torch.cat(inner, dim=1)


def conclude(D: Operator, block: Block, k: int, outcome: Outcome, tol: float, *, guards: bool = False) -> Ritz:
    """Return the Ritz pairs of the first k vectors of a block, null vectors included, in float64, with their evidence.

    D is L with counters of its own, and ``tol`` the error asked for. ``guards`` says whether the vectors behind the k,
    k > 0, are returned, too.
    """
    shown = (block.estimate.residuals is not None or not rough(tol)) and not outcome.interrupted
    if math.isinf(outcome.error) or not shown:  # nothing was judged since the last sweep
        block.rayleigh_ritz(D, tol)
    theta, delta = block.estimate.theta, block.estimate.delta
    wanted = k - (0 if block.null is None else block.null.count)
    following = theta[wanted : wanted + 1].clone()
    floor = float(following) if following.numel() else math.inf
    if outcome.kept is not None and following.numel():  # whether it is above the cutoff is what has to be known
        floor = cautious_floor(theta[wanted], delta[wanted])
    kept = block.X.shape[1] if guards else max(1, wanted)
    # Sums of many equal numbers are off by more than those of random ones: quotients are computed again, in float64,
    # where that could hide a gap.
    single, found = block.X.dtype == torch.float32 and following.numel() > 0 and wanted > 0, theta
    near = single and torch.finfo(torch.float32).eps * block.high > 0.1 * float(theta[wanted] - theta[wanted - 1])
    theta, basis, residuals = block.finish(D, kept, again=near or not rough(tol))
    basis, following = (basis, theta[k:]) if guards else (basis[:, : max(1, k)], following)
    theta, residuals = theta[: max(1, k)], residuals[: max(1, k)]
    separate = outcome.well_defined if outcome.settled else k  # of gaps that may still show nothing is claimed
    if k == 0:  # nothing is up to the cutoff: one column that stands for none
        separate, residuals = 1, torch.zeros_like(residuals)
    evidence = Evidence(Stopping.safety * outcome.error, floor, well_defined=separate, residuals=residuals)
    pairs = Ritz(
        theta=torch.cat([theta, following.to(theta)]),
        X=basis,
        residuals=torch.nn.functional.pad(residuals, (0, following.numel()), value=torch.inf),
        interrupted=outcome.interrupted,
        evidence=evidence,
        kept=None if outcome.kept is None else k,
    )
    if not near or not k:
        return pairs
    doubted = beyond_rounding(pairs, found, k, k - wanted).evidence
    assert doubted is not None
    return replace(pairs, evidence=replace(evidence, error=doubted.error))
