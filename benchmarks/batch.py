"""A batch of small graphs: krylow beside PyG's AddLaplacianEigenvectorPE and batched torch.linalg.eigh.

    python benchmarks/batch.py [--graphs 512] [--nodes 100] [--k 8] [--threads 1] [--out results/batch]

Same graphs, same normalised Laplacian, float32, same threads; each takes its own input form (PyG a list of Data,
krylow the same list, eigh the dense batch). Errors are against eigh in float64, over the graphs with a real gap at k.
"""

from __future__ import annotations

import argparse
import datetime
import time

import torch
from timing import interleaved
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE
from torch_geometric.utils import dense_to_sparse

import krylow as kl
from krylow_lab.records import Record

#: A gap below this is no gap to compare subspaces at.
REAL_GAP = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=512)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    results = measure(args.graphs, args.nodes, args.k, args.seed, args.repeats)
    for name, value in results.items():
        print(f"{name:42s} {value:.4g}")
    if args.out:
        config = {"graphs": args.graphs, "nodes": args.nodes, "k": args.k, "threads": args.threads}
        wall = time.perf_counter() - begin
        record = Record.create("batch", config, results, seed=args.seed, started=started, wall_seconds=wall)
        print(record.write(args.out))


def measure(graphs: int, nodes: int, k: int, seed: int, repeats: int) -> dict[str, float]:
    W = kl.data.sbm(graphs, n=nodes, generator=torch.Generator().manual_seed(seed))
    data = [Data(edge_index=dense_to_sparse(w)[0], num_nodes=nodes) for w in W]
    transform = AddLaplacianEigenvectorPE(k=k, is_undirected=True)
    L = kl.laplacian(W, kind="normalized")
    dense = L.to_dense().contiguous()
    seconds, answers = interleaved(
        {
            "pyg": lambda: [transform(item.clone()) for item in data],
            "eigh": lambda: torch.linalg.eigh(dense),
            "krylow": lambda: kl.subspace(L, k, tol=1e-6),
            "krylow_from_data": lambda: kl.subspace(kl.laplacian(data, kind="normalized"), k, tol=1e-6),
        },
        repeats=repeats,
    )
    lam, U = torch.linalg.eigh(dense.double())
    real = lam[:, k] - lam[:, k - 1] > REAL_GAP
    error = kl.metrics.subspace_error(answers["krylow"].basis.double(), U[..., :k])[real]
    return {
        **{f"seconds {name}": value for name, value in seconds.items()},
        "ratio pyg / krylow": seconds["pyg"] / seconds["krylow"],
        "ratio pyg / krylow from the same Data": seconds["pyg"] / seconds["krylow_from_data"],
        "ratio eigh / krylow": seconds["eigh"] / seconds["krylow"],
        "largest error of krylow": float(error.max()),
        "graphs with a real gap": int(real.sum()),
    }


if __name__ == "__main__":
    main()
