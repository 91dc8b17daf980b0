"""Ten tasks of every day, each in the usual tool's words and in krylow's: the obvious call, from the same input on.

The functions `usual` and `krylow` of each task are what a user would write; their lines are counted. `judge` says how
good both answers are, against something that neither of them computed where there is such a thing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import pygsp
import pymetis
import scipy.linalg
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import laplacian
from scipy.sparse.linalg import eigsh, expm_multiply, splu
from scipy.spatial import cKDTree
from sklearn.cluster import SpectralClustering
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE

import krylow as kl
from krylow.integrations.pyg import AddLowFrequencyPE
from krylow.integrations.sklearn import LowPassClustering

#: A gap below this is no gap to compare subspaces at.
REAL_GAP = 1e-2
warnings.filterwarnings("ignore", "Graph is not fully connected")


@dataclass(frozen=True)
class Task:
    """One task: what goes in, two ways to do it, and how good the answers are.

    ``judge(given, theirs, ours)`` returns what is compared, their value, our value, and whether ours is right.
    """

    name: str
    tool: str
    given: Callable[[], Any]
    usual: Callable[[Any], Any]
    krylow: Callable[[Any], Any]
    judge: Callable[[Any, Any, Any], tuple[str, float, float, bool]]
    repeats: int = 3


def neighbors(n: int, d: int = 2, k: int = 6, seed: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    """Return the symmetrised graph of nearest neighbours of random points, weights 1, and the points."""
    points = np.random.default_rng(seed).random((n, d))
    near = cKDTree(points).query(points, k + 1)[1][:, 1:]
    to, start = near.ravel().astype(np.int32), np.arange(0, n * k + 1, k, dtype=np.int32)
    A = sp.csr_array((np.ones(n * k), to, start), shape=(n, n))
    return A.maximum(A.T), points


def distance(U: Any, V: Any) -> float:
    """Return the squared distance of two subspaces, normalised as krylow's error is."""
    U, V = (np.linalg.qr(np.asarray(part, dtype=np.float64))[0] for part in (U, V))
    return float(1 - np.square(U.T @ V).sum() / U.shape[1])


# 1. positional encodings for a PyG data set


def encodings_given() -> list[Data]:
    graphs = [W for W in kl.data.tudataset("PROTEINS") if W.shape[0] > 8]
    return [Data(edge_index=torch.from_numpy(np.stack(W.nonzero())).long(), num_nodes=W.shape[0]) for W in graphs]


def encodings_usual(data: list[Data]) -> list[Data]:
    encode = AddLaplacianEigenvectorPE(8, is_undirected=True)
    return [encode(item) for item in data]


def encodings_krylow(data: list[Data]) -> list[Data]:
    return AddLowFrequencyPE(8).batched(data)


def encodings_judge(data: list[Data], theirs: list[Data], ours: list[Data]) -> tuple[str, float, float, bool]:
    errors = []
    for item, usual, mine in zip(data, theirs, ours, strict=True):
        W = sp.csr_array((np.ones(item.num_edges), item.edge_index.numpy()), shape=(item.num_nodes,) * 2)
        lam, U = np.linalg.eigh(laplacian(W.toarray(), normed=True))
        if lam[1] > REAL_GAP and (len(lam) == 9 or lam[9] - lam[8] > REAL_GAP):
            bases = (part.laplacian_eigenvector_pe for part in (usual, mine))
            errors.append([distance(basis, U[:, 1:9]) for basis in bases])
    worst = np.max(errors, axis=0)
    return "squared error, worst graph", *worst.tolist(), bool(worst[1] < 1e-6)


# 2. spectral clustering of 50,000 points


def clusters_given() -> tuple[np.ndarray, np.ndarray]:
    return make_blobs(50_000, 3, centers=10, cluster_std=1.5, random_state=0)


def clusters_usual(given: Any) -> np.ndarray:
    X, _ = given
    return SpectralClustering(10, affinity="nearest_neighbors", random_state=0).fit_predict(X)


def clusters_krylow(given: Any) -> np.ndarray:
    X, _ = given
    return LowPassClustering(10, affinity="nearest_neighbors", random_state=0).fit_predict(X)


def clusters_judge(given: Any, theirs: np.ndarray, ours: np.ndarray) -> tuple[str, float, float, bool]:
    found = [float(adjusted_rand_score(given[1], labels)) for labels in (theirs, ours)]
    return "adjusted Rand index", *found, found[1] > found[0] - 0.01


