"""The examples of the integrations run, and show what they say."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(capsys):
    def numbers(name):
        runpy.run_path(str(EXAMPLES / name))
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
