"""krylow in other people's tools, beside what they come with: PyG's transform, scikit-learn's clustering.

    OMP_NUM_THREADS=1 python benchmarks/integrations.py [--k 3] [--repeats 5] [--out results/integrations]

PyG: every graph of PROTEINS, or of graphs as of molecules, that has more than k nodes (PyG's transform fails on the
others), the same Data in, the same attribute out; ours graph by graph, as PyG's, and as a batch. Subspaces are compared
where they are unique: connected, and a gap after the k-th frequency. scikit-learn: the same graph of neighbours, the
same number of frequencies, the same k-means; labels from scratch.
"""

from __future__ import annotations

import argparse
import datetime
import random
import time
import warnings

import numpy as np
import scipy.sparse
import torch
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import load_digits, make_moons
from sklearn.manifold import SpectralEmbedding
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from timing import interleaved
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE

import krylow as kl
from krylow.integrations.pyg import AddLowFrequencyPE
from krylow.integrations.sklearn import LowPassEmbedding
from krylow_lab.records import Record

#: A gap below this is no gap to compare subspaces at.
REAL_GAP = 1e-2
NEIGHBORS = 10
#: Of what is like small organic molecules: atoms, most bonds of an atom, how many atoms back a new one may bind, and
#: atoms a ring.
ATOMS, VALENCE, REACH, ATOMS_A_RING = (8, 40), 4, 5, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-set", default="PROTEINS")
    parser.add_argument("--molecules", type=int, default=300)
    parser.add_argument("--k", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    results = {
        "pyg": positional_encodings(kl.data.tudataset(args.data_set), args.k, args.repeats),
        "pyg, molecules": positional_encodings(molecules(args.molecules), args.k, args.repeats),
    }
    X, y = load_digits(return_X_y=True)
    results["digits"] = clusters(X, y, 10, args.repeats)
    X, y = make_moons(2000, noise=0.06, random_state=0)
    results["two moons"] = clusters(X, y, 2, args.repeats)
    for name, values in results.items():
        print(name)
        for key, value in values.items():
            print(f"  {key:52s} {value:.4g}")
    if args.out:
        config = {"data_set": args.data_set, "molecules": args.molecules, "k": args.k, "threads": args.threads}
        wall = time.perf_counter() - begin
        record = Record.create("integrations", config, results, seed=0, started=started, wall_seconds=wall)
        print(record.write(args.out))


def molecules(count: int) -> list[scipy.sparse.csr_array]:
    """Random trees of atoms that bind to one of the last before them, and a few rings."""
    draw = random.Random(0)
    return [molecule(draw) for _ in range(count)]


def molecule(draw: random.Random) -> scipy.sparse.csr_array:
    n = draw.randint(*ATOMS)
    W = np.zeros((n, n))
    for atom in range(1, n):
        free = [other for other in range(max(0, atom - REACH), atom) if W[other].sum() < VALENCE]
        W[atom, draw.choice(free)] = 1
        W = np.maximum(W, W.T)
    for _ in range(n // ATOMS_A_RING):
        atom = draw.randrange(n - REACH)
        W[atom, atom + REACH] = W[atom + REACH, atom] = 1
    return scipy.sparse.csr_array(W)


def positional_encodings(data_set: list[scipy.sparse.csr_array], k: int, repeats: int) -> dict[str, float]:
    graphs = [W for W in data_set if W.shape[0] > k]
    data = [Data(edge_index=torch.from_numpy(np.stack(W.nonzero())).long(), num_nodes=W.shape[0]) for W in graphs]
    default = AddLaplacianEigenvectorPE(k)
    tuned = AddLaplacianEigenvectorPE(k, is_undirected=True)
    ours = AddLowFrequencyPE(k)
    seconds, answers = interleaved(
        {
            "pyg, tuned": lambda: [tuned(item) for item in data],
            "pyg, as it comes": lambda: [default(item) for item in data],
            "krylow, graph by graph": lambda: [ours(item) for item in data],
            "krylow, batched": lambda: ours.batched(data),
        },
        repeats=repeats,
    )
    errors = []
    for W, theirs, mine in zip(graphs, answers["pyg, tuned"], answers["krylow, batched"], strict=True):
        lam = torch.linalg.eigvalsh(kl.laplacian(W, "normalized").to_dense())
        if lam[1] > REAL_GAP and (len(lam) == k + 1 or lam[k + 1] - lam[k] > REAL_GAP):
            bases = (torch.linalg.qr(item.laplacian_eigenvector_pe.double()).Q for item in (mine, theirs))
            errors.append(float(kl.metrics.subspace_error(*bases)))
    return {
        "graphs": len(data),
        **{f"seconds {job}": value for job, value in seconds.items()},
        "ratio pyg, tuned / krylow, graph by graph": seconds["pyg, tuned"] / seconds["krylow, graph by graph"],
        "ratio pyg, tuned / krylow, batched": seconds["pyg, tuned"] / seconds["krylow, batched"],
        "ratio pyg, as it comes / krylow, batched": seconds["pyg, as it comes"] / seconds["krylow, batched"],
        "graphs with unique subspaces": len(errors),
        "largest squared error between the two": max(errors),
    }


def clusters(X: np.ndarray, y: np.ndarray, count: int, repeats: int) -> dict[str, float]:
    k = count - 1  # SpectralClustering counts the trivial frequency
    graph = {"affinity": "nearest_neighbors", "n_neighbors": NEIGHBORS + 1}  # there a sample is its own neighbour
    embedding = SpectralEmbedding(k, random_state=0, **graph)
    clustering = SpectralClustering(count, n_components=count, random_state=0, **graph)
    ours = LowPassEmbedding(k, n_neighbors=NEIGHBORS)

    def k_means() -> KMeans:
        return KMeans(count, n_init=10, random_state=0)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Graph is not fully connected")
        seconds, answers = interleaved(
            {
                "SpectralEmbedding": lambda: embedding.fit_transform(X),
                "LowPassEmbedding": lambda: ours.fit_transform(X),
                "SpectralClustering": lambda: clustering.fit_predict(X),
                "LowPassEmbedding and k-means": lambda: make_pipeline(ours, k_means()).fit_predict(X),
            },
            repeats=repeats,
        )
    labels = {
        "SpectralEmbedding and k-means": k_means().fit_predict(answers["SpectralEmbedding"]),
        "SpectralClustering": answers["SpectralClustering"],
        "LowPassEmbedding and k-means": answers["LowPassEmbedding and k-means"],
    }
    return {
        **{f"seconds {job}": value for job, value in seconds.items()},
        "ratio SpectralEmbedding / krylow": seconds["SpectralEmbedding"] / seconds["LowPassEmbedding"],
        "ratio SpectralClustering / krylow": seconds["SpectralClustering"] / seconds["LowPassEmbedding and k-means"],
        **{f"adjusted Rand index {job}": float(adjusted_rand_score(y, found)) for job, found in labels.items()},
    }


if __name__ == "__main__":
    main()
