"""From single measurements to the one record that tables and pictures are made from."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from krylow_lab.large import race, tune
from krylow_lab.large.graphs import FAMILIES
from krylow_lab.large.solvers import LADDER, OURS
from krylow_lab.records import Record, find

KIND = "large"


def assemble(out: Path, cells: Path, seed: int, former: Record | None = None) -> Record | None:
    """Write the record of all races and tunings in ``cells`` to ``out`` and return it, or None without a race.

    What was not measured there is taken from a ``former`` record; every race says its commit.
    """
    races, tunings = find(cells, kind=race.KIND, seed=seed), find(cells, kind=tune.KIND, seed=seed)
    if not races:
        return None
    rows = [_row(record) for record in races]
    peers = [_tuned(record, sorted({row["tol"] for row in rows}, reverse=True)) for record in tunings]
    if former is not None:
        rows = _completed(rows, former.results["rows"], ("family", "n", "k", "tol", "threads"))
        peers = _completed(peers, former.results["peers"], ("family", "n", "k", "solver"))
    rows.sort(key=lambda r: (list(FAMILIES).index(r["family"]), r["n"], r["k"], -r["tol"], r["threads"]))
    results = {
        "rows": rows,
        "growth": growth(rows),
        "peers": peers,
        "false claims of krylow": sum(
            found.get("false_claims", 0) for row in rows for found in row["solvers"].values()
        ),
    }
    config = {
        "families": sorted({row["family"] for row in rows}),
        "n": sorted({row["n"] for row in rows}),
        "tol": sorted({row["tol"] for row in rows}),
        "threads": sorted({row["threads"] for row in rows}),
        "ladder": list(LADDER),
    }
    started = min(datetime.fromisoformat(record.started) for record in races).astimezone(UTC)
    wall = sum(record.wall_seconds for record in [*races, *tunings])
    record = Record.create(KIND, config, results, seed=seed, started=started, wall_seconds=wall)
    record.write(out)
    return record


def _completed(here: list[dict[str, Any]], former: list[dict[str, Any]], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return entries, and those former ones that none of them measured again."""
    known = {tuple(entry[key] for key in keys) for entry in here}
    return [*here, *(entry for entry in former if tuple(entry[key] for key in keys) not in known)]


def _row(record: Record) -> dict[str, Any]:
    """Return one race: each solver's medians, and the best peer's time over ours."""
    config, tol = record.config, record.config["tol"]
    time = race.clock(config["threads"])
    solvers = {name: race.summary(runs, tol, time) for name, runs in record.results["solvers"].items()}
    peers = {name: found[time] for name, found in solvers.items() if name not in OURS and found.get("right") is True}
    best = min(peers, key=lambda name: peers[name]) if peers else None
    ours = solvers.get("krylow", {})
    ratio = None if best is None or time not in ours else round(peers[best] / ours[time], 3)
    row = {key: config[key] for key in ("family", "n", "k", "tol", "threads", "repeats")}
    load = {key: record.results[key] for key in ("load", "load_after")}
    wrong = [
        {key: run[key] for key in ("solver", "setting", "error", "success")} for run in record.results.get("wrong", [])
    ]
    found = {"solvers": solvers, "best_peer": best, "ratio": ratio, "wrong": wrong, "commit": record.commit}
    return {**row, **load, **found}


def growth(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return, for each family near k = 10 and near k = 50 on one thread, our seconds a node over those at the least n.

    Within a family edges grow as nodes do, so that seconds a node and seconds an edge grow alike.
    """
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        ours = row["solvers"].get("krylow", {})
        if row["threads"] == 1 and "cpu_seconds" in ours:
            window = next(i for i, (low, high) in enumerate(FAMILIES[row["family"]].windows) if low <= row["k"] <= high)
            name = f"{row['family']} {window} tol={row['tol']:.0e}"
            found.setdefault(name, {})[str(row["n"])] = ours["cpu_seconds"] / row["n"]
    return {
        name: {n: round(cost / costs[min(costs, key=int)], 3) for n, cost in costs.items()}
        for name, costs in found.items()
        if len(costs) > 1
    }


def _tuned(record: Record, tols: list[float]) -> dict[str, Any]:
    """Return what one peer needed on one case, and how often it claimed success wrongly."""
    runs = record.results["runs"]
    silent, claimed = tune.silent_failures(runs) if record.config["solver"] != "pygsp" else (0, 0)
    cheapest = {f"{tol:.0e}": tune.cheapest(runs, tol) for tol in tols}
    last = runs[-1] if runs else {}
    return {
        **{key: record.config[key] for key in ("family", "n", "k", "solver")},
        "cheapest": {
            tol: None if found is None else {"setting": found[0], "cpu_seconds": round(found[1], 4)}
            for tol, found in cheapest.items()
        },
        "silent_failures": silent,
        "claims": claimed,
        "least_error": min((run["error"] for run in runs if "error" in run), default=None),
        "left": _left(last, all(found is not None for found in cheapest.values())),
    }


def _left(last: dict[str, Any], done: bool) -> str | None:
    """Return why a peer was given up before it was right, or None."""
    if done:
        return None
    if "more_than" in last:
        return f"more than {last['more_than']:.0f} s"
    if "failed" in last:
        return str(last["failed"])
    return "too slow" if last else "not run"
