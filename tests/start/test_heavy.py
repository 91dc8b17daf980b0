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


def test_clusters_are_the_pieces_of_heavy_edges_by_their_quotients():
    L = kl.laplacian(sp.csr_array(graph()))
    found = clusters(L, torch.ones(30, dtype=torch.float64), 10.0, 5.0, 4)
    assert [np.flatnonzero(column).tolist() for column in found.T] == [[10, 11, 12], [0, 1]]
    dense = L.to_dense()
    quotients = [float(v @ dense @ v / (v @ v)) for v in found.T]
    assert quotients == pytest.approx([2 / 3, 1.0])  # two edges of weight 1 leave each of them


@pytest.mark.parametrize(
    ("weight", "most", "number", "count"), [(70, 5, 4, 1), (10, 0.8, 4, 1), (10, 5, 1, 1), (10, 0.5, 4, 0)]
)
def test_weight_quotient_and_number_are_bounds(weight, most, number, count):
    found = clusters(kl.laplacian(sp.csr_array(graph())), torch.ones(30, dtype=torch.float64), weight, most, number)
    assert (0 if found is None else found.shape[1]) == count


def test_a_graph_without_heavy_edges_has_none():
    L = kl.laplacian(sp.csr_array(graph()))
    assert clusters(L, torch.ones(30, dtype=torch.float64), 100.0, 5.0, 4) is None


def test_a_vector_that_is_zero_on_a_cluster_leaves_it_out():
    u = torch.ones(30, dtype=torch.float64)
    u[:2] = 0
    found = clusters(kl.laplacian(sp.csr_array(graph())), u, 10.0, 5.0, 4)
    assert found.shape[1] == 1
