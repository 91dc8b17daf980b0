"""Further families for the soak, which no constant of the library was chosen on: the calibration is made on these."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import cKDTree

Rng = np.random.Generator


def edges(n: int, a: np.ndarray, b: np.ndarray) -> sp.csr_array:
    """Return the simple graph with these edges, of weight 1."""
    a, b = np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64)
    apart = a != b
    W = sp.csr_array((np.ones(apart.sum()), (a[apart], b[apart])), shape=(n, n))
    W = W + W.T
    W.data[:] = 1.0
    return W


def _lattice(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the two ends of the edges of a grid."""
    node = np.arange(rows * columns).reshape(rows, columns)
    pairs = [(node[:, :-1], node[:, 1:]), (node[:-1], node[1:])]
    return np.concatenate([a.ravel() for a, _ in pairs]), np.concatenate([b.ravel() for _, b in pairs])


def _side(n: int) -> int:
    return max(2, int(n**0.5))


def honeycomb(n: int, rng: Rng) -> sp.csr_array:
    """Return a hexagonal lattice: a brick wall."""
    rows, columns = _side(n), max(2, n // _side(n))
    a, b = _lattice(rows, columns)
    upright = b - a == columns
    kept = ~upright | ((a // columns + a % columns) % 2 == 0)
    return edges(rows * columns, a[kept], b[kept])


def percolation(n: int, rng: Rng) -> sp.csr_array:
    """Return a square lattice without a part of its edges, near the threshold of 1/2: pieces and dead ends."""
    side = _side(n)
    a, b = _lattice(side, side)
    kept = rng.random(a.size) < rng.uniform(0.5, 0.8)
    return edges(side * side, a[kept], b[kept])


def maze(n: int, rng: Rng) -> sp.csr_array:
    """Return a random spanning tree of a lattice, with a few walls taken out."""
    side = _side(n)
    a, b = _lattice(side, side)
    tree = minimum_spanning_tree(sp.csr_array((rng.random(a.size) + 0.1, (a, b)), shape=(side**2, side**2))).tocoo()
    extra = rng.random(a.size) < rng.choice([0.0, 0.01, 0.05])
    return edges(side * side, np.r_[tree.row, a[extra]], np.r_[tree.col, b[extra]])


def gasket(n: int, rng: Rng) -> sp.csr_array:
    """Return the Sierpinski gasket: a fractal with eigenvalues of very high multiplicity."""
    corners, a, b = np.array([0, 1, 2]), np.array([0, 0, 1]), np.array([1, 2, 2])
    nodes = 3
    while nodes < n:
        name = np.arange(3 * nodes)
        for one, i, other, j in ((0, 1, 1, 0), (0, 2, 2, 0), (1, 2, 2, 1)):
            name[corners[j] + other * nodes] = corners[i] + one * nodes
        kept, name = np.unique(name, return_inverse=True)
        a = name[np.concatenate([a + i * nodes for i in range(3)])]
        b = name[np.concatenate([b + i * nodes for i in range(3)])]
        corners = name[corners + nodes * np.arange(3)]
        nodes = kept.size
    return edges(nodes, a, b)


def hanoi(n: int, rng: Rng) -> sp.csr_array:
    """Return the Hanoi graph: three copies, joined corner to corner, level after level."""
    corners, a, b, nodes = np.array([0, 1, 2]), np.array([0, 0, 1]), np.array([1, 2, 2]), 3
    while nodes < n:
        joints = np.array([(corners[j] + i * nodes, corners[i] + j * nodes) for i, j in ((0, 1), (0, 2), (1, 2))])
        a = np.concatenate([*(a + i * nodes for i in range(3)), joints[:, 0]])
        b = np.concatenate([*(b + i * nodes for i in range(3)), joints[:, 1]])
        corners, nodes = corners + nodes * np.arange(3), 3 * nodes
    return edges(nodes, a, b)


def hyperbolic(n: int, rng: Rng) -> sp.csr_array:
    """Return a random hyperbolic graph: hubs, clustering and a geometry at once."""
    radius = 2 * np.log(max(n, 3) / 4)
    r = np.arccosh(1 + (np.cosh(0.75 * radius) - 1) * rng.random(n)) / 0.75
    angle = rng.random(n) * 2 * np.pi
    rows, columns = [], []
    for i in range(n):
        between = np.cos(angle[i] - angle[i + 1 :])
        near = np.cosh(r[i]) * np.cosh(r[i + 1 :]) - np.sinh(r[i]) * np.sinh(r[i + 1 :]) * between <= np.cosh(radius)
        found = np.flatnonzero(near) + i + 1
        rows.append(np.full(found.size, i))
        columns.append(found)
    return edges(n, np.concatenate(rows), np.concatenate(columns))


def radius_graph(n: int, rng: Rng) -> sp.csr_array:
    """Return points of uneven density that are joined within a radius: pieces, crowds and lonely nodes."""
    at = rng.random((n, 2)) ** rng.uniform(1, 2)
    pairs = cKDTree(at).query_pairs(1.4 / max(n, 2) ** 0.5, output_type="ndarray")
    return edges(n, pairs[:, 0], pairs[:, 1])


def de_bruijn(n: int, rng: Rng) -> sp.csr_array:
    """Return words over a small alphabet, joined where one is the other shifted by a letter."""
    letters = int(rng.integers(2, 4))
    size = letters ** max(1, int(np.log(max(n, letters)) / np.log(letters)))
    a = np.repeat(np.arange(size), letters)
    return edges(size, a, (a * letters + np.tile(np.arange(letters), size)) % size)


def kleinberg(n: int, rng: Rng) -> sp.csr_array:
    """Return a lattice with long-range edges, the shorter the likelier."""
    side = _side(n)
    a, b = _lattice(side, side)
    start = rng.integers(side * side, size=max(1, int(n * rng.choice([0.02, 0.2, 1.0]))))
    length, angle = np.exp(rng.random(start.size) * np.log(side)), rng.random(start.size) * 2 * np.pi
    x = (start // side + (length * np.cos(angle)).astype(int)) % side
    y = (start % side + (length * np.sin(angle)).astype(int)) % side
    return edges(side * side, np.r_[a, start], np.r_[b, x * side + y])


def apollonian(n: int, rng: Rng) -> sp.csr_array:
    """Return a random Apollonian network: triangles that are filled by a node again and again; planar, with hubs."""
    triangles, a, b = [(0, 1, 2)], [0, 0, 1], [1, 2, 2]
    for new in range(3, max(4, n)):
        at = int(rng.integers(len(triangles)))
        x, y, z = triangles[at]
        triangles[at] = (x, y, new)
        triangles += [(x, new, z), (new, y, z)]
        a += [x, y, z]
        b += [new] * 3
    return edges(max(4, n), np.array(a), np.array(b))


def affiliation(n: int, rng: Rng) -> sp.csr_array:
    """Return people joined by the clubs they share: overlapping cliques of all sizes."""
    clubs = max(2, n)
    size = np.minimum(2 + rng.pareto(2.0, clubs).astype(int), 25)
    club, home = np.repeat(np.arange(clubs), size), rng.integers(n, size=clubs)
    person = (home[club] + (rng.standard_cauchy(club.size) * 5).astype(int)) % n
    member = sp.csr_array((np.ones(club.size), (person, club)), shape=(n, clubs))
    a, b = (member @ member.T).nonzero()
    return edges(n, a, b)


def copying(n: int, rng: Rng) -> sp.csr_array:
    """Return a web-like graph: each new node copies half of the links of an earlier one, and many are leaves."""
    links: list[list[int]] = [[0]]
    for new in range(1, n):
        model = int(rng.integers(new))
        links.append(list({model, *(node for node in links[model][:6] if rng.random() < 0.5)}))
    return edges(n, np.repeat(np.arange(n), [len(row) for row in links]), np.concatenate(links))


def ring_of_trees(n: int, rng: Rng) -> sp.csr_array:
    """Return equal binary trees that hang off a ring: nearly repeated eigenvalues, in bands."""
    depth = int(rng.integers(2, 7))
    size = 2**depth - 1
    count = max(3, n // size)
    root = np.arange(count) * size
    inner = np.arange(1, size)
    a = np.r_[root, (root[:, None] + inner).ravel()]
    return edges(count * size, a, np.r_[np.roll(root, 1), (root[:, None] + (inner - 1) // 2).ravel()])


def thin_torus(n: int, rng: Rng) -> sp.csr_array:
    """Return a long torus with a twist: eigenvalues in pairs, nearly."""
    around = int(rng.integers(3, 12))
    along = max(3, n // around)
    node, total = np.arange(around * along), around * along
    beside = np.where(node % around == around - 1, node - around + 1, node + 1)
    return edges(total, np.r_[node, node], np.r_[beside, (node + around + int(rng.integers(around))) % total])


#: By name, each of about n nodes.
UNSEEN = {
    "honeycomb": honeycomb,
    "percolation": percolation,
    "maze": maze,
    "Sierpinski gasket": gasket,
    "Hanoi": hanoi,
    "hyperbolic": hyperbolic,
    "radius graph": radius_graph,
    "de Bruijn": de_bruijn,
    "Kleinberg": kleinberg,
    "Apollonian": apollonian,
    "affiliation": affiliation,
    "copying model": copying,
    "ring of trees": ring_of_trees,
    "twisted torus": thin_torus,
}
