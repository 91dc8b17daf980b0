"""A file of 10^8 edges through `krylow shard` and into one process, with the peak memory of each step.

    python benchmarks/sharding.py [--edges 100000000] [--k 4] [--folder /tmp] [--out results/distributed]

A node of a rectangle is joined to the 24 around it, so that there are 12 edges a node, as in a graph of nearest
neighbours. Each step is a program of its own: the edges are written to a table of Parquet, piece by piece; krylow shard
makes the file that ranks read; one process loads it and multiplies once; another one loads it and solves. Needs
petsc4py, pyarrow and 60 bytes of disk an edge.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

REACH, ASPECT = 2, 1.31
PIECE = 1 << 20  # nodes


def sides(edges: int) -> tuple[int, int]:
    """Return the sides of the rectangle of about so many edges."""
    nodes = edges / (2 * REACH * (REACH + 1))
    short = round((nodes / ASPECT) ** 0.5)
    return short, round(nodes / short)


def stencil(rows: int, columns: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the ends of some edges at a time, each edge once."""
    steps = [(a, b) for a in range(REACH + 1) for b in range(-REACH, REACH + 1) if a > 0 or b > 0]
    for first in range(0, rows * columns, PIECE):
        node = np.arange(first, min(first + PIECE, rows * columns))
        for down, right in steps:
            x, y = node // columns + down, node % columns + right
            there = (x < rows) & (y >= 0) & (y < columns)
            yield node[there], (x * columns + y)[there]


def write(path: Path, edges: int) -> dict[str, Any]:
    """Write the table."""
    import pyarrow
    from pyarrow import parquet

    kinds = pyarrow.schema([("src", pyarrow.int32()), ("dst", pyarrow.int32())])
    total = 0
    with parquet.ParquetWriter(path, kinds) as file:
        for ends in stencil(*sides(edges)):
            file.write_table(pyarrow.table([part.astype(np.int32) for part in ends], kinds))
            total += ends[0].size
    return {"edges": total}


def load(path: Path, k: int) -> dict[str, Any]:
    """Load in this process, multiply once, and solve for k vectors, unless k is 0."""
    import torch

    import krylow as kl

    torch.set_num_threads(1)
    G = kl.distributed.load(path)
    loaded = time.process_time()
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((G.rows, 1)))
    y = G @ x
    found = {"nodes": G.n, "seconds of loading": loaded, "seconds of a product": time.process_time() - loaded}
    # Every column of a Laplacian sums to zero.
    found["sum of a product"] = float(y.sum().abs() / y.abs().sum())
    if k:
        del x, y
        begin = time.process_time()
        sub = kl.subspace(G, k)
        found |= {"seconds of solving": time.process_time() - begin, "products": sub.products, "why": sub.why}
        found |= {"status": sub.status.name, "bound": float(sub.error_bound), "values": sub.ritz_values.tolist()}
    return found


def step(*command: Any) -> dict[str, Any]:
    """Run a step as a program of its own; return what it prints, its processor seconds and its peak memory."""
    settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    job = subprocess.Popen(
        [sys.executable, *map(str, command)], env=os.environ | settings, stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    printed = job.stdout.read().strip()
    _, status, used = os.wait4(job.pid, 0)
    if status:
        raise SystemExit(f"{command} has failed")
    found = {"processor seconds": used.ru_utime + used.ru_stime, "peak MB": used.ru_maxrss / 1024}
    found |= json.loads(printed) if printed.startswith("{") else {"said": printed}
    print(found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--folder", default=None, help="where the files are for the time of the run")
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    started, begin, results = datetime.datetime.now(datetime.UTC), time.perf_counter(), {}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        edges, graph = Path(folder) / "edges.parquet", Path(folder) / "graph.petsc"
        results["write"] = step(__file__, "--job", "write", edges, args.edges)
        results["shard"] = step("-c", "from krylow.cli import main; main()", "shard", edges, graph)
        results["file"] = {"MB of edges": edges.stat().st_size / 1e6, "MB": graph.stat().st_size / 1e6}
        edges.unlink()
        results["load"] = step(__file__, "--job", "load", graph, 0)
        results["solve"] = step(__file__, "--job", "load", graph, args.k)
    if args.out:
        from krylow_lab.records import Record

        config = {"edges": args.edges, "reach": REACH, "k": args.k}
        wall = time.perf_counter() - begin
        print(Record.create("sharding", config, results, seed=0, started=started, wall_seconds=wall).write(args.out))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        kind, path, number = sys.argv[2:]
        print(json.dumps({"write": write, "load": load}[kind](Path(path), int(number))))
    else:
        main()
