"""Ours and the best peers in turns: the same graph, accuracy and threads, in one process, medians of the repeats.

The peers run at the settings that :mod:`~krylow_lab.large.tune` found; every repeat has a seed of its own,
which no tuning has seen. Where a peer is wrong with one of these, it climbs its ladder by one rung, and all race again.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from krylow_lab.large.solvers import OURS, SOLVERS
from krylow_lab.large.tune import Case, Limit
from krylow_lab.large.worker import OverLimitError, Worker
from krylow_lab.records import Record, lookup

KIND = "large-race"
#: Seeds of the repeats begin here.
FIRST_SEED = 100


def race(
    folder: Path,
    worker: Worker,
    case: Case,
    tol: float,
    ours: Sequence[str],
    peers: dict[str, float],
    repeats: int,
    limit: Limit,
) -> Record:
    """Return the record of one race, found in ``folder`` or run now.

    ``peers`` has the setting at which each begins; one whose call takes longer than the limit does not run again.
    """
    config = {**case.config, "tol": tol, "threads": worker.threads, "repeats": repeats, "ours": list(ours)}
    record = lookup(folder, KIND, config, case.seed)
    if record is not None:
        return record
    started, begin, load = datetime.now(UTC), time.perf_counter(), os.getloadavg()[0]
    settings, wrong = dict(peers), []
    while True:
        runs = _turns(worker, {**dict.fromkeys(ours, tol), **settings}, tol, repeats, limit)
        climbing = {name: rung for name in settings if (rung := _next_rung(name, runs[name], tol)) is not None}
        if not climbing:
            break
        wrong += [{"solver": name, **run} for name in climbing for run in runs[name] if run["error"] > tol]
        settings |= climbing
    results = {"load": round(load, 2), "load_after": round(os.getloadavg()[0], 2), "solvers": runs, "wrong": wrong}
    wall = time.perf_counter() - begin
    record = Record.create(KIND, config, results, seed=case.seed, started=started, wall_seconds=wall)
    record.write(folder)
    return record


def _next_rung(name: str, runs: Sequence[dict[str, Any]], tol: float) -> float | None:
    """Return the next setting of a peer that was wrong; None: it was right, failed otherwise, or has no further one."""
    ladder = SOLVERS[name].ladder
    if not all("error" in run for run in runs) or all(run["error"] <= tol for run in runs):
        return None
    rung = ladder.index(runs[0]["setting"]) + 1
    return ladder[rung] if rung < len(ladder) else None


def _turns(
    worker: Worker, settings: dict[str, float], tol: float, repeats: int, limit: Limit
) -> dict[str, list[dict[str, Any]]]:
    """Return the runs of all solvers, which take turns."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in settings}
    fastest: float | None = None
    for repeat in range(repeats):
        for name, setting in settings.items():
            if any("more_than" in run for run in runs[name]):
                continue
            allowed = limit.after(fastest)
            try:
                run = worker.run(name, setting, FIRST_SEED + repeat, allowed)
            except OverLimitError:
                run = {"more_than": allowed}
            runs[name].append({"setting": setting, **run})
            if run.get("error", 1.0) <= tol and name not in OURS:
                fastest = min(run["cpu_seconds"], fastest or run["cpu_seconds"])
    return runs


def clock(threads: int) -> str:
    """Return which time counts: the processor's on one thread, which other work on the machine hardly changes."""
    return "cpu_seconds" if threads == 1 else "seconds"


def summary(runs: Sequence[dict[str, Any]], tol: float, time: str) -> dict[str, Any]:
    """Return a solver's medians, the spread of the ``time`` that counts, its largest error, and if it was right."""
    over = [run["more_than"] for run in runs if "more_than" in run]
    done = [run for run in runs if "error" in run]
    if over or not done:
        failed = next((run["failed"] for run in runs if "failed" in run), None)
        return {"more_than": max(over)} if over else {"failed": failed}
    found: dict[str, Any] = {
        key: round(statistics.median(run[key] for run in done), 4) for key in ("seconds", "cpu_seconds", "peak_mib")
    }
    found |= {
        "spread": [round(pick(run[time] for run in done), 4) for pick in (min, max)],
        "error": max(run["error"] for run in done),
        "right": len(done) == len(runs) and all(run["error"] <= tol for run in done),
        "raised": [run["failed"] for run in runs if "error" not in run],
        "setting": done[0]["setting"],
    }
    if "status" in done[0]:
        found |= {
            "certificate_seconds": round(statistics.median(run["certificate_seconds"] for run in done), 4),
            "status": sorted({run["status"] for run in done}),
            "method": done[0]["method"],
            "passes": done[0]["passes"],
            "false_claims": sum(run["success"] and run["error"] > 10 * tol for run in done),
        }
    return found
