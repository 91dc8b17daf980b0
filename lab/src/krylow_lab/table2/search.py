"""Choosing a row's setting by validation, from the cells that exist: what to train next, and what was chosen.

A search is a function of the cells alone. It is asked again and again, and each time either names the cells that it
needs or has an answer: so it does not matter which process trained them, when, or how often it was interrupted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from krylow_lab.records import Record, lookup
from krylow_lab.table2.plan import Protocol, candidates
from krylow_lab.table2.train import KIND


@dataclass(frozen=True)
class Cell:
    """One training: its data, setting and seed."""

    data: dict[str, Any]
    setting: dict[str, Any]
    seed: int

    def record(self, folder: Path) -> Record | None:
        """Return its record, or None where it is still to be trained."""
        return lookup(folder / "cells", KIND, {"data": self.data, "setting": self.setting}, self.seed)


@dataclass(frozen=True)
class Outcome:
    """Where the search of a row stands."""

    missing: list[Cell]  # to train before it can go on; empty when it is done
    cells: list[Record]  # of the chosen setting, one a seed, when it is done
    tried: list[dict[str, Any]]  # every candidate, the data it was last compared on, its validation accuracies there


def search(protocol: Protocol, row: str, data: dict[str, Any], seeds: int, folder: Path, vectors: bool) -> Outcome:
    """Return where the search of one row stands, by the cells in a run's folder."""
    settings = candidates(protocol, row, data["name"], vectors=vectors)
    tried: list[dict[str, Any]] = [{"setting": setting, "data": data, "validation": []} for setting in settings]
    remaining = list(range(len(settings)))
    for rung in protocol.rungs_of(data["name"]) if len(settings) > 1 else ():
        remaining = remaining[: rung.candidates]
        few = min(rung.seeds, seeds)
        part = data if rung.train_rows is None else {**data, "limit": min(rung.train_rows, data.get("limit", math.inf))}
        cells = [Cell(part, settings[i], seed) for i in remaining for seed in range(few)]
        records = _trained(cells, folder)
        if len(records) < len(cells):
            return Outcome([cell for cell in cells if cell.record(folder) is None], [], tried)
        ranks = []
        for place, i in enumerate(remaining):
            own = [record.results for record in records[place * few :][:few]]
            tried[i]["data"] = part
            tried[i]["validation"] = [results["validation"] for results in own]
            # Equal accuracies are common on a few hundred sentences: the loss decides then.
            means = [sum(r[name] for r in own) / len(own) for name in ("validation", "validation_loss")]
            ranks.append((-means[0], means[1], i))
        remaining = [i for _, _, i in sorted(ranks)]
    final = [Cell(data, settings[remaining[0]], seed) for seed in range(seeds)]
    records = _trained(final, folder)
    if len(records) < len(final):
        return Outcome([cell for cell in final if cell.record(folder) is None], [], tried)
    return Outcome([], records, tried)


def _trained(cells: list[Cell], folder: Path) -> list[Record]:
    return [record for record in (cell.record(folder) for cell in cells) if record is not None]
