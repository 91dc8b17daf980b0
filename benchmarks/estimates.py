"""How far the estimated bound of one larger graph can be trusted: estimates beside true errors on many kinds of graphs.

    python benchmarks/estimates.py [--seeds 10 11 12] [--weights] [--out results/estimates]

Graphs of 3,000 to 9,000 nodes, beyond the size whose bound is proved: neighbours in two and three dimensions, strips,
rolls, clusters, triangulations with random weights, weights over six and fourteen orders of magnitude, squares and
cubes with repeated frequencies, two pieces, two pieces and a bridge, roads, communities, small worlds, power laws. And
graphs of 12,000 nodes in blocks, which are looked for there: of one size and of many, with weights or degrees that lie
far apart, with chains that hang off them, in larger blocks. k is drawn at random, at a gap or not, and is the number of
blocks once. The truth is ARPACK's, on the inverse or, where that is dense, on L, to 1e-13.

With ``--weights``, graphs of 4,200 nodes instead whose weights are of two sizes, ten to a hundred million apart: grids,
neighbours in two and five dimensions and random graphs, heavy on sites, bonds, in groups or on islands, or by the
scales of nodes. `davidson`, which is meant for such, is judged beside what `auto` takes.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh
from scipy.spatial import Delaunay, cKDTree

import krylow as kl
from krylow_lab.large.graphs import make
from krylow_lab.records import Record

MOST_K, CUTS, TOLS = 40, 4, (1e-3, 1e-6)
#: Larger graphs are in blocks here, and their inverse is dense.
DENSE = 9000


def neighbours(points: np.ndarray, count: int, width: float | None = None) -> Any:
    """Return the graph of the nearest neighbours, with weights exp(-(d / width)^2) if a width is given."""
    n = len(points)
    distance, index = cKDTree(points).query(points, count + 1)
    rows, columns = np.repeat(np.arange(n), count), index[:, 1:].ravel()
    weights = np.ones(rows.size) if width is None else np.exp(-((distance[:, 1:].ravel() / width) ** 2))
    W = sp.csr_array((weights, (rows, columns)), shape=(n, n))
    return W.maximum(W.T)


def lattice(*sides: int) -> Any:
    """Return the grid graph with these sides."""
    total = sp.csr_array((1, 1))
    for side in sides:
        path = sp.diags_array([np.ones(side - 1)] * 2, offsets=[-1, 1])
        total = sp.kron(total, sp.eye_array(side)) + sp.kron(sp.eye_array(total.shape[0]), path)
    return sp.csr_array(total)


def triangulation(points: np.ndarray, weights: Any) -> Any:
    """Return the Delaunay graph with weights drawn by a function of their number."""
    triangles, n = Delaunay(points).simplices, len(points)
    ends = np.concatenate([triangles[:, pair] for pair in ([0, 1], [1, 2], [0, 2])])
    W = sp.csr_array((weights(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
    return sp.csr_array(W + W.T)


def pieces(rng: np.random.Generator, n: int, bridge: float) -> Any:
    """Return two graphs of neighbours as one, with an edge of this weight between them."""
    first, second = neighbours(rng.random((n // 2, 2)), 8), neighbours(rng.random((n // 3, 2)), 8)
    W = sp.lil_array(sp.block_diag([first, second]))
    W[0, n // 2 + 5] = W[n // 2 + 5, 0] = bridge
    return sp.csr_array(W)


def blocks(rng: np.random.Generator, sizes: Any, inside: float, outside: float, strength: Any = None) -> Any:
    """Return blocks of these sizes, with about so many neighbours in a node's own and in any block, by its strength."""
    sizes = np.asarray(sizes)
    block, first, n = np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes) - sizes, int(sizes.sum())
    share = None if strength is None else strength / strength.sum()
    rows = rng.choice(n, int(n * inside / 2), p=share)
    columns = first[block[rows]] + (rng.random(rows.size) * sizes[block[rows]]).astype(int)
    any_rows, any_columns = (rng.choice(n, int(n * outside / 2), p=share) for _ in range(2))
    ends = np.r_[rows, any_rows], np.r_[columns, any_columns]
    W = sp.csr_array((np.ones(ends[0].size), ends), shape=(n, n))
    W.setdiag(0)
    return sp.csr_array(W + W.T)


