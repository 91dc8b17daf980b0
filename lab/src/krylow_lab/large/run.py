"""Everything in order: graphs and references, every peer's cheapest setting, the races, the record. Resumable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from krylow._checks import InputError, choice
from krylow_lab.large import reference
from krylow_lab.large.assemble import KIND as LARGE
from krylow_lab.large.assemble import assemble
from krylow_lab.large.graphs import FAMILIES
from krylow_lab.large.race import race
from krylow_lab.large.solvers import OURS, PEERS
from krylow_lab.large.tune import KIND, OUTCLASSED, Case, Limit, cheapest, tune
from krylow_lab.large.worker import Worker, check_packages
from krylow_lab.records import Record, find, lookup

STAGES = ("tune", "race", "all")
Report = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What is measured: which graphs, to which errors, on how many threads (0: all cores), by which solvers.

    Of the peers the ``best`` so many run against ours in a race. On graphs of more than ``large`` nodes no k above
    ``most_k`` is measured: the references take long.
    """

    sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    families: tuple[str, ...] = tuple(FAMILIES)
    tols: tuple[float, ...] = (1e-3, 1e-6)
    threads: tuple[int, ...] = (1, 0)
    repeats: int = 3
    peers: tuple[str, ...] = tuple(PEERS)
    ours: tuple[str, ...] = ("krylow",)
    best: int = 2
    most_k: int = 20
    large: int = 300_000
    limit: Limit = field(default_factory=Limit)
    seed: int = 0

    def check(self) -> None:
        """Raise where something has no meaning or is not installed."""
        for name in self.families:
            choice(name, tuple(FAMILIES), "family")
        for name in self.peers:
            choice(name, tuple(PEERS), "solver")
        for name in self.ours:
            choice(name, tuple(OURS), "solver")
        if not self.sizes or min(self.sizes) < 1000:
            raise InputError(f"n must be at least 1000, got {self.sizes}: smaller graphs are decomposed at once.")
        if not self.tols or not all(0 < tol < 1 for tol in self.tols):
            raise InputError(f"tol must be between 0 and 1, got {self.tols}.")
        check_packages([*self.peers, *self.ours])


def measure(
    out: str | Path, plan: Plan, *, stage: str = "all", former: str | Path | None = None, report: Report | None = None
) -> Record | None:
    """Measure what is missing in ``out``, and return the record of all that is there (None before the first race).

    Graphs with their references go to ``out/graphs``, single measurements to ``out/cells``; what is there is not
    measured again, so that an interrupted run goes on where it was. A ``former`` record, of this machine or another,
    has the settings of peers that were not tuned here, and its races stand where none is run here.
    """
    plan.check()
    known = None if former is None else _former(former)
    choice(stage, STAGES, "stage")
    notify = report or (lambda text: None)
    root = Path(out)
    cells = root / "cells"
    for case, graph in _cases(root, plan, notify):
        if stage != "race":
            _tune_peers(cells, graph, case, plan, notify)
        if stage != "tune":
            for threads in plan.threads:
                with Worker(graph, case.k, threads or os.cpu_count() or 1) as worker:
                    for tol in plan.tols:
                        notify(f"{case} tol={tol:.0e} threads={worker.threads}: race")
                        peers = _best(cells, case, tol, plan, known)
                        race(cells, worker, case, tol, plan.ours, peers, plan.repeats, plan.limit)
    return assemble(root, cells, plan.seed, known)


def _former(path: str | Path) -> Record:
    if not Path(path).is_file():
        raise InputError(f"the former record must be a file that 'krylow bench large' wrote, got {path}: no such file.")
    record = Record.read(path)
    if record.kind != LARGE:
        raise InputError(f"the former record must be one of 'krylow bench large', got one of kind {record.kind!r}.")
    return record


def _cases(root: Path, plan: Plan, notify: Report) -> Iterator[tuple[Case, Path]]:
    for n in sorted(plan.sizes):
        for family in plan.families:
            notify(f"{family} n={n:.0e}: graph and reference")
            most = plan.most_k if n > plan.large else None
            graph, truth = reference.prepare(root / "graphs", family, n, plan.seed, most=most)
            for k in truth.ks:
                yield Case(family, n, k, plan.seed), graph


