r"""From vectors of a condensed graph's core to the whole graph, with a bound of their error.

With E the extension of :mod:`krylow.linalg.elimination`, r the residual of $(\nu, y)$ on the core and T what was
eliminated, $L^{-1} E y - \nu E y$ is $E r$ and $L_{TT}^{-1} (E y)_T$. Where the norm of that inverse is small enough,
E y is the answer; else steps of inverse iteration with the whole block measure and improve it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
import torch

from krylow._memory import arrays, trim
from krylow.linalg.elimination import Condensed, Factor

#: Most steps of inverse iteration, the part of the error that one has to leave at most, and the part of
#: the error asked for that ends them.
POLISH, PAYS, POLISHED = 6, 0.5, 0.4
#: Rounding of one over a frequency, in eps times the norm of L times its square, and in eps times the largest one.
ROUNDING, LEAST = 64, 16
#: Numbers of a block that are worked on at a time, in whole rows.
CHUNK = 1 << 16


@dataclass
class Problem:
    """What a run is about."""

    core: Condensed
    factor: Factor
    k: int
    wanted: int  #: pairs beside the null vectors
    null: np.ndarray  #: (n, d)
    norm: float
    tol: float
    most: int  #: products of the inverse that are left

    def noise(self, values: np.ndarray) -> float:
        """Return by how much the last wanted value of the inverse, of these that fall, may be off."""
        last = float(values[self.wanted - 1])
        return float(np.finfo(np.float64).eps) * (ROUNDING * self.norm * last**2 + LEAST * float(values[0]))

    def error(self, values: np.ndarray, residuals: np.ndarray, ceiling: float) -> float:
        """Return the bound of the error, given a number above all values that are dropped."""
        wanted = values[: self.wanted]
        gaps = wanted - ceiling
        if not gaps[-1] > 0:
            return math.inf
        rounding = self.noise(values) / float(gaps[-1])
        return min(1.0, float(((residuals[: self.wanted] / gaps) ** 2).sum()) / self.k + rounding**2)


@dataclass(frozen=True)
class Found:
    """Ritz pairs and what is known of them.

    Attributes
    ----------
    X
        ``(n, s)`` vectors of the whole graph, or ``(c, s)`` those of its core that are still to be extended.
    frequencies
        ``(s,)`` of L + shift I, ascending, and at least one more than are wanted.
    values, residuals
        Of the inverse, largest first, of X or of what X is an improvement of.
    error
        The bound that follows.
    apart
        After how many of the wanted vectors a gap shows.
    floor
        A number of L + shift I below which there are the wanted frequencies and no other, by count; None: not counted.
    of_L
        Residual norms of L; X then holds the null vectors and the wanted ones, or on the core these alone.
    """

    X: np.ndarray
    frequencies: np.ndarray
    values: np.ndarray
    residuals: np.ndarray
    error: float
    apart: int
    floor: float | None = None
    of_L: np.ndarray | None = None


def judged(problem: Problem, X: np.ndarray, values: np.ndarray, residuals: np.ndarray) -> Found:
    """Return pairs of the whole graph, or of its core if that is the whole, with the bound of their error."""
    wanted = problem.wanted
    values, residuals = values[: wanted + 1], residuals[: wanted + 1]
    noise = problem.noise(values) + residuals**2 / values
    shows = values[:-1] - values[1:] > noise[:-1] + noise[1:]
    settled = residuals.max() <= 1e-4 * values[wanted]
    apart = int(np.flatnonzero(np.append(True, shows))[-1]) if settled else wanted
    error = problem.error(values, residuals, float(values[wanted] + residuals[wanted]))
    return Found(X, 1 / values, values, residuals, error, apart)


def settled(problem: Problem, Y: np.ndarray, values: np.ndarray, residuals: np.ndarray) -> Found | None:
    """Return vectors of the core as they are where their extension is good enough, else improved; None: not enough."""
    if problem.core.M is None:
        return judged(problem, Y, values, residuals)
    found = believed(problem, Y, values, residuals)
    if found is not None:
        return found
    X = problem.core.extend(Y)
    del Y
    trim(torch.from_numpy(X))  # another block like this one follows
    return polished(problem, X, values)


def believed(problem: Problem, Y: np.ndarray, values: np.ndarray, residuals: np.ndarray) -> Found | None:
    r"""Return vectors of the core with the bound for their extension; None where that is not known to be good enough.

    ``values`` and ``residuals`` are those of the vectors of which Y is the product with K, the inverse on the core.
    With r such a residual, $L^{-1} E y - \nu E y$ is $E r$ and $L_{TT}^{-1} (E y)_T$, whose norm is at most the reach:
    the error is at most $s = (|r| + \mathrm{reach}) / (\nu_k - \nu_{k+1})$. E K y is $L^{-1} E y$ but for as much, and
    $L^{-1}$ leaves $\nu_{k+1} / \nu_k$ of s: with reach over $\nu_k$ that is no more than s.
    """
    core, wanted = problem.core, problem.wanted
    found = judged(problem, Y, values, residuals[: wanted + 1] + core.farthest)
    if not found.error <= POLISHED * problem.tol:
        found = judged(problem, Y, values, residuals[: wanted + 1] + core.reach)
    if not found.error <= POLISHED * problem.tol:
        return None
    SY = core.S @ Y  # L E y, which is zero beside the core
    theta = np.einsum("ij,ij->j", Y, SY)
    of_L = np.sqrt(np.maximum(0, np.einsum("ij,ij->j", SY, SY) - theta**2))
    theta[wanted] = 1 / values[wanted]
    return replace(found, X=Y[:, :wanted], frequencies=theta, of_L=of_L[:wanted])


def polished(problem: Problem, X: np.ndarray, values: np.ndarray) -> Found | None:
    """Improve vectors of the whole graph, which are written over, by the inverse; None where that is not enough."""
    core = problem.core
    scale, last, Z = values[: X.shape[1]], math.inf, None
    for _ in range(POLISH):
        Z = core.solve(problem.factor, X, Z)
        problem.most -= X.shape[1]
        inner, gram = _products(X, Z, problem.null, scale)
        inverse = (inner * scale + (inner * scale).T) / 2  # the inverse in the basis X
        nu, V = np.linalg.eigh(inverse)
        nu, V = nu[::-1], V[:, ::-1]
        outside = gram * np.outer(scale, scale) - inverse @ inverse
        residuals = np.sqrt(np.maximum(0, np.einsum("ij,ij->j", V, outside @ V)))
        stiff = (inner.T / scale + inner / scale[:, None]) / 2  # L in the basis Z
        theta, W = scipy.linalg.eigh(stiff, gram)
        before = judged(problem, Z, nu, residuals)
        if before.error <= POLISHED * problem.tol:
            # L Z is X over the scale: no product is needed for the residuals of L
            squares = ((W / scale[:, None]) ** 2).sum(0) - 2 * theta * (W * (stiff @ W)).sum(0) + theta**2
            of_L = np.sqrt(np.maximum(0, squares))
            return replace(before, X=_rotated(Z, W, problem, X), frequencies=theta, of_L=of_L[: problem.wanted])
        if before.error > PAYS * last:
            break
        for part in _parts(Z):  # two blocks at a time are enough
            np.matmul(Z[part], W, out=X[part])
        scale, last = 1 / theta, before.error
    return None


def _products(X: np.ndarray, Z: np.ndarray, null: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Remove null vectors from Z, divide it by the scale, and return X^T Z and Z^T Z; by parts that fit the cache.

    Entries of the null vectors may share their room, which no product by BLAS takes: parts of them are copied.
    """
    inner, gram = np.zeros((2, Z.shape[1], Z.shape[1]))
    along = np.zeros((null.shape[1], Z.shape[1]))
    for part in _parts(Z):
        along += np.ascontiguousarray(null[part]).T @ Z[part]
    for part in _parts(Z):
        z = Z[part]
        z -= np.ascontiguousarray(null[part]) @ along
        z /= scale  # so that its columns are about of length 1
        inner += X[part].T @ z
        gram += z.T @ z
    return inner, gram


def _parts(Z: np.ndarray) -> Iterator[slice]:
    """Return the rows of a block part by part."""
    rows = max(1, CHUNK // Z.shape[1])
    return (slice(start, start + rows) for start in range(0, len(Z), rows))


def _rotated(Z: np.ndarray, W: np.ndarray, problem: Problem, room: np.ndarray) -> np.ndarray:
    """Return the null vectors and the wanted ones of Z W side by side, in the room of a spent block if they fit."""
    first, shape = problem.null.shape[1], (len(Z), problem.k)
    if problem.k <= room.shape[1]:
        X = room.ravel()[: math.prod(shape)].reshape(shape)
    else:
        (X,) = arrays((shape, np.float64))
    X[:, :first] = problem.null
    for part in _parts(Z):
        X[part, first:] = Z[part] @ W[:, : problem.wanted]
    return X
