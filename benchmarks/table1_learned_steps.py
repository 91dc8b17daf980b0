"""The rows of Table 1 whose probe has learned steps of conjugate gradients, put into the records of the full grid.

The author's solver on the theory loss alone: see docs/what-is-learned.md. ``krylow reproduce table1`` trains these rows
with all others; this trains them alone and adds them to the columns that are in ``results/table1``. Interrupted, it
goes on where it was. About a minute a column on one thread:

    OMP_NUM_THREADS=1 python benchmarks/table1_learned_steps.py
"""

from __future__ import annotations

from pathlib import Path

import torch

from krylow_lab.table1 import FULL
from krylow_lab.table1.assemble import extend
from krylow_lab.table1.learned import run_cell
from krylow_lab.table1.plan import DATA, KS, learned_cells

ROOT = Path(__file__).parent.parent
CELLS = ROOT / "runs" / "table1" / "cells"
SEEDS = range(5)

if __name__ == "__main__":
    torch.set_num_threads(1)
    CELLS.mkdir(parents=True, exist_ok=True)
    for data in DATA:
        for k in KS:
            for cell in learned_cells(data, k, SEEDS, FULL):
                run_cell(cell, CELLS)
            record = extend(ROOT / "results" / "table1", CELLS, data, k, SEEDS, FULL)
            for row in record.results["rows"]:
                if row["row"] == "13":
                    print(data, k, row["name"], f"{row['mean']:.3f} ± {row['std']:.3f}", row["products"][0], flush=True)
