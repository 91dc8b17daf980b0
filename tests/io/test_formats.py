"""Every kind of graph file, written by its own library, against the graph that was written."""

import contextlib
import gzip
import os
import pickle
import subprocess
import sys

import networkx
import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch

import krylow as kl
from krylow._checks import InputError
from krylow.data import read_graph


@pytest.fixture
def G():
    """Return a weighted graph of 12 nodes, the last without an edge, and a self-loop."""
    graph = networkx.gnm_random_graph(11, 25, seed=2)
    graph.add_node(11)
    graph.add_edge(3, 3)
    for i, (u, v) in enumerate(graph.edges):
        graph.edges[u, v]["weight"] = (i + 1) / 4
    return graph


def dense(graph):
    return networkx.to_numpy_array(graph, nodelist=range(12))


def check(found, graph, first=0):
    """The rows are the nodes by name; whatever order the file has them in."""
    order = [list(map(str, found.nodes.tolist())).index(str(i + first)) for i in range(12)]
    assert np.array_equal(found.adjacency.toarray()[np.ix_(order, order)], dense(graph))


def test_gexf_gml_and_pajek_of_networkx(G, tmp_path):
    networkx.write_gexf(G, tmp_path / "g.gexf")
    networkx.write_gml(G, tmp_path / "g.gml")
    networkx.write_pajek(networkx.relabel_nodes(G, str), tmp_path / "g.net")
    for name in ("g.gexf", "g.gml", "g.net"):
        check(read_graph(tmp_path / name), G)
        packed = tmp_path / f"{name}.gz"
        packed.write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        check(read_graph(packed), G)


def test_other_attributes_of_networkx_files(G, tmp_path):
    for u, v, data in G.edges(data=True):
        G.edges[u, v]["length"] = data.pop("weight")
    for kind in ("gexf", "gml", "graphml"):
        getattr(networkx, f"write_{kind}")(G, tmp_path / f"g.{kind}")
        found = read_graph(tmp_path / f"g.{kind}", weight="length").adjacency
        assert found.sum() == pytest.approx(networkx.to_numpy_array(G, weight="length").sum())
        assert set(read_graph(tmp_path / f"g.{kind}").adjacency.data) == {1.0}
    with pytest.raises(InputError, match="attribute 'colour', got none"):
        read_graph(tmp_path / "g.gml", weight="colour")


def test_gml_with_labels_that_are_not_unique_is_read_by_its_numbers(tmp_path):
    nodes = "".join(f'node [ id {i} label "same" ]\n' for i in range(3))
    (tmp_path / "g.gml").write_text(f"graph [\n{nodes}edge [ source 0 target 2 ]\n]")
    assert read_graph(tmp_path / "g.gml").nodes.tolist() == ["0", "1", "2"]


def test_pajek_of_igraph_and_sections(G, tmp_path):
    igraph = pytest.importorskip("igraph")
    g = igraph.Graph.from_networkx(G)
    g.write_pajek(str(tmp_path / "g.net"))  # without a list of its nodes
    check(read_graph(tmp_path / "g.net"), G, first=1)
    text = '*Vertices 3\n1 "a"\n2 "b"\n3 "c"\n'
    (tmp_path / "two.net").write_text(text + "*Arcs\n*Edges\n1 2 2\n2 3\n")
    assert np.array_equal(read_graph(tmp_path / "two.net").adjacency.toarray(), [[0, 2, 0], [2, 0, 1], [0, 1, 0]])
    (tmp_path / "two.net").write_text(text + "*Arcs\n1 2\n*Edges\n2 3\n")
    with pytest.raises(InputError, match=r"one section .*got \*arcs, \*edges"):
        read_graph(tmp_path / "two.net")
    (tmp_path / "two.net").write_text(text.replace("b", "a") + "*Edges\n2 3\n")
    with pytest.raises(InputError, match="3 vertices with 2 names"):
        read_graph(tmp_path / "two.net")
    (tmp_path / "two.net").write_text("*Vertices 900000000000\n*Edges\n1 2\n")
    with pytest.raises(InputError, match="must not need more memory"):
        read_graph(tmp_path / "two.net")


