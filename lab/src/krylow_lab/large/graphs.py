"""The graphs of the benchmark: eight families, from a seed, without a Python loop over nodes or edges.

All are connected (the largest component is kept), undirected and of unit weights, so that n is nearly what was asked
for. The sides of boxes and grids are incommensurate: a square has repeated frequencies, and no gap where one would want
to cut. Points, junctions and the nodes of block models are numbered at random, as data come; the rest have an order of
their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from krylow._checks import choice

#: The longer side of a rectangle over the shorter one.
ASPECT = 1.31
#: Neighbours of a point, of a node on the ring, and edges that a new node brings.
NEIGHBOURS, RING, ATTACHED = 8, 10, 5
#: Part of the ring's edges that are rewired.
REWIRED = 0.1
#: Mean degree of a block model inside the blocks and between them.
INSIDE, BETWEEN = 24.0, 1.5
#: Roads: edges a junction, and nodes of degree two a junction.
ROADS, BENDS = 1.4, 2.0


def points(n: int, sides: tuple[float, ...], rng: np.random.Generator) -> Any:
    """Return the adjacency of each random point of a box with its nearest ones, one of the two at least wishing it."""
    from scipy.spatial import cKDTree

    at = rng.random((n, len(sides))) * np.array(sides)
    _, nearest = cKDTree(at).query(at, NEIGHBOURS + 1)
    rows = np.repeat(np.arange(n), NEIGHBOURS)
    return adjacency(n, rows, nearest[:, 1:].ravel())


def grid(n: int) -> tuple[int, int]:
    """Return the sides of the grid of about n nodes."""
    short = round(math.sqrt(n / ASPECT))
    return short, round(n / short)


def grid_graph(n: int, rng: np.random.Generator) -> Any:
    """Return the adjacency of a rectangular grid."""
    rows, columns = grid(n)
    node = np.arange(rows * columns).reshape(rows, columns)
    ends = np.concatenate(
        [np.stack([node[:, :-1], node[:, 1:]]).reshape(2, -1), np.stack([node[:-1], node[1:]]).reshape(2, -1)], 1
    )
    return adjacency(rows * columns, *ends)


def road(n: int, rng: np.random.Generator) -> Any:
    """Return a road-like graph: few planar streets between junctions, with bends of degree two on them.

    The junctions' minimum spanning tree keeps it in one piece; the shortest other edges of their Delaunay triangulation
    make it up to ``ROADS`` streets a junction.
    """
    from scipy.spatial import Delaunay

    junctions = round(n / (1 + BENDS))
    at = rng.random((junctions, 2)) * np.array([ASPECT, 1.0])
    corners = Delaunay(at).simplices.astype(np.int64)  # two of them make a code of one number
    ends = np.sort(np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [0, 2]]]), 1)
    ends = np.unique(ends, axis=0)
    length = np.linalg.norm(at[ends[:, 0]] - at[ends[:, 1]], axis=1)
    tree = minimum_spanning_tree(csr_array((length, ends.T.astype(np.int32)), shape=(junctions, junctions))).tocoo()
    spare = np.setdiff1d(ends[:, 0] * junctions + ends[:, 1], _codes(tree.coords, junctions))
    extra = np.stack([spare // junctions, spare % junctions])
    wanted = round(ROADS * junctions) - tree.nnz
    shortest = np.argsort(np.linalg.norm(at[extra[0]] - at[extra[1]], axis=1))[:wanted]
    streets = np.concatenate([np.stack(tree.coords), extra[:, shortest]], 1)
    bends = rng.multinomial(n - junctions, np.full(streets.shape[1], 1 / streets.shape[1]))
    return adjacency(n, *_bent(streets, bends, junctions))


def _codes(ends: Any, n: int) -> Any:
    low, high = np.minimum(*ends).astype(np.int64), np.maximum(*ends).astype(np.int64)
    return low * n + high


def _bent(streets: Any, bends: Any, first: int) -> Any:
    """Return the ends of all pieces of streets with so many nodes on each, numbered from ``first`` along them."""
    pieces = bends + 1
    street = np.repeat(np.arange(len(bends)), pieces)
    place = np.arange(len(street)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = first + (np.cumsum(bends) - bends)[street]
    head = np.where(place == 0, streets[0, street], start + place - 1)
    tail = np.where(place == bends[street], streets[1, street], start + place)
    return head, tail


def blocks(n: int, number: int, rng: np.random.Generator) -> Any:
    """Return a stochastic block model of equal blocks, degrees ``INSIDE`` and ``BETWEEN``, nodes in no order."""
    inside, between = round(n * INSIDE / 2), round(n * BETWEEN / 2)
    size = n // number
    block = rng.integers(number, size=inside)
    ends = rng.integers(size, size=(2, inside)) + block * size
    across = rng.integers(number * size, size=(2, round(between * number / (number - 1))))
    across = across[:, across[0] // size != across[1] // size]
    shuffled = rng.permutation(number * size)
    return adjacency(number * size, *shuffled[np.concatenate([ends, across], 1)])


def small_world(n: int, rng: np.random.Generator) -> Any:
    """Return Watts and Strogatz's graph: a ring of ``RING`` neighbours each, a part of the edges led elsewhere."""
    node = np.tile(np.arange(n), RING // 2)
    other = (node + np.repeat(np.arange(1, RING // 2 + 1), n)) % n
    led = rng.random(len(node)) < REWIRED
    other[led] = rng.integers(n, size=int(led.sum()))
    return adjacency(n, node, other)


def power_law(n: int, rng: np.random.Generator) -> Any:
    """Return Barabasi and Albert's graph, each new node drawing ``ATTACHED`` ends of earlier edges at random.

    An end is drawn by its position among all ends; a position that was itself drawn is followed back until it is a
    node's own, for all edges at once.
    """
    edges = n * ATTACHED
    source = np.arange(edges) // ATTACHED
    drawn = (rng.random(edges) * (2 * np.arange(edges) + 1)).astype(
        np.int64
    )  # a position up to the edge's own first end
    while (odd := drawn % 2 == 1).any():
        drawn[odd] = drawn[drawn[odd] // 2]
    return adjacency(n, source, source[drawn // 2])


def adjacency(n: int, rows: Any, columns: Any) -> Any:
    """Return the largest component of the simple undirected graph with these edges, as a csr_array of ones."""
    W = coo_array((np.ones(len(rows)), (rows, columns)), shape=(n, n)).tocsr()
    W = (W + W.T).tocsr()
    W.setdiag(0)
    W.eliminate_zeros()
    W.data[:] = 1.0
    count, label = connected_components(W, directed=False)
    if count > 1:
        kept = np.flatnonzero(label == np.bincount(label).argmax())
        W = W[kept][:, kept]
    W.sort_indices()
    return W


def laplacian(W: Any) -> Any:
    """Return D - W as a csr_array of float64 with 32-bit indices: what every solver is given."""
    L = csr_array(diags_array(np.asarray(W.sum(1)).ravel()) - W)
    L.sort_indices()
    L.indices, L.indptr = L.indices.astype(np.int32), L.indptr.astype(np.int32)
    return L


@dataclass(frozen=True)
class Family:
    """A family: what it is called in tables, how it is made, and where a visible gap is looked for."""

    title: str
    make: Callable[[int, np.random.Generator], Any]
    windows: tuple[tuple[int, int], ...] = ((7, 14), (44, 57))


#: The families of the benchmark. A block model has its gap at the number of blocks.
FAMILIES: dict[str, Family] = {
    "knn2d": Family("2D k-NN", lambda n, rng: points(n, (ASPECT, 1.0), rng)),
    "knn3d": Family("3D k-NN", lambda n, rng: points(n, (1.0, 1.17, ASPECT), rng)),
    "grid": Family("grid", grid_graph),
    "road": Family("road-like", road),
    "sbm20": Family("SBM, 20 blocks", lambda n, rng: blocks(n, 20, rng), ((20, 20),)),
    "sbm50": Family("SBM, 50 blocks", lambda n, rng: blocks(n, 50, rng), ((50, 50),)),
    "smallworld": Family("Watts-Strogatz", small_world),
    "powerlaw": Family("power law", power_law),
}


def make(family: str, n: int, seed: int) -> Any:
    """Return the Laplacian of a family's graph of about n nodes, a csr_array."""
    found = FAMILIES[choice(family, tuple(FAMILIES), "family")]
    return laplacian(found.make(n, np.random.default_rng([seed, n])))
