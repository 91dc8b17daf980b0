"""What is wrong is said by all ranks, and a rank that is gone ends the job."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("case", ["killed", "raised"])
def test_a_rank_that_ends_ends_the_job(launch, programs, case):
    assert launch(3, programs / "ends.py", case, timeout=400).returncode != 0


@pytest.fixture(scope="module")
def said(launch, programs):
    """Return what the ranks have said of each case, in the order of the ranks."""
    done = launch(3, programs / "refusals.py")
    assert done.returncode == 0, done.stderr[-3000:]
    lines = sorted(line.split(" ", 2) for line in done.stdout.splitlines() if line)
    return {case: [text for name, _, text in lines if name == case] for case, _, _ in lines}


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("asymmetric", "both directions of every edge"),
        ("column", "from 0 to 4999"),
        ("laplacian", 'kind="given"'),
        ("large", "k must be between 1 and 5000"),
        ("many", "a quarter of the 5000 nodes"),
        ("method", "method must be one of 'auto'"),
        ("cutoff", "takes k"),
        ("signal", "one row per node"),
    ],
)
def test_every_rank_says_what_is_wrong(said, case, message):
    assert len(said[case]) == 3
    assert all(message in text for text in said[case])


def test_without_petsc_it_says_how_to_install_it():
    program = "import sys; sys.modules['petsc4py'] = None; import krylow as kl; kl.distributed.from_local_rows([0], [])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=400)
    assert done.returncode != 0
    assert "conda install -c conda-forge petsc4py" in done.stderr