@pytest.mark.parametrize("data", [True, ["weight"]])
@pytest.mark.parametrize("delimiter", [" ", ","])
def test_edge_lists_of_networkx(G, tmp_path, data, delimiter):
    G.remove_node(11)
    networkx.set_edge_attributes(G, "red, {green}", "colour")
    networkx.write_edgelist(G, tmp_path / "g.edgelist", data=data, delimiter=delimiter)
    check(read_graph(tmp_path / "g.edgelist", num_nodes=12), networkx.compose(networkx.empty_graph(12), G))


def test_data_of_an_edge_list_is_not_executed(tmp_path):
    for bad in ("{'weight': __import__('os').getpid()}", "{'weight': 'x'}", "{'weight': " + "[" * 999 + "}", "{1}"):
        (tmp_path / "g.edgelist").write_text(f"0 1 {bad}\n")
        with pytest.raises(InputError, match="dictionary with a number as 'weight'"):
            read_graph(tmp_path / "g.edgelist")


def test_metis_of_networkit(G, tmp_path):
    networkit = pytest.importorskip("networkit")
    G.remove_edge(3, 3)  # METIS has none
    networkit.writeGraph(networkit.nxadapter.nx2nk(G, "weight"), str(tmp_path / "g.metis"), networkit.Format.METIS)
    check(read_graph(tmp_path / "g.metis"), G, first=1)


def test_metis_with_weights_of_nodes(tmp_path):
    text = "% by hand\n3 2 111 2\n1 7 7 2 5\n1 7 7 1 5 3 4\n% within\n1 7 7 2 4\n"
    (tmp_path / "g.graph").write_text(text)
    found = read_graph(tmp_path / "g.graph")
    assert np.array_equal(found.adjacency.toarray(), [[0, 5, 0], [5, 0, 4], [0, 4, 0]])
    assert found.nodes.tolist() == [1, 2, 3]
    (tmp_path / "g.graph").write_text("4 2\n2\n1 3\n2\n\n")  # an empty line is a node without neighbours
    assert read_graph(tmp_path / "g.graph").n == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begin with the numbers"),
        ("3 2\n2\n1 3\n", "a line for each of 3 nodes, got 2"),
        ("3 2\n2\n1 3\n2\n2\n", "a line for each of 3 nodes, got 4"),
        ("3 1\n2\n1 3\n2\n", "each of 1 edges at both its nodes, got 4 neighbours"),
        ("3 2\n2\n1 4\n2\n", "neighbours from 1 to 3"),
        ("3 2\n2\n1 x\n2\n", "must hold numbers"),
        ("3 2 1\n2 1\n1 1 3\n2 1\n", "weight after each neighbour"),
        ("3 2 1\n2 1\n1 1 3 2\n2 1\n", "must be symmetric"),
        ("999999999999 1\n2\n1\n", "a line for each"),
    ],
)
def test_what_is_no_metis(tmp_path, text, message):
    (tmp_path / "g.graph").write_text(text)
    with pytest.raises(InputError, match=message):
        read_graph(tmp_path / "g.graph")


def test_dimacs(G, tmp_path):
    igraph = pytest.importorskip("igraph")
    g = igraph.Graph.from_networkx(G.to_directed())
    g.write_dimacs(str(tmp_path / "g.max"), source=0, target=1, capacity="weight")
    check(read_graph(tmp_path / "g.max"), G, first=1)
    one_way = igraph.Graph([(0, 1), (1, 2)], directed=True)
    one_way.write_dimacs(str(tmp_path / "one.max"), source=0, target=1, capacity=[1, 1])
    with pytest.raises(InputError, match=r"must be symmetric.*--directed mean, max or sum"):
        read_graph(tmp_path / "one.max")
    assert read_graph(tmp_path / "one.max", directed="max").edges == 2
    (tmp_path / "g.col").write_text("c colours\np edge 4 2\ne 1 2\ne 2 3\n")
    assert read_graph(tmp_path / "g.col").nodes.tolist() == [1, 2, 3, 4]
    for text, message in (
        ("e 1 2\n", "line 'p kind nodes edges'"),
        ("p sp 3 1\na 1 9 2\n", "nodes from 1 to 3"),
        ("p edge 900000000000 1\ne 1 2\n", "must not need more memory"),
        ("p edge 3 1\ne 1 2\na 1 2\n", "edges or arcs"),
        (f"p edge {'9' * 5000} 1\ne 1 2\n", "no more nodes and edges than"),
    ):
        (tmp_path / "g.col").write_text(text)
        with pytest.raises(InputError, match=message):
            read_graph(tmp_path / "g.col")


