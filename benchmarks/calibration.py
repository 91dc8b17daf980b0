"""How often an answer that is called CONVERGED is wrong beyond 2,048 nodes, ours and scipy's, by family and method.

    python benchmarks/calibration.py --seconds 3000 [--seed 1] [--log build/calibration] [--out results/calibration]

Graphs of 2,100 to 8,000 nodes of families, and with seeds, that no constant of the library was chosen on; five cuts of
each (at gaps, in a multiplicity where there is one, anywhere), each with a tolerance of its own, through `auto` and
through every method for large graphs by name. The truth is LAPACK's, or that of a counted inverse. The same questions
go to scipy's eigsh (shift-invert, and plain) and lobpcg. One line a graph is appended to a log, and a run goes on where
the last one ended; `--out` makes the record from the log, with no further solve where `--seconds 0` says so.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg, splu

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import krylow as kl
from krylow_lab.records import Record
from soak.case import Truth, error_of, truth_of
from soak.families import FAMILIES, reweighted
from soak.unseen import UNSEEN

METHODS = (
    "auto",
    "chebyshev",
    "multilevel",
    "davidson",
    "shift_invert",
    "lobpcg",
    "lanczos",
    "thick_restart",
)
TOLS = (1e-2, 1e-3, 1e-3, 1e-4, 1e-6, 1e-8)
CUTS = ("gap", "any", "tie", "gap", "any")
#: On a graph these are asked at so many cuts only, since they take long.
FEW = {"lobpcg": 2, "thick_restart": 2} | dict.fromkeys(
    ("scipy lobpcg", "scipy lobpcg, tol", "scipy eigsh, SM", "scipy eigsh, SA, tol"), 1
)
#: Families of the soak that are in no benchmark from which a constant came.
OTHERS = (
    "torus",
    "wheel",
    "recursive tree",
    "deep tree",
    "binary tree",
    "caterpillar",
    "spider",
    "sunlet",
    "lollipop",
    "barbell",
    "cliques in a row",
    "hypercube",
    "cycle times cube",
    "circulant",
    "Moebius ladder",
    "Kronecker",
    "R-MAT",
    "expander",
    "two expanders",
    "random pairs",
    "sparse random pairs",
    "preferential attachment",
    "equal graphs",
    "unlike graphs",
)
GRAPHS = {name: FAMILIES[name] for name in OTHERS} | UNSEEN
#: Of these an inverse is dense: no more nodes than LAPACK does in seconds.
FILLED = {"hypercube", "cycle times cube", "circulant", "Kronecker", "R-MAT", "expander", "two expanders"} | {
    *("random pairs", "preferential attachment", "hyperbolic", "Kleinberg", "de Bruijn", "affiliation"),
    *("copying model", "Apollonian", "lollipop", "barbell"),
}
#: Largest k; products that a method may spend on a wanted vector; processor seconds of one of scipy's solves.
LARGEST_K, MOST_PRODUCTS, PATIENCE = 30, {"lobpcg": 80, "thick_restart": 80, "lanczos": None}, 1.0


def graph(number: int, seed: int) -> tuple[str, dict[str, Any], sp.csr_array]:
    """Return the family, the description and the adjacency of the graph of a number."""
    rng = np.random.default_rng([seed, number, 5])
    name = list(GRAPHS)[number % len(GRAPHS)]
    most = 2500 if name in FILLED else 8000
    wanted = int(np.exp(np.log(2150) + rng.random() ** 2 * np.log(most / 2150)))
    weights = str(rng.choice(["unit", "unit", "unit", "lognormal", "lognormal", "Pareto", "Pareto", "twelve orders"]))
    kind = str(rng.choice(["combinatorial", "combinatorial", "normalized", "generalized"]))
    n = wanted
    for _ in range(12):  # some families make fewer nodes, or pieces
        W = reweighted(GRAPHS[name](n, rng), weights, rng)
        pieces = connected_components(W)[1]
        if np.bincount(pieces).max() < 0.9 * W.shape[0] and name not in ("equal graphs", "unlike graphs"):
            kept = np.flatnonzero(pieces == np.bincount(pieces).argmax())
            W = W[kept][:, kept]
        if W.shape[0] > 2060:
            break
        n = int(1.35 * n)
    if kind == "generalized":
        W = W + sp.diags_array((rng.random(W.shape[0]) < 0.1) * rng.uniform(0.1, 2, W.shape[0]))
    order = rng.permutation(W.shape[0])
    W = sp.csr_array(sp.csr_array(W)[order][:, order])
    dtype = str(rng.choice(["float64", "float64", "float64", "float32"]))
    said = {"family": name, "n": W.shape[0], "weights": weights, "kind": kind, "dtype": dtype}
    return name, said, W


def cuts(truth: Truth, rng: np.random.Generator) -> Iterator[tuple[int, float]]:
    """Return cuts and tolerances: at a gap, anywhere, and in a multiplicity where there is one."""
    most = min(LARGEST_K, truth.values.size - 1)
    if most < 1:
        return
    gaps, beyond = np.diff(truth.values)[:most], np.abs(truth.values[1 : most + 1])
    wide, tied = np.flatnonzero(gaps > 0.02 * beyond), np.flatnonzero(gaps <= truth.doubt)
    for cut in CUTS:
        among = {"gap": wide, "tie": tied}.get(cut, np.arange(most))
        yield int(rng.choice(among if among.size else np.arange(most))) + 1, float(rng.choice(TOLS))


def ours(L: Any, k: int, tol: float, method: str) -> dict[str, Any]:
    """Return one row of a solve by krylow."""
    begin, each = time.process_time(), MOST_PRODUCTS.get(method, 600)
    try:
        sub = kl.subspace(L, k, tol=tol, method=method, max_products=each and each * (k + 8))
        said = {"status": sub.status.name, "bound": float(sub.error_bound), "proved": sub.certificate.proved}
    except kl.InputError as refused:
        return {"status": "refused", "why": str(refused)}
    said |= {"used": sub.method, "products": sub.products, "seconds": time.process_time() - begin}
    return said | {"basis": sub.basis.detach().double().numpy()}


class GivenUp(Exception):
    """A solve of scipy's has taken all the seconds that it is given."""