def hanging(rng: np.random.Generator, W: Any, chains: int, length: int) -> Any:
    """Return a graph with chains of so many nodes hanging off it."""
    n = W.shape[0]
    new = n + np.arange(chains * length)
    before = np.where(np.arange(chains * length) % length, new - 1, rng.integers(n, size=chains * length))
    chain = sp.csr_array((np.ones(new.size), (before, new)), shape=(n + new.size, n + new.size))
    return sp.csr_array(sp.block_diag([W, sp.csr_array((new.size, new.size))]) + chain + chain.T)


def block_graphs(seed: int) -> Iterator[tuple[str, int, Any]]:
    """Return adjacencies of graphs in blocks by name, with the number of blocks."""
    rng = np.random.default_rng([seed, 1])
    n, count = 12_000, int(rng.integers(10, 30))
    even = np.full(count, n // count)
    yield "blocks", count, blocks(rng, even, 20, 2)
    yield (
        "blocks of all sizes",
        count,
        blocks(rng, np.maximum(60, rng.dirichlet(np.full(count, 0.7)) * n).astype(int), 20, 2),
    )
    yield "blocks, wide degrees", count, blocks(rng, even, 20, 2, rng.pareto(2.5, int(even.sum())) + 0.3)
    yield "blocks and chains", count, hanging(rng, blocks(rng, even, 20, 2), 6, 15)
    scale = sp.diags_array(rng.lognormal(0, 0.5, int(even.sum())))
    yield "blocks, wide weights", count, scale @ blocks(rng, even, 20, 2) @ scale
    yield "blocks in blocks", 6, blocks(rng, np.full(60, n // 60), 18, 1.5) + blocks(rng, np.full(6, n // 6), 2, 0.1)


def graphs(seed: int) -> Iterator[tuple[str, Any, list[int]]]:
    """Return Laplacians of all kinds, by name, and cuts beside those that are drawn."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3000, 9000))
    turn = rng.random(n) * 9 + 3
    clusters = np.concatenate([rng.normal(c, 0.3, (n // 5, 3)) for c in rng.random((5, 3)) * 4])
    adjacencies = {
        "2D k-NN": neighbours(rng.random((n, 2)), 5),
        "2D k-NN, Gaussian weights": neighbours(rng.random((n, 2)), 8, 0.6 / n**0.5),
        "clusters in 3D": neighbours(clusters, 10),
        "strip": neighbours(rng.random((n, 2)) * [30, 1], 6),
        "roll": neighbours(np.c_[turn * np.cos(turn), turn * np.sin(turn), rng.random(n) * 10], 10),
        "triangulation": triangulation(rng.random((n, 2)), lambda m: rng.random(m) + 0.01),
        "triangulation, six orders": triangulation(rng.random((n, 2)), lambda m: 10 ** rng.uniform(-6, 0, m)),
        "square": lattice(int(n**0.5), int(n**0.5)),
        "cube": lattice(*[int(n ** (1 / 3))] * 3),
        "two pieces": pieces(rng, n, 0.0),
        "bridge": pieces(rng, n, 0.01),
    }
    for name, W in adjacencies.items():
        yield name, sp.csr_array(sp.diags_array(W.sum(axis=1)) - W), []
    for family in ("road", "sbm20", "smallworld", "powerlaw"):
        yield family, make(family, n, seed), []
    for name, count, W in block_graphs(seed):
        order = np.random.default_rng(seed).permutation(W.shape[0])
        W = sp.csr_array(W)[order][:, order]
        yield name, sp.csr_array(sp.diags_array(W.sum(axis=1)) - W), [count]


def weighted_graphs(seed: int, n: int = 4200) -> Iterator[tuple[str, Any, list[int]]]:
    """Return Laplacians whose weights are of two sizes, by name, with no further cuts."""
    rng = np.random.default_rng([seed, 2])
    heavy, light, side = 10 ** rng.uniform(1, 5), 10 ** rng.uniform(-3, 0), int(n**0.5) + 1
    plain = {
        "grid": lattice(side, side),
        "2D k-NN": neighbours(rng.random((n, 2)), 7),
        "5D k-NN": neighbours(rng.random((n, 5)), 8),
        "random": blocks(rng, [n], 10, 0),
    }
    for name, W in plain.items():
        ends = sp.triu(W, 1).tocoo()
        i, j, nodes = ends.row, ends.col, W.shape[0]
        site, group = rng.random(nodes) < rng.uniform(0.2, 0.8), rng.integers(0, rng.integers(5, 60), nodes)
        height, scale = rng.standard_normal(nodes), 10 ** rng.uniform(-3, 3, nodes)
        for _ in range(30):
            height = (W @ height) / np.maximum(W.sum(axis=1), 1)
        island = height > np.median(height)
        kinds = {
            "sites": np.where(site[i] & site[j], heavy, light),
            "bonds": np.where(rng.random(i.size) < rng.uniform(0.05, 0.6), heavy, light),
            "groups": np.where(group[i] == group[j], heavy, light),
            "islands": np.where(island[i] & island[j], heavy, light),
            "scales": scale[i] * scale[j],
        }
        for kind, weights in kinds.items():
            V = sp.csr_array((weights, (i, j)), shape=W.shape)
            V = sp.csr_array(V + V.T)
            label = connected_components(V)[1]
            kept = np.flatnonzero(label == np.bincount(label).argmax())
            V = V[kept][:, kept]
            yield f"{name}, {kind}", sp.csr_array(sp.diags_array(V.sum(axis=1)) - V), []


def judge(L: Any, seed: int, cuts: list[int], method: str = "auto") -> Iterator[dict[str, Any]]:
    """Return one row a cut and error asked for."""
    start, most = np.random.default_rng(0).random(L.shape[0]), MOST_K + 2
    if L.shape[0] > DENSE:
        values, vectors = eigsh(L, most, which="SA", tol=1e-13, v0=start, ncv=3 * most, maxiter=100_000)
    else:
        values, vectors = eigsh(L, most, sigma=-1e-7 * float(L.diagonal().max()), tol=1e-13, v0=start)
    order = np.argsort(values)
    values, vectors = values[order], vectors[:, order]
    for k in sorted({*cuts, *np.random.default_rng(seed).integers(2, MOST_K, CUTS).tolist()}):
        truth = torch.from_numpy(np.ascontiguousarray(vectors[:, :k]))
        for tol in TOLS:
            begin = time.process_time()
            found = kl.subspace(L, k, tol=tol, method=method, max_products=400_000)
            row = {"n": L.shape[0], "k": k, "tol": tol, "method": found.method, "status": found.status.name}
            row["cpu_seconds"] = time.process_time() - begin
            row["error"] = float(kl.metrics.subspace_error(found.basis, truth))
            row["bound"] = float(found.error_bound)
            row["gap"] = float((values[k] - values[k - 1]) / values[k])
            yield row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how often, and by how much, estimates were wrong."""
    claimed = [row for row in rows if row["status"] == "CONVERGED"]
    below = [row for row in claimed if row["error"] > row["bound"]]
    return {
        "runs": len(rows),
        "converged": len(claimed),
        "error above tol": sum(row["error"] > row["tol"] for row in claimed),
        "error above 10 tol": sum(row["error"] > 10 * row["tol"] for row in claimed),
        "error above its bound": len(below),
        "largest error / bound": max((row["error"] / row["bound"] for row in claimed), default=0.0),
        "not converged at gaps above 1 %": sum(row["status"] != "CONVERGED" and row["gap"] > 0.01 for row in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    parser.add_argument("--weights", action="store_true", help="graphs whose weights are of two sizes, instead")
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    rows = []
    for seed in args.seeds:
        for name, L, cuts in weighted_graphs(seed) if args.weights else graphs(seed):
            for method in ("auto", "davidson") if args.weights else ("auto",):
                rows += [{"graph": name, "seed": seed, "asked": method, **row} for row in judge(L, seed, cuts, method)]
            bad = [row for row in rows if row["graph"] == name and row["seed"] == seed]
            print(seed, name, summary(bad), flush=True)
    results = {"all": summary(rows), "rows": rows}
    print(results["all"])
    if args.out:
        config = {
            "seeds": args.seeds,
            "tols": list(TOLS),
            "most k": MOST_K,
            **({"weights": True} if args.weights else {}),
        }
        wall = time.perf_counter() - begin
        record = Record.create("estimates", config, results, seed=args.seeds[0], started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