def test_parquet_and_tables_with_named_columns(G, tmp_path):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    G.add_edge(11, 11, weight=0.0)
    table = networkx.to_pandas_edgelist(G, source="from", target="to")
    table.insert(0, "when", 2001)
    table.to_parquet(tmp_path / "g.parquet")
    check(read_graph(table), G)
    check(read_graph(tmp_path / "g.parquet"), G)
    check(
        read_graph(table.rename(columns={"from": "a", "to": "b", "weight": "c"}), source="a", target="b", weight="c"), G
    )
    names = table.assign(**{end: table[end].map("n{:02}".format) for end in ("from", "to")})
    names.to_parquet(tmp_path / "names.parquet")
    for found in (read_graph(names), read_graph(tmp_path / "names.parquet")):
        order = np.argsort(found.nodes)
        assert np.array_equal(found.adjacency.toarray()[np.ix_(order, order)], dense(G))
    polars = pytest.importorskip("polars")
    check(read_graph(polars.from_pandas(table)), G)
    polars.from_pandas(names).write_parquet(tmp_path / "polars.parquet")
    assert read_graph(tmp_path / "polars.parquet").n == 12
    with pytest.raises(InputError, match="must have the column 'where', got 'when', 'from', 'to', 'weight'"):
        read_graph(table, source="from", target="where")
    with pytest.raises(InputError, match="1 that are missing"):
        read_graph(pandas.DataFrame({"source": ["a", None], "target": ["b", "c"]}))
    with pytest.raises(InputError, match="numbers as weights"):
        read_graph(pandas.DataFrame({"source": ["a"], "target": ["b"], "weight": ["c"]}))
    with pytest.raises(InputError, match="first column called 'node'"):
        read_graph(pandas.DataFrame({"node": [0, 1], "heat": [1, 2]}))
    signals = pandas.DataFrame({"heat": [3, 4], "rain": [1, 2]})
    signals.to_parquet(tmp_path / "signals.parquet")
    for given in (signals, tmp_path / "signals.parquet"):
        with pytest.raises(InputError, match="may be a table of signals"):
            read_graph(given)
        assert read_graph(given, source="heat", target="rain").n == 4
    (tmp_path / "bad.parquet").write_bytes((tmp_path / "g.parquet").read_bytes()[:-40])
    with pytest.raises(InputError, match="must be a Parquet file"):
        read_graph(tmp_path / "bad.parquet")


