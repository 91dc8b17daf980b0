"""One graph on 1, 2 and 4 ranks beside one machine and beside SLEPc, in one run.

    python benchmarks/distributed.py [--nodes 100000] [--families knn2d grid] [--ranks 1 2 4] [--repeats 3]
                                     [--out results/distributed]
    python benchmarks/distributed.py --scaling 100000 200000 400000 1000000 [--families knn2d] [--out ...]

Processor seconds of all ranks together, waiting included (MPI waits in busy loops), medians of the repeats; reading and
partitioning are apart. Every job is a program of its own that reads the same file; jobs take turns. Errors are against
one machine's answer of an error of 1e-8. SLEPc's settings are run on two ranks, and the best is the fastest whose true
error is within tol. With --scaling, krylow alone for each of these numbers of nodes on each number of ranks: more ranks
for one graph, and for one that grows with them. Needs petsc4py, slepc4py and mpiexec (make setup-mpi).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse
import torch

import krylow as kl
from krylow.io.petsc import read_rows, write_matrix
from krylow_lab.large.graphs import make
from krylow_lab.records import Record

CUTS = {"knn2d": 11, "grid": 11, "sbm20": 20}
TOL = 1e-3
SLEPC = ("lobpcg:1", "lobpcg:0.3", "lobpcg:0.1", "shift_invert:0.1")  # solver and tolerance
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",  # ranks may have to share processors, with each other and with other programs
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def on_ranks(path: str, k: int, method: str, tolerance: float, repeats: int, basis: str) -> None:
    """The program of a rank: solve, and let the first one print what it took."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    start = time.process_time()
    G = kl.distributed.load(path)
    setup = comm.allreduce(time.process_time() - start)
    solver: Any = kl.distributed.Slepc(method, tolerance) if method in ("lobpcg", "shift_invert") else method
    seconds, clock = [], []
    before = G.ranks.reductions, G.ranks.sent
    for turn in range(repeats + (repeats > 1)):
        comm.barrier()
        start, begin = time.process_time(), time.perf_counter()
        sub = kl.subspace(G, k, method=solver, tol=TOL)
        spent, waited = time.process_time() - start, time.perf_counter() - begin
        if turn or repeats == 1:
            seconds.append(comm.allreduce(spent))
            clock.append(waited)
    turns = repeats + (repeats > 1)
    found = {
        "processor seconds": median(seconds),
        "spread": max(seconds) / min(seconds),
        "clock": median(clock),
        "setup": setup,
        "reductions": (G.ranks.reductions - before[0]) / turns,
        "received MB": comm.allreduce(G.ranks.sent - before[1]) / turns / 1e6,
        "halo rows": comm.allreduce(G.inner.halo.count),
        "entries over share": comm.allreduce(G.inner.entries, MPI.MAX) * comm.size / comm.allreduce(G.inner.entries),
        "peak MB a rank": comm.allreduce(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, MPI.MAX),
        "products": sub.products,
        "passes": sub.passes,
        "bound": float(sub.error_bound),
        "status": sub.status.name,
        "why": sub.why,
    }
    whole = sub.gather()
    if comm.rank == 0:
        np.save(basis, whole.numpy())
        print(json.dumps(found))


def alone(path: str, k: int, method: str, tol: float, repeats: int, basis: str) -> None:
    """The same on one machine, without MPI."""
    crow, col, values = read_rows(path, 0, 1)
    n = crow.size - 1
    L = kl.laplacian(scipy.sparse.csr_array((values, col, crow.astype(np.int32)), shape=(n, n)))
    seconds = []
    for turn in range(repeats + (repeats > 1)):
        start = time.process_time()
        sub = kl.subspace(L, k, method=method, tol=tol)
        if turn or repeats == 1:
            seconds.append(time.process_time() - start)
    np.save(basis, sub.basis.numpy())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"processor seconds": median(seconds), "spread": max(seconds) / min(seconds), "peak MB a rank": peak}
    print(json.dumps(found | {"products": sub.products, "status": sub.status.name, "why": sub.why}))


