"""Progress of long runs, and Ctrl-C in the middle of them."""

import math

import pytest
import torch

import krylow as kl
from krylow.certificate import Status
from krylow.operators import FunctionOperator
from krylow.solvers._problem import Watch
from krylow.testing import grid, laplacian_matrix

ITERATIVE = ["thick_restart", "chebyshev", "lobpcg"]


@pytest.mark.parametrize("method", ITERATIVE)
def test_callback_is_told_of_every_sweep(method):
    seen = []
    L = kl.laplacian(grid(20, 17))
    found = kl.subspace(L, 4, method=method, tol=1e-8, callback=seen.append)
    assert len(seen) >= 2
    assert [p.passes for p in seen] == sorted(p.passes for p in seen)
    assert seen[-1].passes <= found.passes
    assert seen[-1].products <= found.products
    assert seen[-1].bound <= 1e-8
    assert seen[-1].remaining == 0
    assert all(p.seconds > 0 for p in seen)


def test_remaining_time_is_extrapolated_from_the_contraction(monkeypatch):
    clock = iter([0.0, 2.0, 4.0, 6.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    seen = []
    watch = Watch(kl.laplacian(grid(3, 3)), 1e-6, seen.append)
    for bound in (math.inf, 1e-2, 1e-3):
        watch.report(bound)
    assert [p.remaining for p in seen[:2]] == [None, None]
    assert seen[2].remaining == pytest.approx(3 * 2.0)  # three more decades at one in two seconds


@pytest.mark.parametrize("method", ["thick_restart", "chebyshev", "lobpcg"])
def test_interruption_returns_the_best_so_far(method):
    L = laplacian_matrix(grid(20, 17))
    calls = 0

    def stop(progress):
        nonlocal calls
        calls += 1

    def multiply(X):
        if calls >= 2:
            raise KeyboardInterrupt
        return L @ X

    operator = FunctionOperator(multiply, L.shape[0], bounds=(0.0, 8.0))
    found = kl.subspace(operator, 4, method=method, tol=1e-12, callback=stop)
    calls = 0
    assert found.status == Status.INTERRUPTED
    assert "best subspace so far" in found.status.advice
    torch.testing.assert_close(found.basis.mT @ found.basis, torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-10)
    assert (found.ritz_values < 2).all()  # far below the mean of the spectrum, 4


def test_interruption_before_anything_was_found_raises():
    def multiply(X):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kl.subspace(FunctionOperator(multiply, 50, bounds=(0.0, 8.0)), 4, method="thick_restart")


def test_well_defined_tells_the_last_gap():
    found = kl.subspace(laplacian_matrix(grid(6, 6)), 3)
    assert found.status == Status.CONVERGED
    assert int(found.certificate.well_defined) == 3
    found = kl.subspace(laplacian_matrix(grid(6, 6)), 2)  # the second and third frequencies of a square are equal
    assert found.status == Status.NO_GAP
    assert int(found.certificate.well_defined) == 1
