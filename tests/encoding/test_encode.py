"""Data sets to files of encodings: the numbers, what is refused, what goes on, and who does it."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def graphs(count, seed=0, weighted=False, sizes=(2, 40)):
    """Return rows of a table: random graphs, connected by a path, both directions of each edge."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        n = int(rng.integers(*sizes))
        extra = rng.integers(0, n, (2, n // 2))
        path = np.stack([np.arange(n - 1), np.arange(1, n)])
        pairs = np.unique(np.sort(np.concatenate([path, extra[:, extra[0] != extra[1]]], 1), 0), axis=1)
        weight = rng.uniform(0.5, 2, pairs.shape[1])
        edges = np.concatenate([pairs, pairs[::-1]], 1)
        row = {"id": f"g{i}", "num_nodes": n, "src": edges[0].tolist(), "dst": edges[1].tolist()}
        rows.append(row | ({"weight": np.tile(weight, 2).tolist()} if weighted else {}))
    return rows


def write(path, rows, group=10):
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
    return path


def laplacian(row):
    n = row["num_nodes"]
    W = scipy.sparse.coo_array((row.get("weight") or np.ones(len(row["src"])), (row["src"], row["dst"])), (n, n))
    return scipy.sparse.csgraph.laplacian(W.toarray(), normed=True)


def results(out):
    """Return the rows of all output files by their id, each once."""
    rows = [row for file in sorted(out.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


def check(row, found, k):
    """L U = U diag(lambda) and U^T U = 1, and no smaller value is left out."""
    n, L = row["num_nodes"], laplacian(row)
    U, values = np.array(found["encoding"]).reshape(n, k), np.array(found["eigenvalues"])
    kept = min(k, n - 1)
    assert values.shape == (kept,)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(L)[1 : kept + 1], atol=2e-5)
    np.testing.assert_allclose(L @ U[:, :kept], U[:, :kept] * values, atol=1e-4)
    np.testing.assert_allclose(U[:, :kept].T @ U[:, :kept], np.eye(kept), atol=1e-4)
    assert not U[:, kept:].any()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("edges", ["both", "once"])
def test_every_graph_gets_its_frequencies(tmp_path, weighted, edges):
    rows = graphs(35, weighted=weighted)
    given = rows
    if edges == "once":
        given = [
            {name: part[: len(part) // 2] if isinstance(part, list) else part for name, part in row.items()}
            for row in rows
        ]
    done = kl.encode(write(tmp_path / "graphs.parquet", given), tmp_path / "out", 4, edges=edges)
    assert (done.graphs, done.rejected, done.files, done.kept) == (35, 0, 4, 0)
    found = results(tmp_path / "out")
    assert list(found) == [row["id"] for row in rows]
    for row in rows:
        check(row, found[row["id"]], 4)
    assert not (tmp_path / "out" / "rejects").exists()


def test_graphs_beyond_the_dense_limit_and_of_no_edges(tmp_path):
    rows = [*graphs(1, sizes=(900, 901)), {"id": "empty", "num_nodes": 0, "src": [], "dst": []}]
    rows.append({"id": "alone", "num_nodes": 1, "src": [], "dst": []})
    kl.encode(write(tmp_path / "graphs.parquet", rows), tmp_path / "out", 3)
    found = results(tmp_path / "out")
    check(rows[0], found["g0"], 3)
    assert (found["empty"]["encoding"], found["empty"]["eigenvalues"]) == ([], [])
    assert (found["alone"]["encoding"], found["alone"]["eigenvalues"]) == ([[0.0] * 3], [])


def test_bad_graphs_are_rejected_with_the_reason_and_the_others_are_there(tmp_path):
    rows = graphs(40, weighted=True)
    rows[3]["src"] = rows[3]["src"][:-1]
    rows[5]["dst"][0] = 10**6
    rows[8]["src"], rows[8]["dst"], rows[8]["weight"] = [0], [1], [1.0]
    rows[11]["weight"] = None
    rows[12]["num_nodes"] = -4
    rows[17]["weight"][2] = float("nan")
    rows[20]["num_nodes"] = 10**15
    rows[30]["dst"][0] = None
    done = kl.encode(write(tmp_path / "graphs.parquet", rows, group=25), tmp_path / "out", 4)
    bad = {f"g{i}" for i in (3, 5, 8, 11, 12, 17, 20, 30)}
    assert (done.graphs, done.rejected) == (32, len(bad))
    found = results(tmp_path / "out")
    assert set(found) == {row["id"] for row in rows} - bad
    for row in rows:
        if row["id"] not in bad:
            check(row, found[row["id"]], 4)
    reasons = {row["id"]: row["reason"] for row in pq.read_table(tmp_path / "out" / "rejects").to_pylist()}
    assert set(reasons) == bad
    for name, words in {"g3": "as many", "g5": "num_nodes", "g8": "ToUndirected", "g11": "weight is missing"}.items():
        assert words in reasons[name]
    assert "finite" in reasons["g17"]
    assert "null" in reasons["g30"]


def test_a_file_that_cannot_be_read_stops_nothing_and_is_read_when_it_is_mended(tmp_path):
    data = tmp_path / "data"
    (data / "deep").mkdir(parents=True)
    rows = graphs(20)
    write(data / "a.parquet", rows[:10])
    broken = write(data / "deep" / "b.parquet", rows[10:])
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-20])
    pq.write_table(pa.table({"id": [1], "src": [2]}), data / "c.parquet")
    done = kl.encode(data, tmp_path / "out", 4)
    assert (done.graphs, done.rejected) == (10, 2)
    reasons = [row["reason"] for row in pq.read_table(tmp_path / "out" / "rejects").to_pylist()]
    assert any("cannot be read as Parquet" in text for text in reasons)
    assert any("num_nodes" in text for text in reasons)
    broken.write_bytes(whole)
    (data / "c.parquet").unlink()
    kl.encode(data, tmp_path / "again", 4)
    assert set(results(tmp_path / "again")) == {row["id"] for row in rows}


def test_what_is_there_is_kept_and_what_has_changed_is_made_again(tmp_path):
    rows, out = graphs(30), tmp_path / "out"
    path = write(tmp_path / "graphs.parquet", rows)
    seen = []
    kl.encode(path, out, 4, callback=lambda done, count: seen.append((done, count)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    times = {file: file.stat().st_mtime_ns for file in out.glob("*.parquet")}
    next(iter(times)).unlink()
    done = kl.encode(path, out, 4)
    assert (done.graphs, done.files, done.kept) == (30, 3, 2)
    assert sum(file.stat().st_mtime_ns == time for file, time in times.items()) == 2
    with pytest.raises(kl.InputError, match="k = 4"):
        kl.encode(path, out, 5)
    write(path, rows[:-1])
    assert kl.encode(path, out, 4).kept == 0
    assert set(results(out)) == {row["id"] for row in rows[:-1]}


def test_a_file_in_the_way_is_left_alone(tmp_path):
    path = write(tmp_path / "graphs.parquet", graphs(3))
    (tmp_path / "out").mkdir()
    own = write(tmp_path / "out" / "graphs-00000.parquet", graphs(2, seed=1))
    before = own.read_bytes()
    with pytest.raises(kl.InputError, match="in the way"):
        kl.encode(path, tmp_path / "out", 4)
    assert own.read_bytes() == before


def test_pyg_data_sets_and_folders_of_files(tmp_path):
    data = pytest.importorskip("torch_geometric.data")
    rows = graphs(12, weighted=True)
    items = [
        data.Data(
            edge_index=torch.tensor([row["src"], row["dst"]]),
            edge_weight=torch.tensor(row["weight"]),
            num_nodes=row["num_nodes"],
        )
        for row in rows
    ]
    kl.encode(items, tmp_path / "memory", 4)
    (tmp_path / "data").mkdir()
    for row in rows:
        W = scipy.sparse.coo_array((row["weight"], (row["src"], row["dst"])), (row["num_nodes"],) * 2)
        scipy.sparse.save_npz(tmp_path / "data" / f"{row['id']}.npz", W.tocsr())
    (tmp_path / "data" / "bad.npz").write_bytes(b"PK")
    done = kl.encode(tmp_path / "data", tmp_path / "files", 4)
    assert (done.graphs, done.rejected) == (12, 1)
    memory, files = results(tmp_path / "memory"), results(tmp_path / "files")
    assert list(memory) == list(range(12))
    for i, row in enumerate(rows):
        check(row, memory[i], 4)
        check(row, files[f"{row['id']}.npz"], 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"engine": "spark"}, "engine must be local or ray"),
        ({"address": "auto"}, "for the engine ray"),
        ({"k": 0}, "k must be"),
        ({"edges": "some"}, "edges"),
        ({"workers": 0}, "workers"),
        ({"dataset": 3}, "a path or a PyG data set, got int"),
        ({"dataset": "nowhere"}, "no file or folder"),
    ],
)
def test_bad_arguments_are_refused(tmp_path, arguments, words):
    path = write(tmp_path / "graphs.parquet", graphs(2))
    with pytest.raises(kl.InputError, match=words):
        kl.encode(**({"dataset": path, "out": tmp_path / "out"} | arguments))


def same(one, other):
    assert list(one) == list(other)
    for name in one:
        assert one[name] == other[name]


@pytest.mark.parametrize("engine", ["processes", "threads", "executor"])
def test_every_executor_gives_the_same_rows(tmp_path, engine):
    path = write(tmp_path / "graphs.parquet", graphs(30))
    kl.encode(path, tmp_path / "one", 4)
    if engine == "processes":
        kl.encode(path, tmp_path / "out", 4, workers=2)
    else:
        kind = ThreadPoolExecutor if engine == "threads" else ProcessPoolExecutor
        with kind(2) as executor:
            kl.encode(path, tmp_path / "out", 4, engine=executor, workers=2)
    same(results(tmp_path / "one"), results(tmp_path / "out"))


def command(path, out, *more):
    return [sys.executable, "-m", "krylow.cli", "encode", str(path), str(out), "-k", "4", *more]


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_driver_that_is_killed_loses_nothing(tmp_path, kills):
    rows = graphs(600)
    path, out = write(tmp_path / "graphs.parquet", rows, group=10), tmp_path / "out"
    rng = np.random.default_rng(0)
    for _ in range(kills):
        process = subprocess.Popen(command(path, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = len(list(out.glob("*.parquet")))
        while process.poll() is None and len(list(out.glob("*.parquet"))) <= before:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command(path, out), check=True, stdout=subprocess.DEVNULL)
    found = results(out)
    assert set(found) == {row["id"] for row in rows}
    assert not [file for file in out.iterdir() if file.name.startswith(".")]


def descendants(parent):
    """Return the processes that a process has started, and those that these have."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            child = int(status.parent.name)
            found += [child, *descendants(child)]
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_workers_end_with_a_driver_that_is_killed(tmp_path):
    path, out = write(tmp_path / "graphs.parquet", graphs(2000), group=4), tmp_path / "out"
    process = subprocess.Popen(command(path, out, "--workers", "2"), stdout=subprocess.DEVNULL)
    while process.poll() is None and not list(out.glob("*.parquet")):
        time.sleep(0.01)
    workers = descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(workers) >= 2
    end = time.monotonic() + 60
    while left := [worker for worker in workers if Path(f"/proc/{worker}").exists()]:
        assert time.monotonic() < end, left
        time.sleep(0.1)


@pytest.mark.slow
def test_ray_gives_the_same_rows_once_whatever_dies(tmp_path):
    pytest.importorskip("ray")
    data, rows = tmp_path / "data", graphs(3000)
    data.mkdir()
    write(data / "a.parquet", rows, group=30)
    (data / "b.parquet").write_bytes(b"PAR1 no")
    kl.encode(data, tmp_path / "one", 4)
    killed = []

    def kill(done, count):
        """Kill a worker of Ray in the middle."""
        for status in Path("/proc").glob("[0-9]*/cmdline") if done in (5, 20) else []:
            try:
                text = status.read_bytes()
            except OSError:
                continue
            if text.startswith(b"ray::_call"):
                os.kill(int(status.parent.name), signal.SIGKILL)
                killed.append(text)
                break

    with kl.encoding.RayExecutor(workers=2) as executor:
        done = kl.encode(data, tmp_path / "out", 4, engine=executor, workers=2, callback=kill)
    assert killed
    assert done.rejected == 1
    same(results(tmp_path / "one"), results(tmp_path / "out"))
