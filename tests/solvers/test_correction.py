"""What corrections leave of an error, on steps whose sizes are known."""

import math

import pytest
import torch

from krylow.krylov.ritz import Evidence, Ritz
from krylow.solvers._correction import Corrections, Ratios, Step, beyond_rounding
from krylow.solvers._estimate import Stopping

F64 = torch.float64


def step(*new, columns=4):
    """A step that brings these parts of each wanted vector, and couples none."""
    new = torch.tensor(new, dtype=F64)
    return Step(new.cumsum(0) / torch.arange(1, new.numel() + 1), new, torch.zeros(columns, columns, dtype=F64))


def series(ratio):
    """All that is to come after a step, over its own size, if amplitudes fall by the root of the ratio."""
    return sum(ratio ** (j / 2) for j in range(1, 4000)) ** 2


@pytest.mark.parametrize("ratio", [0.15, 0.3, 0.8])
def test_what_is_left_is_the_rest_of_a_geometric_series(ratio):
    left = Corrections()
    left.take(step(1e-2, 1e-2), 0.0)
    assert left.most == pytest.approx(series(Ratios.first))
    left.take(step(1e-2 * ratio, 1e-2 * ratio), 0.0)
    assert left.most == pytest.approx(series(ratio))
    assert left.last == pytest.approx(series(ratio))
    assert left.outside == pytest.approx(1e-2 * ratio * series(ratio))


def test_the_lowest_vectors_speak_for_themselves():
    """The second vector's error is gone after a step, the first one's falls by half: that is what is left."""
    left = Corrections()
    left.take(step(1e-4, 1.0), 0.0)
    left.take(step(5e-5, 1e-9), 0.0)
    assert left.most == pytest.approx(series(0.5), rel=1e-3)
    assert left.last == pytest.approx(series(Ratios.least))  # of both together
    outcome = left.judge(step(5e-5, 1e-9), torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=F64), 0, 1e-3, 1e-12)
    assert outcome.error == pytest.approx(Ratios.caution * series(0.5) * 2.5e-5, rel=1e-3)


def test_no_step_is_believed_to_take_all_or_nothing():
    left = Corrections()
    left.take(step(1e-2), 0.0)
    left.take(step(0.0), 0.0)
    assert left.outside == 0
    left.take(step(1.0), 0.0)
    assert left.most == pytest.approx(series(Ratios.most), rel=1e-2)


def test_steps_that_do_not_shrink_lead_nowhere():
    left = Corrections()
    for _ in range(Stopping.patience):
        left.take(step(1e-3), 0.0)
        assert not left.stalled
    left.take(step(1e-3), 0.0)
    assert left.stalled
    left.take(step(1e-4), 0.0)
    assert not left.stalled


@pytest.mark.parametrize(("off", "well_defined"), [(1e-6, 2), (0.02, 1), (1.0, 0)])
def test_gaps_within_what_quotients_are_off_do_not_show(off, well_defined):
    exact = torch.tensor([1.0, 2.0, 2.01], dtype=F64)
    evidence = Evidence(error=1e-8, floor=2.01, well_defined=2, residuals=torch.zeros(2, dtype=F64))
    pairs = Ritz(exact, torch.eye(3, dtype=F64)[:, :2], torch.zeros(3, dtype=F64), evidence=evidence)
    found = beyond_rounding(pairs, exact + off * torch.tensor([1.0, -1.0, 0.0]), 2, 0).evidence
    assert found.well_defined == well_defined
    assert found.error >= (1e-8 if off < 1e-3 else 0.4)
    assert found.error <= 1
    assert math.isclose(beyond_rounding(pairs, exact, 2, 0).evidence.error, 1e-8)
