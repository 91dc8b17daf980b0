"""Clusters of heavy edges, against their definition."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import krylow as kl
from krylow.start.heavy import clusters


def graph():
    """A ring of 30 nodes with edges of weight 1, and heavy edges: 0 - 1, and 10 - 11 - 12."""
    W = np.zeros((30, 30))
    for i in range(30):
        W[i, (i + 1) % 30] = 1.0
    W[0, 1], W[10, 11], W[11, 12] = 100.0, 50.0, 60.0
    return W + W.T


def found(u=None, weight=10.0, most=5.0):
    u = torch.ones(30, dtype=torch.float64) if u is None else u
    return clusters(kl.laplacian(sp.csr_array(graph())), u, weight, most)


def test_clusters_are_the_pieces_of_heavy_edges_by_their_quotients():
    ranks = found().numpy()
    assert [np.flatnonzero(ranks == r).tolist() for r in range(ranks.max() + 1)] == [[10, 11, 12], [0, 1]]
    dense = kl.laplacian(sp.csr_array(graph())).to_dense().numpy()
    quotients = [dense[ranks == r][:, ranks == r].sum() / (ranks == r).sum() for r in range(2)]
    assert quotients == pytest.approx([2 / 3, 1.0])  # two edges of weight 1 leave each of them


@pytest.mark.parametrize(("weight", "most", "nodes"), [(70.0, 5.0, [0, 1]), (10.0, 0.8, [10, 11, 12])])
def test_weight_and_quotient_are_bounds(weight, most, nodes):
    assert torch.nonzero(found(weight=weight, most=most) >= 0)[:, 0].tolist() == nodes


@pytest.mark.parametrize(("weight", "most"), [(100.0, 5.0), (10.0, 0.5)])
def test_where_there_is_none(weight, most):
    assert found(weight=weight, most=most) is None


def test_a_vector_that_is_zero_on_a_cluster_leaves_it_out():
    u = torch.ones(30, dtype=torch.float64)
    u[:2] = 0
    assert torch.nonzero(found(u) >= 0)[:, 0].tolist() == [10, 11, 12]
