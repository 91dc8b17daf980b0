"""networkx graphs in and out."""

import networkx as nx
import numpy as np
import pytest
import torch

import krylow as kl
from krylow.integrations.networkx import get_signal, set_signal


def named_graph():
    G = nx.karate_club_graph()
    return nx.relabel_nodes(G, {node: f"member {node}" for node in sorted(G, reverse=True)})


def test_the_laplacian_is_that_of_networkx_in_node_order():
    G = named_graph()
    expected = nx.laplacian_matrix(G).toarray()
    assert (np.diag(expected) > 40).any()  # weighted: the largest degree is 16 without weights
    assert np.allclose(kl.laplacian(G).to_dense().numpy(), expected)
    normalized = nx.normalized_laplacian_matrix(G).toarray()
    assert np.allclose(kl.laplacian(G, "normalized").to_dense().numpy(), normalized)


def test_a_filtered_signal_goes_back_to_its_nodes(tmp_path):
    G = named_graph()
    x = np.random.default_rng(0).standard_normal(len(G))
    nx.set_node_attributes(G, dict(zip(G, x.tolist(), strict=True)), "noisy")
    assert np.array_equal(get_signal(G, "noisy"), x)
    set_signal(G, "smooth", kl.lowpass(kl.laplacian(G), get_signal(G, "noisy"), k=4))
    lam, U = np.linalg.eigh(nx.laplacian_matrix(G).toarray().astype(float))
    assert lam[4] - lam[3] > 1e-2
    expected = dict(zip(G, U[:, :4] @ (U[:, :4].T @ x), strict=True))
    assert all(np.isclose(value, expected[node]) for node, value in G.nodes(data="smooth"))
    nx.write_graphml(G, tmp_path / "karate.graphml")  # plain numbers, which graph files can hold
    again = nx.read_graphml(tmp_path / "karate.graphml")
    assert again.nodes["member 3"]["smooth"] == pytest.approx(expected["member 3"])


def test_a_basis_goes_to_the_nodes_as_vectors():
    G = named_graph()
    basis = kl.subspace(kl.laplacian(G), k=3).basis
    set_signal(G, "pe", basis)
    assert isinstance(G.nodes["member 0"]["pe"], list)
    assert np.allclose(get_signal(G, "pe"), basis.numpy())


def test_bad_signals_are_refused_in_words():
    G = nx.path_graph(3)
    with pytest.raises(kl.InputError, match="one row a node"):
        set_signal(G, "x", torch.ones(2))
    with pytest.raises(kl.InputError, match="one row a node"):
        set_signal(G, "x", torch.ones(3, 1, 1))
    G.nodes[0]["x"] = 1.0
    with pytest.raises(kl.InputError, match="2 without"):
        get_signal(G, "x")
    nx.set_node_attributes(G, {0: [1.0], 1: [1.0, 2.0], 2: [1.0]}, "y")
    with pytest.raises(kl.InputError, match="one length"):
        get_signal(G, "y")
    with pytest.raises(kl.InputError, match="to_undirected"):
        kl.laplacian(nx.DiGraph([(0, 1)]))
