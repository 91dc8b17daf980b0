"""Graph objects of other libraries: their Laplacians are those of the same networkx graph."""

import networkx
import numpy as np
import pytest
import torch

import krylow as kl
from krylow import InputError


@pytest.fixture
def G():
    graph = networkx.gnm_random_graph(12, 25, seed=3)
    graph.add_node(12)
    graph.add_edge(4, 4)
    for i, (u, v) in enumerate(graph.edges):
        graph.edges[u, v].update(weight=(i + 1) / 4, length=i + 2.0)
    return graph


def matrix(graph, **options):
    return kl.laplacian(graph, **options).to_dense().numpy()


def test_igraph(G):
    igraph = pytest.importorskip("igraph")
    g = igraph.Graph.from_networkx(G)
    assert np.array_equal(matrix(g), matrix(G))
    assert np.array_equal(matrix(g, weight="length"), matrix(G, weight="length"))
    del g.es["weight"]
    assert np.array_equal(matrix(g), matrix((networkx.to_numpy_array(G) != 0).astype(float)))
    assert "igraph Graph" in kl.subspace(g, 3).why
    with pytest.raises(InputError, match="'colour', which no edge has"):
        kl.laplacian(g, weight="colour")
    with pytest.raises(InputError, match=r"directed igraph graph: pass W\.as_undirected\(\)"):
        kl.laplacian(igraph.Graph([(0, 1)], directed=True))
    with pytest.raises(InputError, match="without nodes"):
        kl.laplacian(igraph.Graph())


def test_rustworkx(G):
    rustworkx = pytest.importorskip("rustworkx")
    g = rustworkx.networkx_converter(G)  # dictionaries as data of the edges
    assert np.array_equal(matrix(g), matrix(G))
    assert np.array_equal(matrix(g, weight="length"), matrix(G, weight="length"))
    plain = rustworkx.PyGraph()
    plain.add_nodes_from(range(14))
    plain.add_edges_from([(u, v, data["weight"]) for u, v, data in G.edges(data=True)])
    plain.remove_node(13)
    assert np.array_equal(matrix(plain), matrix(G))
    plain.remove_node(2)  # leaves a hole in the numbers
    G.remove_node(2)
    assert np.array_equal(matrix(plain), matrix(G))
    plain.add_edge(0, 1, "heavy")
    with pytest.raises(InputError, match=r"must be numbers, got others .*'heavy'"):
        kl.laplacian(plain)
    plain.update_edge(0, 1, None)
    with pytest.raises(InputError, match=r"directed rustworkx graph: pass W\.to_undirected\(\)"):
        kl.laplacian(rustworkx.PyDiGraph())


def test_what_was_read_and_lists_of_graphs(G, tmp_path):
    igraph = pytest.importorskip("igraph")
    networkx.write_gml(G, tmp_path / "g.gml")
    read = kl.data.read_graph(tmp_path / "g.gml")
    assert np.array_equal(matrix(read), matrix(G))
    batch = kl.laplacian([read, igraph.Graph.from_networkx(G), G])
    assert torch.equal(batch.to_dense()[0], batch.to_dense()[1])
    assert kl.subspace(read, 2).basis.shape == (13, 2)


def test_tables_of_edges_are_no_matrices():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"source": [0, 1, 1], "target": [1, 0, 1], "weight": [1, 1, 2]})
    with pytest.raises(InputError, match=r"a table of edges: pass krylow\.data\.read_graph"):
        kl.laplacian(table)
    assert kl.laplacian(kl.data.read_graph(table)).n == 2
    square = pandas.DataFrame([[0.0, 1.0], [1.0, 0.0]], index=["a", "b"], columns=["a", "b"])
    assert np.array_equal(matrix(square), [[1, -1], [-1, 1]])


@pytest.mark.parametrize("two", [[[0, 1], [1, 2]], [[0, 3], [3, 0]], [[1, 1], [1, 1]], [[0, 0], [0, 0]]])
@pytest.mark.parametrize("form", [list, np.array, torch.tensor])
def test_two_edges_are_no_matrix(two, form):
    with pytest.raises(InputError, match=r"a matrix or an edge_index.*as floats.*num_nodes"):
        kl.laplacian(form(two))
    assert kl.laplacian(np.array(two, dtype=float)).n == 2
    assert np.array_equal(matrix(form([[0, 1], [1, 0]])), [[1, -1], [-1, 1]])
