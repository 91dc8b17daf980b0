"""Everything in order: train what the searches ask for, in worker processes, then assemble. Resumable anywhere."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from krylow import _checks
from krylow_lab.parallel import Report, parallel
from krylow_lab.records import Record
from krylow_lab.table2.assemble import assemble
from krylow_lab.table2.corpus import load_corpus
from krylow_lab.table2.plan import Protocol
from krylow_lab.table2.search import Cell, search
from krylow_lab.table2.train import run_cell
from krylow_lab.text.tokens import has_glove


def reproduce(
    out: str | Path,
    tables: Sequence[tuple[dict[str, Any], Protocol]],
    seeds: int,
    *,
    workers: int | Executor | None = None,
    report: Report | None = None,
) -> list[Record]:
    """Measure tables and return their records.

    Records go to ``out``, trained cells to its sub-folder ``cells``, logs to ``logs``; what is there is not done again.
    ``tables`` are pairs of data, as :func:`krylow_lab.table2.corpus.load_corpus` takes it, and protocol. ``report`` is
    called with the cells done, the cells known of so far and what the last one was.
    """
    folder = Path(out)
    seeds = _checks.count(seeds, "seeds")
    notify = report or (lambda done, total, what: None)
    for data, _ in tables:
        load_corpus(data, folder)  # a missing file is reported before hours of training, and vocabularies are made once
    done = 0
    while True:
        cells = _wanted(tables, seeds, folder)
        notify(done, done + len(cells), "training" if cells else "comparing")
        if not cells:
            break
        train(cells, folder, workers, notify, done)
        done += len(cells)
    return [assemble(folder, data, protocol, seeds, vectors=uses_vectors(data, protocol)) for data, protocol in tables]


def train(cells: Sequence[Cell], folder: Path, workers: int | Executor | None, notify: Report, before: int = 0) -> None:
    """Train cells in worker processes, one thread each; so many were trained ``before``."""
    jobs = [functools.partial(run_cell, cell.data, cell.setting, cell.seed, folder) for cell in cells]
    for done, (number, _) in enumerate(parallel(jobs, workers or os.cpu_count() or 1), before + 1):
        cell = cells[number]
        notify(done, before + len(cells), f"{cell.data['name']} {cell.setting['row']} seed {cell.seed}")


def uses_vectors(data: dict[str, Any], protocol: Protocol) -> bool:
    """Return whether pretrained word vectors are among what is tried: where they are installed, and words are words."""
    return protocol.name in ("B", "L") and data["name"] != "synthetic" and has_glove()


def _wanted(tables: Sequence[tuple[dict[str, Any], Protocol]], seeds: int, folder: Path) -> list[Cell]:
    """Return the cells that the searches ask for now; more may follow from what these show."""
    wanted: list[Cell] = []
    for data, protocol in tables:
        for row in protocol.rows:
            outcome = search(protocol, row, data, seeds, folder, uses_vectors(data, protocol))
            wanted += [cell for cell in outcome.missing if cell not in wanted]
    return wanted
