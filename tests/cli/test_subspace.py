import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from krylow.api import METHODS
from krylow.cli import app
from krylow.io.signals import read_signals

runner = CliRunner()


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A path of nine nodes, numbered from 1, and its eigenpairs."""
    monkeypatch.chdir(tmp_path)
    Path("path.csv").write_text("from,to\n" + "".join(f"{i},{i + 1}\n" for i in range(1, 9)))
    L = np.diag([1.0, *[2] * 7, 1]) - np.eye(9, k=1) - np.eye(9, k=-1)
    return np.linalg.eigh(L)


def run(*arguments, code=0):
    result = runner.invoke(app, ["subspace", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def same_space(A, B):
    return np.allclose(A @ A.T, B @ B.T, atol=1e-10)


def test_basis_and_ritz_values(path):
    lam, U = path
    run("path.csv", "-k", 3, "-o", "basis.npz")
    with np.load("basis.npz", allow_pickle=False) as found:
        assert same_space(found["basis"], U[:, :3])
        assert np.allclose(found["ritz_values"], lam[:3])
        assert found["nodes"].tolist() == list(range(1, 10))


def test_basis_alone(path):
    lam, U = path
    run("path.csv", "--cutoff", (lam[3] + lam[4]) / 2, "-o", "basis.npy")
    assert same_space(np.load("basis.npy"), U[:, :4])
    run("path.csv", "-k", 4, "-o", "basis.csv")
    table = read_signals("basis.csv")
    assert table.columns == ["u1", "u2", "u3", "u4"]
    assert table.nodes == [str(i) for i in range(1, 10)]
    assert same_space(table.values, U[:, :4])
    lines = run("path.csv", "-k", 4, "-o", "-").stdout.splitlines()
    assert lines[0] == "node,u1,u2,u3,u4"
    assert len(lines) == 10


def test_a_cutoff_below_all_frequencies_keeps_nothing(path):
    result = run("path.csv", "--cutoff", -1, "-o", "basis.npz", "--json")
    assert json.loads(result.stdout)["k"] == 0
    with np.load("basis.npz") as found:
        assert found["basis"].shape == (9, 0)


def test_nodes_without_an_edge(path):
    run("path.csv", "-k", 4, "--nodes", 12, "-o", "basis.npz")  # four components
    with np.load("basis.npz") as found:
        assert found["basis"].shape == (12, 4)
        assert found["nodes"].tolist() == list(range(12))


def test_a_repeated_eigenvalue_at_the_cut_is_not_converged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ring.txt").write_text("".join(f"{i} {(i + 1) % 8}\n" for i in range(8)))
    result = run("ring.txt", "-k", 2, "-o", "basis.npz", "--json", code=3)
    found = json.loads(result.stdout)
    assert (found["status"], found["error_bound"]) == ("NO_GAP", None)
    assert "not converged: NO_GAP (proved), the error bound is infinite" in result.stderr
    assert Path("basis.npz").exists()
    run("ring.txt", "-k", 3, "-o", "basis.npz")


def test_methods_of_signals_are_refused(path):
    result = run("path.csv", "-k", 2, "--method", "polynomial", "-o", "basis.npz", code=2)
    assert "--method must be one of" in result.stderr


def test_help_names_every_method():
    text = " ".join(runner.invoke(app, ["subspace", "--help"]).output.replace("│", " ").split())
    assert all(method in text for method in METHODS)


def test_a_proof_on_request(path):
    result = run("path.csv", "-k", 3, "--prove", "-o", "basis.npz", "--json")
    found = json.loads(result.stdout)
    assert (found["status"], found["certificate"], found["bound_proved"]) == ("CONVERGED", "proved", True)
    assert "inertia of a sparse factor" in found["why"]
    text = run("path.csv", "-k", 3, "--prove", "-o", "basis.npz").stdout
    assert "CONVERGED (proved)" in text
