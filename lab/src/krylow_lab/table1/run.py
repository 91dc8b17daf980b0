"""Everything in order: train the cells in parallel, assemble the columns, draw, print. Resumable anywhere."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from krylow import _checks
from krylow_lab.parallel import Report, parallel
from krylow_lab.records import Record, lookup
from krylow_lab.table1.assemble import assemble
from krylow_lab.table1.learned import KIND, load_task, run_cell
from krylow_lab.table1.plan import Grid, cells, check


def reproduce(
    out: str | Path,
    data: Sequence[str],
    ks: Sequence[int],
    seeds: int,
    grid: Grid,
    *,
    workers: int | Executor | None = None,
    report: Report | None = None,
    seed_base: int = 0,
) -> list[Record]:
    """Measure the table and return its columns.

    Records of the columns go to ``out``, trained cells to its sub-folder ``cells``; what is there is not done again.
    Cells are trained by as many ``workers`` at a time, one thread each (None: one a core), or by any executor, and
    ``report`` is called with the cells done, the cells in all and what the last one was. Another ``seed_base`` means
    other graphs, splits and random vectors.
    """
    seed_base = _checks.count(seed_base, "seed_base", 0)
    chosen = range(seed_base, seed_base + seeds)
    for name in data:
        check(name, ks, seeds, load_task(name, (0,)).n)
    folder = Path(out) / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    todo = [cell for name in data for k in ks for cell in cells(name, k, chosen, grid)]
    missing = [cell for cell in todo if lookup(folder, KIND, cell, None) is None]
    done = len(todo) - len(missing)
    notify = report or (lambda done, total, what: None)
    notify(done, len(todo), "found")
    workers = workers or os.cpu_count() or 1
    for index, _ in parallel([functools.partial(run_cell, cell, folder) for cell in missing], workers):
        done += 1
        notify(done, len(todo), _name(missing[index]))
    columns = [(name, k) for name in data for k in ks]
    notify(done, len(todo), "measuring the classical rows")
    jobs = [functools.partial(assemble, out, folder, name, k, chosen, grid) for name, k in columns]
    found = dict(parallel(jobs, workers))
    return [found[i] for i in range(len(columns))]


def _name(cell: dict[str, Any]) -> str:
    what = {"roots": f"{cell.get('products')} products", "probe": cell.get("form", "")}.get(cell["net"], "")
    return f"{cell['data']} K={cell['k']} {cell['net']} {what} {cell['loss']}"
