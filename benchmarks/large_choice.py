"""What `auto` loses on one large graph: the time of the method it takes over that of the fastest one.

    python benchmarks/large_choice.py [--n 20000] [--out results/large-choice]

The thresholds of `krylow.api` are looked for on some kinds of graphs, by the least geometric mean of that ratio
over a grid of thresholds, and judged on kinds and seeds that they were not looked for on. All methods at their
defaults, one thread, processor seconds, the least of two runs; k at the widest gap of 6 to 14 and of 20 to 36. A
method that does not converge has lost, and so has a factorisation that would fill up.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from scipy.spatial import Delaunay, cKDTree

import krylow as kl
from krylow import api as methods
from krylow.graph import as_operator
from krylow.operators.ordering import breadth_first_search
from krylow.profile import GraphProfile
from krylow_lab.large import graphs
from krylow_lab.records import Record

METHODS = ("multilevel", "chebyshev", "davidson", "shift_invert")
TOL, WINDOWS, MOST_K = 1e-3, ((6, 14), (20, 36)), 40
#: Products that a method may take for each of its columns, and what one counts as that does not converge: so many times
#: the fastest.
PASSES, LOST = 600, 30.0
#: Seconds up to which a run is repeated, and the fill beyond which nothing is factorised: that takes minutes.
QUICK, FILLED = 2.0, 60.0
#: Values of the thresholds that are looked through.
GRID: dict[str, tuple[float, ...]] = {
    "GEOMETRIC": (0.05, 0.1, 0.2, 0.4),
    "TREE_NEIGHBORS": (2.2, 2.8, 3.5, 5.0, 8.0),
    "TREE_FILL": (1.5, 2.0, 3.0, 5.0, 10.0),
    "THIN_NEIGHBORS": (0.0, 2.2, 2.5, 3.0),
    "THIN_WORK": (1e4, 3e4, 6e4, 1e5, 3e5),
    "WIDE_DEGREES": (3.0, 5.0, 10.0, 20.0, 50.0),
}
Kind = Callable[[int, np.random.Generator], Any]


def neighbours(dimension: int, sides: float = 1.3) -> Kind:
    """Return the graphs of 8 nearest neighbours in a box of so many dimensions, each side longer than the last."""

    def make(n: int, rng: np.random.Generator) -> Any:
        at = rng.random((n, dimension)) * sides ** np.arange(dimension)
        _, index = cKDTree(at).query(at, 9)
        return graphs.adjacency(n, np.repeat(np.arange(n), 8), index[:, 1:].ravel())

    return make


def triangulation(n: int, rng: np.random.Generator) -> Any:
    corners = Delaunay(rng.random((n, 2)) * [1.4, 1.0]).simplices
    ends = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [0, 2]]])
    return graphs.adjacency(n, *ends.T)


def box(n: int, rng: np.random.Generator) -> Any:
    """Return a grid of three dimensions, of sides that have no repeated frequencies."""
    sides = [round(n ** (1 / 3) * factor) for factor in (0.85, 1.0, 1.18)]
    node = np.arange(math.prod(sides)).reshape(sides)
    ends = [(np.delete(node, -1, axis).ravel(), np.delete(node, 0, axis).ravel()) for axis in range(3)]
    return graphs.adjacency(node.size, *(np.concatenate(end) for end in zip(*ends, strict=True)))


def tree(extra: float) -> Kind:
    """Return random trees, each node hung on an earlier one near it, with a share of further edges."""

    def make(n: int, rng: np.random.Generator) -> Any:
        child = np.arange(1, n)
        parent = np.maximum(0, child - rng.geometric(0.01, n - 1))
        more = rng.integers(n, size=(2, round(extra * n)))
        return graphs.adjacency(n, np.concatenate([child, more[0]]), np.concatenate([parent, more[1]]))

    return make


def hexagons(n: int, rng: np.random.Generator) -> Any:
    """Return a grid without every other of its upright edges."""
    short = round(math.sqrt(n / graphs.ASPECT))
    node = np.arange(short * round(n / short)).reshape(short, -1)
    row, column = np.nonzero(np.add.outer(np.arange(short - 1), np.arange(node.shape[1])) % 2 == 0)
    flat, upright = (node[:, :-1].ravel(), node[:, 1:].ravel()), (node[row, column], node[row + 1, column])
    return graphs.adjacency(node.size, *(np.concatenate(end) for end in zip(flat, upright, strict=True)))


def streets(bends: float, roads: float) -> Kind:
    """Return road-like graphs of other numbers of bends and streets a junction."""

    def make(n: int, rng: np.random.Generator) -> Any:
        before = graphs.BENDS, graphs.ROADS
        graphs.BENDS, graphs.ROADS = bends, roads
        try:
            return graphs.road(n, rng)
        finally:
            graphs.BENDS, graphs.ROADS = before

    return make


def random_edges(n: int, rng: np.random.Generator) -> Any:
    return graphs.adjacency(n, *rng.integers(n, size=(2, 6 * n)))


def rewired(share: float) -> Kind:
    """Return Watts and Strogatz's graphs with another share of edges led elsewhere."""

    def make(n: int, rng: np.random.Generator) -> Any:
        node = np.tile(np.arange(n), 5)
        other = (node + np.repeat(np.arange(1, 6), n)) % n
        led = rng.random(node.size) < share
        other[led] = rng.integers(n, size=int(led.sum()))
        return graphs.adjacency(n, node, other)

    return make


