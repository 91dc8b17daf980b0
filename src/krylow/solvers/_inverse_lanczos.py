r"""Lanczos for the largest values of a symmetric map, one vector at a time, with as many starts as are needed.

The map K is symmetric in the inner product of a mass M, $x^\top M K y = y^\top M K x$, such as $S^{-1} M$. Every new
vector is made orthogonal to all before it, so that no value comes twice by rounding, and a full basis is restarted with
its best Ritz vectors. A start sees one vector of a repeated eigenvalue; more starts can be put in at any time, and the
recurrence goes on with all of them in turn (band Lanczos). Plain numpy: the vectors are short, the steps many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: A new vector that is this part of its length after it was made orthogonal is rounding: the space is closed under K.
#: One that is less than the second part is made orthogonal once more.
CLOSED, DOUBTFUL = 1e-13, 1e-5
#: M times a vector is still that after less than this part of the vector was taken off: rounding of the values alone.
SAME = 1e-13
#: Inner products of a basis after a restart may be off by this much; beyond, it is made orthonormal again.
DRIFT = 1e-10


class InverseLanczos:
    """A basis that grows by products with K.

    Parameters
    ----------
    product
        K times a vector, given M times that vector; with ``together`` also for a block of columns.
    M
        The mass, a sparse matrix; None: the identity.
    deflated
        ``(d, n)`` rows, orthonormal for M, that K maps to multiples of themselves and that are left out.
    size, keep
        Most vectors of the basis, and how many of them a restart keeps.
    rng
        Source of the starts.
    together
        Whether the vectors that wait are multiplied together, where ``product`` is faster on blocks.
    """

    def __init__(
        self,
        product: Callable[[np.ndarray], np.ndarray],
        M: Any | None,
        deflated: np.ndarray,
        size: int,
        keep: int,
        rng: np.random.Generator,
        *,
        together: bool = False,
    ) -> None:
        self.together = together
        self.product, self.M, self.keep, self.rng = product, M, keep, rng
        self.first, n = deflated.shape
        self.size = min(size, n - self.first)
        self.rows = np.empty((self.first + self.size, n))
        self.rows[: self.first] = deflated
        self.H = np.zeros((self.size, self.size))
        self.filled, self.expanded, self.restarted, self.band = 0, 0, 0, 0
        self.products = 0
        # M times the vectors that are still to be multiplied, and those that their products have parts along.
        self.images: dict[int, np.ndarray] = {}
        # K times those that were, ahead of their turn, and coefficients on the basis that was taken off.
        self.multiplied: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def start(self, count: int = 1) -> None:
        """Put ``count`` random starts in, as far as there is room for them."""
        if self._whole:
            return
        if self.filled + count >= self.size:
            self.restart()
        for _ in range(count):
            w = self.rng.standard_normal(self.rows.shape[1])
            w /= np.linalg.norm(w)
            for _ in range(2):
                self._subtract(w, 0)
            if self._append(w, 0.0):
                self.band += 1

    def widen(self, size: int) -> None:
        """Make room for a basis of so many vectors, where there is less."""
        size, held = min(size, self.rows.shape[1] - self.first), self.first + self.filled
        if size > self.size:
            rows, H = np.empty((self.first + size, self.rows.shape[1])), np.zeros((size, size))
            rows[:held], H[: self.size, : self.size] = self.rows[:held], self.H
            self.rows, self.H, self.size = rows, H, size

    @property
    def _whole(self) -> bool:
        """Whether the basis spans all of the space, so that nothing can follow from its vectors."""
        return self.filled == self.rows.shape[1] - self.first

    @property
    def waiting(self) -> int:
        """How many vectors are still to be multiplied: one for each start that goes on."""
        return self.filled - self.expanded

    def step(self) -> bool:
        """Multiply the next vector; return False where there is none, or no room for what follows from it."""
        j = self.expanded
        if not self.waiting or (self.filled >= self.size and not self._whole):
            return False
        column, image = np.zeros(self.size), None
        if self.together:
            w, known = self._product_ahead(j)
            length = float(np.sqrt(w @ w + known @ known))
            column[: known.size] = known
            for _ in range(2):
                column[known.size : self.filled] += self._subtract(w, self.first + known.size)
        else:
            w = self.product(self.images[j])
            self.products += 1
            length = float(np.linalg.norm(w))
            low = self._window(j)
            column[low : self.filled] = self._subtract_near(w, low)
            image = self._image(w)
            off = self._subtract(w, 0, image)
            column[: self.filled] += off[self.first :]
            if np.abs(off).max() > SAME * np.sqrt(max(0.0, w @ image)):
                image = None
            self.images = {i: kept for i, kept in self.images.items() if i >= self._window(j + 1)}
        self.expanded += 1
        beta = self._append(w, length, image)
        if beta:
            column[self.filled - 1] = beta
        self.H[:, j] = self.H[j] = column
        return True

    def _window(self, j: int) -> int:
        """Return the first vector on which K times vector j has more than rounding."""
        return 0 if j < self.restarted else max(self.restarted, j - 2 * self.band)

    def _product_ahead(self, j: int) -> tuple[np.ndarray, np.ndarray]:
        """Return K times vector j, orthogonal to a first part of the basis, with its coefficients on that.

        All vectors that wait are multiplied and made orthogonal together, when the first of them has its turn.
        """
        if j not in self.multiplied:
            ahead = sorted(self.images)
            W = self.product(np.stack([self.images[i] for i in ahead], axis=1)).T.copy()
            self.products += len(ahead)
            known = np.zeros((len(ahead), self.first + self.filled))
            for low in (self.first + self._window(j), 0):
                rows = self.rows[low : self.first + self.filled]
                h = self._image(W.T).T @ rows.T
                W -= h @ rows
                known[:, low:] += h
            self.multiplied = {i: (w, h[self.first :]) for i, w, h in zip(ahead, W, known, strict=True)}
        del self.images[j]
        return self.multiplied.pop(j)

    def ritz(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return Ritz values, largest first, their coefficients ``(expanded, expanded)`` and residual norms."""
        j = self.expanded
        values, Y = np.linalg.eigh(self.H[:j, :j])
        values, Y = values[::-1], Y[:, ::-1]
        return values, Y, np.linalg.norm(self.H[j : self.filled, :j] @ Y, axis=0)

    def vectors(self, Y: np.ndarray) -> np.ndarray:
        """Return the vectors ``(n, s)`` with coefficients ``(expanded, s)``."""
        return self.rows[self.first : self.first + self.expanded].T @ Y

    def advanced(self, Y: np.ndarray) -> np.ndarray:
        """Return K times the vectors ``(n, s)`` with coefficients ``(expanded, s)``, made orthonormal in their order.

        They are known from the products that made the basis, and hold less of all that K makes small.
        """
        Q, _ = np.linalg.qr(self.H[: self.filled, : self.expanded] @ Y)
        return self.rows[self.first : self.first + self.filled].T @ Q

    def advance(self) -> bool:
        """Take a step, after a restart or with another start where it needs one; False where the space is exhausted."""
        if self.filled >= self.size > self.expanded and not self._whole:
            self.restart()
        if self.expanded == self.filled:
            self.start()
        return self.step()

    def restart(self) -> None:
        """Keep the best Ritz vectors, and the vectors still to be multiplied."""
        values, Y, _ = self.ritz()
        keep, j = min(self.keep, self.expanded), self.expanded
        waiting = self.waiting
        coupling = self.H[j : self.filled, :j] @ Y[:, :keep]
        basis = self.rows[self.first :]
        basis[:keep] = Y[:, :keep].T @ basis[:j]
        basis[keep : keep + waiting] = basis[j : self.filled].copy()
        self.images = {keep + i: self.images[j + i] for i in range(waiting)}
        self.multiplied = {}  # what was multiplied ahead has coefficients on the former basis
        self.H[:] = 0
        self.H[range(keep), range(keep)] = values[:keep]
        self.H[keep : keep + waiting, :keep] = coupling
        self.H[:keep, keep : keep + waiting] = coupling.T
        self.filled, self.expanded, self.restarted = keep + waiting, keep, keep + waiting
        self._settle()

    def _settle(self) -> None:
        """Take out what rounding has added up to over many restarts."""
        basis = self.rows[self.first : self.first + self.filled]
        inner = basis @ self._image(basis.T)
        if np.abs(inner - np.eye(self.filled)).max() > DRIFT:
            basis[:] = np.linalg.solve(np.linalg.cholesky(inner), basis)
            self.images = {i: self._image(basis[i]) for i in self.images}

    def _image(self, w: np.ndarray) -> np.ndarray:
        return w if self.M is None else self.M @ w

    def _subtract(self, w: np.ndarray, low: int, image: np.ndarray | None = None) -> np.ndarray:
        """Make w orthogonal to the rows from ``low`` on, in place, and return the coefficients.

        ``image`` is M w, if that is known.
        """
        rows = self.rows[low : self.first + self.filled]
        h = rows @ (self._image(w) if image is None else image)
        w -= h @ rows
        return h

    def _subtract_near(self, w: np.ndarray, low: int) -> np.ndarray:
        """Make w orthogonal to the vectors from ``low`` on, by their images where all of these are kept."""
        images = [self.images[i] for i in range(low, self.filled) if i in self.images]
        if len(images) < self.filled - low:
            return self._subtract(w, self.first + low)
        h = np.array([image @ w for image in images])
        w -= h @ self.rows[self.first + low : self.first + self.filled]
        return h

    def _append(self, w: np.ndarray, before: float, image: np.ndarray | None = None) -> float:
        """Take w, of length ``before`` until it was made orthogonal, into the basis; return its length, or zero.

        ``image`` is M w, if that is known.
        """
        if self.filled >= self.size:
            return 0.0
        if image is None:
            image = self._image(w)
        beta = float(np.sqrt(max(0.0, w @ image)))
        if beta <= CLOSED * before:
            return 0.0
        w, image = w / beta, image / beta
        if beta <= DOUBTFUL * before:  # mostly rounding, which is orthogonal to nothing
            self._subtract(w, 0)
            image = self._image(w)
            left = float(np.sqrt(max(0.0, w @ image)))
            if left < 0.5:
                return 0.0
            w, image = w / left, image / left
        self.rows[self.first + self.filled] = w
        self.images[self.filled] = image
        self.filled += 1
        return beta