def run(ranks: int, *job: Any, limit: float) -> dict[str, Any] | None:
    """Return what a job prints; the processor seconds after which it was ended; None where it fails."""
    command = ["mpiexec", "-n", str(ranks)] if ranks else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    job_ = subprocess.Popen(
        [*command, sys.executable, __file__, "--job", *map(str, job)],
        env=os.environ | SETTINGS,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        printed, said = job_.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        job_.terminate()
        job_.communicate()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {"ended after": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}
    if job_.returncode:
        print(said[-1500:], file=sys.stderr)
        return None
    return dict(json.loads(printed.strip().splitlines()[-1]))


def adjacency(family: str, nodes: int, seed: int) -> scipy.sparse.csr_array:
    L = make(family, nodes, seed)
    W = scipy.sparse.csr_array(scipy.sparse.diags_array(L.diagonal()) - L)
    W.eliminate_zeros()
    W.sort_indices()
    return W


def method_of(family: str) -> str:
    return "chebyshev" if family.startswith("sbm") else "multilevel"


def scale(family: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for nodes in args.scaling:
        W, path = adjacency(family, nodes, args.seed), folder / "graph.petsc"
        write_matrix(path, W)
        results[str(nodes)] = found = {"nodes": W.shape[0], "entries": W.nnz, "k": CUTS[family]}
        for ranks in args.ranks:
            job = "ranks", path, CUTS[family], method_of(family), 0.0, args.repeats, folder / "basis.npy"
            found[f"{ranks} ranks"] = run(ranks, *job, limit=args.limit)
            print(family, nodes, ranks, found[f"{ranks} ranks"], flush=True)
    return results


def measure(family: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    W, k, method = adjacency(family, args.nodes, args.seed), CUTS[family], method_of(family)
    path, basis = folder / f"{family}.petsc", folder / "basis.npy"
    write_matrix(path, W)
    jobs = {"one machine": (0, "alone", path, k, method, TOL, args.repeats, basis)}
    jobs |= {f"{p} ranks": (p, "ranks", path, k, method, 0.0, args.repeats, basis) for p in args.ranks}
    for setting in args.slepc:
        name, tolerance = setting.split(":")
        jobs[f"slepc {setting}, 2 ranks"] = (2, "ranks", path, k, name, tolerance, 1, basis)
    exact = run(0, "alone", path, k, "auto", 1e-8, 1, basis, limit=10 * args.limit)
    if exact is None or "ended after" in exact:
        raise SystemExit("one machine has no answer to compare with")
    U, results = torch.from_numpy(np.load(basis)), {}
    for name, (ranks, *job) in jobs.items():
        found = run(ranks, *job, limit=args.limit)
        if found is None or "ended after" in found:
            results[name] = {"processor seconds": None} | (found or {})
            print(family, name, found, flush=True)
            continue
        found["error"] = float(kl.metrics.subspace_error(torch.from_numpy(np.load(basis)), U))
        results[name] = found
        print(family, name, {key: found[key] for key in ("processor seconds", "error", "status")}, flush=True)
    good = {name: part["processor seconds"] for name, part in results.items() if part.get("error", 1) <= TOL}
    peers = [good[name] for name in good if name.startswith("slepc")]
    ratios = {}
    if peers and "2 ranks" in good:
        ratios["best slepc over krylow, 2 ranks"] = min(peers) / good["2 ranks"]
    if "1 ranks" in good and "one machine" in good:
        ratios["1 rank over one machine"] = good["1 ranks"] / good["one machine"]
    print(family, ratios, flush=True)
    return {"nodes": W.shape[0], "entries": W.nnz, "k": k, "jobs": results, "ratios": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--families", nargs="+", default=["knn2d", "grid"], choices=list(CUTS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slepc", nargs="*", default=SLEPC, help="SLEPc's solvers and tolerances")
    parser.add_argument("--scaling", nargs="*", type=int, default=[], help="numbers of nodes; nothing else is run then")
    parser.add_argument("--limit", type=float, default=900, help="most seconds of a job by the clock")
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        work = scale if args.scaling else measure
        results = {family: work(family, args, Path(folder)) for family in args.families}
    if args.out:
        config = {"ranks": args.ranks, "repeats": args.repeats, "tol": TOL, "families": args.families}
        config |= {"scaling": args.scaling} if args.scaling else {"nodes": args.nodes, "slepc": args.slepc}
        wall = time.perf_counter() - begin
        record = Record.create(
            "scaling" if args.scaling else "distributed",
            config,
            results,
            seed=args.seed,
            started=started,
            wall_seconds=wall,
        )
        print(record.write(args.out))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        kind, path, k, method, number, repeats, basis = sys.argv[2:]
        torch.set_num_threads(1)
        (alone if kind == "alone" else on_ranks)(path, int(k), method, float(number), int(repeats), basis)
    else:
        main()
