"""What a cutoff costs over the number of frequencies that it keeps: products and processor seconds, side by side.

    python benchmarks/cutoff.py [--threads 1] [--repeats 5] [--out results/cutoff]

Every graph is cut in its widest gap behind the fourth of its 15 lowest frequencies. Both calls run in turn, at their
defaults, certificate included; medians.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import krylow as kl
from krylow.graph import as_operator
from krylow_lab.large.graphs import make
from krylow_lab.records import Record

GRAPHS = (
    ("grid", 10_000),
    ("knn2d", 100_000),
    ("road", 20_000),
    ("smallworld", 10_000),
    ("powerlaw", 15_000),
    ("sbm20", 10_000),
)
#: The cut lies behind so many frequencies at least, and at most.
LEAST, MOST = 4, 15


def cut_of(L: kl.operators.Operator) -> tuple[int, float]:
    """Return how many frequencies lie below the widest gap, and its middle."""
    lam = kl.subspace(L, MOST + 1, tol=1e-8).ritz_values
    k = int(lam.diff()[LEAST - 1 : MOST].argmax()) + LEAST
    return k, float(lam[k - 1] + lam[k]) / 2


def timed(call: Callable[[], kl.Subspace]) -> tuple[float, kl.Subspace, str]:
    begin = time.process_time()
    found = call()
    status = found.status.name
    return time.process_time() - begin, found, status


def compared(L: kl.operators.Operator, repeats: int) -> dict[str, Any]:
    k, cutoff = cut_of(L)
    calls: dict[str, dict[str, Any]] = {"by k": {"k": k}, "by cutoff": {"cutoff": cutoff}}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    row: dict[str, Any] = {"k": k, "cutoff": cutoff}
    for turn in range(repeats + 1):
        for name, options in calls.items():
            fresh = as_operator(L.to_scipy())  # nothing that the other call has kept
            spent, found, status = timed(partial(kl.subspace, fresh, **options))
            if turn:  # the first compiles
                seconds[name].append(spent)
            row[name] = {
                "kept": int(found.ritz_values.isfinite().sum()),
                "status": status,
                "products": found.products,
                "method": found.method,
                "why": found.why,
                "error_bound": float(found.error_bound),
            }
    for name, measured in seconds.items():
        row[name]["seconds"] = statistics.median(measured)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=None, help="names of graphs")
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    results = {}
    for family, n in GRAPHS:
        if args.only and family not in args.only:
            continue
        L = as_operator(make(family, n, args.seed))
        row = results[f"{family} n={L.n}"] = compared(L, args.repeats)
        direct, cut = row["by k"], row["by cutoff"]
        print(
            f"{family:11s} n={L.n:6d} k={row['k']:2d} {cut['status']} kept {cut['kept']:2d}  products "
            f"{cut['products']} / {direct['products']} = {cut['products'] / max(1, direct['products']):.2f}  seconds "
            f"{cut['seconds']:.3f} / {direct['seconds']:.3f} = {cut['seconds'] / direct['seconds']:.2f}  {cut['why']}",
            flush=True,
        )
    if args.out:
        config = {"threads": args.threads, "repeats": args.repeats, "between": [LEAST, MOST]}
        wall = time.perf_counter() - begin
        record = Record.create("cutoff", config, results, seed=args.seed, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
