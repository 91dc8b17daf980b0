import gzip

import networkx
import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch

from krylow._checks import InputError
from krylow.data import DataNotFoundError, load_family, read_folder, sbm, split_family


def parts(family):
    return family.train, family.validation, family.test


@pytest.mark.parametrize(
    ("count", "expected"), [(50, (30, 10, 10)), (238, (142, 48, 48)), (3, (1, 1, 1)), (4, (2, 1, 1)), (9, (5, 2, 2))]
)
def test_splits_are_disjoint_cover_everything_and_have_the_papers_sizes(count, expected):
    graphs = torch.arange(count, dtype=torch.float32).reshape(count, 1, 1)
    family = split_family("numbers", graphs, generator=torch.Generator().manual_seed(1))
    assert family.counts == expected
    values = torch.cat(parts(family)).flatten()
    assert torch.equal(values.sort().values, graphs.flatten())


def test_splits_are_shuffled_by_the_seed():
    graphs = torch.arange(50.0).reshape(50, 1, 1)
    first, again, other = (split_family("x", graphs, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(parts(first), parts(again), strict=True))
    assert not torch.equal(first.train.sort(0).values, other.train.sort(0).values)
    assert not torch.equal(first.train, graphs[:30])


def test_sbm():
    family = load_family("sbm")
    assert (family.name, family.n, family.counts) == ("sbm", 100, (30, 10, 10))
    assert all(torch.equal(a, b) for a, b in zip(parts(family), parts(load_family("sbm", seed=0)), strict=True))
    assert not torch.equal(family.train, load_family("sbm", seed=1).train)
    drawn = sbm(generator=torch.Generator().manual_seed(0))
    assert {w.numpy().tobytes() for w in drawn} == {w.numpy().tobytes() for w in torch.cat(parts(family))}


def test_sbm_options():
    family = load_family("sbm", n=30, num_graphs=10, communities=2, dtype=torch.float64)
    assert (family.n, family.counts, family.train.dtype) == (30, (6, 2, 2), torch.float64)


@pytest.mark.data
@pytest.mark.usefixtures("proteins")
def test_proteins():
    family, other = load_family("PROTEINS", download=False), load_family("PROTEINS", seed=1, download=False)
    assert (family.name, family.n, family.counts) == ("PROTEINS", 50, (142, 48, 48))
    together, again = ({w.numpy().tobytes() for w in torch.cat(parts(f))} for f in (family, other))
    assert together == again  # the seed decides the split alone
    assert not torch.equal(family.test, other.test)


def test_a_local_tudataset(tmp_path, monkeypatch):
    # Four paths of 3, 4, 5 and 6 nodes; three of them have 4 connected nodes.
    sizes, start, edges, indicator = (3, 4, 5, 6), 1, [], []
    for graph, size in enumerate(sizes, 1):
        edges += [f"{i}, {i + 1}\n{i + 1}, {i}\n" for i in range(start, start + size - 1)]
        indicator += [f"{graph}\n"] * size
        start += size
    folder = tmp_path / "own" / "PATHS"
    folder.mkdir(parents=True)
    (folder / "PATHS_A.txt").write_text("".join(edges))
    (folder / "PATHS_graph_indicator.txt").write_text("".join(indicator))
    monkeypatch.setenv("KRYLOW_DATA", str(tmp_path / "own"))
    family = load_family("PATHS", n=4)
    assert (family.name, family.n, family.counts) == ("PATHS", 4, (1, 1, 1))
    with pytest.raises(DataNotFoundError, match=r"Known families: 'sbm', any TUDataset .*local: PATHS"):
        load_family("PATH", download=False)


def fill(folder, graphs):
    folder.mkdir()
    for i, W in enumerate(graphs):
        matrix = scipy.sparse.csr_array(W.numpy())
        if i % 2:
            scipy.io.mmwrite(folder / f"{i}.mtx", matrix)
        else:
            scipy.sparse.save_npz(folder / f"{i}.npz", matrix)
    (folder / "notes.txt").write_text("not a graph")
    return folder


@pytest.mark.parametrize("as_text", [True, False])
def test_a_folder(tmp_path, as_text):
    graphs = sbm(5, 12, 2, dtype=torch.float64) * 0.5
    folder = fill(tmp_path / "mine", graphs)
    family = load_family(str(folder) if as_text else folder, dtype=torch.float64)
    assert (family.name, family.counts) == ("mine", (3, 1, 1))
    assert {w.numpy().tobytes() for w in graphs} == {w.numpy().tobytes() for w in torch.cat(parts(family))}


def test_a_folder_of_edge_lists_and_graphml(tmp_path):
    ring = networkx.cycle_graph(6)
    networkx.write_graphml(ring, tmp_path / "0.graphml")
    networkx.write_edgelist(ring, tmp_path / "1.csv", delimiter=",", data=False)
    with gzip.open(tmp_path / "2.tsv.gz", "wt") as file:
        file.writelines(f"{u}\t{v}\n" for u, v in ring.edges)
    expected = torch.from_numpy(networkx.to_numpy_array(ring))
    graphs = read_folder(tmp_path, dtype=torch.float64)
    assert torch.equal(graphs, expected.expand(3, 6, 6))


def test_a_folder_of_several_sizes(tmp_path):
    folder = fill(tmp_path / "mine", [torch.zeros(3, 3), torch.zeros(4, 4)])
    with pytest.raises(InputError, match=r"must have one size, got 3 nodes in 0.npz and 4 in 1.mtx"):
        load_family(folder)


def test_a_folder_with_a_pickle_or_rubbish_in_it(tmp_path):
    for name, write in (("pickle", lambda f: np.savez(f, data=np.array([{}], dtype=object))), ("text", None)):
        folder = tmp_path / name
        folder.mkdir()
        if write:
            write(folder / "0.npz")
        else:
            (folder / "0.mtx").write_text("rubbish")
        with pytest.raises(InputError, match=r"must be a (sparse )?matrix as scipy"):
            load_family(folder)


def test_a_folder_without_graphs(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"must hold graphs as \.npz"):
        load_family(tmp_path)
    with pytest.raises(DataNotFoundError, match=r"does not exist\. Known families: 'sbm'"):
        load_family(tmp_path / "none")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("SBM", {}, "unknown family 'SBM': did you mean 'sbm'"),
        ("proteins", {}, "unknown family 'proteins': did you mean 'PROTEINS'.*Known families: 'sbm'"),
        ("PROTEINS", {"communities": 4}, "communities must be None for 'PROTEINS', got 4"),
        ("PROTEINS", {"num_graphs": 4}, "num_graphs must be None"),
        ("a/folder", {"n": 4}, "n must be None for a folder"),
        ("sbm", {"num_graphs": 2}, "at least 3 to split"),
    ],
)
def test_bad_input(source, options, message):
    with pytest.raises(InputError, match=message):
        load_family(source, **options, download=False)


def test_a_folder_that_is_there_is_not_looked_for_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("krylow.data.families.tudataset", lambda *_, **__: pytest.fail("it would be downloaded"))
    (tmp_path / "fam").mkdir()
    with pytest.raises(DataNotFoundError, match="must hold graphs"):
        load_family("fam")
    for i in range(5):
        (tmp_path / "fam" / f"{i}.csv").write_text("0,1\n1,2\n2,0\n")
    assert load_family("fam").counts == (3, 1, 1)
    (tmp_path / "fam" / "large.mtx").write_bytes(
        b"%%MatrixMarket matrix coordinate real general\n1000000 1000000 1\n1 1 1.0\n"
    )
    with pytest.raises(InputError, match=r"large\.mtx must not need more memory"):
        load_family("fam")
