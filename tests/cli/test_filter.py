import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import networkx
import numpy as np
import pytest
import scipy.io
import scipy.linalg
import scipy.sparse
import torch
from typer.testing import CliRunner

import krylow as kl
from krylow.api import METHODS, SIGNAL_METHODS
from krylow.cli import app
from krylow.io.signals import read_signals

runner = CliRunner()


def filtered(W, x, k):
    """Return the ideal low-pass filter by numpy."""
    U = np.linalg.eigh(np.diag(W.sum(1)) - W)[1][:, :k]
    return U @ (U.T @ x)


@pytest.fixture
def karate(tmp_path, monkeypatch):
    """A folder with the karate club in every form, two signals, and the exact answer for k = 5."""
    graph = networkx.karate_club_graph()
    W = networkx.to_numpy_array(graph)
    x = np.random.default_rng(0).standard_normal((34, 2))
    monkeypatch.chdir(tmp_path)
    scipy.io.mmwrite("g.mtx", scipy.sparse.coo_array(W))
    Path("g.mtx.gz").write_bytes(gzip.compress(Path("g.mtx").read_bytes()))
    scipy.sparse.save_npz("g.npz", scipy.sparse.csr_array(W))
    networkx.write_graphml(graph, "g.graphml")
    networkx.write_weighted_edgelist(graph, "g.txt")
    networkx.write_weighted_edgelist(graph, "g.tsv", delimiter="\t")
    named = networkx.relabel_nodes(graph, lambda i: f"member {i}")
    networkx.write_weighted_edgelist(named, "named.csv", delimiter=",")
    np.save("x.npy", x)
    np.save("x32.npy", x.astype(np.float32))
    np.savez("x.npz", mine=x)
    np.savetxt("x.csv", x, delimiter=",", header="first,second", comments="", fmt="%.17g")
    order = np.random.default_rng(1).permutation(34)
    Path("named_x.csv").write_text(
        "node,a,b\n" + "".join(f"member {i},{float(x[i, 0])!r},{float(x[i, 1])!r}\n" for i in order)
    )
    return W, x, filtered(W, x, 5), order


def run(*arguments, code=0):
    result = runner.invoke(app, ["filter", *map(str, arguments)])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


@pytest.mark.parametrize("graph", ["g.mtx", "g.mtx.gz", "g.npz", "g.graphml", "g.txt", "g.tsv"])
def test_every_form_of_graph(karate, graph):
    run(graph, "x.npy", "-k", 5, "-o", "y.npy")
    assert np.allclose(np.load("y.npy"), karate[2], atol=1e-10)


def test_the_random_walk_laplacian(karate):
    W = scipy.io.mmread("g.mtx").toarray()
    run("g.mtx", "x.npy", "-k", 5, "-o", "y.npy", "--kind", "random_walk")
    _, vectors = scipy.linalg.eigh(np.diag(W.sum(1)) - W, np.diag(W.sum(1)))  # orthonormal in the degrees
    U = vectors[:, :5]
    assert np.allclose(np.load("y.npy"), U @ (U.T @ (W.sum(1)[:, None] * np.load("x.npy"))), atol=1e-10)


def test_columns_and_directions_by_name(karate):
    W = scipy.io.mmread("g.mtx").tocoo()
    lines = [f"{i},{u},{v},{w / (1 + (u > v))}" for i, (u, v, w) in enumerate(zip(W.row, W.col, W.data, strict=True))]
    Path("trips.csv").write_text("trip,a,b,minutes\n" + "\n".join(lines))
    columns = ("--source", "a", "--target", "b", "--weight", "minutes")
    run("trips.csv", "x.npy", "-k", 5, "-o", "y.npy", *columns, "--directed", "max")
    assert np.allclose(np.load("y.npy"), karate[2], atol=1e-10)
    assert "--directed mean, max or sum" in run("trips.csv", "x.npy", "-k", 5, "-o", "y.npy", *columns, code=2).output
    message = run("trips.csv", "x.npy", "-k", 5, "-o", "y.npy", code=2).output
    assert "got 4 columns: 'trip', 'a', 'b', 'minutes'" in " ".join(message.split())


