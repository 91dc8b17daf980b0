"""Families of graphs for the soak: adjacencies of about n nodes, by name, from a numpy generator.

Those of the estimates and races, and as many others as there are ways to be unlike them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import scipy.sparse as sp
from scipy.spatial import Delaunay, cKDTree

Rng = np.random.Generator
Family = Callable[[int, Rng], sp.csr_array]


def _from_edges(n: int, a: np.ndarray, b: np.ndarray) -> sp.csr_array:
    """Return the simple graph with these edges, of weight 1."""
    a, b = np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64)
    apart = a != b
    W = sp.csr_array((np.ones(apart.sum()), (a[apart], b[apart])), shape=(n, n))
    W = W + W.T
    W.data[:] = 1.0
    return W


def _path(n: int) -> sp.csr_array:
    return _from_edges(n, np.arange(n - 1), np.arange(1, n))


def _cycle(n: int) -> sp.csr_array:
    return _from_edges(n, np.arange(n), (np.arange(n) + 1) % n)


def _star(n: int) -> sp.csr_array:
    return _from_edges(n, np.zeros(n - 1), np.arange(1, n))


def _complete(n: int) -> sp.csr_array:
    n = min(n, 1200)
    return sp.csr_array(np.ones((n, n)) - np.eye(n))


def _join(parts: list[sp.csr_array], links: list[tuple[int, int, float]] = ()) -> sp.csr_array:
    """Return the disjoint union of graphs, with further edges."""
    W = sp.csr_array(sp.block_diag(parts))
    if links:
        a, b, w = (np.array(column) for column in zip(*links, strict=True))
        more = sp.csr_array((w.astype(float), (a.astype(int), b.astype(int))), shape=W.shape)
        W = W + more + more.T
    return sp.csr_array(W)


def _product(a: sp.csr_array, b: sp.csr_array) -> sp.csr_array:
    """Return the Cartesian product: the Laplacian's eigenvalues are sums of those of the factors."""
    return sp.csr_array(sp.kron(a, sp.eye_array(b.shape[0])) + sp.kron(sp.eye_array(a.shape[0]), b))


