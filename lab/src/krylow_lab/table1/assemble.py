"""From trained cells to one column of the table: choose on validation, measure the classical rows, write a record."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from krylow._checks import InputError
from krylow.krylov.ritz import ritz
from krylow.metrics import subspace_error
from krylow.nn.probes import InversePolynomialProbe
from krylow.nn.unrolled import UnrolledLanczos
from krylow_lab.records import Record, find
from krylow_lab.table1 import classical
from krylow_lab.table1.learned import KIND as CELL
from krylow_lab.table1.learned import digits, load_task, probe_of
from krylow_lab.table1.plan import BUDGETS, FORMS, GRIDS, Grid
from krylow_lab.training.spectra import Task

KIND = "table1"
#: A filter counts as solved when one more Krylov vector changes the mean error by less than this.
CONVERGED = 1e-3
BINS = 60


def assemble(folder: str | Path, cells: str | Path, data: str, k: int, seeds: Sequence[int], grid: Grid) -> Record:
    """Choose among the cells that exist, measure the rest, and write the record of one column into ``folder``."""
    started, clock = datetime.now(UTC), time.perf_counter()
    found = find(cells, kind=CELL, data=data, k=k, grid=grid.name, seeds=list(seeds))
    if not found:
        raise InputError(f"{cells} holds no trained cells of {data!r}, k = {k}, grid {grid.name!r}: train them first.")
    task = load_task(data, tuple(seeds), dense=True)
    rows = [_row("2", "standard Lanczos, random start", classical.standard(task, k))]
    rows += _learned(found, task) + _learned_steps(found, task, grid)
    literal = [row["products"] for row in rows if row["row"] == "6" and row.get("form") == "literal"]
    budgets = [multiple * k for multiple in BUDGETS] + [min(p) for p in literal]
    for products in budgets:
        rows.append(_row("9", "thick-restart Lanczos", classical.restarted(task, k, products), products))
        rows.append(_row("10", "Chebyshev-filtered block", classical.filtered(task, k, products), products))
        rows.append(_row("11", "Lanczos, a vector a product", classical.floor(task, k, products), products))
    rows.sort(key=lambda row: int(row["row"]))
    results = {
        "rows": rows,
        "paired": _paired(rows),
        "combinations": _combinations(found, grid),
        "scan": _scan(found, len(task.seeds)),
        "cells": len(found),
        "training_seconds": round(sum(record.wall_seconds for record in found), 1),
        "spectrum": _spectrum(task, k),
    }
    config = {"data": data, "k": k, "seeds": list(seeds), "grid": grid.name}
    record = Record.create(KIND, config, results, seed=None, started=started, wall_seconds=time.perf_counter() - clock)
    record.write(folder)
    return record


def _learned(cells: Sequence[Record], task: Task) -> list[dict[str, Any]]:
    """Return the trained rows, each seed's member chosen on its own validation graphs."""
    rows = []
    for form in FORMS:
        probes = [c for c in cells if c.config["net"] == "probe" and c.config["form"] == form]
        members = _members(probes, "probe")
        rows.append(_chosen("3", f"untrained probe, {form}", members, task, untrained=True, form=form))
        for loss, number in (("subspace", "7"), ("theory", "6")):
            part = [c for c in probes if c.config["loss"] == loss]
            rows.append(_chosen("4", f"learned probe ({loss}), {form}", _members(part, "probe"), task, form=form))
            rows.append(_chosen(number, f"full network ({loss}), {form}", _members(part, "all"), task, form=form))
    for loss in ("subspace", "theory"):
        part = [c for c in cells if c.config["net"] == "gammas" and c.config["loss"] == loss]
        rows.append(_chosen("5", f"gammas only ({loss})", _members(part, "all"), task))
    for budget in sorted({c.config["products"] for c in cells if c.config["net"] == "roots"}):
        part = [c for c in cells if c.config["net"] == "roots" and c.config["products"] == budget]
        members = _members(part, "probe")
        rows.append(_chosen("12", "root probe", members, task, budget=budget))
        name = "root probe, untrained (Chebyshev roots)"
        rows.append(_chosen("12", name, members, task, budget=budget, untrained=True))
    return [row for row in rows if row is not None]


