import networkx
import numpy as np
import pytest

from krylow._checks import InputError
from krylow.data import read_graph

#: A weighted triangle with a tail: 0-1 (2), 1-2 (0.5), 2-0 (1), 2-3 (4).
EDGES = [(0, 1, 2.0), (1, 2, 0.5), (2, 0, 1.0), (2, 3, 4.0)]
MATRIX = np.array([[0, 2, 1, 0], [2, 0, 0.5, 0], [1, 0.5, 0, 4], [0, 0, 4, 0]])


@pytest.fixture
def matrix(tmp_path):
    """Return what reads the text of an edge list: its adjacency, and the numbers or names of the rows."""

    def read(text, num_nodes=None, **options):
        (tmp_path / "graph.txt").write_bytes(text.encode())
        graph = read_graph(tmp_path / "graph.txt", num_nodes=num_nodes, **options)
        return graph.adjacency.toarray(), graph.nodes.tolist()

    return read


@pytest.mark.parametrize("mark", [",", ", ", "\t", ";", " ", "   "])
@pytest.mark.parametrize("header", ["", "source{0}target{0}weight\n", "a{0}b{0}w\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_dialects(matrix, mark, header, end):
    body = "".join(f"{u}{mark}{v}{mark}{w}\n" for u, v, w in EDGES)
    text = "# a comment\n% another\n\n" + header.format(mark) + body
    found, numbers = matrix(text.replace("\n", end))
    assert np.array_equal(found, MATRIX)
    assert numbers == [0, 1, 2, 3]


@pytest.mark.parametrize("header", ["", "source,target\n", "Head,Tail\n", "From,To\n"])
def test_two_columns_have_weight_one(matrix, header):
    found, _ = matrix(header + "".join(f"{u},{v}\n" for u, v, _ in EDGES))
    assert np.array_equal(found, (MATRIX != 0).astype(float))


@pytest.mark.parametrize(("text", "names"), [("a,b,2\nb,c,3\n", ["a", "b", "c"]), ('"x, y",z,2\nz,w,3\n', None)])
def test_names_are_rows_in_the_order_of_their_first_appearance(matrix, text, names):
    found, got = matrix(text)
    assert got == (names or ["x, y", "z", "w"])
    assert np.array_equal(found, [[0, 2, 0], [2, 0, 3], [0, 3, 0]])


def test_header_over_names(matrix):
    _, names = matrix("source,target\nsource,b\n")
    assert names == ["source", "b"]
    _, names = matrix("alice,bob\nbob,carol\n")
    assert names == ["alice", "bob", "carol"]
    _, names = matrix("alice bob 1\nalice carol 2")
    assert names == ["alice", "bob", "carol"]
    _, names = matrix("who\twhom\thow much\nalice\tbob\t1\n")
    assert names == ["alice", "bob"]


def test_numbers_and_names_mixed_are_names(matrix):
    assert matrix("1 a\n2 a\n")[1] == ["1", "a", "2"]


def test_whole_numbers_written_as_floats_are_numbers(matrix):
    found, numbers = matrix("0.0 1.0 2.0\n1.0000e+00 2.0 3\n")
    assert numbers == [0, 1, 2]
    assert found[1, 2] == 3


@pytest.mark.parametrize(
    ("text", "num_nodes", "numbers"),
    [
        ("0 1\n1 3\n", None, [0, 1, 3]),  # only nodes with an edge
        ("0 1\n1 3\n", 4, [0, 1, 2, 3]),  # node 2 is isolated
        ("0 1\n1 3\n", 6, [0, 1, 2, 3, 4, 5]),
        ("1 2\n2 4\n", 4, [1, 2, 3, 4]),  # counted from 1
        ("1 2\n2 4\n", 5, [0, 1, 2, 3, 4]),  # counted from 0
        ("1 2\n2 4\n", 3, [1, 2, 4]),  # neither fits
        ("-5 7\n7 9000000000000\n", None, [-5, 7, 9000000000000]),
    ],
)
def test_numbers_to_rows(matrix, text, num_nodes, numbers):
    found, got = matrix(text, num_nodes)
    assert got == numbers
    expected = np.zeros_like(found)
    for a, b in (map(int, line.split()) for line in text.splitlines()):
        expected[numbers.index(a), numbers.index(b)] = expected[numbers.index(b), numbers.index(a)] = 1
    assert np.array_equal(found, expected)


def test_both_directions_count_once_or_add_up(matrix):
    text = "0 1 2\n1 0 2\n1 2 3\n2 2 5\n2 2 5\n"
    assert np.array_equal(matrix(text)[0], [[0, 2, 0], [2, 0, 3], [0, 3, 5]])
    assert np.array_equal(matrix(text, add_up=True)[0], [[0, 4, 0], [4, 0, 3], [0, 3, 10]])
    with pytest.raises(InputError, match=r"one weight, got 2 and 4 for the same two nodes \(1 such lines\).*--add-up"):
        matrix("0 1 2\n1 0 4\n")


def test_as_networkx_reads_it(matrix, tmp_path):
    graph = networkx.gnm_random_graph(50, 200, seed=3)
    for i, (u, v) in enumerate(graph.edges):
        graph.edges[u, v]["weight"] = (i % 7 - 3) / 3  # negative weights too
    networkx.write_weighted_edgelist(graph, tmp_path / "graph.txt")
    peer = networkx.to_numpy_array(graph, nodelist=sorted(graph))
    assert np.array_equal(matrix((tmp_path / "graph.txt").read_text(), 50)[0], peer)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty file"),
        ("# nothing\n\n", "empty file"),
        ("1\n2\n", "got 1 column: '1'"),
        ("1 2 3 4\n", "got 4 columns"),
        ("This is a letter, and\nno graph.\n", "two nodes on every line, got 'no graph.' on line 2"),
        ("0,1\n1,2\n2,3,4\n", "two nodes on every line, got '2,3,4' on line 3"),
        ("# c\n0,1,1\n\n1,2,x\n", "and a weight on every line, got '1,2,x' on line 4"),
        ("0,1,1\n1,,2\n", "got '1,,2' on line 2"),
        ("0,1,\n1,2,2\n2,3,\n", "got '0,1,' on line 1"),
        ("0.25,1.5\n0.5,3\n", "whole numbers or by names, got 0.25: is it a file of signals"),
        ("0 1 {}\n1 2 3\n", "dictionary with a number as 'weight' on every line, got '1 2 3'"),
        ("source,target\n", "column names alone"),
    ],
)
def test_what_is_no_edge_list(matrix, text, message):
    with pytest.raises(InputError, match=f"graph.txt must.*{message}"):
        matrix(text)


