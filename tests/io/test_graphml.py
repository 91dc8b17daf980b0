import networkx
import numpy as np
import pytest

from krylow._checks import InputError
from krylow.io.graphs import read_graph

HEAD = '<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">'


def write(tmp_path, text):
    (tmp_path / "graph.graphml").write_text(text)
    return tmp_path / "graph.graphml"


@pytest.mark.parametrize("weighted", [True, False])
def test_as_networkx_writes_it(tmp_path, weighted):
    graph = networkx.relabel_nodes(networkx.gnm_random_graph(20, 40, seed=1), lambda i: f"node {i} <&>")
    networkx.set_node_attributes(graph, "red", "colour")
    networkx.set_node_attributes(graph, 7.0, "weight")  # of nodes, not of edges
    if weighted:
        networkx.set_edge_attributes(graph, {edge: i / 7 for i, edge in enumerate(graph.edges, 1)}, "weight")
    networkx.write_graphml(graph, tmp_path / "graph.graphml")
    found = read_graph(tmp_path / "graph.graphml")
    assert found.nodes.tolist() == list(graph)
    assert np.array_equal(found.adjacency.toarray(), networkx.to_numpy_array(graph))


def test_defaults_and_isolated_nodes(tmp_path):
    key = '<key id="w" for="edge" attr.name="weight" attr.type="double"><default>3</default></key>'
    nodes = "".join(f'<node id="{i}"/>' for i in "abc")
    edges = '<edge source="a" target="b"/><edge source="a" target="a"><data key="w"> 0.5 </data></edge>'
    text = f'{HEAD}{key}<graph edgedefault="undirected">{nodes}{edges}</graph></graphml>'
    found = read_graph(write(tmp_path, text)).adjacency.toarray()
    assert np.array_equal(found, [[0.5, 3, 0], [3, 0, 0], [0, 0, 0]])


def test_directed_graphs_must_be_symmetric(tmp_path):
    graph = networkx.path_graph(4)
    networkx.write_graphml(graph.to_directed(), tmp_path / "both.graphml")
    assert np.array_equal(read_graph(tmp_path / "both.graphml").adjacency.toarray(), networkx.to_numpy_array(graph))
    networkx.write_graphml(networkx.DiGraph([(0, 1), (1, 2)]), tmp_path / "one.graphml")
    with pytest.raises(InputError, match=r"one\.graphml must be symmetric"):
        read_graph(tmp_path / "one.graphml")


BOMB = '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "whole GraphML file: no element found"),
        ("not XML", "whole GraphML file"),
        (f"{HEAD}<graph><node id='a'/>", "whole GraphML file"),
        ("<svg/>", "starts with <svg>"),
        (f"{HEAD}</graphml>", "without one"),
        (f"{HEAD}<graph></graph></graphml>", "at least one node"),
        (f"{HEAD}<graph/><graph/></graphml>", "one graph"),
        (f"{HEAD}<graph><node/></graph></graphml>", "without 'id'"),
        (f"{HEAD}<graph><node id='a'/><hyperedge/></graph></graphml>", "hyperedge"),
        (f"{HEAD}<graph><node id='a'/><edge source='a' target='b'/></graph></graphml>", "'b', which is no node"),
        (f"{BOMB}<graphml>&b;</graphml>", "no document type"),
        (
            f"{HEAD}<key id='w' for='edge' attr.name='weight'/><graph><node id='a'/>"
            "<edge source='a' target='a'><data key='w'>heavy</data></edge></graph></graphml>",
            "whole GraphML file: could not convert string to float",
        ),
    ],
)
def test_what_is_no_graph(tmp_path, text, message):
    with pytest.raises(InputError, match=f"graph.graphml must.*{message}"):
        read_graph(write(tmp_path, text))
