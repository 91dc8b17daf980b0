"""Learned roots on graphs of the family that they were trained on, and on others, beside thick restart.

    python benchmarks/roots_transfer.py [--out results/roots-transfer]

The shipped network "roots-sbm-k6" (24 products, 12 vectors) against thick-restart Lanczos with the same products and
vectors, which keeps as many at a restart as was best on the family, on fresh graphs with the same random vectors.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Callable

import networkx as nx
import numpy as np
import torch
from torch import Tensor

import krylow as kl
from krylow.krylov.restart import Restart, thick_restart
from krylow_lab.records import Record

NETWORK = "roots-sbm-k6"
#: What thick restart keeps of its 12 vectors: the choice of all five seeds on validation graphs of the family.
KEEP = 6
#: Graphs are solved so many nodes at a time.
NODES = 30_000


def block_model(n: int = 100, p_in: float = 0.3, p_out: float = 0.02) -> Callable[[int, int], Tensor]:
    def draw(graphs: int, seed: int) -> Tensor:
        source = torch.Generator().manual_seed(seed)
        return kl.data.sbm(graphs, n, 4, p_in, p_out, generator=source, dtype=torch.float64)

    return draw


def from_networkx(make: Callable[[int], nx.Graph]) -> Callable[[int, int], Tensor]:
    def draw(graphs: int, seed: int) -> Tensor:
        matrices = [nx.to_numpy_array(make(1000 * seed + i)) for i in range(graphs)]
        return torch.from_numpy(np.stack(matrices))

    return draw


#: Name, how many graphs, and how they are drawn.
FAMILIES = (
    ("SBM of 100 nodes, p_in = .3: the training distribution", 300, block_model()),
    ("the same, p_in = .2", 100, block_model(p_in=0.2)),
    ("the same, p_in = .5", 100, block_model(p_in=0.5)),
    ("the same, 400 nodes", 50, block_model(n=400)),
    ("the same, 2000 nodes", 3, block_model(n=2000)),
    (
        "power law (Barabasi-Albert, 3 edges a node), 100 nodes",
        100,
        from_networkx(lambda s: nx.barabasi_albert_graph(100, 3, s)),
    ),
    (
        "small world (Watts-Strogatz, 6 neighbours, .1), 100 nodes",
        100,
        from_networkx(lambda s: nx.watts_strogatz_graph(100, 6, 0.1, s)),
    ),
)


def errors(net: kl.nn.UnrolledLanczos, W: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """The errors of the network and of thick restart, one a graph."""
    L = kl.laplacian(W)
    U = torch.linalg.eigh(L.to_dense())[1][..., : net.k]
    with torch.no_grad():
        found = net(L, z=z)
        settings = Restart(net.m, found.products, keep=KEEP, recheck=False)
        restarted = thick_restart(kl.laplacian(W), z, net.k, settings).X[..., : net.k]
    return kl.metrics.subspace_error(found.basis, U), kl.metrics.subspace_error(restarted, U)


def measure(net: kl.nn.UnrolledLanczos, draw: Callable[[int, int], Tensor], graphs: int, seed: int) -> dict:
    W = draw(graphs, seed)
    n = W.shape[-1]
    z = torch.randn(graphs, n, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    size = max(1, NODES // n)
    parts = [errors(net, W[i : i + size], z[i : i + size]) for i in range(0, graphs, size)]
    ours, theirs = (torch.cat(column) for column in zip(*parts, strict=True))
    difference = ours - theirs
    return {
        "graphs": graphs,
        "nodes": n,
        "learned roots": float(ours.mean()),
        "thick restart": float(theirs.mean()),
        "difference": float(difference.mean()),
        "half width 95": float(1.96 * difference.std() / graphs**0.5),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=4321)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    net = kl.load(NETWORK)
    results = {}
    for name, graphs, draw in FAMILIES:
        results[name] = measure(net, draw, graphs, args.seed)
        print(name, results[name], flush=True)
    if args.out:
        config = {"network": NETWORK, "keep": KEEP, "graphs": [graphs for _, graphs, _ in FAMILIES]}
        wall = time.perf_counter() - begin
        products = net.card["products"]
        record = Record.create(
            "roots-transfer", config, results, seed=args.seed, started=started, wall_seconds=wall, products=products
        )
        print(record.write(args.out))


if __name__ == "__main__":
    main()