def _learned_steps(cells: Iterable[Record], task: Task, grid: Grid) -> list[dict[str, Any]]:
    """Return the rows of the probe with learned steps: untrained, at the paper's learning rates, and at all of them."""
    part = [c for c in cells if c.config["net"] == "learned_cg"]
    every, paper = _members(part, "all"), _members(part, "all", grid.lrs)
    found = [
        _chosen("13", "learned steps, untrained", every, task, untrained=True),
        _chosen("13", "learned steps (theory), the paper's learning rates", paper, task),
        _chosen("13", f"learned steps (theory), learning rates to {max(grid.learned_lrs):g}", every, task),
    ]
    return [row for row in found if row is not None]


Member = tuple[dict[str, Any], Record]


def _members(cells: Iterable[Record], trains: str, lrs: Sequence[float] | None = None) -> list[Member]:
    """Return the members of some cells that train these parameters, at these learning rates, each with its cell."""
    found = ((m, cell) for cell in cells for m in cell.results["members"] if m["trains"] == trains)
    return [(m, cell) for m, cell in found if lrs is None or m["lr"] in lrs]


def _chosen(
    number: str,
    name: str,
    members: Sequence[Member],
    task: Task,
    *,
    untrained: bool = False,
    form: str | None = None,
    budget: int | None = None,
) -> dict[str, Any] | None:
    """Return a row of each seed's best member on validation, or None where nothing of the kind was trained."""
    key = "untrained_validation" if untrained else "validation"
    best = []
    for origin in range(len(task.seeds)):
        own = [(m, cell) for m, cell in members if m["origin"] == origin]
        if not own:
            return None
        best.append(min(own, key=lambda pair: pair[0][key]))
    prefix = "untrained_" if untrained else ""
    measured = {
        "errors": torch.tensor([m[f"{prefix}test"] for m, _ in best], dtype=torch.float64),
        "ceiling": torch.tensor([m[f"{prefix}ceiling"] for m, _ in best]),
        "products": [_products(m, cell, task, untrained) for m, cell in best],
        "vectors": 2 * int(best[0][1].config["k"]),
        "settings": [_settings(m, cell, key) for m, cell in best],
    }
    row = _row(number, name, measured, budget)
    if form is not None:
        row["form"] = form
    if form == "scaled":  # what truncation does there: the literal iteration (0) against the solved one
        pairs = [[_solved_error(m, cell, task, steps, untrained) for steps in (0, task.n)] for m, cell in best]
        row["truncation"] = max(abs(cut - solved) for cut, solved in pairs)
    if not untrained:
        row["parameters"] = [m["parameters"] for m, _ in best]
        first = best[0][0]  # one seed's curves are enough for a picture
        row["curves"] = {"train": first["train_curve"], "validation": first["validation_curve"]}
    return row


def _settings(member: dict[str, Any], cell: Record, key: str) -> dict[str, Any]:
    names = ("power", "cg_steps", "degree", "loss")
    chosen = {name: cell.config[name] for name in names if name in cell.config}
    chosen |= {name: member[name] for name in ("lr", "weight", "interval", "best_epoch") if name in member}
    return {**chosen, "validation": member[key]}


def _products(member: dict[str, Any], cell: Record, task: Task, untrained: bool) -> int:
    """Return what a member spends on a graph; a converged filter is charged what its Krylov sequence needs."""
    if cell.config.get("form") != "converged":
        return int(cell.products or 0)
    solved = _solved_error(member, cell, task, task.n, untrained)
    steps = task.n
    while steps > 5 and abs(_solved_error(member, cell, task, steps - 5, untrained) - solved) < CONVERGED:
        steps -= 5
    return steps + 2 * int(cell.config["k"])


def _solved_error(member: dict[str, Any], cell: Record, task: Task, steps: int, untrained: bool = False) -> float:
    """Return a member's mean test error, one draw a graph, with its filter solved in a Krylov space of ``steps``."""
    config, origin = cell.config, member["origin"]
    spectra = task.test[origin]
    z = spectra.rotate(task.draw("test", 1)[0, origin])
    probe = probe_of(config, task.n)
    assert isinstance(probe, InversePolynomialProbe)
    net = UnrolledLanczos(config["k"], 2 * config["k"], probe, init=0.0, literal=True).double()
    if not untrained:
        net.load_state_dict({name: torch.tensor(p, dtype=torch.float64) for name, p in member["parameters"].items()})
    if steps:
        probe.solver, probe.cg_steps = "krylov", steps
    with torch.no_grad():
        basis = ritz(net.krylov(spectra.operator(), z=z), net.k)[1]
    return float(subspace_error(basis, spectra.target(net.k).expand(*basis.shape)).mean())