def patient(n: int, apply: Callable[[np.ndarray], np.ndarray]) -> LinearOperator:
    """Return an operator that gives up after ``PATIENCE`` processor seconds."""
    end = time.process_time() + PATIENCE

    def product(x: np.ndarray) -> np.ndarray:
        if time.process_time() > end:
            raise GivenUp
        return apply(x)

    return LinearOperator((n, n), matvec=product, matmat=product, dtype=np.float64)


def peers(A: sp.csr_array, k: int, tol: float) -> dict[str, Callable[[], np.ndarray]]:
    """Return what a user of scipy would call, by name: at the default tolerance, and at ``tol``."""
    n, rng = A.shape[0], np.random.default_rng(0)
    v0, X = rng.standard_normal(n), rng.standard_normal((n, k))
    shift = -1e-6 * float(A.diagonal().max())

    def inverse(tol: float) -> np.ndarray:
        factor = splu(sp.csc_array(A - shift * sp.eye_array(n)))  # as eigsh does it itself
        return eigsh(A, k, sigma=shift, OPinv=patient(n, factor.solve), v0=v0, tol=tol)[1]

    def block(**options: Any) -> np.ndarray:
        return lobpcg(patient(n, lambda x: A @ x), X, largest=False, **options)[1]

    return {
        "scipy eigsh, shift-invert": lambda: inverse(0),
        "scipy eigsh, shift-invert, tol": lambda: inverse(tol),
        "scipy eigsh, SM": lambda: eigsh(patient(n, lambda x: A @ x), k, which="SM", v0=v0)[1],
        "scipy eigsh, SA, tol": lambda: eigsh(patient(n, lambda x: A @ x), k, which="SA", v0=v0, tol=tol)[1],
        "scipy lobpcg": lambda: block(),
        "scipy lobpcg, tol": lambda: block(tol=tol, maxiter=200),
    }


def theirs(call: Callable[[], np.ndarray]) -> dict[str, Any]:
    """Return one row of a solve by a peer: "answered", "warned", "raised" or "given up"."""
    begin, basis = time.process_time(), None
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            basis, status = call(), "answered"
        except GivenUp:
            status = "given up"
        except Exception as broken:  # whatever it raises is told to its user
            status, heard = f"raised {type(broken).__name__}", []
    said = [w for w in heard if issubclass(w.category, (UserWarning, RuntimeWarning))]
    row = {"status": "warned" if said and status == "answered" else status, "seconds": time.process_time() - begin}
    if said:
        row["why"] = str(said[0].message)[:80]
    return row if basis is None else row | {"basis": basis}