@pytest.mark.parametrize("signals", ["x.npy", "x.npz", "x.csv"])
@pytest.mark.parametrize("out", ["y.npy", "y.npz", "y.csv", "y.tsv.gz"])
def test_every_form_of_signals_to_every_other(karate, signals, out):
    run("g.mtx", signals, "-k", 5, "-o", out)
    found = read_signals(out)
    assert np.allclose(found.values, karate[2], atol=1e-10)
    if (signals, out) == ("x.npz", "y.npz"):
        assert found.array == "mine"
    if (signals, out) == ("x.csv", "y.csv"):
        assert found.columns == ["first", "second"]


def test_signals_find_their_nodes_by_name(karate):
    _, _, y, order = karate
    run("named.csv", "named_x.csv", "-k", 5, "-o", "y.csv")
    found = read_signals("y.csv")
    assert found.nodes == [f"member {i}" for i in order]
    assert np.allclose(found.values, y[order], atol=1e-10)


def test_float32_stays_float32(karate):
    run("g.mtx", "x32.npy", "-k", 5, "-o", "y.npy")
    assert np.load("y.npy").dtype == np.float32
    assert np.allclose(np.load("y.npy"), karate[2], atol=1e-4)


def test_isolated_nodes_of_an_edge_list(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("g.txt").write_text("0 1\n1 2\n")
    np.save("x.npy", np.arange(5.0))
    run("g.txt", "x.npy", "-k", 3, "-o", "y.npy")  # three components: their means
    assert np.allclose(np.load("y.npy"), [1, 1, 1, 3, 4])


def test_cutoff_and_kinds(karate):
    W, x, _, _ = karate
    scale = np.diag(W.sum(1) ** -0.5)
    L = scale @ (np.diag(W.sum(1)) - W) @ scale
    lam, U = np.linalg.eigh(L)
    U = U[:, lam <= 0.6]
    run("g.mtx", "x.npy", "--cutoff", 0.6, "--kind", "normalized", "-o", "y.npy")
    assert np.allclose(np.load("y.npy"), U @ (U.T @ x), atol=1e-10)
    scipy.io.mmwrite("L.mtx", scipy.sparse.coo_array(L))
    run("L.mtx", "x.npy", "--cutoff", 0.6, "--kind", "given", "-o", "y.npy")
    assert np.allclose(np.load("y.npy"), U @ (U.T @ x), atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_methods(karate, method):
    result = runner.invoke(
        app, ["filter", "g.mtx", "x.npy", "-k", "5", "--method", method, "--seed", "3", "-o", "y.npy", "--json"]
    )
    found = json.loads(result.stdout)
    assert result.exit_code == (0 if found["status"] == "CONVERGED" else 3)
    assert (found["method"], found["k"]) == (method, 5)
    if found["status"] == "CONVERGED":
        assert np.allclose(np.load("y.npy"), karate[2], atol=0.2)
    L = kl.laplacian(karate[0])
    again = kl.lowpass(kl.laplacian(scipy.sparse.csr_array(L.to_dense().diag().diag().numpy() - L.to_dense().numpy())),
                       karate[1], 5, method=method, seed=3)  # fmt: skip
    assert np.allclose(np.load("y.npy"), again, atol=1e-6)


@pytest.mark.parametrize("method", SIGNAL_METHODS)
def test_methods_without_a_basis_have_no_bound(karate, method):
    result = run("g.mtx", "x.npy", "-k", 5, "--method", method, "-m", 34, "-o", "y.npy", "--json")
    found = json.loads(result.stdout)
    assert (found["error_bound"], found["status"]) == (None, None)
    assert found["products"] > 0
    assert np.load("y.npy").shape == (34, 2)
    assert "none: this method" in run("g.mtx", "x.npy", "-k", 5, "--method", method, "-o", "y.npy").stdout


def test_a_trained_network(karate):
    result = runner.invoke(app, ["filter", "g.mtx", "x32.npy", "--weights", "sbm-k6", "-o", "y.npy", "--json"])
    found = json.loads(result.stdout)
    assert (found["method"], found["k"]) == ("unrolled", 6)
    assert result.exit_code == 3  # a network trained elsewhere does not reach 1e-3, and says so
    assert found["error_bound"] is None or found["error_bound"] > found["tol"]
    assert np.load("y.npy").dtype == np.float32


def test_the_report_and_json(karate):
    text = run("g.mtx", "x.npy", "-k", 5, "-o", "y.npy").stdout
    for part in (
        "34 nodes, 78 edges",
        "exact, chosen by auto: a graph of 34 nodes",
        "(proved), asked for 0.001",
        "y.npy",
    ):
        assert part in text
    result = run("g.mtx", "x.npy", "-k", 5, "-o", "y.npy", "--json")
    found = json.loads(result.stdout)
    assert result.stderr == ""
    assert found["graph"] == {"file": "g.mtx", "nodes": 34, "edges": 78, "kind": "combinatorial"}
    assert set(found["seconds"]) == {"start", "read", "laplacian", "solve", "bound", "write"}
    lam = np.linalg.eigvalsh(np.diag(karate[0].sum(1)) - karate[0])
    assert np.allclose(found["ritz_values"], lam[:5], atol=1e-10)
    assert (found["status"], found["bound_proved"]) == ("CONVERGED", True)


def test_not_converged_is_written_and_said(karate):
    result = run("g.mtx", "x.npy", "-k", 5, "--method", "lanczos", "-m", 7, "-o", "y.npy", code=3)
    assert "not converged: MAX_STEPS" in result.stderr
    assert "asked for was 0.001" in result.stderr
    assert np.load("y.npy").shape == (34, 2)


def test_standard_output(karate):
    result = run("g.mtx", "x.csv", "-k", 5, "-o", "-")
    lines = result.stdout.splitlines()
    assert lines[0] == "first,second"
    assert np.allclose(np.loadtxt(lines[1:], delimiter=","), karate[2], atol=1e-10)
    assert "34 nodes" in result.stderr


def test_help_names_every_method_and_option():
    text = " ".join(runner.invoke(app, ["filter", "--help"]).output.replace("│", " ").split())
    for word in (*METHODS, *SIGNAL_METHODS, "--cutoff", "--weights", "--device", "--json", "Exit codes: 0 done, 2"):
        assert word in text


BAD = [
    (["g.mtx", "x.npy", "-k", 5, "--cutoff", 1], "give either -k or --cutoff"),
    (["g.mtx", "x.npy"], "got neither"),
    (["g.mtx", "x.npy", "-k", 35], "k must be between 1 and 34"),
    (["g.mtx", "x.npy", "-k", 0], "k must be between 1 and 34"),
    (["g.mtx", "x.npy", "-k", 5, "--tol", 0], "--tol must be a positive number"),
    (["g.mtx", "x.npy", "-k", 5, "--method", "magic"], "--method must be one of 'auto', 'exact'"),
    (["g.mtx", "x.npy", "-k", 5, "--kind", "magic"], "--kind must be one of"),
    (["g.mtx", "x.npy", "-k", 5, "--device", "abacus"], "--device must be one that torch can use"),
    (["g.mtx", "x.npy", "-k", 5, "--weights", "nobody"], "no trained network"),
    (["g.mtx", "x.npy", "-k", 5, "--weights", "sbm-k6"], "the network was trained for k=6"),
    (["g.mtx", "x.npy", "-k", 5, "--weights", "sbm-k6", "--method", "exact"], "--weights are for --method unrolled"),
    (["none.mtx", "x.npy", "-k", 5], "cannot read 'none.mtx': No such file"),
    (["g.mtx", "none.npy", "-k", 5], "cannot read 'none.npy'"),
    (["g.xlsx", "x.npy", "-k", 5], "a graph must be a file of type"),
    (["x.npy", "x.npy", "-k", 5], "x.npy must be a square matrix"),
    (["x.csv", "x.npy", "-k", 5], "may be a table of signals"),
    (["g.mtx", "short.npy", "-k", 5], "short.npy must have a row for each of the 34 nodes of g.mtx, got shape (33, 2)"),
    (["g.txt", "short.npy", "-k", 5], "34 nodes of g.txt (0 to 33), got shape (33, 2)"),
    (["g.mtx", "wide.npy", "-k", 5], "got shape (2, 34): transpose it"),
    (["g.mtx", "nan.npy", "-k", 5], "the signal must be finite, got 1"),
    (["L.mtx", "x.npy", "-k", 5], "holds a Laplacian already: say so by --kind given"),
    (["directed.mtx", "x.npy", "-k", 5], "directed.mtx must be symmetric"),
    (["named.csv", "x.npy", "-k", 5, "-o", "y.xlsx"], "the output must be a file of type"),
    (["g.mtx", "x.npy", "-k", 5, "-o", "none/y.npy"], "folder that exists"),
    (["g.mtx", "x.npy", "-k", 5, "-o", "x.npy"], "must not be one of the inputs"),
    (["g.mtx", "x.npy", "-k", 5, "-o", "-", "--json"], "either --json or -o -"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_gets_one_line_and_code_2(karate, arguments, message):
    W, x, _, _ = karate
    np.save("short.npy", x[1:])
    np.save("wide.npy", x.T)
    np.save("nan.npy", np.where(np.arange(68).reshape(34, 2) == 5, np.nan, x))
    scipy.io.mmwrite("L.mtx", scipy.sparse.coo_array(np.diag(W.sum(1)) - W))
    scipy.io.mmwrite("directed.mtx", scipy.sparse.coo_array(np.triu(W)))
    before = sorted(os.listdir())
    result = run(*arguments, *([] if "-o" in arguments else ["-o", "y.npy"]), code=2)
    assert result.stdout == ""
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert sorted(os.listdir()) == before


def start(*arguments, **options):
    # A shell that starts the tests in the background ignores Ctrl-C for them, and the command would inherit that.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from krylow.cli import main; main()"
    )
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, **options)


def test_a_closed_pipe_gives_no_traceback(karate):
    scipy.sparse.save_npz("wide.npz", scipy.sparse.csr_array(np.ones((500, 500)) - np.eye(500)))
    np.save("x.npy", np.random.default_rng(0).standard_normal((500, 500)))  # more than a pipe holds
    process = start("filter", "wide.npz", "x.npy", "-k", "1", "-o", "-", stdout=subprocess.PIPE)
    assert process.stdout.read(10)
    process.stdout.close()
    complaint = process.stderr.read().decode()
    assert process.wait() == 141
    assert "Traceback" not in complaint
    assert "Error" not in complaint


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
def test_ctrl_c_while_reading_leaves_nothing(karate):
    os.mkfifo("slow.csv")  # nothing will ever come
    process = start("filter", "slow.csv", "x.npy", "-k", "5", "-o", "y.npy", stdout=subprocess.PIPE)
    with open("slow.csv", "w"):  # opens when the other side does
        time.sleep(0.2)
        before = set(os.listdir())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert process.stderr.read().decode() == "interrupted: nothing was written.\n"
    assert set(os.listdir()) == before
    assert "y.npy" not in before


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
def test_ctrl_c_while_packages_are_imported_cannot_be_swallowed():
    code = (
        "import os, signal\n"
        "from krylow.cli.app import staged\n"
        "with staged() as stages, stages.starting():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt:\n"
        "        pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (130, "interrupted: nothing was written.\n")


def test_no_bar_in_a_pipe(karate):
    process = start("filter", "g.mtx", "x.npy", "-k", "5", "-o", "y.npy", "--json", stdout=subprocess.PIPE)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert json.load(io.BytesIO(out))["status"] == "CONVERGED"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(karate):
    run("g.mtx", "x.npy", "-k", 5, "--device", "cuda", "-o", "y.npy")
    assert np.allclose(np.load("y.npy"), karate[2], atol=1e-8)
