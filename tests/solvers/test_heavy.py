"""A graph whose clusters of heavy edges are one node each, against its definition."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from krylow.solvers._heavy import contracted

import krylow as kl


def graph():
    """A ring of 30 nodes with edges of weight 1, and heavy edges: 0 - 1, and 10 - 11 - 12."""
    W = np.zeros((30, 30))
    for i in range(30):
        W[i, (i + 1) % 30] = 1.0
    W[0, 1], W[10, 11], W[11, 12] = 100.0, 50.0, 60.0
    return W + W.T


def found(u=None, weight=10.0):
    u = torch.ones(30, dtype=torch.float64) if u is None else u
    return contracted(kl.laplacian(sp.csr_array(graph())), u, weight)


@pytest.mark.parametrize(
    ("weight", "clusters"), [(10.0, [[0, 1], [10, 11, 12]]), (55.0, [[0, 1], [11, 12]]), (70.0, [[0, 1]])]
)
def test_clusters_are_the_pieces_of_heavy_edges(weight, clusters):
    label = found(weight=weight).labels.numpy()
    pieces = [np.flatnonzero(label == c).tolist() for c in range(label.max() + 1)]
    assert [piece for piece in pieces if len(piece) > 1] == clusters
    assert sum(map(len, pieces)) == 30


@pytest.mark.parametrize("seed", [None, 0])
def test_the_operator_is_that_on_multiples_of_a_vector(seed):
    u = None if seed is None else torch.from_numpy(np.random.default_rng(seed).uniform(0.5, 2, 30))
    level = found(u)
    P = level.prolong(torch.eye(level.coarse.n, dtype=torch.float64))
    torch.testing.assert_close(P.mT @ P, torch.eye(27, dtype=torch.float64))
    L = kl.laplacian(sp.csr_array(graph())).to_dense()
    torch.testing.assert_close(level.coarse.to_dense(), P.mT @ L @ P)
    u = torch.ones(30, dtype=torch.float64) if u is None else u
    torch.testing.assert_close(P @ (P.mT @ u), u)


def test_where_no_edge_is_that_heavy():
    assert found(weight=100.0) is None
