r"""Where the nodes of a graph are drawn, if the graph itself does not say so.

Two low frequencies of the random-walk Laplacian as coordinates (Koren, 2005): the second one, and the first of the next
that is not nearly a function of it, as $\cos 2 \theta$ is of $\cos \theta$ along a path. Small graphs are refined from
there by stress majorisation (Gansner, Koren and North, 2005), which moves distances on the page towards those in the
graph. Components are laid out one by one, side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, shortest_path

from krylow.api import subspace
from krylow.graph import laplacian

#: Nodes up to which a component is refined by its distances, of which there are as many as nodes squared.
REFINED = 1000
#: Components with a layout of their own; nodes of the others are drawn on circles.
LAID_OUT = 30
FREQUENCIES, SWEEPS = 6, 40


def layout(W: Any, *, seed: int | None = None) -> np.ndarray:
    """Return coordinates ``(n, 2)`` of the nodes of a graph, about as wide as high, in units of no meaning.

    Parameters
    ----------
    W
        Symmetric weights ``(n, n)``, dense or sparse. Signs and self-loops do not count.
    seed
        Of the start vectors, as in :func:`krylow.subspace`.

    Examples
    --------
    >>> layout(np.diag(np.ones(2), 1) + np.diag(np.ones(2), -1))[:, 0].round(2).tolist()  # a path of three nodes
    [0.0, 0.5, 1.0]
    """
    W = csr_array(abs(csr_array(W)).astype(np.float64))
    W.setdiag(0)
    W.eliminate_zeros()
    count, component = connected_components(W, directed=False)
    sizes = np.bincount(component, minlength=count)
    members = np.split(np.argsort(component, kind="stable"), np.cumsum(sizes)[:-1])
    order = np.argsort(-sizes, kind="stable")
    places = []
    for rank, c in enumerate(order):
        whole = count == 1
        graph = W if whole else W[members[c]][:, members[c]]
        places.append(_of_component(graph, seed) if rank < LAID_OUT else _circle(int(sizes[c])))
    found = np.zeros((W.shape[0], 2))
    for c, place in zip(order, _side_by_side(places), strict=True):
        found[members[c]] = place
    return found


def _of_component(W: Any, seed: int | None) -> np.ndarray:
    """Return coordinates in the unit square of the nodes of a connected graph."""
    n = W.shape[0]
    if n < 3:
        return np.array([[0.0, 0.5], [1.0, 0.5]])[:n] if n > 1 else np.full((1, 2), 0.5)
    k = min(FREQUENCIES, n)
    basis = subspace(laplacian(W, "normalized"), k, tol=1e-2, seed=seed).basis.numpy()
    u = basis / np.sqrt(W.sum(axis=1))[:, None]  # of the random walk
    u = u[:, 1:] - u[:, 1:].mean(axis=0)
    u /= np.maximum(np.abs(u).max(axis=0), np.finfo(float).tiny)
    first, others = u[:, 0], u[:, 1:]
    powers = np.polynomial.chebyshev.chebvander(first, 2 * FREQUENCIES)
    rest = others - powers @ np.linalg.lstsq(powers, others, rcond=None)[0]
    free = np.square(rest).sum(axis=0) > 0.3 * np.square(others).sum(axis=0)
    second = others[:, int(np.argmax(free))] if others.shape[1] else np.zeros(n)
    X = np.stack([first, second], axis=1)
    X *= np.where(X[np.abs(X).argmax(axis=0), [0, 1]] < 0, -1, 1)
    return _unit(_majorised(W, X)) if n <= REFINED else _spread(X)


def _majorised(W: Any, X: np.ndarray) -> np.ndarray:
    r"""Return coordinates of less stress, $\sum_{i < j} d_{ij}^{-2} (\|x_i - x_j\| - d_{ij})^2$ over hops d."""
    hops = shortest_path(W, directed=False, unweighted=True)
    np.fill_diagonal(hops, 1)
    weights = hops**-2.0
    np.fill_diagonal(weights, 0)
    n = len(hops)
    inverse = np.linalg.inv(np.diag(weights.sum(axis=1)) - weights + 1 / n) - 1 / n
    # Nodes that the frequencies do not tell apart would never part.
    X = X * hops.max() / 2 + 1e-3 * np.random.default_rng(0).standard_normal(X.shape)
    for _ in range(SWEEPS):
        apart = np.sqrt(np.maximum(_squared_distances(X), 1e-12))
        pull = weights * hops / apart
        X = inverse @ (pull.sum(axis=1)[:, None] * X - pull @ X)
    turned = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return turned[0] * turned[1]


def _spread(X: np.ndarray) -> np.ndarray:
    """Return coordinates in the unit square, half of them by rank: few nodes are far from all others else."""
    ranks = np.argsort(np.argsort(X, axis=0, kind="stable"), axis=0, kind="stable") / (len(X) - 1)
    low, high = X.min(axis=0), X.max(axis=0)
    return np.asarray((ranks + (X - low) / np.maximum(high - low, np.finfo(float).tiny)) / 2)


def _squared_distances(X: np.ndarray) -> np.ndarray:
    squares = np.square(X).sum(axis=1)
    return np.asarray(squares[:, None] + squares - 2 * X @ X.T)


def _circle(n: int) -> np.ndarray:
    angle = 2 * np.pi * np.arange(n) / n
    return 0.5 + (0.5 * np.stack([np.cos(angle), np.sin(angle)], axis=1) if n > 1 else np.zeros((1, 2)))


def _unit(X: np.ndarray) -> np.ndarray:
    """Return coordinates moved and scaled, both axes alike, into the unit square."""
    low, high = X.min(axis=0), X.max(axis=0)
    width = max(float((high - low).max()), np.finfo(float).tiny)
    return np.asarray((X - (low + high) / 2) / width + 0.5)


def _side_by_side(places: list[np.ndarray]) -> list[np.ndarray]:
    """Put squares of the area of their nodes, the largest first, on shelves that are together about a square."""
    sides = np.array([np.sqrt(len(place)) for place in places])
    width = max(float(np.sqrt(np.square(1.15 * sides).sum())), float(sides[0]))
    found, x, y, height = [], 0.0, 0.0, 0.0
    for place, side in zip(places, sides, strict=True):
        if x > 0 and x + side > 1.001 * width:
            x, y, height = 0.0, y + height, 0.0
        found.append((place * side + [x, y]) / sides[0])
        x, height = x + 1.15 * side, max(height, 1.15 * side)
    return found