def drawn_degrees(exponent: float) -> Kind:
    """Return graphs whose nodes take part in edges by weights of a power law."""

    def make(n: int, rng: np.random.Generator) -> Any:
        weight = (1 - rng.random(n)) ** (-1 / (exponent - 1))
        ends = rng.choice(n, size=(2, 5 * n), p=weight / weight.sum())
        return graphs.adjacency(n, *ends)

    return make


def unequal_blocks(n: int, rng: np.random.Generator) -> Any:
    """Return 12 communities of sizes that differ by up to five times."""
    block = rng.choice(12, size=n, p=np.linspace(1, 5, 12) / np.linspace(1, 5, 12).sum())
    ends = rng.integers(n, size=(2, 150 * n))
    kept = ends[:, (block[ends[0]] == block[ends[1]]) | (rng.random(ends.shape[1]) < 0.01)]
    return graphs.adjacency(n, *kept)


def joined_cliques(n: int, rng: np.random.Generator) -> Any:
    """Return a ring of cliques of ten nodes."""
    first = np.arange(0, n - 9, 10)
    a, b = np.triu_indices(10, 1)
    rows, columns = (first[:, None] + a).ravel(), (first[:, None] + b).ravel()
    ring = np.roll(first, -1)
    return graphs.adjacency(first.size * 10, np.concatenate([rows, first + 9]), np.concatenate([columns, ring]))


def _family(name: str) -> Kind:
    return graphs.FAMILIES[name].make


#: What thresholds are looked for on, and what they are judged on.
TRAINING: dict[str, Kind] = {
    **{name: _family(name) for name in ("knn2d", "knn3d", "grid", "road", "sbm20", "smallworld", "powerlaw")},
    "tree": tree(0.0),
    "tree and 2 % more": tree(0.02),
    "tree and 10 % more": tree(0.1),
    "hexagons": hexagons,
    "random edges": random_edges,
    "strip": neighbours(2, 20.0),
}
UNSEEN: dict[str, Kind] = {
    "triangulation": triangulation,
    "3D grid": box,
    "k-NN in 5 dimensions": neighbours(5),
    "k-NN in 8 dimensions": neighbours(8),
    "rewired 1 %": rewired(0.01),
    "rewired half": rewired(0.5),
    "degrees by a power of 2.3": drawn_degrees(2.3),
    "degrees by a power of 3": drawn_degrees(3.0),
    "tree and 1 % more": tree(0.01),
    "tree and 5 % more": tree(0.05),
    "streets without bends": streets(0.0, 1.4),
    "many streets": streets(1.0, 1.7),
    "unequal blocks": unequal_blocks,
    "ring of cliques": joined_cliques,
}


def statistics(L: Any) -> dict[str, float]:
    """Return what `auto` looks at."""
    A = as_operator(L)
    diagonal = A.diagonal().abs()
    fill = GraphProfile(A).fill
    return {
        "neighbors": A.col.numel() / A.n - 1,
        "fill": fill.ratio,
        "work": fill.entries**1.5 / A.n,
        "widest": breadth_first_search(A).width,
        "spread": float(diagonal.max() / diagonal.mean()),
        "contrast": float(diagonal.mean() * diagonal.reciprocal().mean()),
    }


