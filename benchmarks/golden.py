"""What krylow answers today, frozen: method, status, products, passes, Ritz values and true error on about 70 graphs.

    OMP_NUM_THREADS=1 python benchmarks/golden.py freeze              write results/golden/golden.json
    OMP_NUM_THREADS=1 python benchmarks/golden.py compare             compare with it, and end in 1 where it differs
    OMP_NUM_THREADS=1 python benchmarks/golden.py compare --products 0.1 --rename lobpcg=davidson

A change that only moves code leaves every digit as it is: ``compare`` without ``--products``. One that changes an
algorithm on purpose keeps methods and statuses, and products within the share it is given. References are ARPACK's or
LAPACK's and are kept in ``build/golden``, since they take longer than the solves that they judge.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from estimates import blocks, hanging, lattice, neighbours, pieces, triangulation
from scipy.sparse.linalg import eigsh

import krylow as kl
from krylow_lab.large.graphs import FAMILIES, make

ROOT = Path(__file__).parents[1]
GOLDEN, REFERENCES = ROOT / "results/golden/golden.json", ROOT / "build/golden"
SIZES, TOLS = (500, 3_000, 20_000), (1e-3, 1e-6)
#: k is the widest relative gap in each of these windows.
WINDOWS = ((4, 14), (18, 30))
#: Methods that are asked for by name, at the first k and the first tolerance.
METHODS = ("exact", "lanczos", "thick_restart", "chebyshev", "multilevel", "davidson", "shift_invert")
#: The graphs that every method is asked for, and the largest that is decomposed.
NAMED, DENSE = ("knn2d 3000", "road 3000", "sbm20 3000", "powerlaw 3000", "knn2d 500", "six orders"), 3_100


def _laplacian(W: Any) -> Any:
    return sp.csr_array(sp.diags_array(np.asarray(W.sum(axis=1)).ravel()) - W)


def _kneser() -> Any:
    from itertools import combinations

    sets = [set(c) for c in combinations(range(7), 3)]
    return np.array([[float(not a & b) for b in sets] for a in sets])


def _clique(n: int) -> Any:
    return sp.csr_array(np.ones((n, n)) - np.eye(n))


def _cliques_on_a_path(size: int, length: int) -> Any:
    path = sp.diags_array([np.ones(length - 1)] * 2, offsets=[-1, 1])
    W = sp.lil_array(sp.block_diag([_clique(size), path, _clique(size)]))
    for a, b in ((size - 1, size), (size + length - 1, size + length)):
        W[a, b] = W[b, a] = 1.0
    return sp.csr_array(W)


def _hard() -> Iterator[tuple[str, Any]]:
    """Return operators that are hard, or unlike the families, by name."""
    rng = np.random.default_rng(7)
    n = 4_000
    turn = rng.random(n) * 9 + 3
    clusters = np.concatenate([rng.normal(c, 0.3, (n // 5, 3)) for c in rng.random((5, 3)) * 4])
    even = np.full(20, 600)
    adjacencies = {
        "Gaussian weights": neighbours(rng.random((n, 2)), 8, 0.6 / n**0.5),
        "clusters": neighbours(clusters, 10),
        "strip": neighbours(rng.random((n, 2)) * [30, 1], 6),
        "roll": neighbours(np.c_[turn * np.cos(turn), turn * np.sin(turn), rng.random(n) * 10], 10),
        "triangulation": triangulation(rng.random((n, 2)), lambda m: rng.random(m) + 0.01),
        "six orders": triangulation(rng.random((n, 2)), lambda m: 10 ** rng.uniform(-6, 0, m)),
        "fourteen orders": triangulation(rng.random((n, 2)), lambda m: 10 ** rng.uniform(-14, 0, m)),
        "square": lattice(61, 61),
        "cube": lattice(16, 16, 16),
        "two pieces": pieces(rng, n, 0.0),
        "bridge": pieces(rng, n, 0.01),
        "blocks": blocks(rng, even, 20, 2),
        "blocks of all sizes": blocks(rng, np.maximum(60, rng.dirichlet(np.full(20, 0.7)) * 9_000).astype(int), 20, 2),
        "wide degrees": blocks(rng, even, 20, 2, rng.pareto(2.5, int(even.sum())) + 0.3),
        "blocks and chains": hanging(rng, blocks(rng, even, 20, 2), 6, 15),
        "five dimensions": neighbours(rng.random((n, 5)), 8),
        "barbell": _cliques_on_a_path(300, 900),
        "cycle": sp.csr_array(
            sp.diags_array(
                [[1.0], np.ones(3_197), np.ones(3_197), [1.0]], offsets=[-3197, -1, 1, 3197], shape=(3198, 3198)
            )
        ),
        "islands": sp.block_diag([neighbours(rng.random((300, 2)), 6) for _ in range(12)], format="csr"),
    }
    for name, W in adjacencies.items():
        yield name, kl.laplacian(sp.csr_array(W))
    yield "Kneser", kl.laplacian(_kneser())
    path = np.diag(np.ones(59), 1)
    yield "path", kl.laplacian(path + path.T)
    yield "knn normalized", kl.laplacian(adjacencies["Gaussian weights"], "normalized")
    yield "barbell normalized", kl.laplacian(adjacencies["barbell"], "normalized")
    yield "blocks normalized", kl.laplacian(adjacencies["blocks"], "normalized")
    loops = adjacencies["strip"] + sp.diags_array((rng.random(n) < 0.01) * 0.5)
    yield "self-loops", kl.laplacian(sp.csr_array(loops), "generalized")
    signed = adjacencies["roll"].copy()
    signs = sp.triu(signed, 1)
    signs.data = np.where(rng.random(signs.nnz) < 0.02, -0.1, 1.0)
    yield "signed", kl.laplacian(sp.csr_array(signs + signs.T))
    yield "knn float32", kl.laplacian(adjacencies["Gaussian weights"]).float()
    yield "six orders float32", kl.laplacian(adjacencies["six orders"]).float()
    yield "barbell float32", kl.laplacian(adjacencies["barbell"], "normalized").float()
    dense = kl.laplacian(adjacencies["clusters"][:1_500][:, :1_500].toarray())
    yield "dense 1500", dense
    yield "function", kl.operators.FunctionOperator(lambda X, L=dense: L @ X, 1_500, dtype=torch.float64)


def _batch(n: int, count: int) -> Any:
    rng = np.random.default_rng(11)
    graphs = []
    for _ in range(count):
        block = np.arange(n) % 4
        W = np.triu(rng.random((n, n)) < np.where(block[:, None] == block, 0.35, 0.04), 1).astype(float)
        graphs.append(W + W.T)
    return kl.laplacian(torch.tensor(np.stack(graphs)))


def graphs() -> Iterator[tuple[str, Any]]:
    """Return all operators by name."""
    for n in SIZES:
        for family in FAMILIES:
            yield f"{family} {n}", kl.laplacian(_adjacency(make(family, n, 0)))
    yield from _hard()
    yield "batch 100", _batch(100, 8)
    yield "batch 30", _batch(30, 20)
    yield (
        "sizes",
        kl.laplacian([_batch(n, 1).to_dense()[0] * -1 + torch.diag(_batch(n, 1).diagonal()[0]) for n in (40, 60, 80)]),
    )


def _adjacency(L: Any) -> Any:
    W = -L
    W.setdiag(0)
    W.eliminate_zeros()
    return W


def reference(name: str, L: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest eigenvalues and vectors, ``(*batch, 31)`` and ``(*batch, n, 31)``, kept between runs."""
    kept = REFERENCES / f"{name.replace(' ', '-')}.npz"
    if kept.exists():
        found = np.load(kept)
        return found["values"], found["vectors"]
    most = min(WINDOWS[-1][1] + 1, L.n)
    if L.batch_shape or L.n <= DENSE or name == "function":
        padding = torch.arange(L.n) >= L.sizes[..., None]  # of the smaller graphs of a batch: put last
        values, vectors = np.linalg.eigh((L.to_dense().double() + 1e6 * torch.diag_embed(padding.double())).numpy())
        values, vectors = values[..., :most], vectors[..., :most]
    else:
        A, start = sp.csc_array(L.to_scipy()).astype(float), np.random.default_rng(0).standard_normal(L.n)
        dense = any(word in name for word in ("sbm", "world", "power", "blocks", "five", "degrees"))
        scale = float(A.diagonal().max())
        if dense:
            values, vectors = eigsh(A, most, which="SA", ncv=160, v0=start, tol=1e-13, maxiter=5_000)
        else:
            values, vectors = eigsh(A, most, sigma=-1e-9 * scale, which="LM", ncv=120, v0=start, tol=0)
        order = np.argsort(values)
        values, vectors = values[order], np.linalg.qr(vectors[:, order])[0]
    REFERENCES.mkdir(parents=True, exist_ok=True)
    np.savez(kept, values=values, vectors=vectors)
    return values, vectors


