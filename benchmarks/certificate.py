"""How sharp the certificate is: proved bounds over true errors on block models.

    python benchmarks/certificate.py [--out results/certificate]

Lanczos with 30 steps on graphs of 60 nodes, k = 4 and 6, float64. "plain" is Davis and Kahan's bound with the
residual of L and one gap, from the same floor.
"""

from __future__ import annotations

import argparse
import datetime
import time

import torch

import krylow as kl
from krylow_lab.records import Record

NODES, STEPS, KS = 60, 30, (4, 6)


def measure(graphs: int, seed: int) -> dict[str, dict[str, float]]:
    W = kl.data.sbm(graphs, n=NODES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    L = kl.laplacian(W)
    _, U = torch.linalg.eigh(L.to_dense())
    results = {}
    for k in KS:
        found = kl.subspace(L, k, method="lanczos", m=STEPS)
        error, bound = kl.metrics.subspace_error(found.basis, U[..., :k]), found.error_bound
        gap = found.certificate.floor - found.ritz_values[..., -1]
        plain = (found.residuals.square().mean(-1) / gap.square()).clamp(max=1)
        seen = bound.isfinite()
        results[f"k={k}"] = {
            "graphs": graphs,
            "finite bounds": int(seen.sum()),
            "bounds below the error": int((bound < error).sum()),
            "errors at most 1e-3": int((error <= 1e-3).sum()),
            "of these certified": int((found.statuses == kl.Status.CONVERGED).sum()),
            "median bound / error": float((bound / error)[seen].median()),
            "median plain bound / error": float((plain / error)[seen].median()),
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    results = measure(args.graphs, args.seed)
    for name, row in results.items():
        print(name, row)
    if args.out:
        config = {"graphs": args.graphs, "nodes": NODES, "steps": STEPS}
        wall = time.perf_counter() - begin
        record = Record.create("certificate", config, results, seed=args.seed, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
