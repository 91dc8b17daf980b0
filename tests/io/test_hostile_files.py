"""Files that are damaged or declare what they do not hold: an error in words, and little memory."""

import gzip
import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import scipy.sparse
import torch
from safetensors.torch import save_file

import krylow as kl
from krylow._checks import InputError
from krylow.io.files import FLOOR
from krylow.nn.unrolled import FORMAT
from krylow_lab.records import Record, RecordError

MATRIX = b"%%MatrixMarket matrix coordinate real general\n"
ARRAY = b"%%MatrixMarket matrix array real general\n"

#: Reads the file it is given, in a process of its own: some of these files kill it, or take gigabytes.
READER = """
import resource, sys
import numpy, scipy.io, scipy.sparse
import krylow as kl
from krylow._checks import InputError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    print("nodes", kl.data.read_graph(sys.argv[1]).n)
except InputError as error:
    print("refused", error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def in_a_process(path):
    """Return what reading says, and the MiB that it took, within 4 GiB of addresses beside the packages."""
    resource = pytest.importorskip("resource")
    most = 12 << 30
    done = subprocess.run(
        [sys.executable, "-c", READER, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
    )
    assert done.returncode == 0, done.stderr
    said, spent = done.stdout.strip().rsplit("\n", 1)
    return said, int(spent)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (MATRIX + b"2 2 2\n1 2 1.0\n2 1 1.0 ", "nodes 2"),
        (MATRIX + b"2 2 2\n1 2 1.0\n2 1 1.0\0", "refused graph.mtx must be a matrix"),
        (ARRAY + b"0 2\n1.0\n", "refused graph.mtx must be a matrix"),
        (MATRIX + b"300000000 300000000 1\n1 1 1.0\n", "refused graph.mtx must not need more memory"),
    ],
    ids=["space", "nul", "no rows", "many rows"],
)
def test_matrix_market_files_that_killed_the_process(tmp_path, content, says):
    path = tmp_path / "graph.mtx"
    path.write_bytes(content)
    said, spent = in_a_process(path)
    assert said.startswith(says)
    assert spent < FLOOR >> 20


@pytest.mark.parametrize("content", [MATRIX + b"3 3 3000000000\n1 1 1.0\n", ARRAY + b"60000 60000\n1.0\n"])
def test_entries_that_are_not_there(tmp_path, content):
    (tmp_path / "graph.mtx").write_bytes(content)
    with pytest.raises(InputError, match="entries declared in a file of at most"):
        kl.data.read_graph(tmp_path / "graph.mtx")


@pytest.mark.parametrize("form", ["coo", "dia"])
def test_a_sparse_matrix_of_a_few_entries_and_many_rows(tmp_path, form):
    path = tmp_path / "graph.npz"
    arrays = {"data": np.ones(1), "row": np.zeros(1, int), "col": np.zeros(1, int)}
    if form == "dia":
        arrays = {"data": np.ones((1, 3)), "offsets": np.zeros(1, int)}
    np.savez(path, **arrays, shape=np.array([4 * 10**8] * 2), format=np.array(form.encode()))
    with pytest.raises(InputError, match=r"must not need more memory.*--max-size"):
        kl.data.read_graph(path)


@pytest.mark.parametrize("read", [kl.data.read_graph, kl.data.read_signals])
def test_text_that_unpacks_to_too_much(tmp_path, read):
    path = tmp_path / "file.csv.gz"
    path.write_bytes(gzip.compress(b"0,1\n" * (FLOOR // 4 + 1), 1))
    with pytest.raises(InputError, match=r"must not need more memory.*--max-size"):
        read(path)


def test_arrays_that_unpack_to_too_much(tmp_path):
    path = tmp_path / "x.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as file,
    ):
        count = FLOOR // 8 + 1
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (count,)})
        file.write(bytes(8 * count))
    with pytest.raises(InputError, match=r"unpack to more than that.*--max-size"):
        kl.data.read_signals(path)
    assert kl.data.read_signals(path, max_size="1G").values.shape == (count,)


def test_max_size_bounds_and_allows(tmp_path):
    path = tmp_path / "graph.csv"
    path.write_text("0,1\n1,2\n")
    assert kl.data.read_graph(path, max_size="1k").n == 3
    with pytest.raises(InputError, match="must not need more memory"):
        kl.data.read_graph(path, max_size=4)
    with pytest.raises(InputError, match="max_size must be a number of bytes"):
        kl.data.read_graph(path, max_size="much")
    (tmp_path / "graph.mtx").write_bytes(MATRIX + b"3000000 3000000 1\n1 1 1.0\n")
    with pytest.raises(InputError, match="--max-size"):
        kl.data.read_graph(tmp_path / "graph.mtx")
    assert kl.data.read_graph(tmp_path / "graph.mtx", max_size="1G").n == 3_000_000


def test_one_long_name_does_not_widen_all_the_others(tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text("\n".join(f"n{i} n{i + 1}" for i in range(2000)) + f"\nn0 {'x' * 100_000}\n")
    with pytest.raises(InputError, match="one of them of 100000 characters"):
        kl.data.read_graph(path)


def long_field(path):
    path.write_text('a,b\n"' + "c" * 140_000 + '",d\n')


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("g.graphml", lambda p: p.write_text('<?xml version="1.0" encoding="utf-99"?><graphml/>'), "unknown encoding"),
        ("g.csv", long_field, "field larger than field limit"),
        ("g.npy", lambda p: zipfile.ZipFile(p, "w").close(), "as numpy.save makes it"),
        ("g.csv", lambda p: p.write_bytes(b"a,a\0\na\0,b\n"), "must be text .*NUL"),
        ("g.csv", lambda p: p.write_text("0,1,1e308\n0,2,1e308\n"), "finite sum at every node"),
    ],
)
def test_files_that_gave_a_traceback(tmp_path, name, write, message):
    write(tmp_path / name)
    with pytest.raises(InputError, match=message):
        kl.data.read_graph(tmp_path / name)


def test_weights_that_add_up_to_infinity(tmp_path):
    (tmp_path / "g.csv").write_text("0,1,1e308\n1,0,1e308\n")
    assert kl.data.read_graph(tmp_path / "g.csv").n == 2
    with pytest.raises(InputError, match="finite sums"):
        kl.data.read_graph(tmp_path / "g.csv", add_up=True)


def test_a_long_field_of_signals(tmp_path):
    long_field(tmp_path / "x.csv")
    with pytest.raises(InputError, match="field larger than field limit"):
        kl.data.read_signals(tmp_path / "x.csv")


def test_files_longer_than_a_batch_are_read_whole(tmp_path):
    """Numbers, names and weights are read some lines at a time: the joints must not show."""
    rng = np.random.default_rng(0)
    u = rng.integers(0, 5000, 100_000)
    v, w = u + 1 + rng.integers(0, 40, u.size), np.round(rng.random(u.size), 3) + 0.5
    truth = scipy.sparse.coo_array((w, (u, v)), shape=(5041, 5041)).tocsr()
    truth = truth + truth.T
    for name, form in {"g.csv": "{},{},{}", "named.csv": "n{},n{},{}"}.items():
        lines = [form.format(*edge) for edge in zip(u, v, w, strict=True)]
        (tmp_path / name).write_text("u,v,w\n# no edge\n\n" + "\n".join(lines))
        graph = kl.data.read_graph(tmp_path / name, add_up=True)
        rows = [int(str(node).lstrip("n")) for node in graph.nodes]
        assert abs(graph.adjacency - truth[rows][:, rows]).max() < 1e-12
    with open(tmp_path / "g.csv", "a") as file:
        file.write("\n1,2,x")
    with pytest.raises(InputError, match=r"'1,2,x' on line 100004"):
        kl.data.read_graph(tmp_path / "g.csv")


def network(tmp_path, config, tensors):
    header = {"format": FORMAT, "config": json.dumps(config), "card": "{}"}
    save_file(tensors, tmp_path / "net", metadata=header)
    return tmp_path / "net"


@pytest.mark.parametrize(
    "change",
    [{"m": 4 * 10**8}, {"probe": {"type": "RootProbe", "count": 10**9}}, {"probe": {"type": "RootProbe", "count": 3}}],
)
def test_networks_that_declare_more_than_they_hold(tmp_path, change, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("this would take gigabytes")

    monkeypatch.setattr(
        torch, "full", lambda size, *a, full=torch.full, **o: refuse() if max(size) > 99 else full(size, *a, **o)
    )
    monkeypatch.setattr("krylow.nn.probes.leja_order", lambda roots: refuse() if len(roots) > 99 else roots)
    net = {"upsilon1": torch.zeros(4), "upsilon2": torch.zeros(4)}
    path = network(tmp_path, {"k": 2, "m": 4, "probe": {"type": "GaussianProbe"}} | change, net)
    with pytest.raises(InputError, match="does not fit its parameters"):
        kl.load(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_network_of_no_numbers(tmp_path, value):
    net = {"upsilon1": torch.full((4,), value), "upsilon2": torch.zeros(4)}
    path = network(tmp_path, {"k": 2, "m": 4, "probe": {"type": "GaussianProbe"}}, net)
    with pytest.raises(InputError, match="finite parameters, got NaN or infinite ones in upsilon1"):
        kl.load(path)


def test_a_deep_record(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 200_000)
    with pytest.raises(RecordError, match="not whole JSON"):
        Record.read(tmp_path / "deep.json")