def test_a_parquet_that_unpacks_to_too_much(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    ends = pyarrow.array(np.zeros(4_000_000, np.int64))
    parquet.write_table(pyarrow.table({"source": ends, "target": ends}), tmp_path / "g.parquet")
    assert (tmp_path / "g.parquet").stat().st_size < 100_000
    with pytest.raises(InputError, match=r"4000000 rows.*--max-size"):
        read_graph(tmp_path / "g.parquet")


def test_matlab_of_scipy(G, tmp_path):
    W = dense(G)
    scipy.io.savemat(tmp_path / "g.mat", {"W": scipy.sparse.csc_array(W), "labels": np.arange(12)})
    scipy.io.savemat(tmp_path / "packed.mat", {"A": W}, do_compression=True)
    scipy.io.savemat(tmp_path / "suite.mat", {"Problem": {"name": "G", "A": scipy.sparse.csc_array(W)}})
    scipy.io.savemat(tmp_path / "old.mat", {"A": W}, format="4")
    scipy.io.savemat(tmp_path / "two.mat", {"first": W, "second": 2 * W})
    for name in ("g", "packed", "suite", "old"):
        assert np.array_equal(read_graph(tmp_path / f"{name}.mat").adjacency.toarray(), W)
    with pytest.raises(InputError, match="one square matrix, got first, second: name it"):
        read_graph(tmp_path / "two.mat")
    assert np.array_equal(read_graph(tmp_path / "two.mat", weight="second").adjacency.toarray(), 2 * W)
    with pytest.raises(InputError, match="the variable 'third', got first, second"):
        read_graph(tmp_path / "two.mat", weight="third")


def test_matlab_files_that_are_damaged_or_too_large(tmp_path):
    scipy.io.savemat(tmp_path / "zeros.mat", {"A": np.zeros((4000, 4000))}, do_compression=True)
    assert (tmp_path / "zeros.mat").stat().st_size < 200_000
    with pytest.raises(InputError, match=r"unpack to more than that.*--max-size"):
        read_graph(tmp_path / "zeros.mat")
    (tmp_path / "new.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(512, b"\0") + b"\x89HDF\r\n\x1a\n")
    with pytest.raises(InputError, match="save it with -v7"):
        read_graph(tmp_path / "new.mat")
    scipy.io.savemat(tmp_path / "good.mat", {"A": scipy.sparse.csc_array(np.ones((5, 5)))})
    good = (tmp_path / "good.mat").read_bytes()
    rng = np.random.default_rng(0)
    for i in range(60):
        bad = bytearray(good[: 130 + 5 * i] if i % 2 else good)
        bad[int(rng.integers(128, min(len(bad), 300)))] ^= 1 << int(rng.integers(8))
        (tmp_path / "bad.mat").write_bytes(bytes(bad))
        with contextlib.suppress(InputError):
            assert read_graph(tmp_path / "bad.mat").n <= 5


def test_npz_with_named_arrays(G, tmp_path):
    """As the Planetoid, Amazon and Coauthor files that PyG reads, and an edge_index with weights."""
    W = scipy.sparse.csr_array(dense(G))
    arrays = {f"adj_{name}": getattr(W, name) for name in ("data", "indices", "indptr", "shape")}
    features = scipy.sparse.csr_array(np.eye(12))
    arrays |= {f"attr_{name}": getattr(features, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "g.npz", labels=np.zeros(12, int), names=np.array(["x", None], dtype=object), **arrays)
    assert np.array_equal(read_graph(tmp_path / "g.npz").adjacency.toarray(), dense(G))
    data = pytest.importorskip("torch_geometric.io").read_npz(str(tmp_path / "g.npz"), to_undirected=False)
    np.savez(tmp_path / "index.npz", edge_index=data.edge_index.numpy(), num_nodes=12)
    off = dense(G) != 0
    np.fill_diagonal(off, False)
    assert np.array_equal(read_graph(tmp_path / "index.npz").adjacency.toarray(), off)
    np.savez(tmp_path / "g.npz", **(arrays | {"adj_indices": W.indices + 99}))
    with pytest.raises(InputError, match="must be a sparse matrix"):
        read_graph(tmp_path / "g.npz")


def test_pt_of_pyg(G, tmp_path):
    pyg = pytest.importorskip("torch_geometric")
    data = pyg.utils.from_networkx(G, group_edge_attrs=["weight"])
    data.edge_weight, data.x = data.edge_attr[:, 0].double(), torch.zeros(12, 3)
    path = tmp_path / "g.pt"
    torch.save(data, path)
    check(read_graph(path), G)
    loop = dense(G) - np.diag(np.diagonal(dense(G)))
    torch.save(pyg.transforms.RemoveSelfLoops()(data.clone()).to_dict(), path)
    assert np.array_equal(read_graph(path).adjacency.toarray(), loop * 1.0)
    pyg.data.InMemoryDataset.save([data], path)  # as the processed file of a data set
    check(read_graph(path), G)
    pyg.data.InMemoryDataset.save([data, data], path)
    with pytest.raises(InputError, match="one graph, got a dataset of 2"):
        read_graph(path)
    torch.save(torch.from_numpy(dense(G)).to_sparse(), path)
    assert np.array_equal(read_graph(path).adjacency.toarray(), dense(G))
    torch.save(data.edge_index, path)
    assert read_graph(path, num_nodes=12).n == 12


class Evil:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_nothing_in_a_pt_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"edge_index": torch.zeros(2, 0, dtype=torch.long), "x": Evil()}, "g.pt")
    with pytest.raises(InputError, match="other classes are never loaded"):
        read_graph("g.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InputError, match=r"torch\.save"):
        read_graph("plain.pt")
    assert not (tmp_path / "executed").exists()
    torch.save({"edge_index": torch.zeros(1, dtype=torch.long).expand(2, 10**11)}, "g.pt")
    with pytest.raises(InputError, match="must not need more memory"):
        read_graph("g.pt")


def test_a_folder_of_ogb(G, tmp_path, monkeypatch):
    """Both layouts: the package's own writer makes the binary one, its own reader reads the text one."""
    save_dataset = pytest.importorskip("ogb.io").DatasetSaver
    raw = pytest.importorskip("ogb.io.read_graph_raw")
    monkeypatch.chdir(tmp_path)
    index = np.array([e for u, v in G.edges for e in ((u, v), (v, u))]).T
    saver = save_dataset("ogbn-own", is_hetero=False, version=1)
    saver.save_graph_list([{"edge_index": index, "num_nodes": 12, "node_feat": np.zeros((12, 2))}])
    (folder,) = (path.parent for path in tmp_path.rglob("raw"))
    assert np.array_equal(read_graph(folder).adjacency.toarray(), dense(G) != 0)
    text = tmp_path / "text" / "raw"
    text.mkdir(parents=True)
    one_way = np.array(G.edges)
    for name, rows in {"edge": one_way, "num-node-list": [[12]], "num-edge-list": [[len(one_way)]]}.items():
        np.savetxt(text / f"{name}.csv.gz", rows, fmt="%d", delimiter=",")
    (theirs,) = raw.read_csv_graph_raw(str(text), add_inverse_edge=True)
    ours = read_graph(tmp_path / "text").adjacency
    assert ours.shape[0] == theirs["num_nodes"]
    expected = np.zeros((12, 12))
    expected[tuple(theirs["edge_index"])] = 1
    assert np.array_equal(ours.toarray(), expected)
    np.savetxt(text / "num-node-list.csv.gz", [[6], [6]], fmt="%d")
    with pytest.raises(InputError, match="one graph, got 2"):
        read_graph(tmp_path / "text")
    with pytest.raises(InputError, match="a folder of OGB"):
        read_graph(tmp_path)


@pytest.mark.parametrize("kind", ["gexf", "gml", "net", "metis", "col", "parquet", "mat", "pt", "npz"])
def test_damaged_files_are_refused_in_words(kind, tmp_path):
    rng = np.random.default_rng(1)
    for content in (
        b"",
        b"\0" * 50,
        b"nonsense, no graph",
        bytes(rng.integers(0, 256, 2000, dtype=np.uint8)),
        b"[" * 9999,
    ):
        (tmp_path / f"g.{kind}").write_bytes(content)
        with pytest.raises(InputError, match=rf"g\.{kind}"):
            read_graph(tmp_path / f"g.{kind}")


def test_gexf_with_a_document_type(tmp_path):
    bomb = '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><gexf>&b;</gexf>'
    for encoding in ("utf-8", "utf-16"):
        (tmp_path / "g.gexf").write_bytes(bomb.encode(encoding))
        with pytest.raises(InputError, match="no document type"):
            read_graph(tmp_path / "g.gexf")


def test_a_package_that_is_missing_is_named(G, tmp_path):
    networkx.write_gml(G, tmp_path / "g.gml")
    code = (
        "import sys; sys.modules['networkx'] = None\n"
        "import krylow as kl\n"
        "try: kl.data.read_graph(sys.argv[1])\n"
        "except kl.InputError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "g.gml")], capture_output=True, text=True)
    assert done.stdout == "g.gml needs the package networkx: pip install networkx.\n", done.stderr


def test_the_laplacian_of_what_was_read(G, tmp_path):
    networkx.write_gexf(G, tmp_path / "g.gexf")
    graph = read_graph(tmp_path / "g.gexf")
    L = kl.laplacian(graph.adjacency).to_dense().numpy()
    assert np.array_equal(L, kl.laplacian(G).to_dense().numpy())