def _cuts(values: np.ndarray, n: int) -> list[int]:
    """Return the widest relative gap of the first graph in each window that it has."""
    first = values.reshape(-1, values.shape[-1])[0]
    cuts = []
    for low, high in WINDOWS:
        high = min(high, n - 2, len(first) - 1)
        if low < high:
            gaps = (first[low : high + 1] - first[low - 1 : high]) / first[low : high + 1].clip(1e-300)
            cuts.append(low + int(gaps.argmax()))
    return cuts


def _row(name: str, L: Any, k: int, tol: float, method: str, truth: np.ndarray) -> dict[str, Any]:
    asked = {"graph": name, "k": k, "tol": tol, "asked": method}
    try:
        sub = kl.subspace(L, k=k, tol=tol, method=method)
        U, V = truth[..., :k], sub.basis.double().numpy()
        error = 1 - (np.swapaxes(U, -1, -2) @ V).__pow__(2).sum((-1, -2)) / k
        return asked | {
            "method": sub.method,
            "status": np.ravel(sub.status).astype(str).tolist() if L.batch_shape else sub.status.name,
            "products": sub.products,
            "passes": sub.passes,
            "ritz": sub.ritz_values.double().numpy().reshape(-1, k)[0].tolist(),
            "error": float(np.max(error)),
        }
    except kl.InputError as refused:
        return asked | {"refused": str(refused)}


