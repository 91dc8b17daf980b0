"""The fused sparse kernel beside torch, scipy and the memory's own speed, all in one run.

    python benchmarks/kernel.py [--nodes 1000000] [--columns 32] [--threads 1] [--out results/kernel]

One step a L X + b X + c Y on a 2D k-NN graph (k = 10) in breadth-first order, in random order, and on a random graph of
the same size. Bytes are the compulsory ones, each number once: matrix with int32 indices, X, Y, result. Triad
(z = x + s y over arrays as large as a block of 32 columns, three numbers an element) is what memory gives in the same
run, with the same threads. torch and scipy have no fused step: theirs is L @ X followed by torch's own sums; "scipy in
place" is scipy's own loop, which adds L X to a block that is there already, and the sums in place.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse
import torch
from scipy.sparse import _sparsetools
from scipy.spatial import cKDTree
from timing import interleaved

import krylow as kl
from krylow._memory import empty
from krylow.operators import SparseOperator
from krylow.operators.ordering import breadth_first_search, permuted
from krylow_lab.records import Record

#: Triad runs over arrays as large as a block of this many columns, whatever the block is.
TRIAD_COLUMNS = 32


def neighbours(n: int, seed: int, k: int = 10) -> SparseOperator:
    points = np.random.default_rng(seed).random((n, 2))
    near = cKDTree(points).query(points, k + 1)[1][:, 1:]
    W = scipy.sparse.csr_array((np.ones(n * k), (np.repeat(np.arange(n), k), near.ravel())), shape=(n, n))
    return kl.laplacian(W.maximum(W.T))


def random(n: int, seed: int, degree: int = 12) -> SparseOperator:
    i, j = np.random.default_rng(seed).integers(0, n, (2, n * degree // 2))
    apart = i != j
    W = scipy.sparse.csr_array((np.ones(apart.sum()), (i[apart], j[apart])), shape=(n, n))
    return kl.laplacian(W + W.T)


def triad_job(size: int, dtype: torch.dtype) -> Callable[[], object]:
    x, y, z = (empty(size, dtype=dtype).fill_(1.0) for _ in range(3))
    return lambda: torch.add(x, y, alpha=3.0, out=z)


def measure(L: SparseOperator, columns: int, repeats: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    # In large pages, as the methods' blocks are, and numpy's arrays for triad.
    X, Y, out, own = (empty(L.n, columns, dtype=L.dtype) for _ in range(4))
    own.copy_(Y.normal_(generator=generator))
    X.normal_(generator=generator)
    crow, col = L.host_indices()
    values = L.values.to(L.dtype)
    rows = scipy.sparse.csr_array((values.numpy(), col, crow), shape=L.shape)
    tensor = torch.sparse_csr_tensor(torch.from_numpy(crow), torch.from_numpy(col), values, size=tuple(L.shape))
    a, b, c = 2.0, -0.5, 0.25
    sums = empty(L.n, columns, dtype=L.dtype)

    def scipy_in_place() -> torch.Tensor:
        sums.zero_()
        parts = (rows.indptr, rows.indices, rows.data, X.numpy().ravel(), sums.numpy().ravel())
        _sparsetools.csr_matvecs(L.n, L.n, columns, *parts)
        return sums.mul_(a).add_(X, alpha=b).add_(Y, alpha=c)

    seconds, answers = interleaved(
        {
            "triad": triad_job(TRIAD_COLUMNS * L.n, X.dtype),
            "fused": lambda: L.three_term(X, Y, a, b, c, out=out),
            "fused in place": lambda: L.three_term(X, own, a, b, c, out=own),
            "scipy in place": scipy_in_place,
            "scipy": lambda: a * torch.from_numpy(rows @ X.numpy()) + b * X + c * Y,
            "torch": lambda: a * (tensor @ X) + b * X + c * Y,
            "product, ours": lambda: L @ X,
            "product, scipy": lambda: rows @ X.numpy(),
            "product, torch": lambda: tensor @ X,
        },
        repeats=repeats,
    )
    size = X.element_size()
    moved = crow.nbytes + col.nbytes + L.values.nbytes + 3 * X.numel() * size
    speed = 3 * TRIAD_COLUMNS * L.n * size / seconds["triad"]
    steps = ("fused", "fused in place", "scipy in place", "scipy", "torch")
    return {
        "gigabytes a second, triad": speed / 1e9,
        **{f"seconds {name}": value for name, value in seconds.items() if name != "triad"},
        **{f"part of triad, {name}": moved / seconds[name] / speed for name in steps},
        "largest difference to scipy": float((answers["fused"] - answers["scipy"]).abs().max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, nargs="+", default=[32, 1])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    graph = neighbours(args.nodes, args.seed)
    order = torch.from_numpy(breadth_first_search(graph).order)
    graphs = {"k-NN in order": permuted(graph, order).operator, "k-NN": graph, "random": random(args.nodes, args.seed)}
    results: dict[str, float] = {}
    for name, L in graphs.items():
        for columns in args.columns:
            kinds = {"float32": L.like(L.values.float()), "float64": L}
            for dtype, A in kinds.items():
                for key, value in measure(A, columns, args.repeats).items():
                    results[f"{name}, {columns} columns, {dtype}: {key}"] = value
                    print(f"{name}, {columns:3d} columns, {dtype}: {key:30s} {value:.4g}", flush=True)
    if args.out:
        config = {"nodes": args.nodes, "columns": args.columns, "threads": args.threads, "repeats": args.repeats}
        wall = time.perf_counter() - begin
        record = Record.create("kernel", config, results, seed=args.seed, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
