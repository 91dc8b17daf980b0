"""What a backward pass costs over the forward pass on large sparse graphs, and how exact the gradient is.

    python benchmarks/gradients.py [--threads 1] [--repeats 7] [--n 100000] [--small 20000] [--out results/gradients]

The loss is a random linear function of `lowpass(L, x, k)` for random signals; the gradient is that with respect to the
weights of the edges. Cost at `--n` nodes: processor seconds of `kl.subspace` and its projection (forward) and of
`backward()` from there to the entries of L, medians; `with edges` has both with the way from a tensor of edge weights
to L. Accuracy at `--small` nodes: the relative error of the gradient over all edges, against eigenvectors for a squared
error of 1e-12 and an adjoint equation solved to 1e-9 by diagonally preconditioned conjugate gradients.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
from typing import Any

import torch
from torch import Tensor

import krylow as kl
from krylow.graph import as_operator
from krylow.krylov.cg import conjugate_gradients
from krylow.metrics import subspace_error
from krylow.operators import SparseOperator
from krylow_lab.large.graphs import make
from krylow_lab.records import Record

FAMILIES = {"knn2d": None, "knn3d": None, "grid": None, "road": None, "sbm20": 20, "smallworld": None, "powerlaw": None}
WINDOW = range(7, 15)
TOLERANCES = (1e-2, 1e-3, 1e-5)


def cut_of(L: SparseOperator, k: int | None) -> int:
    """Return k, or the widest relative gap of a window where there is none."""
    if k is not None:
        return k
    lam = kl.subspace(L, WINDOW.stop, tol=1e-4).ritz_values
    return WINDOW.start + int((lam[WINDOW.start :] / lam[WINDOW.start - 1 : -1]).argmax())


def signals(n: int, seed: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    x, c = torch.randn(2, n, 1, dtype=torch.float64, generator=source)
    return x, c


def edges(L: SparseOperator) -> tuple[Tensor, Tensor, Tensor]:
    """Return the ends of the edges, and where they are among the entries."""
    row, col = L.row, L.col.long()
    upper = row < col
    return row[upper], col[upper], upper


def run(L: SparseOperator, k: int, tol: float, x: Tensor, c: Tensor) -> tuple[dict[str, Any], Tensor, kl.Subspace]:
    """Return what one forward and one backward pass cost, the gradient of the edges, and the subspace."""
    values = L.values.clone().requires_grad_()
    fresh = L.like(values)
    begin = time.process_time()
    found = kl.subspace(fresh, k, tol=tol)
    loss = (c * found.project(x)).sum()
    forward, products = time.process_time() - begin, fresh.products
    begin = time.process_time()
    loss.backward()
    backward = time.process_time() - begin
    assert values.grad is not None
    row, col, upper = edges(L)
    diagonal = torch.zeros(L.n, dtype=torch.float64).index_add(0, L.col.long(), values.grad * (L.row == L.col))
    gradient = diagonal[row] + diagonal[col] - 2 * values.grad[upper]
    spent = {"forward": forward, "backward": backward, "products": products, "more": fresh.products - products}
    return spent, gradient, found


def run_edges(L: SparseOperator, k: int, x: Tensor, c: Tensor) -> tuple[float, float]:
    """Return the seconds of a forward and a backward pass that begin at a tensor of edge weights."""
    row, col, upper = edges(L)
    weights = (-L.values[upper]).requires_grad_()
    begin = time.process_time()
    both = torch.stack([torch.cat([row, col]), torch.cat([col, row])])
    A = kl.laplacian((both, torch.cat([weights, weights])), num_nodes=L.n)
    loss = (c * kl.lowpass(A, x, k)).sum()
    forward = time.process_time() - begin
    begin = time.process_time()
    loss.backward()
    return forward, time.process_time() - begin


def reference(L: SparseOperator, k: int, x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of the edges and the subspace, both nearly exact."""
    found = kl.subspace(L, k, tol=1e-12)
    U, theta = found.basis, found.ritz_values
    inverse = L.diagonal().reciprocal()[:, None]

    def outside(X: Tensor) -> Tensor:
        return X - U @ (U.mT @ X)

    right = -outside(c @ (x.mT @ U) + x @ (c.mT @ U))
    W = conjugate_gradients(
        lambda X: outside(L @ X) - theta * X,
        right,
        steps=20_000,
        tol=1e-9,
        preconditioner=lambda R: outside(inverse * R),
    )
    row, col, _ = edges(L)
    return ((W[row] - W[col]) * (U[row] - U[col])).sum(1), U


def cost(family: str, n: int, seed: int, repeats: int) -> dict[str, Any]:
    L = as_operator(make(family, n, seed))
    k, (x, c) = cut_of(L, FAMILIES[family]), signals(L.n, seed)
    runs = [run(L, k, 1e-3, x, c) for _ in range(repeats + 1)][1:]
    whole = [run_edges(L, k, x, c) for _ in range(max(3, repeats // 2) + 1)][1:]
    forward, backward = (statistics.median(spent[part] for spent, _, _ in runs) for part in ("forward", "backward"))
    spent, _, found = runs[-1]
    edge_forward, edge_backward = (statistics.median(part) for part in zip(*whole, strict=True))
    return {
        "n": L.n,
        "k": k,
        "method": found.method,
        "status": found.status.name,
        "forward": forward,
        "backward": backward,
        "ratio": backward / forward,
        "products": {"forward": spent["products"], "backward": spent["more"]},
        "with edges": {"forward": edge_forward, "backward": edge_backward, "ratio": edge_backward / edge_forward},
    }


def accuracy(family: str, n: int, seed: int) -> dict[str, Any]:
    L = as_operator(make(family, n, seed))
    k, (x, c) = cut_of(L, FAMILIES[family]), signals(L.n, seed)
    exact, U = reference(L, k, x, c)
    rows: dict[str, Any] = {"n": L.n, "k": k}
    for tol in TOLERANCES:
        _, gradient, found = run(L, k, tol, x, c)
        error = float(torch.linalg.vector_norm(gradient - exact) / torch.linalg.vector_norm(exact))
        rows[f"{tol:g}"] = {"subspace": float(subspace_error(found.basis.detach(), U)) ** 0.5, "gradient": error}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--small", type=int, default=20_000)
    parser.add_argument("--only", nargs="*", default=None, help="names of families")
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    results = {}
    for family in args.only or FAMILIES:
        row = cost(family, args.n, args.seed, args.repeats)
        row["accuracy"] = accuracy(family, args.small, args.seed)
        results[family] = row
        errors = ", ".join(f"{tol:g}: {row['accuracy'][f'{tol:g}']['gradient']:.1e}" for tol in TOLERANCES)
        print(
            f"{family:11s} k={row['k']:2d} {row['method']:12s} forward {row['forward']:.3f} backward "
            f"{row['backward']:.3f} = {row['ratio']:.2f}; with edges {row['with edges']['ratio']:.2f}; products "
            f"{row['products']['forward']} and {row['products']['backward']}; gradient's error at tol {errors}",
            flush=True,
        )
    if args.out:
        config = {"threads": args.threads, "repeats": args.repeats, "n": args.n, "small": args.small}
        wall = time.perf_counter() - begin
        record = Record.create("gradients", config, results, seed=args.seed, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
