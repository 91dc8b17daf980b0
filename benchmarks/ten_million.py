"""Graphs of ten million nodes: time, memory and status of ``kl.subspace`` on one thread, and the true error on a grid.

    python benchmarks/ten_million.py [--n 1e7] [--cases grid:11:1e-3 road:12:1e-3] [--out results/ten-million]

A case is a family of ``krylow bench large``, K and the error asked for; K is near 10, at a gap where one is known from
smaller graphs of the family. Peers are not run, and the eigenvectors are known of the grid alone, whose are products of
cosines: of the others there is the certificate's word. Each case has a process of its own and a record, and one that
has a record is not run again.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import time
from typing import Any

import numpy as np
import torch

import krylow as kl
from krylow_lab.large.graphs import grid, make
from krylow_lab.large.worker import peak, reset_peak
from krylow_lab.records import Record, lookup

CASES = ("grid:11:1e-3", "grid:11:1e-6", "knn2d:11:1e-3", "road:12:1e-3", "smallworld:10:1e-3")


def grid_error(n: int, basis: np.ndarray) -> float:
    """Return the normalised squared error of a basis of a grid's lowest frequencies."""
    k = basis.shape[1]
    sides = grid(n)
    waves = [np.cos(np.pi * np.outer(np.arange(k), np.arange(side) + 0.5) / side) for side in sides]
    waves = [wave / np.linalg.norm(wave, axis=1, keepdims=True) for wave in waves]
    values = [2 - 2 * np.cos(np.pi * np.arange(k) / side) for side in sides]
    order = np.argsort(np.add.outer(*values), axis=None)[:k]
    blocks = basis.reshape(*sides, k)
    held = (
        np.einsum("i,ijk,j->k", waves[0][i], blocks, waves[1][j]) for i, j in zip(*np.divmod(order, k), strict=True)
    )
    return 1 - float(sum(np.square(part).sum() for part in held)) / k


def solve(family: str, n: int, k: int, tol: float) -> dict[str, Any]:
    """Return what one case took and found."""
    torch.set_num_threads(1)
    kl.subspace(make(family, 5000, 0), k=k, tol=tol)  # compiles
    L = make(family, n, 0)
    before, cpu, wall = reset_peak(), time.process_time(), time.perf_counter()
    found = kl.subspace(L, k=k, tol=tol)
    status, bound = found.status.name, float(found.error_bound)
    seconds = {"cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - wall}
    results = {"n": L.shape[0], "entries": L.nnz, "method": found.method, "status": status, "bound": bound, **seconds}
    results |= {"passes": found.passes, "peak_mib": peak() - before}
    if family == "grid":
        results["error"] = grid_error(n, found.basis.numpy())
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=float, default=1e7)
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--out", default="results/ten-million", help="folder for the records")
    args = parser.parse_args()
    for case in args.cases:
        family, k, tol = case.split(":")
        config = {"family": family, "n": int(args.n), "k": int(k), "tol": float(tol)}
        record = lookup(args.out, "ten-million", config, 0)
        if record is None:
            started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                results = pool.apply(solve, (family, int(args.n), int(k), float(tol)))
            wall = time.perf_counter() - begin
            record = Record.create("ten-million", config, results, seed=0, started=started, wall_seconds=wall)
            record.write(args.out)
        print(case, record.results, flush=True)


if __name__ == "__main__":
    main()
