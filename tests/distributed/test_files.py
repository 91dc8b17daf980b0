"""Files that ranks read by rows: written in pieces, refused where they are damaged."""

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import krylow as kl
from krylow.io import shards
from krylow.io.petsc import header, read_rows


def graph(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, n, (2, 10 * n))
    W = sp.coo_array((np.ones(i.size), (i, j)), shape=(n, n)).tocsr()
    W = sp.csr_array(W + W.T)
    W.setdiag(0)
    W.eliminate_zeros()
    W.data = 1.0 + (W.indices + np.repeat(np.arange(n), np.diff(W.indptr))) % 5
    return W


def read(path, parts=1):
    """The matrix of a file, read by so many parts."""
    pieces = [read_rows(path, part, parts) for part in range(parts)]
    n = header(path).rows
    rows = [sp.csr_array((values, col, crow), shape=(crow.size - 1, n)) for crow, col, values in pieces]
    return sp.csr_array(sp.vstack(rows))


def write(W, path):
    """The upper half of a graph, as a file of edges."""
    half = sp.triu(W).tocoo()
    if path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        columns = {"dst": half.col.astype(np.int32), "src": half.row.astype(np.int64), "weight": half.data}
        parquet.write_table(arrow.table(columns), path)
    elif path.suffix == ".mtx":
        from scipy.io import mmwrite

        mmwrite(path, W.tocoo(), symmetry="symmetric")
    else:
        mark = "," if path.suffix == ".csv" else " "
        lines = [mark.join(map(str, edge)) for edge in zip(half.row, half.col, half.data, strict=True)]
        path.write_text("\n".join(["a,b,w"] * (mark == ",") + lines) + "\n")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".txt", ".mtx", ".parquet"])
def test_shards_of_every_form_hold_the_graph(tmp_path, monkeypatch, suffix):
    for name, size in (("BUCKET", 700), ("TEXT", 4096), ("TABLE", 1000)):  # many pieces of a small graph
        monkeypatch.setattr(shards, name, size)
    W = graph()
    n, entries = kl.distributed.shard(write(W, tmp_path / f"edges{suffix}"), tmp_path / "graph.petsc")
    assert (n, entries) == (W.shape[0], W.nnz)
    for parts in (1, 3, 7):
        assert abs(read(tmp_path / "graph.petsc", parts) - W).max() == 0
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_parts_have_about_as_many_entries_each(tmp_path):
    W = graph()
    kl.distributed.shard(write(W, tmp_path / "edges.csv"), tmp_path / "graph.petsc")
    counts = [read_rows(tmp_path / "graph.petsc", part, 5)[1].size for part in range(5)]
    assert max(counts) - min(counts) <= 2 * np.diff(W.indptr).max()


def test_edges_that_are_listed_twice(tmp_path):
    edges = tmp_path / "edges.csv"
    edges.write_text("0,1,2\n1,0,2\n2,2,5\n")
    kl.distributed.shard(edges, tmp_path / "g.petsc", num_nodes=4)
    expected = np.zeros((4, 4))
    expected[0, 1] = expected[1, 0] = 2
    expected[2, 2] = 5
    np.testing.assert_array_equal(read(tmp_path / "g.petsc").toarray(), expected)
    edges.write_text("0,1,2\n0,1,3\n")
    with pytest.raises(kl.InputError, match="several weights"):
        kl.distributed.shard(edges, tmp_path / "h.petsc")
    assert not (tmp_path / "h.petsc").exists()
    kl.distributed.shard(edges, tmp_path / "h.petsc", add_up=True)
    assert read(tmp_path / "h.petsc")[0, 1] == 5


def test_of_a_table_memory_holds_one_piece(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    ends = np.random.default_rng(0).integers(0, 100_000, (2, 1_000_000), dtype=np.int32)
    table = arrow.table({"src": ends[0], "dst": ends[1]})
    for name, rows in (("one group", ends.shape[1]), ("many groups", 100_000)):
        parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=rows, use_dictionary=False)
        program = f"""
import krylow as kl, pyarrow
from krylow.io import shards
shards.TABLE = 1 << 16
kl.distributed.shard({str(tmp_path / f"{name}.parquet")!r}, {str(tmp_path / "graph.petsc")!r})
print(pyarrow.default_memory_pool().max_memory())
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr[-2000:]
        assert int(done.stdout) < ends.nbytes / 2


@pytest.mark.parametrize(
    ("text", "message"),
    [("0,1\n1,2,3\n", "every line"), ("0,1\n1,x\n", "every line"), ("0,1.5\n", "whole"), ("0,-1\n", "from 0")],
)
def test_lines_that_are_no_edges_are_refused(tmp_path, text, message):
    (tmp_path / "edges.csv").write_text(text)
    with pytest.raises(kl.InputError, match=message):
        kl.distributed.shard(tmp_path / "edges.csv", tmp_path / "g.petsc")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["edges.csv"]


@pytest.fixture(scope="module")
def ran(launch, programs, tmp_path_factory):
    """Return the folder of three ranks that loaded, solved and saved, and what they refused."""
    folder = tmp_path_factory.mktemp("files")
    kl.distributed.shard(write(graph(), folder / "graph.csv"), folder / "graph.petsc")
    kl.distributed.shard(write(graph(500), folder / "small.csv"), folder / "small.petsc")
    (folder / "truncated.petsc").write_bytes((folder / "graph.petsc").read_bytes()[:-9])
    done = launch(3, programs / "files.py", folder)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = sorted(line.split(" ", 2) for line in done.stdout.splitlines() if line)
    return folder, {case: [text for name, _, text in lines if name == case] for case, _, _ in lines}


def test_what_ranks_load_is_the_graph(ran):
    folder, _ = ran
    U = kl.subspace(kl.laplacian(graph()), 4, tol=1e-8).basis
    for name in ("basis", "other"):  # by krylow's reader, and by PETSc's own
        assert kl.metrics.subspace_error(torch.from_numpy(np.load(folder / f"{name}.npy")), U) <= 1e-3


def test_a_subspace_is_saved_by_shards(ran):
    folder = ran[0] / "saved"
    about = json.loads((folder / "subspace.json").read_text())
    assert (about["nodes"], about["k"], about["status"]) == (3000, 4, "CONVERGED")
    parts = [np.load(folder / part["file"]) for part in about["files"]]
    assert [part["first"] for part in about["files"]] == [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    np.testing.assert_array_equal(np.concatenate(parts), np.load(ran[0] / "basis.npy"))


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("truncated", "is truncated or damaged"),
        ("none", "cannot read"),
        ("other", "binary form"),
        ("disagree", "see different files"),
    ],
)
def test_every_rank_refuses_a_file_that_is_wrong(ran, case, message):
    said = ran[1][case]
    assert len(said) == 3
    assert all(message in text for text in said)


def test_command_line(launch, tmp_path):
    write(graph(), tmp_path / "edges.csv")
    command = ["-c", "from krylow.cli import main; main()"]
    done = launch(1, *command, "shard", tmp_path / "edges.csv", tmp_path / "g.petsc")
    assert "3000 nodes" in done.stdout, done.stderr
    done = launch(2, *command, "subspace", tmp_path / "g.petsc", "-k", 4, "-o", tmp_path / "OUT", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranks"] == 2
    assert len(list((tmp_path / "OUT").glob("*.npy"))) == 2
    done = launch(2, *command, "subspace", tmp_path / "g.petsc", "-k", 5000, "-o", tmp_path / "OUT")
    assert done.returncode == 2
    assert "k must be between 1 and 3000" in done.stderr