# 3. denoising by cutoff


def denoising_given() -> tuple[sp.csr_array, np.ndarray, float]:
    W, points = neighbors(50_000)
    noise = np.random.default_rng(1).standard_normal(len(points))
    return W, np.sin(6 * points[:, 0]) * np.cos(4 * points[:, 1]) + noise, 0.006


def denoising_usual(given: Any) -> np.ndarray:
    W, x, cutoff = given
    L, k = laplacian(W).tocsc(), 10
    while True:
        lam, U = eigsh(L, k, sigma=-1e-3)
        if lam.max() > cutoff:
            break
        k *= 2
    U = U[:, lam <= cutoff]
    return U @ (U.T @ x)


def denoising_krylow(given: Any) -> np.ndarray:
    W, x, cutoff = given
    return kl.lowpass(kl.laplacian(W), x, cutoff=cutoff)


def denoising_judge(given: Any, theirs: np.ndarray, ours: np.ndarray) -> tuple[str, float, float, bool]:
    W, x, cutoff = given
    lam, U = eigsh(laplacian(W).tocsc(), 80, sigma=-1e-3, tol=1e-13)
    U = U[:, lam <= cutoff]
    exact = U @ (U.T @ x)
    found = [float(np.linalg.norm(y - exact) / np.linalg.norm(exact)) for y in (theirs, ours)]
    return "relative error", *found, found[1] < 0.03


# 4. a layer with gradients to the edge weights


def layer_given(n: int = 2000) -> dict[str, torch.Tensor]:
    W, points = neighbors(n, seed=2)
    i, j = W.nonzero()
    weight = np.exp(-np.square(points[i] - points[j]).sum(1) / 1e-3)
    x = np.random.default_rng(3).standard_normal((n, 8))
    index = torch.from_numpy(np.stack([i, j])).long()
    return {"index": index, "weight": torch.from_numpy(weight), "x": torch.from_numpy(x)}


def layer_usual(given: Any) -> torch.Tensor:
    weight = given["weight"].clone().requires_grad_()
    n = len(given["x"])
    W = torch.zeros(n, n, dtype=weight.dtype).index_put(tuple(given["index"]), weight)
    U = torch.linalg.eigh(torch.diag(W.sum(1)) - W).eigenvectors[:, :10]
    (U @ (U.T @ given["x"])).pow(4).sum().backward()
    return weight.grad


def layer_krylow(given: Any) -> torch.Tensor:
    weight = given["weight"].clone().requires_grad_()
    kl.nn.LowPass(10, tol=1e-6)(given["x"], given["index"], weight).pow(4).sum().backward()
    return weight.grad


def layer_judge(given: Any, theirs: torch.Tensor, ours: torch.Tensor) -> tuple[str, float, float, bool]:
    """Compare with central differences of the exact filter along a random symmetric direction."""
    i, j = given["index"].numpy()
    n = len(given["x"])
    toward = np.random.default_rng(4).standard_normal((n, n))
    toward = (toward + toward.T)[i, j] * given["weight"].numpy()

    def loss(step: float) -> float:
        weight = given["weight"].numpy() + step * toward
        L = laplacian(sp.csr_array((weight, (i, j)), shape=(n, n)).toarray())
        U = scipy.linalg.eigh(L, subset_by_index=(0, 9))[1]
        return float(((U @ (U.T @ given["x"].numpy())) ** 4).sum())

    slope = (loss(1e-5) - loss(-1e-5)) / 2e-5
    found = [abs(float(grad.numpy() @ toward) / slope - 1) for grad in (theirs, ours)]
    return "relative error of the slope", *found, found[1] < 1e-3  # the root of the tol that is asked for


# 5. heat kernel and wavelets


def wavelets_given() -> tuple[sp.csr_array, np.ndarray]:
    W, points = neighbors(20_000)
    return W, np.random.default_rng(5).standard_normal((len(points), 4))


def wavelets_usual(given: Any) -> tuple[np.ndarray, np.ndarray]:
    W, x = given
    G = pygsp.graphs.Graph(sp.csr_matrix(W))
    G.estimate_lmax()
    heat = pygsp.filters.Heat(G, 10 * G.lmax).filter(x)
    return heat, pygsp.filters.MexicanHat(G, Nf=6).filter(x)


