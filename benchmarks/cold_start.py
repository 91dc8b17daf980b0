"""The first call in a fresh process beside the second one: krylow, scipy and PyG.

    python benchmarks/cold_start.py [--nodes 100000] [--graphs 512] [--repeats 3] [--out results/cold-start]

Each row is a process of its own that makes its graphs, then calls twice; seconds are of the processor, medians over
processes. One 2D k-NN graph, k = 10 (scipy: `eigsh` with the factor of a shifted matrix), and a batch of graphs of 100
nodes, k = 8 (PyG: AddLaplacianEigenvectorPE, graph by graph).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from krylow_lab.records import Record

JOBS = ("krylow, one graph", "scipy, one graph", "krylow, batch", "PyG, batch")


def one_graph(n: int) -> Any:
    import numpy as np
    import scipy.sparse
    from scipy.spatial import cKDTree

    points = np.random.default_rng(0).random((n, 2))
    near = cKDTree(points).query(points, 11)[1][:, 1:]
    W = scipy.sparse.csr_array((np.ones(10 * n), (np.repeat(np.arange(n), 10), near.ravel())), shape=(n, n))
    return W.maximum(W.T)


def job(name: str, nodes: int, graphs: int) -> Callable[[], Any]:
    """Return the call, with its input made."""
    if name == "scipy, one graph":
        from scipy.sparse.csgraph import laplacian
        from scipy.sparse.linalg import eigsh

        L = laplacian(one_graph(nodes)).tocsc()
        return lambda: eigsh(L, 10, sigma=-1e-3)
    import torch

    import krylow as kl

    if name == "krylow, one graph":
        L = kl.laplacian(one_graph(nodes))
        return lambda: kl.subspace(L, 10)
    W = kl.data.sbm(graphs, n=100, generator=torch.Generator().manual_seed(0))
    if name == "krylow, batch":
        L = kl.laplacian(W, kind="normalized")
        return lambda: kl.subspace(L, 8)
    from torch_geometric.data import Data
    from torch_geometric.transforms import AddLaplacianEigenvectorPE
    from torch_geometric.utils import dense_to_sparse

    data = [Data(edge_index=dense_to_sparse(w)[0], num_nodes=100) for w in W]
    transform = AddLaplacianEigenvectorPE(k=8, is_undirected=True)
    return lambda: [transform(item.clone()) for item in data]


def measured(name: str, nodes: int, graphs: int) -> list[float]:
    """Return the seconds of the first and of the second call, in this process."""
    call, seconds = job(name, nodes, graphs), []
    for _ in range(2):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--graphs", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--job", choices=JOBS, help="measure this one in this process")
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    if args.job:
        print(json.dumps(measured(args.job, args.nodes, args.graphs)))
        return
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    results: dict[str, float] = {}
    sizes = ["--nodes", str(args.nodes), "--graphs", str(args.graphs)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for name in JOBS:
        command = [sys.executable, __file__, "--job", name, *sizes]
        runs = [
            json.loads(subprocess.run(command, env=alone, check=True, stdout=subprocess.PIPE).stdout.split(b"\n")[-2])
            for _ in range(args.repeats)
        ]
        for call, seconds in zip(("first", "second"), zip(*runs, strict=True), strict=True):
            results[f"{name}: {call} call"] = statistics.median(seconds)
            print(f"{name}: {call} call{'':10s} {statistics.median(seconds):.3f}", flush=True)
    if args.out:
        config = {"nodes": args.nodes, "graphs": args.graphs, "repeats": args.repeats, "threads": 1}
        wall = time.perf_counter() - begin
        record = Record.create("cold-start", config, results, seed=0, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