def _grid(n: int, sides: int, rng: Rng) -> sp.csr_array:
    total = sp.csr_array((1, 1))
    for axis in range(sides):
        left = max(1, n // total.shape[0])
        total = _product(total, _path(max(2, int(left ** (1 / (sides - axis)) * rng.uniform(0.8, 1.2)))))
    return total


def _neighbours(points: np.ndarray, count: int) -> sp.csr_array:
    n = len(points)
    index = cKDTree(points).query(points, min(count + 1, n))[1].reshape(n, -1)[:, 1:]
    return _from_edges(n, np.repeat(np.arange(n), index.shape[1]), index.ravel())


def _random_pairs(n: int, edges: int, rng: Rng) -> sp.csr_array:
    return _from_edges(n, rng.integers(n, size=edges), rng.integers(n, size=edges))


def _regular(n: int, degree: int, rng: Rng) -> sp.csr_array:
    """Return a union of random permutations: nearly regular, and an expander."""
    ends = [rng.permutation(n) for _ in range(max(1, degree // 2))]
    return _from_edges(n, np.tile(np.arange(n), len(ends)), np.concatenate(ends))


def _tree(n: int, rng: Rng, *, spread: float = 1.0) -> sp.csr_array:
    """Return a random recursive tree; a smaller ``spread`` attaches to later nodes, and so makes it deeper."""
    later = np.arange(1, n)
    return _from_edges(n, later, (later * (1 - spread * rng.random(n - 1))).astype(int))


def _caterpillar(n: int, rng: Rng) -> sp.csr_array:
    n = max(2, n)
    spine = max(2, int(n * rng.uniform(0.2, 0.6)))
    legs = np.arange(spine, n)
    a = np.r_[np.arange(spine - 1), rng.integers(spine, size=legs.size)]
    return _from_edges(n, a, np.r_[np.arange(1, spine), legs])


def _binary_tree(n: int, rng: Rng) -> sp.csr_array:
    return _from_edges(n, np.arange(1, n), (np.arange(1, n) - 1) // 2)


def _lollipop(n: int, rng: Rng) -> sp.csr_array:
    head = max(2, min(int(n * rng.uniform(0.1, 0.6)), 900))
    tail = max(2, n - head)
    return _join([_complete(head), _path(tail)], [(head - 1, head, 1.0)])


def _barbell(n: int, rng: Rng) -> sp.csr_array:
    head = max(2, min(n // 3, 900))
    bar = max(2, n - 2 * head)
    return _join(
        [_complete(head), _path(bar), _complete(head)], [(head - 1, head, 1.0), (head + bar - 1, head + bar, 1.0)]
    )


def _hypercube(n: int, rng: Rng) -> sp.csr_array:
    W = _path(2)
    while 2 * W.shape[0] <= max(4, n):
        W = _product(W, _path(2))
    return W


def _kneser(n: int, rng: Rng) -> sp.csr_array:
    m, size = [(5, 2), (6, 2), (7, 3), (8, 3), (9, 4)][int(rng.integers(5))]
    sets = [frozenset(c) for c in combinations(range(m), size)]
    return sp.csr_array(np.array([[float(not a & b) for b in sets] for a in sets]))


def _circulant(n: int, rng: Rng) -> sp.csr_array:
    n = max(n, 5)
    steps = rng.choice(np.arange(1, max(2, n // 2)), size=min(3, max(1, n // 2 - 1)), replace=False)
    a = np.tile(np.arange(n), steps.size)
    return _from_edges(n, a, (a + np.repeat(steps, n)) % n)


def _kronecker(n: int, rng: Rng) -> sp.csr_array:
    seed = _random_pairs(max(3, int(max(n, 9) ** (1 / 3))), 12, rng) + sp.eye_array(max(3, int(max(n, 9) ** (1 / 3))))
    W = sp.csr_array(sp.kron(sp.kron(seed, seed), seed))
    rows, cols = W.nonzero()
    return _from_edges(W.shape[0], rows, cols)


def _rmat(n: int, rng: Rng) -> sp.csr_array:
    levels = max(2, int(np.log2(max(n, 4))))
    edges = 6 * 2**levels
    a = b = np.zeros(edges, dtype=np.int64)
    for _ in range(levels):
        quarter = rng.choice(4, size=edges, p=[0.57, 0.19, 0.19, 0.05])
        a, b = 2 * a + quarter // 2, 2 * b + quarter % 2
    return _from_edges(2**levels, a, b)


def _delaunay(n: int, rng: Rng) -> sp.csr_array:
    n = max(n, 5)
    simplices = Delaunay(rng.random((n, 2))).simplices
    a, b = (np.concatenate([simplices[:, i] for i in side]) for side in ((0, 1, 0), (1, 2, 2)))
    return _from_edges(n, a, b)


def _bipartite(n: int, rng: Rng) -> sp.csr_array:
    a = max(1, min(int(n * rng.uniform(0.1, 0.9)), 600))
    b = max(1, min(n - a, 600))
    W = np.zeros((a + b, a + b))
    W[:a, a:] = W[a:, :a] = 1.0
    return sp.csr_array(W)


def _cliques(n: int, rng: Rng) -> sp.csr_array:
    """Return cliques in a row, weakly joined: as many small eigenvalues as there are cliques."""
    size = int(rng.integers(3, 40))
    count, weight = max(2, n // size), 10 ** rng.uniform(-8, 0)
    return _join([_complete(size)] * count, [(size * i - 1, size * i, weight) for i in range(1, count)])


def _copies(n: int, rng: Rng) -> sp.csr_array:
    count = int(rng.integers(2, 9))
    return _join([_neighbours(rng.random((max(4, n // count), 2)), 5)] * count)


def _islands(n: int, rng: Rng) -> sp.csr_array:
    sizes = np.maximum(1, rng.dirichlet(np.full(min(12, max(2, n // 8)), 0.6)) * n).astype(int)
    makers = [_path, _cycle, _star, lambda m: _regular(m, 4, rng), lambda m: _neighbours(rng.random((m, 2)), 6)]
    return _join(
        [makers[i % len(makers)](int(size)) if size > 6 else _complete(int(size)) for i, size in enumerate(sizes)]
    )


def _small_world(n: int, rng: Rng) -> sp.csr_array:
    a = np.tile(np.arange(n), 3)
    b = (a + np.repeat([1, 2, 3], n)) % n
    moved = rng.random(b.size) < rng.choice([0.01, 0.1, 0.3])
    b[moved] = rng.integers(n, size=int(moved.sum()))
    return _from_edges(n, a, b)


def _preferential(n: int, rng: Rng) -> sp.csr_array:
    later = np.repeat(np.arange(1, n), 3)
    return _from_edges(n, later, (later * rng.random(later.size) ** 2).astype(int))


def _power_law(n: int, rng: Rng) -> sp.csr_array:
    p = rng.pareto(rng.uniform(1.3, 3), n) + 0.1
    p /= p.sum()
    W = _from_edges(n, rng.choice(n, 4 * n, p=p), rng.choice(n, 4 * n, p=p))
    return sp.csr_array(W.maximum(_path(n)))


def _blocks(n: int, rng: Rng) -> sp.csr_array:
    count = int(rng.integers(2, 30))
    block = np.sort(rng.integers(count, size=n)) if rng.random() < 0.5 else np.arange(n) * count // n
    order = np.argsort(block, kind="stable")
    first, size = np.searchsorted(block[order], np.arange(count)), np.bincount(block, minlength=count)
    a = rng.integers(n, size=8 * n)
    b = first[block[a]] + (rng.random(a.size) * size[block[a]]).astype(int)
    out = rng.random(a.size) < rng.choice([0.01, 0.05, 0.2])
    b[out] = rng.integers(n, size=int(out.sum()))
    return _from_edges(n, a, np.minimum(b, n - 1))


def _roads(n: int, rng: Rng) -> sp.csr_array:
    """Return a planar graph whose edges are chains of nodes of degree 2, with dead ends."""
    W = sp.coo_array(sp.triu(_delaunay(max(5, n // 8), rng)))
    kept = rng.random(W.nnz) < 0.5
    a, b, new = W.row[kept], W.col[kept], W.shape[0]
    ends_a, ends_b = [], []
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        length = int(rng.integers(0, 6))
        nodes = [x, *range(new, new + length), *([] if i % 7 == 0 and length else [y])]
        new += length
        ends_a += nodes[:-1]
        ends_b += nodes[1:]
    return _from_edges(new, np.array(ends_a), np.array(ends_b))


def _wheel(n: int, rng: Rng) -> sp.csr_array:
    n = max(n, 5)
    rim = np.arange(1, n)
    return _from_edges(n, np.r_[np.zeros(n - 1), rim], np.r_[rim, np.roll(rim, 1)])


def _moebius(n: int, rng: Rng) -> sp.csr_array:
    n = max(6, n // 2 * 2)
    a = np.arange(n)
    return _from_edges(n, np.r_[a, a[: n // 2]], np.r_[(a + 1) % n, a[: n // 2] + n // 2])


def _sunlet(n: int, rng: Rng) -> sp.csr_array:
    m = max(3, n // 2)
    a = np.arange(m)
    return _from_edges(2 * m, np.r_[a, a], np.r_[(a + 1) % m, a + m])


def _spider(n: int, rng: Rng) -> sp.csr_array:
    """Return equal legs at one node: all but one eigenvalue of a leg as often as there are legs, but one."""
    legs = int(rng.integers(3, 20))
    length = max(1, n // legs)
    nodes = np.arange(1, legs * length + 1)
    return _from_edges(legs * length + 1, nodes, np.where((nodes - 1) % length == 0, 0, nodes - 1))


def _two_expanders(n: int, rng: Rng) -> sp.csr_array:
    half = max(6, n // 2)
    part = _regular(half, 4, rng)
    return _join([part, part if rng.random() < 0.5 else _regular(half, 4, rng)], [(0, half, 10 ** rng.uniform(-7, 0))])


def _cube_connected(n: int, rng: Rng) -> sp.csr_array:
    return _product(_cycle(max(3, int(rng.integers(3, 9)))), _hypercube(max(4, n // 6), rng))


def _dense_random(n: int, rng: Rng) -> sp.csr_array:
    n = min(n, 600)
    return sp.csr_array(np.triu((rng.random((n, n)) < rng.uniform(0.1, 0.9)).astype(float), 1)).maximum(
        sp.csr_array(np.triu(np.zeros((n, n)), 1))
    )


def _symmetric(family: Family) -> Family:
    return lambda n, rng: sp.csr_array((lambda W: W.maximum(W.T))(family(n, rng)))


def _clusters(n: int, rng: Rng) -> sp.csr_array:
    centres = rng.random((5, 3)) * 4
    return _neighbours(centres[rng.integers(5, size=n)] + rng.normal(0, 0.3, (n, 3)), 10)


def _roll(n: int, rng: Rng) -> sp.csr_array:
    turn = rng.random(n) * 9 + 3
    return _neighbours(np.c_[turn * np.cos(turn), turn * np.sin(turn), rng.random(n) * 10], 10)


#: Every family by name; each returns a graph of about n nodes, fewer where it is dense.
FAMILIES: dict[str, Family] = {
    "2D neighbours": lambda n, rng: _neighbours(rng.random((n, 2)), int(rng.integers(4, 12))),
    "3D neighbours": lambda n, rng: _neighbours(rng.random((n, 3)), int(rng.integers(4, 12))),
    "neighbours in five dimensions": lambda n, rng: _neighbours(rng.random((n, 5)), 8),
    "strip": lambda n, rng: _neighbours(rng.random((n, 2)) * [30, 1], 6),
    "clusters": _clusters,
    "roll": _roll,
    "grid": lambda n, rng: _grid(n, 2, rng),
    "cubic grid": lambda n, rng: _grid(n, 3, rng),
    "square": lambda n, rng: _product(_path(max(2, int(n**0.5))), _path(max(2, int(n**0.5)))),
    "torus": lambda n, rng: _product(_cycle(max(3, int(n**0.5))), _cycle(max(3, int(n**0.5)))),
    "prism": lambda n, rng: _product(_cycle(max(3, n // 2)), _path(2)),
    "ladder": lambda n, rng: _product(_path(max(2, n // 2)), _path(2)),
    "path": lambda n, rng: _path(n),
    "cycle": lambda n, rng: _cycle(max(3, n)),
    "star": lambda n, rng: _star(n),
    "wheel": _wheel,
    "complete": lambda n, rng: _complete(n),
    "complete bipartite": _bipartite,
    "recursive tree": lambda n, rng: _tree(n, rng),
    "deep tree": lambda n, rng: _tree(n, rng, spread=0.02),
    "binary tree": _binary_tree,
    "caterpillar": _caterpillar,
    "spider": _spider,
    "sunlet": _sunlet,
    "lollipop": _lollipop,
    "barbell": _barbell,
    "cliques in a row": _cliques,
    "hypercube": _hypercube,
    "cycle times cube": _cube_connected,
    "Kneser": _kneser,
    "circulant": _circulant,
    "Moebius ladder": _moebius,
    "Kronecker": _kronecker,
    "R-MAT": _rmat,
    "Delaunay": _delaunay,
    "roads": _roads,
    "expander": lambda n, rng: _regular(n, 4, rng),
    "two expanders": _two_expanders,
    "random pairs": lambda n, rng: _random_pairs(n, int(n * rng.uniform(1.5, 6)), rng),
    "sparse random pairs": lambda n, rng: _random_pairs(n, int(n * 0.7), rng),
    "dense random": _symmetric(_dense_random),
    "communities": _blocks,
    "small world": _small_world,
    "preferential attachment": _preferential,
    "power law": _power_law,
    "equal graphs": _copies,
    "unlike graphs": _islands,
}


def reweighted(W: sp.csr_array, how: str, rng: Rng) -> sp.csr_array:
    """Return the graph with new weights: "unit", "lognormal", "Pareto" or "twelve orders"."""
    upper = sp.coo_array(sp.triu(W, 1))
    draws = {
        "lognormal": lambda m: rng.lognormal(0, 1, m),
        "Pareto": lambda m: rng.pareto(1.5, m) + 0.01,
        "twelve orders": lambda m: 10 ** rng.uniform(-12, 0, m),
    }
    weights = upper.data * draws[how](upper.nnz) if how in draws else upper.data
    half = sp.csr_array((weights, (upper.row, upper.col)), shape=W.shape)
    return sp.csr_array(half + half.T)