def solves(number: int, seed: int, most: int) -> list[dict[str, Any]]:
    """Return the rows of one graph: one a cut and method, and of the first ``most`` graphs one a cut and peer."""
    _, said, W = graph(number, seed)
    begin = time.process_time()
    A = sp.csr_array(kl.laplacian(W, said["kind"]).to_scipy())
    truth = truth_of(A, LARGEST_K + 14)
    said |= {"number": number, "truth seconds": time.process_time() - begin}
    if truth is None:
        return [said | {"status": "no truth"}]
    L, rows = kl.laplacian(W, said["kind"]).to(getattr(torch, said["dtype"])), []
    for i, (k, tol) in enumerate(cuts(truth, np.random.default_rng([seed, number, 6]))):
        asked = said | {"k": k, "tol": tol}
        calls: dict[str, Callable[[], dict[str, Any]]] = {name: partial(ours, L, k, tol, name) for name in METHODS}
        if number < most:
            calls |= {name: partial(theirs, call) for name, call in peers(A, k, tol).items()}
        answers = {name: call() for name, call in calls.items() if i < FEW.get(name, len(CUTS))}
        for method, row in answers.items():
            basis = row.pop("basis", None)
            measured = {} if basis is None else error_of(truth, k, basis, said["dtype"])
            rows.append(asked | {"method": method} | row | measured)
    return rows


def verdict(row: dict[str, Any]) -> str:
    """Return what a row comes to, where the cut is at a gap that the truth knows."""
    if row["status"] == "no truth":
        return "no truth"
    if row["status"] not in ("CONVERGED", "answered"):
        return "told"
    if not row["defined"]:
        return "no gap"
    if row["error"] > 10 * row["tol"] + row["known"]:
        return "wrong"
    bound = row.get("bound", np.inf)
    return "above bound" if row["error"] > bound + row["known"] + 1e-14 else "right"


def counted(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return what is in the tables: solves, how many were called right, and how many of these were not."""
    found = [verdict(row) for row in rows]
    called = [row for row, what in zip(rows, found, strict=True) if what in ("right", "wrong", "above bound")]
    ends: dict[str, int] = defaultdict(int)
    for row in rows:
        ends[row["status"].split(" ")[0]] += 1
    return {
        "solves": len(rows),
        "called converged": len(called),
        "above 10 tol": found.count("wrong"),
        "above its bound": sum(row["error"] > row.get("bound", np.inf) + row["known"] + 1e-14 for row in called),
        "converged without a gap": found.count("no gap"),
        "ends": dict(ends),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return counts by method, by family for ours, and every row that is not in order."""
    rows = [row for row in rows if row["status"] != "no truth"]
    own = [row for row in rows if row["method"] in METHODS]
    methods = dict.fromkeys(row["method"] for row in rows)
    by = {
        "method": {name: [row for row in rows if row["method"] == name] for name in methods},
        "family": {name: [row for row in own if row["family"] == name] for name in GRAPHS},
    }
    tables = {key: {name: counted(found) for name, found in groups.items() if found} for key, groups in by.items()}
    ill = [row for row in own if row["status"] == "CONVERGED" and verdict(row) in ("wrong", "above bound")]
    graphs = len({row["number"] for row in rows})
    return {"graphs": graphs, "all of krylow": counted(own), "by": tables, "not in order": ill}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, default=Path("build/calibration"))
    parser.add_argument("--peers", type=int, default=54, help="scipy is asked on so many graphs only")
    parser.add_argument("--numbers", type=int, nargs="*", help="solve these graphs alone, and print what they come to")
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    for number in args.numbers or ():
        for row in solves(number, args.seed, args.peers):
            print(verdict(row), json.dumps(row))
    if args.numbers:
        return
    args.log.mkdir(parents=True, exist_ok=True)
    log = args.log / f"{args.seed}.jsonl"
    whole = [line for line in (log.read_text().splitlines() if log.exists() else []) if line.endswith("]")]
    log.write_text("".join(line + "\n" for line in whole))  # without the line that an interruption has cut
    with log.open("a") as out:
        while time.perf_counter() - begin < args.seconds:
            whole.append(json.dumps(solves(len(whole), args.seed, args.peers)))
            print(whole[-1], file=out, flush=True)
    rows = [row for line in whole for row in json.loads(line)]
    found = summary(rows)
    print(json.dumps({key: found[key] for key in ("graphs", "all of krylow")}, indent=1))
    if args.out:
        wall = sum(row.get("seconds", 0.0) for row in rows)
        config = {"seed": args.seed, "graphs": found["graphs"], "methods": list(METHODS), "tols": list(TOLS)}
        record = Record.create("calibration", config, found, seed=args.seed, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