def wavelets_krylow(given: Any) -> tuple[np.ndarray, np.ndarray]:
    W, x = given
    L = kl.laplacian(W)
    return kl.filter(L, x, kl.responses.Heat(10.0)), kl.filter(L, x, kl.responses.MexicanHat(6))


def wavelets_judge(given: Any, theirs: Any, ours: Any) -> tuple[str, float, float, bool]:
    W, x = given
    exact = expm_multiply(-10.0 * laplacian(W), x)
    found = [float(np.linalg.norm(y.reshape(x.shape) - exact) / np.linalg.norm(exact)) for y, _ in (theirs, ours)]
    return "relative error, heat", *found, found[1] < 1e-4


# 6. partition


def partition_given() -> sp.csr_array:
    return neighbors(20_000, seed=6)[0]


def partition_usual(W: sp.csr_array) -> np.ndarray:
    return SpectralClustering(8, affinity="precomputed", random_state=0).fit_predict(W)


def partition_krylow(W: sp.csr_array) -> np.ndarray:
    return kl.partition(kl.laplacian(W), 8, method="kmeans").labels.numpy()


def partition_judge(W: sp.csr_array, theirs: np.ndarray, ours: np.ndarray) -> tuple[str, float, float, bool]:
    i, j = W.nonzero()
    cuts = [[float(((part[i] == p) & (part[j] != p)).sum() / (part[i] == p).sum()) for p in range(8)]
            for part in (theirs, ours)]  # fmt: skip
    found = [sum(cut) for cut in cuts]
    return "normalised cut", *found, found[1] < 1.05 * found[0]


def balanced_usual(W: sp.csr_array) -> np.ndarray:
    return np.array(pymetis.part_graph(8, xadj=W.indptr, adjncy=W.indices)[1])


def balanced_krylow(W: sp.csr_array) -> np.ndarray:
    return kl.partition(kl.laplacian(W), 8).labels.numpy()


def balanced_judge(W: sp.csr_array, theirs: np.ndarray, ours: np.ndarray) -> tuple[str, float, float, bool]:
    i, j = W.nonzero()
    cut = [float((part[i] != part[j]).sum() / 2) for part in (theirs, ours)]
    largest = np.bincount(ours).max() * 8 / len(ours)
    return "edges cut", *cut, bool(cut[1] < 1.2 * cut[0] and largest < 1.05)


# 7. effective resistance


def resistance_given() -> tuple[sp.csr_array, np.ndarray]:
    W, _ = neighbors(20_000, k=8, seed=7)
    return W, np.random.default_rng(8).integers(0, 20_000, (300, 2))


def resistance_usual(given: Any) -> np.ndarray:
    W, pairs = given
    solve = splu(laplacian(W).tocsc()[1:, 1:]).solve
    right = np.zeros((W.shape[0], len(pairs)))
    np.add.at(right, (pairs[:, 0], range(len(pairs))), 1)
    np.add.at(right, (pairs[:, 1], range(len(pairs))), -1)
    potential = np.zeros_like(right)
    potential[1:] = solve(right[1:])
    return (right * potential).sum(0)


def resistance_krylow(given: Any) -> np.ndarray:
    W, pairs = given
    return kl.effective_resistance(kl.laplacian(W), pairs)


def resistance_judge(given: Any, theirs: np.ndarray, ours: np.ndarray) -> tuple[str, float, float, bool]:
    W, pairs = given
    L = laplacian(W).tocsr()
    found = []
    for R in (theirs, ours):
        some = []
        for place in range(3):
            b = np.zeros(W.shape[0])
            b[pairs[place, 0]] += 1
            b[pairs[place, 1]] -= 1
            z = sp.linalg.cg(L, b, rtol=1e-12, maxiter=20_000)[0]
            some.append(abs(R[place] / (b @ z) - 1))
        found.append(float(max(some)))
    return "relative error", *found, found[1] < 1e-6


# 8. ragged batch


def ragged_given() -> list[np.ndarray]:
    draw = np.random.default_rng(9)
    sizes = draw.integers(20, 121, 500)
    return [nx.to_numpy_array(nx.connected_watts_strogatz_graph(int(n), 6, 0.2, seed=int(n) + i))
            for i, n in enumerate(sizes)]  # fmt: skip


def ragged_usual(graphs: list[np.ndarray]) -> list[np.ndarray]:
    return [scipy.linalg.eigh(laplacian(W), subset_by_index=(0, 7))[1] for W in graphs]