def _tune_peers(cells: Path, graph: Path, case: Case, plan: Plan, notify: Report) -> None:
    best: dict[float, float] = {}
    smaller = _smaller(cells, case)
    costs = {name: _least_cost(record, max(plan.tols)) for name, record in smaller.items()}
    least = min((cost for name, cost in costs.items() if name != "pygsp"), default=float("inf"))
    # The best on the smaller graph goes first: it decides how long the others may take.
    with Worker(graph, case.k, 1) as worker:
        for name in sorted(plan.peers, key=lambda name: costs.get(name, float("inf"))):
            if costs.get(name, 0.0) <= OUTCLASSED * least:
                notify(f"{case}: {PEERS[name].title}")
                tune(cells, worker, case, name, plan.tols, best, plan.limit, smaller.get(name))


def _least_cost(record: Record, tol: float) -> float:
    """Return a peer's processor time at its cheapest right setting, or the most it took without being right."""
    runs = record.results["runs"]
    found = cheapest(runs, tol)
    if found is not None:
        return found[1]
    cpu_seconds = [run["cpu_seconds"] for run in runs if "cpu_seconds" in run]
    return max(cpu_seconds) if cpu_seconds and "cpu_seconds" in runs[-1] else float("inf")


def _smaller(cells: Path, case: Case) -> dict[str, Record]:
    """Return the peers' records on the next smaller graph of the family, at the k nearest to the case's."""
    found = [record for record in find(cells, kind=KIND) if record.config["family"] == case.family]
    found = [record for record in found if record.config["n"] < case.n]
    if not found:
        return {}
    n = max(record.config["n"] for record in found)
    k = min({record.config["k"] for record in found if record.config["n"] == n}, key=lambda k: abs(k - case.k))
    return {record.config["solver"]: record for record in found if (record.config["n"], record.config["k"]) == (n, k)}


def _best(cells: Path, case: Case, tol: float, plan: Plan, former: Record | None) -> dict[str, float]:
    """Return the peers to race with and their settings: the cheapest here, in a former record, or on a smaller graph.

    A former race is more reliable than the tuning before it, after which a peer may have climbed.
    """
    here = {
        name: record
        for name in plan.peers
        if (record := lookup(cells, KIND, {**case.config, "solver": name, "threads": 1}, case.seed)) is not None
    }
    costs = {} if here or former is None else _former_costs(former, case, tol)
    if not costs:
        records = here or _smaller(cells, case)
        found = {name: cheapest(record.results["runs"], tol) for name, record in records.items()}
        costs = {name: cost for name, cost in found.items() if cost is not None}
    ranked = sorted((cost, name, setting) for name, (setting, cost) in costs.items() if name in plan.peers)
    return {name: setting for _, name, setting in [peer for peer in ranked if peer[1] != "pygsp"][: plan.best]}


def _former_costs(former: Record, case: Case, tol: float) -> dict[str, tuple[float, float]]:
    """Return setting and processor time of peers that a former record has on this graph, or on the next smaller one.

    A race may have been run on a slower machine than the tuning, and by few peers: its times are set against those of
    the peers that only were tuned by how much longer a peer took that was both.
    """
    rows, tuned = ([e for e in former.results[key] if e["family"] == case.family] for key in ("rows", "peers"))
    sizes = {(entry["n"], entry["k"]) for entry in (*rows, *tuned) if entry["n"] <= case.n}
    for size in sorted(sizes, key=lambda size: (-size[0], abs(size[1] - case.k))):
        there = [entry for entry in tuned if (entry["n"], entry["k"]) == size]
        climbed = {entry["solver"]: run for entry in there if (run := entry["cheapest"].get(f"{tol:.0e}")) is not None}
        raced: dict[str, Any] = {}
        for row in rows:
            if ((row["n"], row["k"]), row["tol"], row["threads"]) == (size, tol, 1):
                raced |= {name: run for name, run in row["solvers"].items() if name in PEERS and run.get("right")}
        longer = min(
            (raced[name]["cpu_seconds"] / climbed[name]["cpu_seconds"] for name in raced.keys() & climbed.keys()),
            default=1.0,
        )
        costs = {name: (run["setting"], run["cpu_seconds"]) for name, run in climbed.items()}
        costs |= {name: (run["setting"], run["cpu_seconds"] / longer) for name, run in raced.items()}
        if costs:
            return costs
    return {}
