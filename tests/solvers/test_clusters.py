"""Graphs whose clusters of heavy edges are one node each, and their lowest vectors, against dense eigenvectors."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import krylow as kl
from krylow.solvers import _clusters
from krylow.solvers._clusters import clusters, contracted, lowest_of_clusters
from krylow.solvers._estimate import Outcome
from krylow.testing import lowest


def islands(side=40, heavy=1e3, light=1e-2):
    """A grid whose edges are heavy on islands and light in the water around them."""
    at = np.arange(side) / side * 2 * np.pi
    land = (np.sin(3 * at)[:, None] + np.cos(2 * at) > 0).ravel()
    path = sp.diags_array([np.ones(side - 1)] * 2, offsets=[-1, 1])
    edges = sp.triu(sp.kron(path, sp.eye_array(side)) + sp.kron(sp.eye_array(side), path)).tocoo()
    weights = np.where(land[edges.row] & land[edges.col], heavy, light)
    W = sp.csr_array((weights, (edges.row, edges.col)), shape=(side**2, side**2))
    return W + W.T


def heavy_clusters(L, frequency):
    """The graphs of clusters, the fewest clusters first."""
    return clusters(L, torch.ones(L.n, dtype=torch.float64), frequency, 12, heavy=20.0, least=10)


@pytest.mark.parametrize("way", ["factorised", "filtered"])
def test_they_are_nearly_those_of_the_whole_graph(way, monkeypatch):
    if way == "filtered":
        monkeypatch.setattr(_clusters, "solve_coarsest", lambda *asked: None)
    L = kl.laplacian(islands())
    lam, U = lowest(L.to_dense(), 8)
    level = heavy_clusters(L, float(lam[7]))[0]
    V = lowest_of_clusters(level.coarse, 8, 12, 1e-6)
    assert V.shape == (level.coarse.n, 12)
    assert 120 <= level.coarse.n < L.n
    error = float(kl.metrics.subspace_error(level.prolong(V[:, :8]), U))
    assert error < 1e-3


def test_light_edges_are_left_though_they_are_heavy_beside_the_frequency():
    """At 20 times so low a frequency all edges are heavy: only heavier ones leave anything."""
    L = kl.laplacian(islands())
    level = heavy_clusters(L, 1e-4)[-1]
    land = np.bincount(level.labels)
    assert land.max() > 50
    assert (land == 1).sum() > 120


def test_graphs_without_heavy_edges_have_none():
    L = kl.laplacian(islands(heavy=1.0, light=1.0))
    assert heavy_clusters(L, 0.1) == []


def test_no_frequency_at_all_contracts_nothing_for_ever():
    L = kl.laplacian(islands(heavy=1.0, light=1.0))
    assert heavy_clusters(L, 0.0) == []
    empty = kl.laplacian(sp.csr_array((30, 30)))
    assert heavy_clusters(empty, 0.0) == []


def test_an_interruption_ends_the_search_with_what_it_has(monkeypatch):
    monkeypatch.setattr(_clusters, "solve_coarsest", lambda *asked: None)
    monkeypatch.setattr(_clusters, "refine", lambda *args: Outcome(1.0, 0, interrupted=True))
    W = sp.block_diag([islands(), islands()], format="lil")
    W[0, 1600] = W[1600, 0] = 1e-2
    found = kl.subspace(kl.laplacian(sp.csr_array(W)), 6, method="davidson")
    assert found.status.name == "INTERRUPTED"
    assert found.basis.shape == (3200, 6)


def ring():
    """A ring of 30 nodes with edges of weight 1, and heavy edges: 0 - 1, and 10 - 11 - 12."""
    W = np.zeros((30, 30))
    for i in range(30):
        W[i, (i + 1) % 30] = 1.0
    W[0, 1], W[10, 11], W[11, 12] = 100.0, 50.0, 60.0
    return W + W.T


def contraction(u=None, weight=10.0):
    u = torch.ones(30, dtype=torch.float64) if u is None else u
    return contracted(kl.laplacian(sp.csr_array(ring())), u, weight)


@pytest.mark.parametrize(
    ("weight", "clusters"), [(10.0, [[0, 1], [10, 11, 12]]), (55.0, [[0, 1], [11, 12]]), (70.0, [[0, 1]])]
)
def test_clusters_are_the_pieces_of_heavy_edges(weight, clusters):
    label = contraction(weight=weight).labels.numpy()
    pieces = [np.flatnonzero(label == c).tolist() for c in range(label.max() + 1)]
    assert [piece for piece in pieces if len(piece) > 1] == clusters
    assert sum(map(len, pieces)) == 30


@pytest.mark.parametrize("seed", [None, 0])
def test_the_operator_is_that_on_multiples_of_a_vector(seed):
    u = None if seed is None else torch.from_numpy(np.random.default_rng(seed).uniform(0.5, 2, 30))
    level = contraction(u)
    P = level.prolong(torch.eye(level.coarse.n, dtype=torch.float64))
    torch.testing.assert_close(P.mT @ P, torch.eye(27, dtype=torch.float64))
    L = kl.laplacian(sp.csr_array(ring())).to_dense()
    torch.testing.assert_close(level.coarse.to_dense(), P.mT @ L @ P)
    u = torch.ones(30, dtype=torch.float64) if u is None else u
    torch.testing.assert_close(P @ (P.mT @ u), u)


def test_where_no_edge_is_that_heavy():
    assert contraction(weight=100.0) is None
