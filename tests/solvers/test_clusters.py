"""The lowest vectors of graphs of clusters, beside dense eigenvectors of the whole graphs."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import krylow as kl
from krylow.solvers import _clusters as clusters
from krylow.solvers._clusters import lowest_of_clusters
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


@pytest.mark.parametrize("way", ["factorised", "filtered"])
def test_they_are_nearly_those_of_the_whole_graph(way, monkeypatch):
    if way == "filtered":
        monkeypatch.setattr(clusters, "solve_coarsest", lambda *asked: None)
    L = kl.laplacian(islands())
    lam, U = lowest(L.to_dense(), 8)
    level, V = lowest_of_clusters(L, torch.ones(L.n, dtype=torch.float64), float(lam[7]), 8, 12, 1e-6)
    assert V.shape == (level.coarse.n, 12)
    assert 120 <= level.coarse.n < L.n
    error = float(kl.metrics.subspace_error(level.prolong(V[:, :8]), U))
    assert error < 1e-3


def test_light_edges_are_left_though_they_are_heavy_beside_the_frequency():
    """At 20 times so low a frequency all edges are heavy: only heavier ones leave anything."""
    L = kl.laplacian(islands())
    level, _ = lowest_of_clusters(L, torch.ones(L.n, dtype=torch.float64), 1e-4, 8, 12, 1e-3)
    land = np.bincount(level.labels)
    assert land.max() > 50
    assert (land == 1).sum() > 120


def test_graphs_without_heavy_edges_have_none():
    L = kl.laplacian(islands(heavy=1.0, light=1.0))
    assert lowest_of_clusters(L, torch.ones(L.n, dtype=torch.float64), 0.1, 8, 12, 1e-3) is None


def test_no_frequency_at_all_contracts_nothing_for_ever():
    L = kl.laplacian(islands(heavy=1.0, light=1.0))
    assert lowest_of_clusters(L, torch.ones(L.n, dtype=torch.float64), 0.0, 8, 12, 1e-3) is None
    empty = kl.laplacian(sp.csr_array((30, 30)))
    assert lowest_of_clusters(empty, torch.ones(30, dtype=torch.float64), 0.0, 2, 3, 1e-3) is None


def test_an_interruption_ends_the_search_with_what_it_has(monkeypatch):
    monkeypatch.setattr(clusters, "solve_coarsest", lambda *asked: None)
    monkeypatch.setattr(clusters, "refine", lambda *args: Outcome(1.0, 0, interrupted=True))
    W = sp.block_diag([islands(), islands()], format="lil")
    W[0, 1600] = W[1600, 0] = 1e-2
    found = kl.subspace(kl.laplacian(sp.csr_array(W)), 6, method="davidson")
    assert found.status.name == "INTERRUPTED"
    assert found.basis.shape == (3200, 6)
