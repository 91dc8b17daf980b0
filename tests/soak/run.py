"""The soak: random graphs, questions and methods against LAPACK, for as long as it is told; it goes on where it was.

    make soak SECONDS=3600
    python tests/soak/run.py --seconds 3600 --seed 0 --out results/soak [--workers 2]

Each case follows from one number. A record holds the counts of all outcomes by family and method, and every failure
with its number: ``python tests/soak/run.py --case 1234`` runs that one again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import count, takewhile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from soak.case import draw, run
from soak.watchdog import watched

#: Wrong, whatever else: these end `make soak` with an error.
HARD = (
    "crash",
    "hang",
    "exception",
    "not finite",
    "not orthonormal",
    "columns missing",
    "false claim",
    "proved bound violated",
    "converged at a tie",
    "refused by auto",
)
#: Estimates are allowed to be off now and then; how often is what the record is for.
SOFT = ("above tol", "above bound", "gap not seen")
#: A solve is listed as slow that took as many processor seconds, and times as long as its truth.
SLOW, BESIDE_TRUTH = 10.0, 5.0


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return counts by outcome, family and method, and every row that is not in order."""
    table: dict[str, dict[str, Counter[str]]] = {"family": {}, "method": {}}
    for row in rows:
        for key, name in (("family", row["family"]), ("method", row.get("method used", row["method"]))):
            table[key].setdefault(name, Counter())[row["outcome"]] += 1
    slow = [row for row in rows if row.get("seconds", 0) > max(SLOW, BESIDE_TRUTH * row.get("truth seconds", 0))]
    refused = Counter(f"{row['method']}: {row['why']}"[:80] for row in rows if row["outcome"] == "refused")
    return {
        "cases": len(rows),
        "outcomes": dict(Counter(row["outcome"] for row in rows)),
        "converged": sum(row.get("status") == "CONVERGED" for row in rows),
        "by": {key: {name: dict(counts) for name, counts in sorted(rows_.items())} for key, rows_ in table.items()},
        "failures": [row for row in rows if row["outcome"] in HARD + SOFT],
        "refused": dict(refused.most_common()),
        "slow": slow,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0, help="the first case; a run goes on from what its log holds")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None, help="folder for the record")
    parser.add_argument("--log", type=Path, default=Path("build/soak"), help="folder of the cases that were run")
    parser.add_argument("--case", type=int, nargs="*", help="run these cases alone and print all that is known of them")
    args = parser.parse_args()
    if args.case:
        for seed in args.case:
            print(json.dumps(run(seed), indent=1))
        return 0
    args.log.mkdir(parents=True, exist_ok=True)
    log = args.log / f"{args.seed}.jsonl"
    whole = [line for line in (log.read_text().splitlines() if log.exists() else []) if line.endswith("}")]
    log.write_text("".join(line + "\n" for line in whole))  # without a line that was cut short
    rows = [json.loads(line) for line in whole]
    done = {row["seed"] for row in rows}
    started, begin = datetime.now(UTC), time.perf_counter()
    following = takewhile(
        lambda _: time.perf_counter() - begin < args.seconds, (seed for seed in count(args.seed) if seed not in done)
    )
    with log.open("a") as out:
        for row in watched(run, following, args.workers):
            rows.append(asdict(draw(row["seed"])) | row)
            print(json.dumps(rows[-1]), file=out, flush=True)
            if row["outcome"] in HARD:
                print(row["outcome"], json.dumps(rows[-1]), flush=True)
    found = summary(rows)
    print(json.dumps(found["outcomes"]))
    if args.out:
        from krylow_lab.records import Record

        config = {"seed": args.seed, "cases": len(rows)}
        seconds = time.perf_counter() - begin
        print(
            Record.create("soak", config, found, seed=args.seed, started=started, wall_seconds=seconds).write(args.out)
        )
    return int(any(row["outcome"] in HARD for row in rows))


if __name__ == "__main__":
    sys.exit(main())
