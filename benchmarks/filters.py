"""krylow's filters beside PyGSP's: the same graph, signals, responses, float64 and thread, in one run.

    python benchmarks/filters.py [--nodes 100000] [--signals 10] [--repeats 5] [--out results/filters]

PyGSP applies a Chebyshev polynomial of a given degree, 30 unless told; krylow takes a tolerance. PyGSP's error is
measured against a series of much higher degree, and krylow is asked for that error: its own, measured in the
same way, has to be no larger. Seconds are of the processor, medians of runs that take turns. What both find out once a
graph is counted apart: PyGSP's estimate of the largest eigenvalue, and krylow's first call, which makes its own bound
and estimate and puts the nodes in order.
"""

from __future__ import annotations

import argparse
import datetime
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch
from pygsp import filters, graphs

import krylow as kl
from krylow import filter_methods
from krylow import responses as r
from krylow_lab.records import Record

#: Degrees of the series that errors are measured against; 800 for the others.
REFERENCE = {"heat": 100, "heat, four times": 100, "smooth low-pass": 300, "Mexican hat": 400}


def cases(G: Any) -> dict[str, tuple[Any, Any]]:
    """Return filters of PyGSP beside krylow's."""
    end = float(G.lmax)
    return {
        "heat": (filters.Heat(G, 10.0), r.Heat(10.0 / end)),
        "heat, four times": (
            filters.Heat(G, [1.0, 5.0, 10.0, 50.0]),
            r.FilterBank([r.Heat(t / end) for t in (1.0, 5.0, 10.0, 50.0)]),
        ),
        "smooth low-pass": (filters.Expwin(G, band_max=0.2), r.LowPass(0.2 * end, width=end)),
        "Mexican hat": (filters.MexicanHat(G, 6), r.MexicanHat(6, lmax=end)),
        "Meyer": (filters.Meyer(G, 6), r.Meyer(6, lmax=end)),
        "itersine": (filters.Itersine(G, 6), r.Itersine(6, lmax=end)),
        "half-cosine": (filters.HalfCosine(G, 6), r.HalfCosine(6, lmax=end)),
    }


def seconds(jobs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the median processor seconds of jobs that take turns, after one run each."""
    spent: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(repeats + 1):
        for name, job in jobs.items():
            start = time.process_time()
            job()
            if turn:
                spent[name].append(time.process_time() - start)
    return {name: median(times) for name, times in spent.items()}


def in_double(job: Callable[[], Any]) -> Callable[[], Any]:
    """Return the job with recurrences in the signal's precision, whatever the tolerance."""

    def run() -> Any:
        usual = filter_methods.SETTINGS
        filter_methods.SETTINGS = replace(usual, single=0.0)
        try:
            return job()
        finally:
            filter_methods.SETTINGS = usual

    return run


def measure(name: str, theirs: Any, ours: Any, L: Any, x: np.ndarray, order: int, repeats: int) -> dict[str, Any]:
    """Return seconds and errors of both, krylow's tolerance being PyGSP's error."""
    reference = kl.filter(L, x, ours, method="chebyshev", degree=REFERENCE.get(name, 800))
    size = np.linalg.norm(x)

    def error(y: np.ndarray) -> float:
        return float(np.linalg.norm(y - reference) / size)

    their_error = error(theirs.filter(x, order=order))
    tol = min(0.5, 40 * their_error)  # about the largest whose measured error is no larger than PyGSP's
    while error(kl.filter(L, x, ours, method="chebyshev", tol=tol)) > their_error and tol > 1e-15:
        tol /= 1.5
    spent = seconds(
        {
            "pygsp": lambda: theirs.filter(x, order=order),
            "krylow": lambda: kl.filter(L, x, ours, tol=tol),
            "krylow, first call": lambda: kl.filter(L.detach(), x, ours, tol=tol),  # to which nothing is known
            "krylow, all in float64": in_double(lambda: kl.filter(L, x, ours, tol=tol)),
        },
        repeats,
    )
    found = kl.filtered(L, x, ours, tol=tol)
    return {
        "degree pygsp": order,
        "degree krylow": found.degree,
        "tol krylow": tol,
        "error pygsp": their_error,
        "error krylow": error(found.signal),
        **{f"seconds {job}": value for job, value in spent.items()},
        "ratio pygsp / krylow": spent["pygsp"] / spent["krylow"],
        "ratio pygsp / krylow, all in float64": spent["pygsp"] / spent["krylow, all in float64"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--signals", type=int, default=10)
    parser.add_argument("--order", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    G = graphs.Sensor(args.nodes, seed=args.seed)
    estimated = time.process_time()
    G.estimate_lmax()
    estimated = time.process_time() - estimated
    L, x = kl.laplacian(G.W), np.random.default_rng(args.seed).normal(size=(args.nodes, args.signals))
    results: dict[str, Any] = {}
    for name, (theirs, ours) in cases(G).items():
        if args.only and name not in args.only:
            continue
        results[name] = measure(name, theirs, ours, L, x, args.order, args.repeats)
        print(name, {key: float(f"{value:.3g}") for key, value in results[name].items()}, flush=True)
    if args.out:
        config = {
            "nodes": args.nodes,
            "signals": args.signals,
            "order": args.order,
            "repeats": args.repeats,
            "threads": 1,
            "seconds pygsp, largest eigenvalue": estimated,
        }
        wall = time.perf_counter() - begin
        record = Record.create("filters", config, results, seed=args.seed, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
