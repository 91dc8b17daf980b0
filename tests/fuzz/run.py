"""The fuzzer: mutated files through every reader, and calls with graphs and options of every kind.

    python tests/fuzz/run.py --cases 100000 --seed 0 --out results/fuzz [--workers 2]

Cases come in batches, one file or call after the other in a process of its own, under a limit of memory and of time.
Batch b of a seed is always the same, and one that is in the log is not run again. A record holds the outcomes by
format and function, and each failure with what makes it again: ``--case SEED`` for a file, ``--batch B`` for calls.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

#: Cases of a batch. Of four batches two are of files, one of calls with odd arguments, one of calls with known answers.
BATCH = 500
#: Bytes of addresses beyond what the packages take, seconds that one case may take, and those after which it is killed.
MEMORY, SECONDS, KILLED = 1 << 30, 20, 120
FINE = ("read", "answered", "refused")
Tell = Callable[[str, str, str], None]  # what was run, its outcome, and how to run it again


class TooLong(Exception):
    """A case has used its time."""


def ring(*_: Any) -> None:
    raise TooLong(f"longer than {SECONDS} s")


def files(start: int, count: int, tell: Tell) -> None:
    """Run the files of the seeds from ``start``."""
    from fuzz import files as mutated

    with tempfile.TemporaryDirectory() as folder:
        for seed in range(start, start + count):
            tell("", "", f"--case {seed}")
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            name, outcome = mutated.run(seed, Path(folder))
            signal.setitimer(signal.ITIMER_REAL, 0)
            tell(name, outcome, f"--case {seed}")


def calls(batch: int, count: int, tell: Tell) -> None:
    """Run the calls that hypothesis draws from the batch's number."""
    import hypothesis

    from fuzz import calls as drawn

    odd = batch % 2 == 0
    strategy, judge = (drawn.odd_calls(), drawn.judge_odd) if odd else (drawn.calls(), drawn.judge)

    def one(call: Any) -> None:
        tell("", "", f"--batch {batch}: {call!r}")
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        outcome = judge(call)
        signal.setitimer(signal.ITIMER_REAL, 0)
        tell(f"odd {call[0]}" if odd else call.name.partition(" of ")[0], outcome, f"--batch {batch}: {call!r}")

    settings = hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.seed(batch)(settings(hypothesis.given(strategy)(one)))()


def run_batch(batch: int, count: int = BATCH) -> dict[str, Any]:
    """Run a batch in a forked process, and return its outcomes and failures."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read)
            _inside(batch, count, os.fdopen(write, "w", buffering=1))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    return _watch(child, os.fdopen(read), batch)


def _inside(batch: int, count: int, pipe: Any) -> None:
    import warnings

    warnings.simplefilter("ignore")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, ring)
    work = calls if batch % 4 > 1 else files
    start = batch if work is calls else batch * BATCH
    work(start, count, lambda *line: print(json.dumps(line), file=pipe))


def _watch(child: int, pipe: Any, batch: int) -> dict[str, Any]:
    """Read what a batch tells, and kill it where it stands still."""
    import select

    outcomes: Counter[str] = Counter()
    failures, running = [], ""
    while select.select([pipe], [], [], KILLED)[0]:
        line = pipe.readline()
        if not line:
            break
        name, outcome, again = json.loads(line)
        running = "" if name else again
        if name:
            outcomes[f"{name}: {outcome if outcome in FINE else 'FAILED'}"] += 1
            if outcome not in FINE:
                failures.append({"what": name, "outcome": outcome, "again": again})
    else:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if status:
        outcomes["process: FAILED"] += 1
        failures.append({"what": "process", "outcome": f"ended with status {status}", "again": running})
    return {"batch": batch, "outcomes": dict(outcomes), "failures": failures}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the counts of all batches, and their failures."""
    total: Counter[str] = sum((Counter(row["outcomes"]) for row in rows), Counter())
    failures = [failure for row in rows for failure in row["failures"]]
    return {"cases": sum(total.values()), "failed": len(failures), "outcomes": dict(sorted(total.items()))} | {
        "failures": failures
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="another seed, other cases")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None, help="folder for the record")
    parser.add_argument("--log", type=Path, default=Path("build/fuzz"), help="folder of the batches that were run")
    parser.add_argument("--case", type=int, help="run this file alone, and say what came out")
    parser.add_argument("--batch", type=int, help="run this batch alone")
    args = parser.parse_args()
    import torch

    import krylow.nn  # noqa: F401 - so that the forked processes have it
    from fuzz import calls as _  # noqa: F401
    from fuzz.files import draw, formats, run

    torch.set_num_threads(1)
    formats()
    if args.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(draw(args.case)[1][:2000], *run(args.case, Path(folder)))
        return 0
    if args.batch is not None:
        print(json.dumps(run_batch(args.batch), indent=1))
        return 0
    args.log.mkdir(parents=True, exist_ok=True)
    log = args.log / f"{args.seed}.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    done = {row["batch"]: row for row in map(json.loads, (line for line in lines if line.endswith("}")))}
    first = args.seed * 10**6
    batches = range(first, first + -(-args.cases // BATCH))
    started, begin = datetime.now(UTC), time.perf_counter()
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(args.workers, mp_context=fork) as pool, log.open("a") as out:
        for row in pool.map(run_batch, [batch for batch in batches if batch not in done]):
            done[row["batch"]] = row
            print(json.dumps(row), file=out, flush=True)
            for failure in row["failures"]:
                print(json.dumps(failure), flush=True)
    found = summary([done[batch] for batch in batches])
    print({key: found[key] for key in ("cases", "failed")})
    if args.out:
        from krylow_lab.records import Record

        config = {"seed": args.seed, "cases": args.cases}
        seconds = time.perf_counter() - begin
        record = Record.create("fuzz", config, found, seed=args.seed, started=started, wall_seconds=seconds)
        print(record.write(args.out))
    return int(found["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