def rows_of(name: str) -> list[dict[str, Any]]:
    """Return all rows of the graph of this name."""
    torch.set_num_threads(1)
    L = dict(graphs())[name]
    values, vectors = reference(name, L)
    cuts = _cuts(values, int(L.sizes.min()))
    asked = [(k, tol, "auto") for k in cuts for tol in TOLS]
    if name in NAMED:
        asked += [(cuts[0], TOLS[0], method) for method in METHODS]
    return [_row(name, L, k, tol, method, vectors) for k, tol, method in asked]


def differences(old: dict[str, Any], new: dict[str, Any], share: float | None, names: dict[str, str]) -> list[str]:
    """Return what differs between two rows of one question, in words."""
    old = old | {"method": names.get(old.get("method", ""), old.get("method"))}
    if "refused" in old or "refused" in new:
        return [] if ("refused" in old) == ("refused" in new) else [f"refused: {new.get('refused', 'no longer')}"]
    if share is None:
        return [
            f"{key}: {old[key]} -> {new[key]}" for key in old if key not in ("asked", "error") and old[key] != new[key]
        ]
    found = [f"{key}: {old[key]} -> {new[key]}" for key in ("method", "status") if old[key] != new[key]]
    if new["products"] > (1 + share) * old["products"]:
        found.append(f"products: {old['products']} -> {new['products']}")
    if new["error"] > max(2 * old["error"], new["tol"]):
        found.append(f"error: {old['error']:.1e} -> {new['error']:.1e}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("freeze", "compare"))
    parser.add_argument("--only", nargs="*", help="graphs whose names begin so")
    parser.add_argument("--products", type=float, help="allowed share of more products; without it every digit counts")
    parser.add_argument("--rename", nargs="*", default=[], metavar="OLD=NEW", help="methods that have another name now")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    names = [name for name, _ in graphs() if not args.only or any(name.startswith(word) for word in args.only)]
    renamed = dict(pair.split("=") for pair in args.rename)
    with ProcessPoolExecutor(args.workers) as pool:
        rows = [row for part in pool.map(rows_of, names) for row in part]
    if args.what == "freeze":
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
        print(f"{len(rows)} answers on {len(names)} graphs")
        return 0
    key = lambda row: (row["graph"], row["k"], row["tol"], renamed.get(row["asked"], row["asked"]))  # noqa: E731
    former = {key(row): row for row in json.loads(GOLDEN.read_text())}
    bad = 0
    for row in rows:
        old = former.get(key(row))
        for text in ["is new"] if old is None else differences(old, row, args.products, renamed):
            bad += 1
            print(*key(row), text, sep="  ")
    print(f"{len(rows)} answers on {len(names)} graphs, {bad} differences")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
