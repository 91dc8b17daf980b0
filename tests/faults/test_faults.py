"""A few kills and faults; sixty kills and the rest are slow, and ``tests/faults/run.py`` makes their record."""

import os
import signal

import pytest

from faults import run

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="forks, signals and limits as Linux has them")


@pytest.fixture(autouse=True, scope="module")
def _loaded():
    run.load()


@pytest.mark.parametrize(
    ("name", "how"), [("filter", signal.SIGKILL), ("train", signal.SIGKILL), ("train", signal.SIGTERM)]
)
def test_a_command_that_is_killed_loses_nothing_and_leaves_nothing(name, how):
    found = run.killed(name, 2, seed=1, how=how)
    assert found["kills"] == 2
    assert not found["wrong"]


@pytest.mark.parametrize("fault", ["full_disk", "full_disk_in_training", "out_of_memory", "closed_pipe"])
def test_a_fault_is_reported_in_words(fault):
    assert run.FAULTS[fault]() == ""


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(run.FAULTS))
def test_every_fault_is_reported_in_words(fault):
    assert run.FAULTS[fault]() == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(run.COMMANDS))
def test_many_kills(name):
    run.shrink()
    found = run.killed(name, 5 if name == "reproduce" else 25, seed=2)
    assert not found["wrong"]
