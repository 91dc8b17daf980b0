"""The examples run, and show what they say."""

import re
import runpy
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(capsys):
    def numbers(name):
        matplotlib.use("Agg")
        runpy.run_path(str(EXAMPLES / name))
        plt.close("all")
        printed = capsys.readouterr().out
        return printed, [float(word) for word in re.findall(r"\d+\.?\d*(?:e-?\d+)?", printed)]

    return numbers


def test_spectral_clustering(run):
    printed, (plain, plain_new, low, low_new, bound, before, after) = run("spectral_clustering.py")
    assert max(plain, plain_new) < 0.7
    assert min(low, low_new) > 0.9
    assert "converged" in printed
    assert bound <= 1e-6
    assert after < before


def test_positional_encodings(run):
    printed, (*_, vectors, diagonal) = run("positional_encodings.py")
    assert "6)" in printed
    assert vectors > 0.1
    assert diagonal < 1e-5


def test_networkx_signals(run):
    _, (noisy, members, smooth, _) = run("networkx_signals.py")
    assert noisy < smooth <= members


def test_denoising(run):
    printed, (bound, noisy, smooth) = run("denoising.py")
    assert "converged" in printed
    assert bound <= 1e-3
    assert smooth < noisy / 10


def test_certificate(run):
    printed, numbers = run("certificate.py")
    lines = printed.splitlines()
    assert [line.split()[1] for line in lines[:3]] == ["MISSED", "CONVERGED", "CONVERGED"]
    assert "ring, k = 2: NO_GAP NO_GAP" in lines
    assert "ring, k = 3: CONVERGED CONVERGED" in lines
    smallest, median = numbers[-2:]
    assert 1 <= smallest <= median < 2
    assert lines[-1] == "a random basis: MAX_STEPS inf"


def test_train_root_probe(run):
    _, (untrained, trained, *_others, learned, thick) = run("train_root_probe.py")
    assert trained < untrained
    assert learned < thick


def test_large_graph(run):
    printed, (nodes, *_, noisy, smooth) = run("large_graph.py")
    assert nodes == 20_000
    assert "converged" in printed
    assert smooth < noisy / 100


def test_every_example_has_a_test():
    tested = Path(__file__).read_text(encoding="utf-8")
    elsewhere = {"attention.py"}  # tests/nn/test_transformer.py
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(re.findall(r"run\(\"(.+?)\"\)", tested)) | elsewhere


def test_wavelets(run):
    printed, (degree, products, error, before, after, difference, learned, true) = run("wavelets.py")
    assert "chebyshev" in printed
    assert products == degree + 4
    assert error < 1e-6
    assert after == pytest.approx(before, rel=1e-3)
    assert difference < 1e-3
    assert learned == pytest.approx(true, rel=0.1)
