"""Where each method wins: n = 30 to 1000 (and sparse beyond), the table from which `auto` takes its thresholds.

    python benchmarks/crossover.py [--threads 1] [--out results/crossover]

Seconds for the k = 8 subspace to a bound of 1e-3, float64, batches of dense SBM graphs and single sparse ones (2D
grids and block models), every method at its defaults.
"""

from __future__ import annotations

import argparse
import datetime
import time

import numpy as np
import scipy.sparse
import torch
from timing import interleaved

import krylow as kl
from krylow.experiments.records import Record

METHODS = ("exact", "thick_restart", "chebyshev", "lobpcg", "shift_invert")
K = 8


def dense_cases() -> dict[str, kl.operators.Operator]:
    cases = {}
    for n, graphs in ((30, 128), (50, 128), (100, 64), (200, 32), (300, 16), (500, 8), (1000, 4)):
        W = kl.data.sbm(graphs, n=n, dtype=torch.float64)
        cases[f"dense sbm n={n} x{graphs}"] = kl.laplacian(W)
    return cases


def sparse_cases(seed: int) -> dict[str, kl.operators.Operator]:
    cases = {}
    rng = np.random.default_rng(seed)
    for n in (300, 1000, 3000):
        side = round(n**0.5)
        path = scipy.sparse.diags_array([np.ones(side - 1)] * 2, offsets=[-1, 1], shape=(side, side))
        wide = scipy.sparse.diags_array([np.ones(side)] * 2, offsets=[-1, 1], shape=(side + 1, side + 1))
        eye, eye_wide = scipy.sparse.eye_array(side), scipy.sparse.eye_array(side + 1)
        grid = scipy.sparse.kron(path, eye_wide) + scipy.sparse.kron(eye, wide)  # not square: no repeated frequencies
        cases[f"sparse grid n={grid.shape[0]}"] = kl.laplacian(grid)
        edges = rng.integers(n, size=(2, 4 * n))
        block = edges * 9 // n
        kept = edges[:, (block[0] == block[1]) | (rng.random(4 * n) < 0.05)]
        half = scipy.sparse.coo_array((np.ones(kept.shape[1]), kept), shape=(n, n))
        W = (half + half.T).tocsr()
        W.setdiag(0)
        cases[f"sparse sbm n={n}"] = kl.laplacian(W)
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    results = {}
    print(f"{'seconds':28s}" + "".join(f"{method:>15s}" for method in METHODS) + "   auto")
    for name, L in {**dense_cases(), **sparse_cases(args.seed)}.items():
        jobs = {method: (lambda L=L, method=method: kl.subspace(L, K, method=method)) for method in METHODS}
        seconds, answers = interleaved(jobs, repeats=args.repeats)
        auto = kl.subspace(L, K).method
        converged = {method: answer.status.name for method, answer in answers.items()}
        print(f"{name:28s}" + "".join(f"{seconds[method]:15.4f}" for method in METHODS) + f"   {auto}")
        results[name] = {"seconds": seconds, "status": converged, "auto": auto}
    if args.out:
        config = {"threads": args.threads, "k": K, "methods": list(METHODS)}
        wall = time.perf_counter() - begin
        record = Record.create("crossover", config, results, seed=args.seed, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
