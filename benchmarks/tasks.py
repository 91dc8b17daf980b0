"""Ten tasks of every day, with krylow and with the usual tool: lines of code, seconds, accuracy.

    OMP_NUM_THREADS=1 KRYLOW_DATA=... python benchmarks/tasks.py [--only NAME ...] [--out results/tasks]

Seconds of the processor on one thread, medians of the repeats after one run to warm up, the two taking turns; from the
same input on, Laplacian and conversion included. Lines are those of the function bodies in `task_list.py`. The memory
of the large graph is the growth of the process's peak, each in a process of its own.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import inspect
import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from task_list import TASKS, Task
from timing import interleaved

from krylow_lab.records import Record

#: Packages of the usual tools.
PEERS = ("scipy", "scikit-learn", "torch-geometric", "PyGSP", "pymetis")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="words of the names of tasks")
    parser.add_argument("--peak", nargs=2, metavar=("TASK", "WHO"), help=argparse.SUPPRESS)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.peak:
        print(json.dumps(peak(next(task for task in TASKS if task.name == args.peak[0]), args.peak[1])))
        return
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    chosen = [task for task in TASKS if not args.only or any(word in task.name for word in args.only)]
    results = {}
    for task in chosen:
        results[task.name] = found = measured(task)
        mark = "" if found["right"] and found["ratio"] >= 1 else "   <-- look"
        print(f"{task.name}: {json.dumps(found)}{mark}", flush=True)
    if args.out:
        config = {"tasks": [task.name for task in chosen], "threads": 1, "peers": {p: version(p) for p in PEERS}}
        wall = time.perf_counter() - begin
        print(Record.create("tasks", config, results, seed=0, started=started, wall_seconds=wall).write(args.out))


def measured(task: Task) -> dict[str, Any]:
    """Return everything that the table shows of one task."""
    given = task.given()
    jobs = {"usual": lambda: task.usual(given), "krylow": lambda: task.krylow(given)}
    slow = 0.0 if task.repeats == 1 else 60.0
    seconds, answers = interleaved(jobs, repeats=task.repeats, slow=slow, clock=time.process_time)
    what, theirs, ours, right = task.judge(given, answers["usual"], answers["krylow"])
    found = {
        "tool": task.tool,
        "lines usual": lines(task.usual),
        "lines krylow": lines(task.krylow),
        "seconds usual": seconds["usual"],
        "seconds krylow": seconds["krylow"],
        "ratio": seconds["usual"] / seconds["krylow"],
        "accuracy": what,
        "usual": theirs,
        "krylow": ours,
        "right": right,
    }
    if task.repeats == 1:
        for who in ("usual", "krylow"):
            command = [sys.executable, __file__, "--peak", task.name, who]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[f"MiB {who}"] = json.loads(done.stdout)
    return found


def peak(task: Task, who: str) -> float:
    """Return by how many MiB the peak of the process grows."""
    given = task.given()
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten: Linux only
    before = _memory("VmRSS")
    getattr(task, who)(given)
    return _memory("VmHWM") - before


def _memory(name: str) -> float:
    """Return a size of this process as Linux counts it, in MiB."""
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith(f"{name}:")).split()[1]) / 1024


def lines(function: Callable[..., Any]) -> int:
    """Return how many lines the body of a function takes, without what unpacks its input."""
    text = textwrap.dedent(inspect.getsource(function))
    body = ast.parse(text).body[0].body  # type: ignore[attr-defined]
    unpacking = [part for part in body if isinstance(part, ast.Assign) and ast.unparse(part.value) == "given"]
    return sum((part.end_lineno or 0) - part.lineno + 1 for part in body if part not in unpacking)


if __name__ == "__main__":
    main()
