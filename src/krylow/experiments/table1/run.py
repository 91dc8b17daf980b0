"""Everything in order: train the cells in parallel, assemble the columns, draw, print. Resumable anywhere."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from krylow.experiments.records import Record, lookup
from krylow.experiments.table1.assemble import assemble
from krylow.experiments.table1.learned import KIND, load_task, run_cell
from krylow.experiments.table1.plan import Grid, cells, check

Report = Callable[[int, int, str], None]


def reproduce(
    out: str | Path,
    data: Sequence[str],
    ks: Sequence[int],
    seeds: int,
    grid: Grid,
    *,
    workers: int | None = None,
    report: Report | None = None,
) -> list[Record]:
    """Measure the table and return its columns.

    Parameters
    ----------
    out
        Folder of the columns' records; the trained cells go to its sub-folder ``cells``. What is there is not done
        again.
    data, ks, seeds
        Families, numbers of kept frequencies, and how many seeds, counted from 0.
    grid
        What is tried.
    workers
        Processes that train cells at the same time, one thread each. None: one a core.
    report
        Called with the cells done, the cells in all and what the last one was.
    """
    for name in data:
        check(name, ks, seeds, load_task(name, (0,)).n)
    folder = Path(out) / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    todo = [cell for name in data for k in ks for cell in cells(name, k, range(seeds), grid)]
    missing = [cell for cell in todo if lookup(folder, KIND, _plain(cell), None) is None]
    done = len(todo) - len(missing)
    tell = report or (lambda done, total, what: None)
    tell(done, len(todo), "found")
    for cell in _train(missing, folder, workers or os.cpu_count() or 1):
        done += 1
        tell(done, len(todo), _name(cell))
    return [assemble(out, folder, name, k, range(seeds), grid) for name in data for k in ks]


def _train(missing: Sequence[dict[str, Any]], folder: Path, workers: int) -> Any:
    """Train cells and yield each as it is done."""
    if workers == 1 or len(missing) < 2:
        for cell in missing:
            run_cell(cell, folder)
            yield cell
        return
    # Spawned, not forked: a forked process inherits locks of threads that do not exist in it.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(missing)), mp_context=context, initializer=one_thread)
    with pool:
        try:
            futures = {pool.submit(functools.partial(run_cell, cell, folder)): cell for cell in missing}
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def one_thread() -> None:
    """Give a worker one thread: the workers are the parallelism, and tiny tensors are slower on many."""
    torch.set_num_threads(1)


def _plain(cell: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in cell.items()}


def _name(cell: dict[str, Any]) -> str:
    what = {"roots": f"{cell.get('products')} products", "probe": cell.get("form", "")}.get(cell["net"], "")
    return f"{cell['data']} K={cell['k']} {cell['net']} {what} {cell['loss']}"
