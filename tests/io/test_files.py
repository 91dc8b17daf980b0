import gzip

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from krylow._checks import InputError
from krylow.io.files import check_output, suffix
from krylow.io.graphs import read_graph, rows_by_name
from krylow.io.signals import Table, read_signals, write_signals, write_subspace


@pytest.fixture
def W():
    rng = np.random.default_rng(0)
    dense = np.triu(rng.integers(-2, 3, (12, 12)) / 2)
    return dense + np.triu(dense, 1).T


def write_npz(path, W):
    scipy.sparse.save_npz(path, scipy.sparse.csc_array(W))


def write_edges(path, W):
    row, col = np.nonzero(np.triu(W))
    path.write_text("".join(f"{u} {v} {W[u, v]}\n" for u, v in zip(row.tolist(), col.tolist(), strict=True)))


FORMS = {
    "npz": write_npz,
    "mtx": lambda path, W: scipy.io.mmwrite(path, scipy.sparse.coo_array(W)),
    "dense.mtx": lambda path, W: scipy.io.mmwrite(path, W),
    "MTX": lambda path, W: path.write_bytes((path.parent / "graph.mtx").read_bytes()),
    "npy": np.save,
    "txt": write_edges,
    "edges": write_edges,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_graph(tmp_path, W, form):
    FORMS["mtx"](tmp_path / "graph.mtx", W)
    path = tmp_path / f"graph.{form}"
    FORMS[form](path, W)
    found = read_graph(path, num_nodes=12)
    assert np.array_equal(found.adjacency.toarray(), W)
    assert (found.n, found.edges) == (12, np.count_nonzero(np.triu(W)))
    if form not in ("npz", "npy"):
        packed = tmp_path / f"packed.{form}.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        assert np.array_equal(read_graph(packed, num_nodes=12).adjacency.toarray(), W)


def test_a_pattern_has_weight_one(tmp_path):
    (tmp_path / "graph.mtx").write_text("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n")
    assert np.array_equal(read_graph(tmp_path / "graph.mtx").adjacency.toarray(), [[0, 1, 0], [1, 0, 1], [0, 1, 0]])


@pytest.mark.parametrize(("dtype", "kept"), [(np.float32, np.float32), (np.float64, np.float64), (int, np.float64)])
def test_dtypes(tmp_path, dtype, kept):
    scipy.sparse.save_npz(tmp_path / "graph.npz", scipy.sparse.csr_array(np.ones((3, 3), dtype=dtype)))
    np.save(tmp_path / "x.npy", np.ones((3, 2), dtype=dtype))
    assert read_graph(tmp_path / "graph.npz").adjacency.dtype == kept
    assert read_signals(tmp_path / "x.npy").values.dtype == kept


def damaged(tmp_path, form):
    if form == "indices":  # beyond the shape
        W = scipy.sparse.csr_array(np.eye(3))
        W.indices[0] = 10**6
        np.savez(
            tmp_path / "indices.npz", indices=W.indices, indptr=W.indptr, data=W.data, shape=W.shape, format=b"csr"
        )
        return tmp_path / "indices.npz"
    if form == "pickle":
        np.save(tmp_path / "pickle.npy", np.array([[{}]], dtype=object), allow_pickle=True)
        return tmp_path / "pickle.npy"
    if form == "text":
        (tmp_path / "text.csv").write_bytes(b"\xff\xfe\x00\x81")
        return tmp_path / "text.csv"
    if form == "gzip":
        whole = gzip.compress(b"0 1\n" * 1000)
        (tmp_path / "cut.txt.gz").write_bytes(whole[: len(whole) // 2])
        return tmp_path / "cut.txt.gz"
    if form == "no gzip":
        (tmp_path / "plain.txt.gz").write_text("0 1\n")
        return tmp_path / "plain.txt.gz"
    if form == "cut":
        whole = "%%MatrixMarket matrix coordinate real general\n3 3 4\n1 2 1.0\n2 1 1.0\n"
        (tmp_path / "cut.mtx").write_text(whole)
        return tmp_path / "cut.mtx"
    (tmp_path / f"empty.{form}").write_bytes(b"")
    return tmp_path / f"empty.{form}"


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("indices", "must be a sparse matrix"),
        ("pickle", "must be a matrix as numpy.save makes it"),
        ("text", r"must be text \(UTF-8\)"),
        ("gzip", "must be a whole gzip file"),
        ("no gzip", "must be a whole gzip file"),
        ("cut", "must be a matrix as scipy.io.mmwrite"),
        *((form, "empty file|no element found") for form in ("npz", "npy", "mtx", "csv", "graphml")),
    ],
)
def test_damaged_graphs(tmp_path, form, message):
    path = damaged(tmp_path, form)
    with pytest.raises(InputError, match=rf"{path.name} {'must.*' if form == path.suffix[1:] else ''}({message})"):
        read_graph(path)


@pytest.mark.parametrize(
    ("W", "message"),
    [
        (np.ones((2, 3)), r"square matrix with a row for each node, got shape \(2, 3\)"),
        (np.ones(3), r"square matrix.*got shape \(3,\)"),
        (np.zeros((0, 0)), r"square matrix.*got shape \(0, 0\)"),
        (np.triu(np.ones((3, 3))), "be symmetric"),
        (np.full((2, 2), np.nan), "finite weights, got 4"),
        (np.ones((2, 2), dtype=complex), "real weights, got complex128"),
    ],
)
def test_matrices_that_are_no_graph(tmp_path, W, message):
    np.save(tmp_path / "graph.npy", W)
    with pytest.raises(InputError, match=f"graph.npy must.*{message}"):
        read_graph(tmp_path / "graph.npy")


@pytest.mark.parametrize("shape", [(5,), (5, 2), (3, 5, 2)])
def test_arrays_come_back(tmp_path, shape):
    x = np.random.default_rng(0).standard_normal(shape)
    for name in ("x.npy", "x.npz"):
        write_signals(tmp_path / name, Table(x, array="mine"))
        found = read_signals(tmp_path / name)
        assert np.array_equal(found.values, x)
    assert found.array == "mine"
    if x.ndim < 3:
        for name in ("x.csv", "x.tsv", "x.txt", "x.csv.gz"):
            write_signals(tmp_path / name, Table(x))
            assert np.array_equal(read_signals(tmp_path / name).values, x.reshape(5, -1))


def test_which_array_of_several(tmp_path):
    np.savez(tmp_path / "x.npz", other=np.zeros(3), signals=np.ones(3))
    assert read_signals(tmp_path / "x.npz").values.tolist() == [1, 1, 1]
    np.savez(tmp_path / "x.npz", a=np.zeros(3), b=np.ones(3))
    with pytest.raises(InputError, match="called signals or x, got a, b"):
        read_signals(tmp_path / "x.npz")


def test_signals_that_are_none(tmp_path):
    np.save(tmp_path / "text.npy", np.array(["a"]))
    with pytest.raises(InputError, match=r"text\.npy must hold real numbers"):
        read_signals(tmp_path / "text.npy")
    np.save(tmp_path / "array.npy", np.ones(2))
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    with pytest.raises(InputError, match=r"array\.npz must be an \.npz file"):
        read_signals(tmp_path / "array.npz")
    with pytest.raises(InputError, match=r"cannot read .*No such file"):
        read_signals(tmp_path / "none.npy")
    with pytest.raises(InputError, match=r"signals must be a file of type \.npy.*got 'x\.xlsx'"):
        read_signals(tmp_path / "x.xlsx")


def test_a_subspace(tmp_path):
    U, theta = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 2)))[0], np.array([0.0, 0.5])
    write_subspace(tmp_path / "u.npz", U, theta, np.array(["a", "b", "c", "d"]))
    with np.load(tmp_path / "u.npz", allow_pickle=False) as found:
        assert np.array_equal(found["basis"], U)
        assert np.array_equal(found["ritz_values"], theta)
        assert found["nodes"].tolist() == ["a", "b", "c", "d"]
    write_subspace(tmp_path / "u.npy", U, theta)
    assert np.array_equal(np.load(tmp_path / "u.npy"), U)
    write_subspace(tmp_path / "u.csv", U, theta, np.array([3, 4, 5, 6]))
    found = read_signals(tmp_path / "u.csv")
    assert (found.columns, found.nodes) == (["u1", "u2"], ["3", "4", "5", "6"])
    assert np.array_equal(found.values, U)


