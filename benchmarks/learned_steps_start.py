"""How much the rows of Table 1 with learned steps of conjugate gradients depend on where the steps begin.

    OMP_NUM_THREADS=1 python benchmarks/learned_steps_start.py [--out results/learned-steps-start]

The same trainings as row 13 of Table 1 from three first values x: softplus(x) is .0067, .0025 and .0009. "Near 0" is
all that is known of the author's. Interrupted, it goes on where it was; about ten minutes on one thread.
"""

from __future__ import annotations

import argparse
import datetime
import time
from pathlib import Path

import torch

from krylow_lab.records import Record
from krylow_lab.table1 import FULL
from krylow_lab.table1.assemble import learned_steps
from krylow_lab.table1.learned import load_task, run_cell
from krylow_lab.table1.plan import DATA, KS, learned_cells

CELLS = Path(__file__).parent.parent / "runs" / "learned-steps-start"
SEEDS = tuple(range(5))
FIRST = (-5.0, -6.0, -7.0)


def measure(data: str, k: int, first: float) -> dict[str, list[float]]:
    """The mean and the deviation over the seeds of every row."""
    cells = [run_cell({**cell, "first": first}, CELLS) for cell in learned_cells(data, k, SEEDS, FULL)]
    rows = learned_steps(cells, load_task(data, SEEDS, dense=True), FULL)
    return {row["name"]: [row["mean"], row["std"]] for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    CELLS.mkdir(parents=True, exist_ok=True)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    results = {}
    for data in DATA:
        for k in KS:
            results[f"{data} K={k}"] = {f"{first:g}": measure(data, k, first) for first in FIRST}
            print(data, k, results[f"{data} K={k}"], flush=True)
    if args.out:
        config = {"first": FIRST, "seeds": SEEDS, "grid": FULL.name, "settings": FULL.learned, "lrs": FULL.learned_lrs}
        wall = time.perf_counter() - begin
        record = Record.create("learned-steps-start", config, results, seed=None, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
