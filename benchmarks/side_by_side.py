"""This checkout beside another one, in turns in one run: large graphs, a batch of small ones, attention.

    git worktree add /tmp/former COMMIT
    python benchmarks/side_by_side.py --former /tmp/former [--n 1e5] [--repeats 3] [--out results/side-by-side]

Each checkout has a process of its own on one thread; the two take turns job by job, so that whatever else the machine
does falls on both alike. Processor seconds, medians; a ratio below 1 means that this checkout is faster. The large
graphs are the families of ``krylow bench large``, cut at the gaps that its record of 10^5 nodes was raced at.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

#: Numbers of kept frequencies of each family.
CUTS = {
    "knn2d": (11, 52),
    "knn3d": (7, 49),
    "grid": (11, 52),
    "road": (8, 50),
    "sbm20": (20,),
    "sbm50": (50,),
    "smallworld": (8, 50),
    "powerlaw": (12, 54),
}
TOLERANCES = (1e-3, 1e-6)
BATCH, ATTENTION = "batch of 512 graphs of 100 nodes", "attention, 128 tokens, both passes"


def job(name: str, folder: Path) -> Callable[[], Any]:
    """Return the job of that name as a function, made inside a worker's process."""
    import torch

    import krylow as kl

    if name == BATCH:
        L = kl.laplacian(kl.data.sbm(512, n=100, generator=torch.Generator().manual_seed(0)), kind="normalized")
        return lambda: kl.subspace(L, 8, tol=1e-6)
    if name == ATTENTION:
        torch.manual_seed(0)
        layer = kl.nn.LowPassAttention(128, 4, k=10, m=20)
        x = torch.randn(8, 128, 128, generator=torch.Generator().manual_seed(1)).requires_grad_()
        return lambda: layer(x).sum().backward()
    import scipy.sparse

    family, k, tol = name.split()
    # Not yet an operator: what a user waits for begins with the matrix.
    matrix = scipy.sparse.csr_array(scipy.sparse.load_npz(folder / f"{family}.npz"))

    def solve() -> dict[str, Any]:
        sub = kl.subspace(matrix, int(k), tol=float(tol))
        return {"method": sub.method, "status": sub.status.name, "products": sub.products}

    return solve


def work(folder: Path) -> None:
    """Answer every line, a job's name, by the processor seconds it took."""
    jobs: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in jobs:
            jobs.clear()  # one graph at a time in memory
            jobs[name] = job(name, folder)
            jobs[name]()  # compiles, and touches memory for the first time
        start = time.process_time()
        found = jobs[name]()
        seconds = time.process_time() - start
        print(json.dumps({"seconds": seconds, **(found if isinstance(found, dict) else {})}), flush=True)


class Worker:
    """A checkout's own process."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **threads, "PYTHONPATH": str(checkout / "src")},
        )

    def run(self, name: str) -> dict[str, Any]:
        """Run one job and return what it took."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(name, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{name!r} ended its process with {self.process.wait()}: see above.")
        return dict(json.loads(answer))


def measure(former: Path, n: int, families: list[str], repeats: int, seed: int) -> dict[str, dict[str, Any]]:
    import scipy.sparse

    from krylow_lab.large.graphs import make

    here = Path(__file__).resolve().parents[1]
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for family in families:
            scipy.sparse.save_npz(folder / f"{family}.npz", make(family, n, seed))
        names = [f"{family} {k} {tol:g}" for family in families for k in CUTS[family] for tol in TOLERANCES]
        workers = {"former": Worker(former, folder), "now": Worker(here, folder)}
        for name in [BATCH, ATTENTION, *names]:
            taken: dict[str, list[dict[str, Any]]] = {which: [] for which in workers}
            for _ in range(repeats):
                for which, worker in workers.items():
                    taken[which].append(worker.run(name))
            row: dict[str, Any] = {which: median(t["seconds"] for t in runs) for which, runs in taken.items()}
            row["ratio"] = row["now"] / row["former"]
            for key in ("method", "status", "products"):
                row.update({f"{key}, {which}": runs[-1][key] for which, runs in taken.items() if key in runs[-1]})
            rows[name] = row
            print(f"{name:40s} {row['former']:8.3f} s {row['now']:8.3f} s  ratio {row['ratio']:.2f}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--former", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument("--n", type=float, default=1e5)
    parser.add_argument("--families", default=",".join(CUTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work is not None:
        return work(args.work)
    if args.former is None or not (args.former / "src" / "krylow").is_dir():
        parser.error(f"--former must be a checkout of this repository, got {args.former}")
    from krylow_lab.records import Record

    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    families = args.families.split(",")
    rows = measure(args.former.resolve(), int(args.n), families, args.repeats, args.seed)
    means = {
        family: geometric_mean(row["ratio"] for name, row in rows.items() if name.startswith(family + " "))
        for family in families
    }
    for family, ratio in means.items():
        print(f"{family:40s} ratio {ratio:.2f}")
    print(f"{'all families':40s} ratio {math.exp(sum(map(math.log, means.values())) / len(means)):.2f}")
    if args.out:
        command = ["git", "-C", str(args.former), "rev-parse", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        config = {"former": commit, "n": int(args.n), "families": families, "repeats": args.repeats}
        results = {"rows": rows, "families": means}
        wall = time.perf_counter() - begin
        print(
            Record.create("side-by-side", config, results, seed=args.seed, started=started, wall_seconds=wall).write(
                args.out
            )
        )
    return None


if __name__ == "__main__":
    main()
