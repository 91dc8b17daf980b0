"""What a proof costs: seconds of `prove=True` beside those of the solve alone.

    python benchmarks/proofs.py [--sizes 20000 100000] [--repeats 3] [--out results/proofs]

Four families of large graphs, k at the widest gap between 10 and 30, `auto` at its defaults with and without a proof,
in turns, in processor seconds on one thread; the seconds of the proof are the difference of medians.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
from typing import Any

import torch

import krylow as kl
from krylow.graph import as_operator
from krylow_lab.large.graphs import FAMILIES, make
from krylow_lab.records import Record

CHOSEN = ("knn2d", "grid", "sbm20", "powerlaw")
LEAST, MOST = 10, 30


def cut_of(matrix: Any) -> int:
    """Return the k at the widest gap, relative to the next eigenvalue."""
    lam = kl.subspace(as_operator(matrix), MOST + 1, tol=1e-6).ritz_values[LEAST - 1 :].double()
    return int((lam.diff() / lam[1:]).argmax()) + LEAST


def priced(matrix: Any, k: int, repeats: int) -> dict[str, Any]:
    """Return the seconds of the solve and of the proof, and what was proved."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    answers: dict[bool, kl.Subspace] = {}
    for turn in range(repeats + 1):
        for prove in seconds:
            L = as_operator(matrix)  # nothing that the other call has kept
            begin = time.process_time()
            answers[prove] = kl.subspace(L, k, prove=prove)
            assert answers[prove].certificate is not None
            if turn:
                seconds[prove].append(time.process_time() - begin)
    solve, both = (statistics.median(seconds[prove]) for prove in (False, True))
    plain, proved = answers[False], answers[True]
    return {
        "k": k,
        "method": plain.method,
        "solve": solve,
        "proof": both - solve,
        "all seconds": {"solve": seconds[False], "with a proof": seconds[True]},
        "without": {"status": plain.status.name, "kind": plain.certificate.kind, "bound": float(plain.error_bound)},
        "with": {"status": proved.status.name, "kind": proved.certificate.kind, "bound": float(proved.error_bound)},
        "why": proved.why.removeprefix(plain.why).removeprefix("; "),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[20_000, 100_000])
    parser.add_argument("--families", nargs="*", default=list(CHOSEN))
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    results = {}
    for n in args.sizes:
        for family in args.families:
            matrix = make(family, n, args.seed)
            row = {"graph": FAMILIES[family].title, "n": matrix.shape[0]}
            row |= priced(matrix, cut_of(matrix), args.repeats)
            results[f"{family} n={n}"] = row
            print(
                f"{family:9s} n={n:6d} k={row['k']:2d} solve {row['solve']:.2f} s, proof {row['proof']:.2f} s", end=" "
            )
            print(row["with"], row["why"], flush=True)
    if args.out:
        config = {"sizes": args.sizes, "families": args.families, "repeats": args.repeats, "threads": 1}
        wall = time.perf_counter() - begin
        record = Record.create("proofs", config, results, seed=args.seed, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