def _row(number: str, name: str, measured: dict[str, Any], budget: int | None = None) -> dict[str, Any]:
    errors: Tensor = measured["errors"]  # (S, graphs)
    seeds = errors.mean(-1)
    products = measured["products"]
    row: dict[str, Any] = {
        "row": number,
        "name": name,
        "mean": digits(seeds.mean()),
        "std": digits(seeds.std()) if len(seeds) > 1 else 0.0,
        "products": products if isinstance(products, list) else [products] * len(seeds),
        "vectors": measured["vectors"],
        "errors": digits(errors, 4),
    }
    if budget is not None:
        row["budget"] = budget
    if "ceiling" in measured:
        row["ceiling"] = digits(measured["ceiling"].mean())
    if "settings" in measured:
        row["settings"] = measured["settings"]
    return row


def _paired(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare the root probe with thick restart at equal products, graph by graph."""
    pairs = []
    for ours in (row for row in rows if row["row"] == "12" and "parameters" in row):
        theirs = next(row for row in rows if row["row"] == "9" and row.get("budget") == ours["budget"])
        difference = (torch.tensor(ours["errors"]) - torch.tensor(theirs["errors"])).flatten().tolist()
        spread = statistics.stdev(difference) / len(difference) ** 0.5
        pairs.append(
            {
                "budget": ours["budget"],
                "difference": float(f"{statistics.mean(difference):.4g}"),
                "half_width_95": float(f"{1.96 * spread:.4g}"),
                "graphs": len(difference),
            }
        )
    return pairs


def _combinations(cells: Sequence[Record], grid: Grid) -> dict[str, list[int]]:
    """Return for each form how many settings of the probe were trained, and how many the grid has."""
    counts = {}
    for form in FORMS:
        done = {
            (c.config["power"], c.config["cg_steps"], c.config["degree"], c.config["loss"])
            for c in cells
            if c.config["net"] == "probe" and c.config["form"] == form
        }
        counts[form] = [len(done) // 2, len(GRIDS[grid.name].probes[form])]
    return counts


def _scan(cells: Sequence[Record], seeds: int) -> list[dict[str, Any]]:
    """Return for each setting of the probe its mean test errors: untrained, and of the full networks.

    Of the networks that were trained with a setting, each seed's is the one that is best on its validation graphs.
    """
    names = ("form", "power", "cg_steps", "degree")
    settings: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for cell in cells:
        if cell.config["net"] == "probe":
            settings.setdefault(tuple(cell.config[name] for name in names), []).extend(cell.results["members"])
    scan = []
    for setting, members in sorted(settings.items()):
        untrained, trained = [], []
        for origin in range(seeds):
            own = [m for m in members if m["origin"] == origin]
            untrained.append(next(statistics.fmean(m["untrained_test"]) for m in own if m["trains"] == "probe"))
            best = min((m for m in own if m["trains"] == "all"), key=lambda m: m["validation"])
            trained.append(statistics.fmean(best["test"]))
        errors = {"untrained": statistics.fmean(untrained), "trained": statistics.fmean(trained)}
        scan.append(
            dict(zip(names, setting, strict=True)) | {key: float(f"{error:.4g}") for key, error in errors.items()}
        )
    return scan


def _spectrum(task: Task, k: int) -> dict[str, Any]:
    """Return what the pictures need of the family: one test graph's spectrum, and the histogram of all."""
    lam = task.test.eigenvalues  # (S, graphs, n)
    edges = torch.linspace(0, float(lam.max()), BINS + 1, dtype=torch.float64)
    counts = torch.histogram(lam.flatten(), edges).hist
    return {
        "graph": digits(lam[0, 0]),
        "edges": digits(edges, 5),
        "counts": digits(counts),
        "mean_degree": digits(lam.mean()),
        "gershgorin": digits(task.test.high.mean()),
        "lam_k": digits(lam[..., k - 1].mean()),
        "lam_next": digits(lam[..., k].mean()),
    }
