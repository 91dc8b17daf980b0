"""Where each method wins up to some thousand nodes: the table from which `auto` takes its thresholds.

    python benchmarks/crossover.py [--threads 1] [--out results/crossover]

Seconds for a subspace to a bound of 1e-3 and its certificate, float64: batches of dense SBM graphs, k = 8, and single
sparse graphs of the large benchmark's families, k = 8 and 40. Every method at its defaults but for a limit of its
products; one that takes seconds is run once, and `multilevel` only where it is not `exact` by another name.
"""

from __future__ import annotations

import argparse
import datetime
import math
import time
from collections.abc import Iterator
from functools import partial

import torch
from timing import interleaved

import krylow as kl
from krylow.graph import as_operator
from krylow_lab.large.graphs import FAMILIES as FAMILY
from krylow_lab.large.graphs import make
from krylow_lab.records import Record

METHODS = ("exact", "thick_restart", "chebyshev", "multilevel", "davidson", "lobpcg", "shift_invert")
FAMILIES = ("grid", "road", "knn2d", "knn3d", "sbm20", "smallworld", "powerlaw")
K, MORE = 8, 40
#: Most products, and seconds from which on a method is run once.
MOST, SLOW = 20_000, 2.0


def cases(seed: int) -> Iterator[tuple[str, kl.operators.Operator, int]]:
    for n, graphs in ((30, 128), (50, 128), (100, 64), (200, 32), (300, 16), (500, 8), (1000, 4)):
        yield f"dense sbm n={n} x{graphs}", kl.laplacian(kl.data.sbm(graphs, n=n, dtype=torch.float64)), K
    for n in (300, 700, 1400, 2000, 4000):
        for family in FAMILIES:
            L = as_operator(make(family, n, seed))
            for k in (K, MORE):
                yield f"sparse {FAMILY[family].title} n={L.n} k={k}", L, k


def certified(L: kl.operators.Operator, k: int, method: str) -> kl.Subspace | None:
    """Return the subspace with its certificate, which is computed when it is looked at; None where a method refuses."""
    try:
        found = kl.subspace(L.detach(), k, method=method, max_products=MOST)
        return found if found.status is not None else None
    except kl.InputError:
        return None


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
    for name, L, k in cases(args.seed):
        methods = [method for method in METHODS if method != "multilevel" or (L.n > 2048 and 4 * k <= L.n)]
        jobs = {method: partial(certified, L, k, method) for method in methods}
        seconds, answers = interleaved(jobs, repeats=args.repeats, slow=SLOW)
        auto = kl.subspace(L, k).method
        converged = {method: answer.status.name if answer else "refused" for method, answer in answers.items()}
        shown = "".join(f"{seconds.get(method, math.nan):15.4f}" for method in METHODS)
        print(f"{name:28s}{shown}   {auto}", flush=True)
        results[name] = {"seconds": seconds, "status": converged, "auto": auto}
    if args.out:
        config = {"threads": args.threads, "k": [K, MORE], "methods": list(METHODS)}
        wall = time.perf_counter() - begin
        record = Record.create("crossover", config, results, seed=args.seed, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