@pytest.mark.parametrize("weight", ["nan", "inf", "-inf"])
def test_weights_must_be_finite(matrix, weight):
    with pytest.raises(InputError, match="finite weights, got 1"):
        matrix(f"0 1 1\n1 2 {weight}\n")


#: The same graph as MATRIX, with columns that are no part of it.
TABLES = {
    "index of pandas": (",source,target,weight\n", "{i},{u},{v},{w}\n", {}),
    "as Gephi writes it": ("Source,Target,Type,Id,Label,Weight\n", "{u},{v},Undirected,{i},,{w}\n", {}),
    "named": ("when;a;b;how much\n", "2001;{u};{v};{w}\n", {"source": "a", "target": "b", "weight": "how much"}),
    "in another order": ("w\tto\tfrom\n", "{w}\t{v}\t{u}\n", {}),
    "by position": ("", "{w} x {v} {u}\n", {"source": 3, "target": 2, "weight": 0}),
    "by position as text": ("", "{i},{u},{v},{w}\n", {"source": "1", "target": "2", "weight": "3"}),
}


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("named", [False, True])
def test_tables_with_other_columns(matrix, form, named):
    header, line, options = TABLES[form]
    name = "n{}".format if named else str
    rows = [line.format(i=i, u=name(u), v=name(v), w=w) for i, (u, v, w) in enumerate(EDGES)]
    found, nodes = matrix(header + "".join(rows), **options)
    order = [list(map(str, nodes)).index(name(i)) for i in range(4)]
    assert np.array_equal(found[np.ix_(order, order)], MATRIX)


def test_a_table_without_weights_has_none(matrix):
    found, _ = matrix("source,target,time\n0,1,7\n1,2,9\n", source="source", target="target")
    assert set(found.ravel()) == {0, 1}
    with pytest.raises(InputError, match=r"third column, got one called 'time'.*--source"):
        matrix("source,target,time\n0,1,7\n1,2,9\n")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("heat,rain\n3,5\n4,1\n", {}, "may be a table of signals, got numbers in columns called 'heat', 'rain'"),
        ("heat,rain,snow\n3,5,0.5\n4,1,2\n", {}, "may be a table of signals"),
        ("city,heat\nOslo,3\nRome,5\n", {}, "may be a table of signals"),
        ("node,heat\n0,3\n1,5\n", {}, "first column called 'node', as in a table of signals"),
        (",x,y\n0,3,1\n1,5,2\n", {}, "first column called '', as in a table of signals"),
        ("alice,0.5,1.5\nbob,0.25,2\n", {}, "by names, got 0.5: is it a file of signals"),
        ("alice,1,1.5\nbob,0.25,2\n", {}, "by names, got 0.25: is it a file of signals"),
        ("x,y,z,t\n0,1,2,3\n", {}, r"got 4 columns: 'x', 'y', 'z', 't'.*--source, --target, --weight"),
        ("a,b,c\n0,1,2\n", {"source": "a", "target": "d"}, "the column 'd', got 'a', 'b', 'c'"),
        ("a,b,c\n0,1,2\n", {"source": "a"}, "given together"),
        ("a,b,c\n0,1,2\n", {"source": "a", "target": "a"}, "got one for two of them"),
        ("0,1,2,3\n", {"source": 0, "target": 4}, "4 columns without names: 0 to 3"),
        ("a,b,c,d\n0,1,2,3\n0,1,2\n", {"source": "a", "target": "b"}, "in 4 columns on every line, got '0,1,2'"),
    ],
)
def test_tables_that_are_not_clear(matrix, text, options, message):
    with pytest.raises(InputError, match=message):
        matrix(text, **options)


def test_directions_that_differ(matrix):
    text = "0 1 2\n1 0 4\n1 2 3\n2 2 5\n"
    arcs = np.array([[0, 2, 0], [4, 0, 3], [0, 0, 5.0]])
    expected = {"mean": (arcs + arcs.T) / 2, "max": np.maximum(arcs, arcs.T), "sum": arcs + arcs.T - np.diag([0, 0, 5])}
    for directed, W in expected.items():
        assert np.array_equal(matrix(text, directed=directed)[0], W)
    with pytest.raises(InputError, match=r"one weight, got 2 and 4 .*--directed mean, max or sum"):
        matrix(text)
    with pytest.raises(InputError, match=r"one weight, got 2 and 4 for the same two nodes \(1 such lines\).*add_up"):
        matrix("0 1 2\n0 1 4\n", directed="mean")
    assert matrix("0 1 2\n0 1 4\n", directed="max", add_up=True)[0][0, 1] == 6
    with pytest.raises(InputError, match="'error', 'mean', 'max', 'sum'"):
        matrix(text, directed="median")
