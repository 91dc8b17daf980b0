"""One solve on one thread and on two, beside what triad gains from the second one.

    python benchmarks/threads.py [--nodes 1000000] [--families knn2d grid sbm20] [--repeats 3] [--out results/threads]

Seconds by the clock, medians; one and two threads take turns in one run, so the machine should do nothing else. Triad
is z = x + s y over arrays as large as a block of 32 float32 columns. ``share`` is the gain of the solve over triad's.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Callable
from typing import Any

import torch
from timing import interleaved

import krylow as kl
import krylow.graph
from krylow_lab.large.graphs import make
from krylow_lab.records import Record

#: Numbers of kept frequencies, at the gaps of each family.
CUTS = {"knn2d": 11, "grid": 11, "sbm20": 20, "road": 8}
TRIAD_COLUMNS = 32


def on(threads: int, job: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        torch.set_num_threads(threads)
        return job()

    return run


def measure(family: str, n: int, seed: int, repeats: int) -> dict[str, float]:
    L = kl.graph.as_operator(make(family, n, seed))
    x, y, z = (torch.ones(TRIAD_COLUMNS * L.n) for _ in range(3))
    triad: Callable[[], Any] = lambda: torch.add(x, y, alpha=3.0, out=z)  # noqa: E731
    solve: Callable[[], Any] = lambda: kl.subspace(L, CUTS[family], tol=1e-3)  # noqa: E731
    jobs = {f"{name}, {p}": on(p, job) for name, job in (("triad", triad), ("solve", solve)) for p in (1, 2)}
    seconds, answers = interleaved(jobs, repeats=repeats)
    gains = {name: seconds[f"{name}, 1"] / seconds[f"{name}, 2"] for name in ("triad", "solve")}
    same = torch.equal(answers["solve, 1"].basis, answers["solve, 2"].basis)
    ratios = {f"gain of {name}": gain for name, gain in gains.items()}
    return seconds | ratios | {"share": gains["solve"] / gains["triad"], "same bits": float(same)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--families", nargs="+", default=["knn2d", "grid", "sbm20"], choices=list(CUTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    results = {}
    for family in args.families:
        results[family] = measure(family, args.nodes, args.seed, args.repeats)
        print(family, {name: round(value, 4) for name, value in results[family].items()}, flush=True)
    if args.out:
        config = {"nodes": args.nodes, "repeats": args.repeats}
        wall = time.perf_counter() - begin
        record = Record.create("threads", config, results, seed=args.seed, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
