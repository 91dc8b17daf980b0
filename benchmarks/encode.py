"""Many small graphs from Parquet to Parquet: krylow in this process and on Ray, PyG's transform over the same file.

    OMP_NUM_THREADS=1 python benchmarks/encode.py [--graphs 100000] [--out results/encode]

Processor seconds; those of Ray's workers are taken inside the tasks, once each worker is warm. PyG reads the same
table, makes a Data of each graph, transforms it and writes nothing, on a part of the graphs. Graphs are random trees
with chords, as of molecules, of 10 to 40 nodes.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import krylow as kl
from krylow.encoding import RayExecutor
from krylow.encoding.engines import completed
from krylow.encoding.files import Settings, run
from krylow.encoding.sources import tasks_of
from krylow_lab.records import Record


def table(count: int, seed: int) -> pa.Table:
    """Return random trees with n / 8 chords, both directions of each edge."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(10, 41, count)
    src, dst, counts = [], [], []
    for n in sizes:
        child = np.arange(1, n)
        parent = np.maximum(0, child - rng.integers(1, 5, n - 1))
        pairs = np.unique(np.sort(np.concatenate([[parent, child], rng.integers(0, n, (2, n // 8))], 1), 0), axis=1)
        pairs = pairs[:, pairs[0] != pairs[1]]
        src += [pairs[0], pairs[1]]
        dst += [pairs[1], pairs[0]]
        counts.append(2 * pairs.shape[1])
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    lists = [pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(part))) for part in (src, dst)]
    return pa.table({"id": np.arange(count), "num_nodes": sizes, "src": lists[0], "dst": lists[1]})


def timed_run(task, **kwargs):
    """Do a task, and return the processor seconds it took as well."""
    begin = time.process_time()
    done = run(task, **kwargs)
    return done, time.process_time() - begin


def with_pyg(path: Path, count: int, k: int) -> float:
    """Return graphs a processor second of PyG's transform."""
    from torch_geometric.data import Data
    from torch_geometric.transforms import AddLaplacianEigenvectorPE

    transform = AddLaplacianEigenvectorPE(k, is_undirected=True)
    begin = time.process_time()
    rows = pq.read_table(path).slice(0, count).to_pylist()
    for row in rows:
        index = torch.tensor([row["src"], row["dst"]])
        transform(Data(edge_index=index, num_nodes=row["num_nodes"]))
    return count / (time.process_time() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=100_000)
    parser.add_argument("--of-pyg", type=int, default=2_000)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    results = {}
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), Path(name, "graphs.parquet")
        pq.write_table(table(args.graphs, args.seed), path, row_group_size=args.graphs // 10)
        kl.encode(path, folder / "warm", args.k)
        speeds: dict[str, list[float]] = {"in process": [], "ray": [], "pyg": []}
        with RayExecutor(workers=2) as executor:
            for again in range(args.repeats):
                start = time.process_time()
                done = kl.encode(path, folder / f"local{again}", args.k)
                speeds["in process"].append(done.graphs / (time.process_time() - start))
                speeds["ray"].append(on_ray(path, folder / f"ray{again}", args.k, executor))
                speeds["pyg"].append(with_pyg(path, args.of_pyg, args.k))
        results = {f"graphs a processor second, {name}": statistics.median(values) for name, values in speeds.items()}
    print(results)
    if args.out:
        config = {"graphs": args.graphs, "k": args.k, "of pyg": args.of_pyg, "repeats": args.repeats}
        wall = time.perf_counter() - begin
        record = Record.create("encode", config, results, seed=args.seed, started=started, wall_seconds=wall)
        print(record.write(args.out))


def on_ray(path: Path, out: Path, k: int, executor: RayExecutor) -> float:
    """Return graphs a processor second of warm workers."""
    speeds = []
    for part in ("cold", "warm"):
        folder = out / part
        (folder / "rejects").mkdir(parents=True)
        work = partial(timed_run, folder=str(folder), settings=Settings(k, "both", 1e-6))
        found = list(completed(work, tasks_of(path)[1], executor, 2))
        speeds.append(sum(done.graphs for done, _ in found) / sum(seconds for _, seconds in found))
    return speeds[-1]


if __name__ == "__main__":
    main()
