r"""Band Lanczos with full reorthogonalisation and thick restarts, for the largest eigenvalues of an inverse.

The map K is symmetric in the inner product of a mass M, $x^\top M K y = y^\top M K x$, as $S^{-1} M$ is. Full
reorthogonalisation keeps a converged value from coming again by rounding; a full basis is restarted with its best Ritz
vectors (Wu and Simon, 2000). A Krylov sequence contains one vector of each eigenspace, so for repeated eigenvalues more
starting vectors can be added at any time, and the recurrence goes on with all of them in turn (band Lanczos, Ruhe,
1979). In numpy: the vectors are short and the steps many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class InverseLanczos:
    """A basis that grows by products with K.

    Parameters
    ----------
    product
        K times a vector or a block ``(n, s)``, given M times that.
    M
        The mass, a sparse matrix; None: the identity.
    deflated
        ``(d, n)`` M-orthonormal eigenvectors of K, as rows, that every vector is kept orthogonal to.
    size, keep
        Most vectors of the basis, and how many of them a restart keeps.
    rng
        Source of the starting vectors.
    """

    def __init__(
        self,
        product: Callable[[np.ndarray], np.ndarray],
        M: Any | None,
        deflated: np.ndarray,
        size: int,
        keep: int,
        rng: np.random.Generator,
    ) -> None:
        self.product, self.M, self.keep, self.rng = product, M, keep, rng
        self.first, n = deflated.shape
        self.size = min(size, n - self.first)
        self.rows = np.empty((self.first + self.size, n))
        self.rows[: self.first] = deflated
        self.H = np.zeros((self.size, self.size))
        self.filled, self.expanded, self.restarted, self.band = 0, 0, 0, 0
        self.products = 0
        self.images: dict[int, np.ndarray] = {}  # M times the latest vectors
        self.multiplied: dict[int, np.ndarray] = {}  # K times vectors whose turn has not come

    @property
    def _whole(self) -> bool:
        """Whether the basis spans all of the space, so that nothing can follow from its vectors."""
        return self.filled == self.rows.shape[1] - self.first

    @property
    def waiting(self) -> int:
        """How many vectors are still to be multiplied: one for each starting vector that goes on."""
        return self.filled - self.expanded

    def start(self, count: int = 1) -> None:
        """Add ``count`` random starting vectors, as far as the basis holds them."""
        if self._whole:
            return
        if self.filled + count >= self.size:
            self.restart()
        for _ in range(count):
            w = self.rng.standard_normal(self.rows.shape[1])
            w /= np.linalg.norm(w)
            for _ in range(2):
                self._orthogonalise(w, self._image(w))
            if self._append(w, 0.0):
                self.band += 1

    def widen(self, size: int) -> None:
        """Enlarge the basis to hold at least so many vectors."""
        size, held = min(size, self.rows.shape[1] - self.first), self.first + self.filled
        if size > self.size:
            rows, H = np.empty((self.first + size, self.rows.shape[1])), np.zeros((size, size))
            rows[:held], H[: self.size, : self.size] = self.rows[:held], self.H
            self.rows, self.H, self.size = rows, H, size

    def advance(self) -> bool:
        """Take a step, after a restart or another start where it needs one; False where the space is exhausted."""
        if self.filled >= self.size > self.expanded and not self._whole:
            self.restart()
        if not self.waiting:
            self.start()
        return self.step()

    def step(self) -> bool:
        """Multiply the next vector; False where there is none, or where the basis is full."""
        j = self.expanded
        if not self.waiting or (self.filled >= self.size and not self._whole):
            return False
        w = self._product(j)
        length = float(np.linalg.norm(w))
        column = np.zeros(self.size)
        near = self._band_start(j)
        column[near : self.filled] = self._orthogonalise_near(w, near)
        image = self._image(w)
        rest = self._orthogonalise(w, image)
        column[: self.filled] += rest[self.first :]
        negligible = np.abs(rest).max() <= 1e-13 * np.sqrt(max(0.0, w @ image))
        following = self._band_start(j + 1)
        self.images = {i: kept for i, kept in self.images.items() if i >= following}
        self.expanded += 1
        beta = self._append(w, length, image if negligible else None)
        if beta:
            column[self.filled - 1] = beta
        self.H[:, j] = self.H[j] = column
        return True

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
        """Return an M-orthonormal basis of K times the vectors with coefficients ``(expanded, s)``, in their order.

        A step of inverse iteration without further products: K V is known on the basis.
        """
        Q, _ = np.linalg.qr(self.H[: self.filled, : self.expanded] @ Y)
        return self.rows[self.first : self.first + self.filled].T @ Q

    def restart(self) -> None:
        """Keep the best Ritz vectors, and the vectors still to be multiplied."""
        values, Y, _ = self.ritz()
        keep, j, waiting = min(self.keep, self.expanded), self.expanded, self.waiting
        coupling = self.H[j : self.filled, :j] @ Y[:, :keep]
        basis = self.rows[self.first :]
        basis[:keep] = Y[:, :keep].T @ basis[:j]
        basis[keep : keep + waiting] = basis[j : self.filled].copy()
        self.images = {keep + i - j: kept for i, kept in self.images.items() if i >= j}
        self.multiplied = {keep + i - j: kept for i, kept in self.multiplied.items()}
        self.H[:] = 0
        self.H[range(keep), range(keep)] = values[:keep]
        self.H[keep : keep + waiting, :keep] = coupling
        self.H[:keep, keep : keep + waiting] = coupling.T
        self.filled, self.expanded, self.restarted = keep + waiting, keep, keep + waiting
        self._remove_drift()

    def _remove_drift(self) -> None:
        """Orthonormalise the basis again where the rounding of many restarts has added up."""
        basis = self.rows[self.first : self.first + self.filled]
        inner = basis @ self._image(basis.T)
        if np.abs(inner - np.eye(self.filled)).max() > 1e-14:
            basis[:] = np.linalg.solve(np.linalg.cholesky(inner), basis)
            self.images = {i: self._image(basis[i]) for i in self.images}
            self.multiplied = {}

    def _band_start(self, j: int) -> int:
        """Return the first vector along which K times vector j has more than rounding."""
        return 0 if j < self.restarted else max(self.restarted, j - 2 * self.band)

    def _product(self, j: int) -> np.ndarray:
        """Return K times vector j; all vectors that wait are multiplied as one block."""
        if j not in self.multiplied:
            ahead = range(j, self.filled)
            self.products += len(ahead)
            if len(ahead) == 1:
                return self.product(self.images[j])
            block = self.product(np.stack([self.images[i] for i in ahead], axis=1))
            self.multiplied = dict(zip(ahead, block.T.copy(), strict=True))
        return self.multiplied.pop(j)

    def _image(self, w: np.ndarray) -> np.ndarray:
        return w if self.M is None else self.M @ w

    def _orthogonalise(self, w: np.ndarray, image: np.ndarray, low: int = 0) -> np.ndarray:
        """Make w orthogonal to the rows from ``low`` on, in place, given M w; return the coefficients."""
        rows = self.rows[low : self.first + self.filled]
        h = rows @ image
        w -= h @ rows
        return h

    def _orthogonalise_near(self, w: np.ndarray, low: int) -> np.ndarray:
        """Make w orthogonal to the vectors from ``low`` on, by their images where these are kept."""
        images = [self.images[i] for i in range(low, self.filled) if i in self.images]
        if self.M is None or len(images) < self.filled - low:
            return self._orthogonalise(w, self._image(w), self.first + low)
        h = np.array([image @ w for image in images])
        w -= h @ self.rows[self.first + low : self.first + self.filled]
        return h

    def _append(self, w: np.ndarray, before: float, image: np.ndarray | None = None) -> float:
        """Append w, of length ``before`` until it was made orthogonal, to the basis; return its length, or zero.

        ``image`` is M w, where that is known. A vector that is rounding is not appended: the space is closed under K.
        """
        if self.filled >= self.size:
            return 0.0
        image = self._image(w) if image is None else image
        beta = float(np.sqrt(max(0.0, w @ image)))
        if beta <= 1e-13 * before:
            return 0.0
        w, image = w / beta, image / beta
        if beta <= 1e-5 * before:  # mostly rounding, which is orthogonal to nothing
            self._orthogonalise(w, image)
            image = self._image(w)
            norm = float(np.sqrt(max(0.0, w @ image)))
            if norm < 0.5:
                return 0.0
            w, image = w / norm, image / norm
        self.rows[self.first + self.filled] = w
        self.images[self.filled] = image
        self.filled += 1
        return beta