def test_rows_by_name(tmp_path):
    (tmp_path / "graph.csv").write_text("b,a\nc,b\n")
    graph = read_graph(tmp_path / "graph.csv")
    assert graph.nodes[rows_by_name(graph, ["a", "b", "c"], "x")].tolist() == ["a", "b", "c"]
    for names, message in (
        (["a", "b", "d"], "got 1 that it has not, such as 'd'"),
        (["a", "b", "b"], "got 'b' twice"),
        (["a", "b"], "'c' has none"),
    ):
        with pytest.raises(InputError, match=message):
            rows_by_name(graph, names, "x")


def test_suffixes(tmp_path):
    assert suffix(tmp_path / "a.b.CSV.gz", (".csv",), "it") == ".csv"
    for name in ("graph", "graph.gz", "graph.", ".csv"):
        with pytest.raises(InputError, match="must be a file of type"):
            suffix(tmp_path / name, (".csv",), "it")
    with pytest.raises(InputError, match="unpack it"):
        suffix(tmp_path / "x.npy.gz", (".npy",), "it")


def test_outputs_are_checked_before_and_leave_nothing(tmp_path):
    check_output(tmp_path / "x.npy")
    assert list(tmp_path.iterdir()) == []
    for path, message in (
        (tmp_path, "must be a file"),
        (tmp_path / "no" / "x.npy", "folder that exists"),
        ("/proc/x.npy", "cannot write"),
    ):
        with pytest.raises(InputError, match=message):
            check_output(path)


def test_directed_matrices(tmp_path):
    W = np.array([[1.0, 2, 0], [0, 0, 3], [4, 0, 0]], dtype=np.float32)
    np.save(tmp_path / "g.npy", W)
    expected = {"mean": (W + W.T) / 2, "max": np.maximum(W, W.T), "sum": W + W.T - np.diag(np.diag(W))}
    for directed, symmetric in expected.items():
        found = read_graph(tmp_path / "g.npy", directed=directed).adjacency
        assert found.dtype == np.float32
        assert np.array_equal(found.toarray(), symmetric)
    with pytest.raises(InputError, match="--directed mean, max or sum"):
        read_graph(tmp_path / "g.npy")


def test_an_edge_index_is_not_read_as_a_matrix(tmp_path):
    np.save(tmp_path / "g.npy", [[0, 1, 1, 2], [1, 0, 2, 1]])
    found = read_graph(tmp_path / "g.npy", num_nodes=5).adjacency.toarray()
    assert found.shape == (5, 5)
    assert np.array_equal(np.argwhere(found), [[0, 1], [1, 0], [1, 2], [2, 1]])
    for two in ([[0, 3], [3, 0]], [[0, 1], [1, 2]], [[1, 1], [1, 1]]):
        np.save(tmp_path / "g.npy", two)
        with pytest.raises(InputError, match=r"a matrix or an edge_index.*as floats"):
            read_graph(tmp_path / "g.npy")
    np.save(tmp_path / "g.npy", np.array(two, dtype=float))
    assert read_graph(tmp_path / "g.npy").edges == 3
