import sys
from pathlib import Path

import numpy as np
import pytest

from krylow._checks import InputError
from krylow.data import DataNotFoundError, read_tudataset, tudataset

# Three graphs: a triangle with one edge in one direction only, a loop and a duplicate; two isolated nodes; an edge.
EDGES = "1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n2, 2\n1, 2\n6, 7\n7, 6\n"
INDICATOR = "1\n1\n1\n2\n2\n3\n3\n"


def write(folder, edges=EDGES, indicator=INDICATOR, name="TINY"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}_A.txt").write_text(edges)
    (folder / f"{name}_graph_indicator.txt").write_text(indicator)
    return folder


def test_reads_the_graphs_simple_and_undirected(tmp_path):
    graphs = read_tudataset(write(tmp_path), "TINY")
    expected = [np.ones((3, 3)) - np.eye(3), np.zeros((2, 2)), np.ones((2, 2)) - np.eye(2)]
    assert len(graphs) == 3
    for graph, W in zip(graphs, expected, strict=True):
        np.testing.assert_array_equal(graph.toarray(), W)
        assert graph.has_sorted_indices
        assert graph.dtype == np.float64


def test_a_collection_without_an_edge(tmp_path):
    graphs = read_tudataset(write(tmp_path, edges=""), "TINY")
    assert [(W.shape, W.nnz) for W in graphs] == [((3, 3), 0), ((2, 2), 0), ((2, 2), 0)]


def test_agrees_with_pyg(tmp_path):
    pytest.importorskip("torch_geometric", reason="torch_geometric is not installed: pip install .[pyg]")
    from torch_geometric.io import read_tu_data

    edges = "1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n3, 1\n4, 5\n5, 4\n6, 6\n6, 7\n7, 6\n"
    folder = write(tmp_path, edges=edges)
    data, slices, _ = read_tu_data(str(folder), "TINY")
    graphs = read_tudataset(folder, "TINY")
    for W, start, stop in zip(graphs, slices["edge_index"][:-1], slices["edge_index"][1:], strict=True):
        np.testing.assert_array_equal(np.stack(W.nonzero()), data.edge_index[:, start:stop].numpy())


def test_local_files_are_read_without_pyg_and_nothing_is_written(tmp_path, monkeypatch):
    write(tmp_path / "own" / "TINY")
    monkeypatch.setenv("KRYLOW_DATA", str(tmp_path / "own"))
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    before = sorted(tmp_path.rglob("*"))
    assert len(tudataset("TINY")) == 3
    assert sorted(tmp_path.rglob("*")) == before


def fake_pyg(monkeypatch, download):
    """Put a TUDataset in place of PyG's whose download is ``download(raw folder)``."""
    datasets = pytest.importorskip("torch_geometric.datasets", reason="pip install .[pyg]")

    class TUDataset:
        def __init__(self, root, name):
            self.raw_dir = str(Path(root) / name / "raw")
            download(Path(self.raw_dir))

    monkeypatch.setattr(datasets, "TUDataset", TUDataset)


def test_a_download_is_kept_and_not_repeated(tmp_path, monkeypatch):
    calls = []
    fake_pyg(monkeypatch, lambda raw: calls.append(write(raw)))
    assert len(tudataset("TINY")) == len(tudataset("TINY")) == 3
    assert len(calls) == 1
    files = sorted(p.name for p in (tmp_path / "cache" / "krylow").rglob("*"))
    assert files == ["SHA256SUMS", "TINY", "TINY_A.txt", "TINY_graph_indicator.txt"]


def test_a_download_that_is_not_the_known_one_is_refused(tmp_path, monkeypatch):
    fake_pyg(monkeypatch, lambda raw: write(raw, name="PROTEINS"))
    with pytest.raises(InputError, match=r"PROTEINS_A.txt must have the sha256 4c4b33e2"):
        tudataset("PROTEINS")
    assert list((tmp_path / "cache" / "krylow").iterdir()) == []


def test_a_download_that_was_changed_later_is_refused(tmp_path, monkeypatch):
    fake_pyg(monkeypatch, write)
    assert len(tudataset("TINY")) == 3
    edges = tmp_path / "cache" / "krylow" / "TINY" / "TINY_A.txt"
    edges.write_text(EDGES.replace("6, 7", "7, 7"))
    with pytest.raises(InputError, match="must have the sha256"):
        tudataset("TINY")


def test_a_failed_download_says_what_to_do_and_leaves_nothing(tmp_path, monkeypatch):
    def offline(raw):
        raw.mkdir(parents=True)
        (raw / "TINY_A.txt").write_text("1, 2\n2,")
        raise ConnectionError("no network")

    fake_pyg(monkeypatch, offline)
    with pytest.raises(DataNotFoundError) as caught:
        tudataset("TINY")
    for part in ("'TINY'", "ConnectionError: no network", "TINY_A.txt and TINY_graph_indicator.txt", "KRYLOW_DATA"):
        assert part in str(caught.value)
    assert str(tmp_path / "cache" / "krylow" / "TINY") in str(caught.value)
    assert list((tmp_path / "cache" / "krylow").iterdir()) == []


def test_missing_data_names_the_folder_that_is_set(tmp_path, monkeypatch):
    monkeypatch.setenv("KRYLOW_DATA", str(tmp_path))
    with pytest.raises(DataNotFoundError, match="downloading was not allowed") as caught:
        tudataset("TINY", download=False)
    assert f"{tmp_path / 'TINY'} (KRYLOW_DATA is set)" in str(caught.value)


def test_missing_pyg_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric.datasets", None)
    with pytest.raises(DataNotFoundError, match=r"pip install '\.\[pyg\]'"):
        tudataset("TINY")


@pytest.mark.parametrize(
    ("edges", "indicator", "message"),
    [
        ("1, 8\n", INDICATOR, "must name nodes 1 to 7, got 1 to 8"),
        ("0, 1\n", INDICATOR, "must name nodes 1 to 7, got 0 to 1"),
        ("3, 4\n", INDICATOR, "an edge between two graphs"),
        ("1, x\n", INDICATOR, "TINY_A.txt must hold 2 integers a line"),
        ("1, 2\n2,", INDICATOR, "TINY_A.txt must hold 2 integers a line"),
        ("1, 2, 3\n", INDICATOR, "TINY_A.txt must hold 2 integers a line, got 3"),
        (EDGES, "1\n1\n1\n3\n3\n", "must count the graphs up from 1, without gaps"),
        (EDGES, "1\n2\n1\n", "must count the graphs up from 1, without gaps"),
        ("", "", "must count the graphs up from 1"),
    ],
)
def test_damaged_files(tmp_path, edges, indicator, message):
    with pytest.raises(InputError, match=message):
        read_tudataset(write(tmp_path, edges, indicator), "TINY")


def test_a_cut_copy_of_a_known_data_set_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"PROTEINS must have \(1113, 43471, 162088\) graphs.*got \(3, 7, 9\)"):
        read_tudataset(write(tmp_path, name="PROTEINS"), "PROTEINS")


@pytest.mark.parametrize("name", ["../secret", "", "a/b", "a b"])
def test_a_name_is_never_a_path(name):
    with pytest.raises(InputError, match="a TUDataset's name is made of"):
        tudataset(name)


@pytest.mark.data
@pytest.mark.usefixtures("proteins")
def test_the_real_proteins():
    graphs = tudataset("PROTEINS", download=False)
    assert len(graphs) == 1113
    assert sum(W.shape[0] for W in graphs) == 43471
    assert sum(W.nnz for W in graphs) == 162088
    assert all((W != W.T).nnz == 0 and not W.diagonal().any() for W in graphs)
