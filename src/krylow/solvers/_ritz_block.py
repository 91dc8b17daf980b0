"""An orthonormal block of Ritz vectors of one large graph, to which other vectors are added."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from krylow.linalg.components import NullSpace
from krylow.linalg.row_blocks import gram, orthonormalize_, recombine_, rotate_, subtract_
from krylow.solvers._correction import Step
from krylow.solvers._estimate import Outcome, TooManyKept
from krylow.solvers._pencil import Pencil


class RitzBlock:
    """A block with its Ritz values, orthogonal to the known null vectors.

    Parameters
    ----------
    X
        ``(n, s)`` start block, in the precision of the search.
    k
        Wanted vectors, null vectors included; with a cutoff an estimate of how many there are.
    null
        Null vectors to deflate; None: none.

    Attributes
    ----------
    X
        ``(n, s)`` orthonormal Ritz vectors.
    theta, delta
        ``(s,)`` float64 Ritz values, infinite at first, and by how much each may still fall, by estimate.
    outcome
        What is known of the error.
    pencil
        L, through its diagonal.
    known, wanted
        Null vectors, and wanted vectors of the block.
    """

    pencil: Pencil

    def __init__(self, X: Tensor, k: int, null: NullSpace | None) -> None:
        self.null = null
        self.known = null.count if null else 0
        self.wanted = k - self.known
        self._begin(X)

    @property
    def k(self) -> int:
        """Wanted vectors, null vectors included."""
        return self.known + self.wanted

    def _begin(self, X: Tensor) -> None:
        self.take(X)
        self.theta = torch.full((X.shape[1],), torch.inf, dtype=torch.float64)
        self.delta, self.outcome = self.theta.clone(), Outcome(math.inf, 0)

    def take(self, X: Tensor) -> None:
        """Make X the block, orthogonal to the null space: again where a column was mostly rounding near that."""
        for _ in range(5):
            X = orthonormalize_(self._deflated_(X))
            if self._renew_(X) <= 1e-5:
                break
        self.X = X

    def orthonormalized(self, W: Tensor) -> Tensor:
        """Return W made orthonormal and orthogonal to the block and null vectors, as often as rounding asks for."""
        for again in range(5):
            W = orthonormalize_(W) if again else W
            along = self._renew_(W) if again else 1.0
            W = self._deflated_(W)
            inner = gram(self.X, W)
            subtract_(W, [self.X], [inner])
            if max(along, float(inner.abs().max())) <= 1e-3:
                break
        return W

    def _deflated_(self, X: Tensor) -> Tensor:
        return X.contiguous() if self.null is None else self.null.remove_(X).contiguous()

    def _renew_(self, X: Tensor) -> float:
        """Return the most that an orthonormal column has of the null space; one that it is most of becomes random.

        Where all neighbours are alike, rounding along a null vector lies along that again, however often it is removed.
        """
        if self.null is None:
            return 0.0
        held = self.null.coefficients(X).square().sum(0)
        for j in torch.nonzero(held > 0.5)[:, 0].tolist():
            source = torch.Generator(device=X.device).manual_seed(j)
            X[:, j] = torch.randn(X.shape[0], dtype=X.dtype, device=X.device, generator=source)
        return float(held.max().sqrt())

    def with_null(self) -> Tensor:
        """Return null vectors and as many columns of the block as fit: B's own next to them are amplified the most."""
        if self.null is None:
            return self.X
        return torch.cat([self.null.basis(dtype=self.X.dtype), self.X[:, : self.X.shape[1] - self.known]], dim=1)

    def rotate(self) -> None:
        """Rotate the block to Ritz vectors of L."""
        H = gram(self.X, self.pencil.times(self.X))
        self.theta, Q = torch.linalg.eigh((H + H.mT).cpu() / 2)
        rotate_(self.X, Q.to(self.X.device))

    def add(self, W: Tensor) -> Step:
        """Take the lowest Ritz vectors of the block and W, which is orthonormal and orthogonal to it."""
        s, wanted = self.X.shape[1], self.wanted
        LW = self.pencil.times(W)
        new = torch.cat([gram(self.X, LW), gram(W, LW)]).cpu()
        H = torch.cat([torch.cat([torch.diag(self.theta), new[:s].mT]), new], dim=1)
        H = (H + H.mT) / 2
        theta, C = torch.linalg.eigh(H)
        outer = H[s:, s:] - float(self.theta[wanted - 1]) * torch.eye(H.shape[0] - s, dtype=H.dtype)
        coupled = H[:s, s:] @ torch.linalg.solve(outer, H[s:, :s])
        self.theta = theta[:s]
        recombine_([self.X, W], C[:, :s], [self.X])
        return Step.taken(C[:s, :s], coupled, wanted)

    def widen(self) -> None:
        """Make the block twice as wide, with random columns."""
        n, width = self.X.shape
        if 4 * width > n:
            raise TooManyKept
        source = torch.Generator(device=self.X.device).manual_seed(width)
        more = torch.randn(n, min(width, n - self.k), dtype=self.X.dtype, device=self.X.device, generator=source)
        self._begin(torch.cat([self.X, more], dim=1))