def choice(seen: dict[str, float], thresholds: dict[str, float]) -> str:
    """Return the method for these statistics, as `auto` takes it with such thresholds."""
    tree = seen["neighbors"] <= thresholds["TREE_NEIGHBORS"] and seen["fill"] <= thresholds["TREE_FILL"]
    if tree or (seen["neighbors"] <= thresholds["THIN_NEIGHBORS"] and seen["work"] <= thresholds["THIN_WORK"]):
        return "shift_invert"
    if seen["contrast"] > methods.CONTRAST:  # weights, which none of these graphs has: not fitted here
        return "shift_invert" if seen["work"] <= methods.CONTRAST_WORK else "davidson"
    if seen["widest"] <= thresholds["GEOMETRIC"]:
        return "multilevel"
    return "davidson" if seen["spread"] > thresholds["WIDE_DEGREES"] else "chebyshev"


def cuts(L: Any) -> list[int]:
    """Return the k of each window at the widest relative gap."""
    theta = kl.subspace(L, MOST_K, tol=TOL).ritz_values.numpy()
    found = []
    for low, high in WINDOWS:
        ks = np.arange(low, high + 1)
        found.append(int(ks[np.argmax(1 - theta[ks - 1] / np.maximum(theta[ks], 1e-300))]))
    return found


def seconds(L: Any, k: int, method: str) -> tuple[float, str]:
    """Return the processor time of a method, certificate included, and its status."""
    best, status = math.inf, ""
    for _ in range(2):
        begin = time.process_time()
        try:
            status = kl.subspace(L, k, method=method, tol=TOL, max_products=PASSES * (k + 16)).status.name
        except kl.InputError:
            return math.inf, "refused"
        best = min(best, time.process_time() - begin)
        if best > QUICK:
            break
    return best, status


def measured(kinds: dict[str, Kind], n: int, seeds: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Yield a row for each graph and k: statistics, times and statuses of all methods, and what `auto` takes."""
    for (name, make), seed in itertools.product(kinds.items(), seeds):
        W = make(n, np.random.default_rng([seed, n]))
        L = graphs.laplacian(W)
        seen = statistics(L)
        for k in cuts(L):
            times = {method: seconds(L, k, method) for method in METHODS[: 4 if seen["fill"] <= FILLED else 3]}
            taken = kl.subspace(L, k, tol=TOL).method
            row = {"graph": name, "seed": seed, "n": L.shape[0], "k": k, **seen, "auto": taken}
            row |= {"seconds": {m: t for m, (t, _) in times.items()}, "status": {m: s for m, (_, s) in times.items()}}
            text = "  ".join(f"{m} {t:.3f}{'' if s == 'CONVERGED' else ' ' + s}" for m, (t, s) in times.items())
            print(f"{name:28s} {seed} k={k:<3d} {text}  auto: {taken}, {ratio(row, taken):.2f}", flush=True)
            yield row


def ratio(row: dict[str, Any], method: str) -> float:
    """Return the time of a method over that of the fastest, or ``LOST`` where it did not converge and another did."""
    good = [t for m, t in row["seconds"].items() if row["status"][m] == "CONVERGED"]
    if not good:
        return 1.0
    return row["seconds"][method] / min(good) if row["status"].get(method) == "CONVERGED" else LOST


def mean_ratio(rows: list[dict[str, Any]], thresholds: dict[str, float]) -> float:
    return math.exp(float(np.mean([math.log(ratio(row, choice(row, thresholds))) for row in rows])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    training = list(measured(TRAINING, args.n, (0, 1)))
    unseen = list(measured(UNSEEN, args.n, (2, 3)))
    unseen += list(
        measured({name: TRAINING[name] for name in ("knn2d", "road", "sbm20", "powerlaw")}, 3 * args.n, (4,))
    )
    tried = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    scores = [mean_ratio(training, thresholds) for thresholds in tried]
    ours = {name: float(getattr(methods, name)) for name in GRID}
    parts = {"training": training, "unseen": unseen}
    ratios = {part: [ratio(row, row["auto"]) for row in rows] for part, rows in parts.items()}
    results = {
        "thresholds": ours,
        "best mean ratio on training graphs": min(scores),
        "best thresholds": [t for t, score in zip(tried, scores, strict=True) if score <= 1.001 * min(scores)][:20],
        "mean ratio": {part: math.exp(float(np.mean(np.log(found)))) for part, found in ratios.items()},
        "largest ratio": {part: max(found) for part, found in ratios.items()},
        "fastest taken": {part: sum(r <= 1.05 for r in found) / len(found) for part, found in ratios.items()},
        **parts,
    }
    print({name: value for name, value in results.items() if name not in (*parts, "best thresholds")})
    if args.out:
        config = {"n": args.n, "tol": TOL, "methods": list(METHODS), "grid": GRID}
        wall = time.perf_counter() - begin
        record = Record.create("large-choice", config, results, seed=0, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