def ragged_krylow(graphs: list[np.ndarray]) -> list[np.ndarray]:
    basis = kl.subspace(kl.laplacian(graphs), 8).basis.numpy()
    return [U[: len(W)] for U, W in zip(basis, graphs, strict=True)]


def ragged_judge(graphs: list[np.ndarray], theirs: Any, ours: Any) -> tuple[str, float, float, bool]:
    errors = []
    for W, usual, mine in zip(graphs, theirs, ours, strict=True):
        lam, U = np.linalg.eigh(laplacian(W))
        if lam[8] - lam[7] > REAL_GAP:
            errors.append([distance(usual, U[:, :8]), distance(mine, U[:, :8])])
    worst = np.max(errors, axis=0)
    return "squared error, worst graph", *worst.tolist(), bool(worst[1] < 1e-3)


# 9. a graph larger than memory's comfort


def large_given() -> sp.csr_array:
    return neighbors(500_000, seed=10)[0]


def large_usual(W: sp.csr_array) -> np.ndarray:
    return eigsh(laplacian(W).tocsc(), 10, sigma=-1e-3)[1]


def large_krylow(W: sp.csr_array) -> np.ndarray:
    return kl.subspace(kl.laplacian(W), 10).basis.numpy()


def large_judge(W: sp.csr_array, theirs: np.ndarray, ours: np.ndarray) -> tuple[str, float, float, bool]:
    apart = distance(ours, theirs)
    return "squared distance of the two", apart, apart, apart < 1e-3


# 10. a changing graph


def changing_given() -> list[sp.csr_array]:
    """Return a graph and nine more, each with the weights of 1 % of its edges drawn anew."""
    W, _ = neighbors(20_000, seed=11)
    edges, draw, found = sp.triu(W, format="coo"), np.random.default_rng(12), []
    for _ in range(10):
        found.append(sp.csr_array(edges + edges.T))
        weights = edges.data.copy()
        weights[draw.choice(weights.size, weights.size // 100, replace=False)] = draw.uniform(0.5, 2)
        edges = sp.coo_array((weights, (edges.row, edges.col)), shape=W.shape)
    return found


def changing_usual(graphs: list[sp.csr_array]) -> list[np.ndarray]:
    return [eigsh(laplacian(W).tocsc(), 10, sigma=-1e-3)[1] for W in graphs]


def changing_krylow(graphs: list[sp.csr_array]) -> list[np.ndarray]:
    found = [kl.subspace(kl.laplacian(graphs[0]), 10)]
    for W in graphs[1:]:
        found.append(kl.subspace(kl.laplacian(W), 10, start=found[-1]))
    return [sub.basis.numpy() for sub in found]


def changing_judge(graphs: Any, theirs: list[np.ndarray], ours: list[np.ndarray]) -> tuple[str, float, float, bool]:
    apart = max(distance(mine, usual) for mine, usual in zip(ours, theirs, strict=True))
    return "squared distance of the two, worst step", apart, apart, apart < 1e-3


def _task(name: str, tool: str, key: str, repeats: int = 3, **parts: Any) -> Task:
    made = {part: globals()[f"{key}_{part}"] for part in ("given", "usual", "krylow", "judge") if part not in parts}
    return Task(name, tool, repeats=repeats, **made, **parts)


TASKS = [
    _task("positional encodings, PROTEINS, k = 8", "PyG's transform", "encodings"),
    _task("spectral clustering, 50,000 points", "scikit-learn", "clusters"),
    _task("denoising by a cutoff, 50,000 nodes", "scipy eigsh", "denoising"),
    _task("a layer with gradients to edge weights, 2,000 nodes", "torch eigh", "layer"),
    _task("the same layer, 1,000 nodes", "torch eigh", "layer", given=lambda: layer_given(1000)),
    _task("heat kernel and wavelets, 20,000 nodes", "PyGSP", "wavelets"),
    _task("partition by clusters in 8, 20,000 nodes", "scikit-learn", "partition"),
    _task("partition in 8 equal parts, 20,000 nodes", "METIS", "balanced", given=partition_given),
    _task("300 effective resistances, 20,000 nodes", "scipy splu", "resistance"),
    _task("ragged batch, 500 graphs of 20 to 120 nodes", "scipy eigh", "ragged"),
    _task("a large graph, 500,000 nodes, k = 10", "scipy eigsh", "large", 1),
    _task("a changing graph, 10 times 20,000 nodes", "scipy eigsh", "changing"),
]
