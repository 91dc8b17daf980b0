"""Each peer at its cheapest setting that is right: it climbs a ladder of accuracies until three runs of three are.

The same runs serve all errors asked for. Processor time decides, not the clock, so that other work on the machine does
not choose the settings. A peer is given up when a run takes longer than its limit (it is recorded as "more than"
that), and when a run, still too loose, is already several times dearer than the best peer's right answer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from krylow_lab.large.solvers import SOLVERS
from krylow_lab.large.worker import OverLimitError, Worker
from krylow_lab.records import Record, lookup

KIND = "large-tune"
#: Runs that all must be right.
RUNS = 3
#: A run this many times dearer than the best peer's right answer ends the climb.
HOPELESS = 4.0
#: A peer this many times dearer than the best on the next smaller graph is not asked again.
OUTCLASSED = 10.0
#: Reported success, with an error this many times what the tolerance implies, is a silent failure.
SILENT = 10.0


@dataclass(frozen=True)
class Case:
    """A graph and a number of frequencies."""

    family: str
    n: int
    k: int
    seed: int = 0

    @property
    def config(self) -> dict[str, Any]:
        """The case as plain values."""
        return {"family": self.family, "n": self.n, "k": self.k}

    def __str__(self) -> str:
        return f"{self.family} n={self.n:.0e} k={self.k}"


@dataclass(frozen=True)
class Limit:
    """How long a call may take: ``factor`` times the best so far, plus ``seconds``."""

    factor: float = 10.0
    seconds: float = 60.0

    def after(self, best: float | None) -> float:
        """Return the limit when the best so far took so long."""
        return self.seconds if best is None else self.factor * best + self.seconds


def cheapest(runs: Sequence[dict[str, Any]], tol: float) -> tuple[float, float] | None:
    """Return the setting with the least median processor time whose runs were all right, and that time."""
    found: tuple[float, float] | None = None
    for setting in dict.fromkeys(run["setting"] for run in runs):
        those = [run for run in runs if run["setting"] == setting]
        if len(those) >= RUNS and all(run.get("error", 1.0) <= tol for run in those):
            cost = statistics.median(run["cpu_seconds"] for run in those)
            if found is None or cost < found[1]:
                found = setting, cost
    return found


def silent_failures(runs: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Return how many runs that reported success were far worse than their tolerance implies, of how many."""
    claimed = [run for run in runs if run.get("success") and run["setting"] < 1]  # looser ones imply nothing
    return sum(run["error"] > SILENT * run["setting"] ** 2 for run in claimed), len(claimed)


def tune(
    folder: Path,
    worker: Worker,
    case: Case,
    solver: str,
    tols: Sequence[float],
    best: dict[float, float],
    limit: Limit,
    smaller: Record | None,
) -> Record:
    """Return the record of a peer's climb on one case, found in ``folder`` or measured now.

    ``best`` is the least processor time of any peer for each error so far, and is brought up to date; ``smaller`` the
    same peer's record on the next smaller graph, from whose setting it begins.
    """
    config = {**case.config, "solver": solver, "threads": worker.threads}
    record = lookup(folder, KIND, config, case.seed)
    if record is None:
        started, begin = datetime.now(UTC), time.perf_counter()
        runs = _climb(worker, solver, tols, best, limit, _first_rung(solver, smaller, max(tols)))
        wall = time.perf_counter() - begin
        record = Record.create(KIND, config, {"runs": runs}, seed=case.seed, started=started, wall_seconds=wall)
        record.write(folder)
    if solver != "pygsp":  # its error is another one: of a filtered block, not of a basis
        for tol in tols:
            found = cheapest(record.results["runs"], tol)
            if found is not None:
                best[tol] = min(found[1], best.get(tol, found[1]))
    return record


def _first_rung(solver: str, smaller: Record | None, tol: float) -> int:
    """Return where to begin: one rung below the one that served on the next smaller graph."""
    found = None if smaller is None else cheapest(smaller.results["runs"], tol)
    return 0 if found is None else max(0, SOLVERS[solver].ladder.index(found[0]) - 1)


def _climb(
    worker: Worker, solver: str, tols: Sequence[float], best: dict[float, float], limit: Limit, first: int
) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = []
    longest = max(best.values(), default=None)
    for setting in SOLVERS[solver].ladder[first:]:
        open_tols = [tol for tol in tols if cheapest(runs, tol) is None]
        if not open_tols:
            break
        for seed in range(RUNS):
            what = {"setting": setting, "seed": seed}
            try:
                run = {**what, **worker.run(solver, setting, seed, limit.after(longest))}
            except OverLimitError:
                return [*runs, {**what, "more_than": limit.after(longest)}]
            runs.append(run)
            if "failed" in run and "error" not in run:
                return runs
            if longest is not None and run["cpu_seconds"] > HOPELESS * longest:
                return runs
            if run["error"] > max(open_tols):
                break
    return runs
