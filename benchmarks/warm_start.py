"""What an earlier answer saves when one edge in a hundred has changed: products from nothing and from `start=`.

    python benchmarks/warm_start.py [--steps 5] [--out results/warm-start]

Each step gives one edge in a hundred a new weight, uniform between .3 and 3, and starts from the answer of the step
before. Up to 2048 nodes the certificate proves every answer; on the larger graphs the products of the check count, too.
Sums over the steps.
"""

from __future__ import annotations

import argparse
import datetime
import time
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array

import krylow as kl
from krylow_lab.large.graphs import make
from krylow_lab.records import Record

FAMILIES = ("knn2d", "grid", "sbm20", "smallworld", "powerlaw")
METHODS = ("chebyshev", "davidson", "lobpcg", "thick_restart", "multilevel")
SIZES = (2000, 6000)


def laplacian(n: int, ends: Any, weights: np.ndarray) -> kl.operators.Operator:
    A = coo_array((weights, ends), shape=(n, n)).tocsr()
    return kl.laplacian(csr_array(A + A.T))


def sequence(family: str, n: int, steps: int, seed: int) -> tuple[int, list[kl.operators.Operator]]:
    """Return k at the widest gap of the first graph, and the graphs."""
    L = coo_array(make(family, n, seed))
    upper = L.row < L.col
    ends, rng = (L.row[upper], L.col[upper]), np.random.default_rng(seed)
    weights = np.ones(ends[0].size)
    graphs = [laplacian(L.shape[0], ends, weights)]
    for _ in range(steps):
        changed = rng.random(weights.size) < 0.01
        weights = np.where(changed, rng.uniform(0.3, 3.0, weights.size), weights)
        graphs.append(laplacian(L.shape[0], ends, weights))
    if family == "sbm20":
        return 20, graphs
    lam = kl.subspace(graphs[0], 16, tol=1e-4).ritz_values
    return 7 + int((lam[7:15] / lam[6:14]).argmax()), graphs


def compared(family: str, n: int, steps: int, seed: int, method: str) -> dict[str, Any]:
    k, graphs = sequence(family, n, steps, seed)
    row: dict[str, Any] = {"k": k, "cold": 0, "warm": 0, "cold status": [], "warm status": [], "from earlier": 0}
    before = kl.subspace(graphs[0], k, method=method)
    for L in graphs[1:]:
        cold = kl.subspace(L, k, method=method)
        before = kl.subspace(L, k, method=method, start=before)
        for name, found in (("cold", cold), ("warm", before)):
            row[name] += found.products
            row[f"{name} status"].append(found.status.name)
        row["from earlier"] += "from the earlier answer" in before.why
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", type=int, default=None, help="sizes")
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    results = {}
    for n in args.only or SIZES:
        for family in FAMILIES:
            for method in METHODS:
                row = results[f"{family} n={n} {method}"] = compared(family, n, args.steps, args.seed, method)
                print(
                    f"{n:6d} {family:11s} {method:13s} k={row['k']:2d} products {row['cold']:6d} and {row['warm']:6d}: "
                    f"{row['cold'] / row['warm']:.1f} times fewer, {row['from earlier']} of {args.steps} warm",
                    flush=True,
                )
    if args.out:
        config, wall = {"steps": args.steps, "sizes": list(args.only or SIZES)}, time.perf_counter() - begin
        record = Record.create("warm-start", config, results, seed=args.seed, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
