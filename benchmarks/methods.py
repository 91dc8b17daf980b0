"""Error, products and seconds of every method, classical and trained, on the graphs of Table 1.

    python benchmarks/methods.py [--data sbm] [--k 6 8 10] [--table1 results/table1] [--out results/methods]

One batch of test graphs in float64, one thread; the methods take turns, medians of the repeats, seconds a graph. The
trained networks are those of the first seed in Table 1's records, read from their parameters: nothing is trained here.
A block model's test graphs are new with every seed, so all seeds' are measured; a data set's splits overlap, and only
the first seed's test graphs are new to its network.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Callable
from typing import Any

import torch
from timing import interleaved
from torch import Tensor

import krylow as kl
from krylow._random import gaussian
from krylow.krylov.chebyshev import chebyshev_filter
from krylow.krylov.lanczos import lanczos
from krylow.krylov.restart import Restart, thick_restart
from krylow.krylov.ritz import ritz, rotate
from krylow.metrics import subspace_error
from krylow.nn import UnrolledLanczos
from krylow.operators import Operator
from krylow_lab.records import Record, find
from krylow_lab.table1.learned import load_task, probe_of, root_network

#: Products, in multiples of k, at which the methods that take a number of them are measured.
BUDGETS = (2, 3, 4, 6, 8, 12)
#: Methods that iterate until a tolerance is met; in a batch, until the slowest graph meets it.
TO_TOLERANCE = ("chebyshev", "lobpcg", "thick_restart", "shift_invert")

Method = Callable[[Operator], Tensor]
#: What a point of a curve is: the curve, whether it was trained, the setting, and what to run.
Point = tuple[str, bool, str, Method]


def classical(record: Record) -> list[Point]:
    """Return the points of the methods without training; the filtered block as the first seed's validation chose it."""
    k = record.config["k"]

    def steps(m: int) -> Method:
        return lambda L: ritz(lanczos(L, gaussian(L, 1), m, reorthogonalize=True), k)[1]

    def restarted(products: int) -> Method:
        settings = Restart(2 * k, products, keep=k + k // 3, recheck=False)
        return lambda L: thick_restart(L, gaussian(L, 1), k, settings).X[..., :k]

    def at_defaults(method: str) -> Method:
        return lambda L: kl.subspace(L, k, method=method).basis

    points: list[Point] = [
        ("torch.linalg.eigh", False, "all eigenpairs", lambda L: torch.linalg.eigh(L.to_dense())[1][..., :k]),
        ("exact", False, f"the {k} lowest eigenpairs", at_defaults("exact")),
    ]
    points += [("Lanczos, a vector a product", False, f"m = {b * k}", steps(b * k)) for b in BUDGETS]
    points += [
        ("thick restart, 2K vectors", False, f"{b * k} products", restarted(b * k)) for b in BUDGETS if b * k > 2 * k
    ]
    for row in record.results["rows"]:
        if row["row"] == "10":
            points.append(
                (row["name"], False, f"{row['budget']} products", _filtered(row["settings"][0], row["budget"]))
            )
    points += [(method, False, "to 1e-3, its default", at_defaults(method)) for method in TO_TOLERANCE]
    return points


def _filtered(settings: dict[str, Any], products: int) -> Method:
    width, sweeps = settings["width"], settings["sweeps"]
    degree = products // (width * sweeps) - 1  # one product a column is for the Rayleigh-Ritz step

    def run(L: Operator) -> Tensor:
        X = gaussian(L, width)
        cut, high = settings["low"] * L.diagonal().mean(-1), L.gershgorin()[1]
        for _ in range(sweeps):
            X = rotate(L, chebyshev_filter(L, X, degree, cut, high, torch.zeros_like(cut))).X
        return X

    return run


def trained(record: Record, n: int) -> list[Point]:
    """Return the points of the networks of the first seed in a record of Table 1."""
    k = record.config["k"]
    points: list[Point] = []
    for row in record.results["rows"]:
        if "parameters" not in row or row["row"] == "4":  # row 4, the probe alone, runs at the speed of rows 6 and 7
            continue
        settings = row["settings"][0]
        if row["row"] == "12":
            net = root_network(k, row["budget"] - 2 * k, *settings["interval"])
            name, setting = "root probe", f"{row['budget']} products"
        else:
            config = {"net": "gammas" if row["row"] == "5" else "probe", "form": row.get("form"), **settings}
            net = UnrolledLanczos(k, 2 * k, probe_of(config, n)).double()
            name, setting = row["name"], f"m = {2 * k}"
            if row["row"] != "5":
                setting = f"p = {settings['power']}, {settings['cg_steps']} CG steps, T = {settings['degree']}"
        net.load_state_dict({key: torch.tensor(p, dtype=torch.float64) for key, p in row["parameters"][0].items()})
        points.append((name, True, setting, _inference(net)))
    return points


def _inference(net: UnrolledLanczos) -> Method:
    def run(L: Operator) -> Tensor:
        with torch.no_grad():
            return net(L).basis

    return run


def measure(record: Record, repeats: int) -> dict[str, Any]:
    """Return the points of one data set and k, each with its error, products and seconds a graph."""
    data, k, seeds = (record.config[key] for key in ("data", "k", "seeds"))
    spectra = load_task(data, tuple(seeds if data == "sbm" else seeds[:1]), dense=True).test
    L, target = spectra.operator(), spectra.target(k)
    graphs = spectra.eigenvalues[..., 0].numel()
    points = classical(record) + trained(record, spectra.n)
    jobs = {str(i): (lambda run=point[-1]: run(L)) for i, point in enumerate(points)}
    seconds, bases = interleaved(jobs, repeats=repeats)
    out = []
    for i, (name, learned, setting, run) in enumerate(points):
        before = L.products
        run(L)
        error = subspace_error(bases[str(i)][..., :k], target).mean()
        out.append(
            {
                "method": name,
                "trained": learned,
                "setting": setting,
                "products": L.products - before,
                "error": float(f"{float(error):.6g}"),
                "seconds": float(f"{seconds[str(i)] / graphs:.4g}"),
            }
        )
        print(
            f"{name:42s} {setting:32s} {out[-1]['products']:6d} {out[-1]['error']:10.3g} {out[-1]['seconds']:10.3g} s"
        )
    return {"points": out, "graphs": graphs, "nodes": spectra.n}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="sbm")
    parser.add_argument("--k", type=int, nargs="+", default=[6, 8, 10])
    parser.add_argument("--table1", default="results/table1", help="folder of the records that hold the networks")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default=None, help="folder for the records; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for k in args.k:
        records = find(args.table1, kind="table1", data=args.data, k=k)
        if not records:
            raise SystemExit(f"{args.table1} has no record of {args.data}, k = {k}: krylow reproduce table1 makes it.")
        source = max(records, key=lambda record: (record.config["grid"] == "full", record.started))
        print(f"{args.data}, k = {k}, networks of {source.file_name}")
        started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
        results = measure(source, args.repeats)
        if args.out:
            config = {"data": args.data, "k": k, "threads": 1, "repeats": args.repeats, "networks": source.file_name}
            wall = time.perf_counter() - begin
            record = Record.create("methods", config, results, seed=0, started=started, wall_seconds=wall)
            print(record.write(args.out))


if __name__ == "__main__":
    main()
