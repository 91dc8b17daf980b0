"""Cycles between a graph and a coarser one, beside the true eigenvectors of a grid."""

import math

import pytest
import torch

from krylow.graph import as_operator
from krylow.metrics import subspace_error
from krylow.solvers import _cycles as cycles
from krylow.solvers._aggregation import aggregate
from krylow.solvers._block import Block
from krylow.solvers._coarse import CoarseGraph, solve_coarsest
from krylow.solvers._filter import Precision
from krylow_lab.large import graphs, reference

K, WIDTH = 11, 16


@pytest.fixture(scope="module")
def problem():
    L = as_operator(graphs.make("grid", 6000, 0))
    level = aggregate(L, torch.ones(L.n, dtype=torch.float64), 8 / cycles.SMOOTH_CUT / 2)
    _, truth = reference.grid_eigenpairs(*graphs.grid(6000), K)
    return L, level, solve_coarsest(CoarseGraph(level.coarse), K, WIDTH, 1e-12), torch.from_numpy(truth)


def start(problem, dtype):
    L, level, coarse, _ = problem
    A = L if dtype == torch.float64 else L.float()
    return Block(A, level.prolong(coarse.V).to(dtype), 8.0, orthonormal=True)


def run(problem, dtype, tol):
    L, level, coarse, truth = problem
    block = start(problem, dtype)
    outcome = cycles.run_cycles(block, L, level, coarse, K, tol=tol, max_products=10**6, watch=None)
    return block, outcome, float(subspace_error(block.turned()[:, :K].double(), truth))


@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-3), (torch.float32, 1e-6), (torch.float64, 1e-9)])
def test_the_error_is_reached_and_told(problem, dtype, tol):
    block, outcome, error = run(problem, dtype, tol)
    assert outcome is not None
    assert outcome.error <= tol
    assert error <= 3 * outcome.error
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(block.X.mT @ block.X, torch.eye(WIDTH, dtype=dtype), rtol=0, atol=problem[0].n * eps)
    lam = torch.linalg.eigvalsh(block.X.double().mT @ (problem[0] @ block.X.double()))
    torch.testing.assert_close(block.estimate.theta, lam, rtol=1e3 * eps, atol=1e3 * eps)


def test_a_smoother_that_leaves_too_much_near_the_end_is_made_stronger(problem, monkeypatch):
    monkeypatch.setattr(cycles, "SMOOTHING_FINE", 1)
    monkeypatch.setattr(cycles, "ROUGH", math.inf)
    _, outcome, error = run(problem, torch.float64, 1e-7)
    assert outcome is not None
    assert error <= 3 * outcome.error <= 3e-7
    monkeypatch.setattr(cycles, "SMOOTHING_MOST", 1)
    assert run(problem, torch.float64, 1e-7)[1] is None


def test_a_correction_takes_the_error_away(problem):
    """With the wrong sign, or without the overrating of coarse frequencies, it would not."""
    L, level, coarse, truth = problem
    block = start(problem, torch.float64)
    inner = coarse.V.mT @ coarse.V
    low, errors = 8 / cycles.SMOOTH_CUT, []
    for _ in range(2):
        look = cycles._look(block, inner, L, level, coarse, K, 16, low, 1e-9)
        errors.append(float(subspace_error(torch.linalg.qr(block.X @ look.C[:, :K]).Q, truth)))
        Z = look.Z @ look.back
        level.subtract_(block.X, Z)
        crossed = look.inside.mT @ Z
        inner = look.inner - crossed - crossed.mT + Z.mT @ Z
        torch.testing.assert_close(inner, block.X.mT @ block.X)  # what is told of the block without a product
    assert errors[1] < errors[0] / 20


def test_ritz_vectors_and_their_leakage(problem):
    L, level, coarse, truth = problem
    block = start(problem, torch.float64)
    look = cycles._look(block, coarse.V.mT @ coarse.V, L, level, coarse, K, 16, 8 / cycles.SMOOTH_CUT, 1e-9)
    X = block.X @ look.C
    torch.testing.assert_close(X.mT @ X, torch.eye(WIDTH, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(X.mT @ (L @ X), torch.diag(block.estimate.theta), rtol=0, atol=1e-10)
    torch.testing.assert_close(look.C @ look.back, torch.eye(WIDTH, dtype=torch.float64), rtol=0, atol=1e-10)
    leaks = (X[:, :K] - truth @ (truth.mT @ X[:, :K])).norm(dim=0)
    told, true = (float(part[1:].square().mean()) for part in (block.estimate.outside[:K], leaks))
    assert 1 / 3 < told / true < 3


def test_a_block_that_hardly_is_a_basis_is_left_to_sweeps(problem):
    L, level, coarse, _ = problem
    block = start(problem, torch.float64)
    block.X[:, 1] = block.X[:, 0]
    assert cycles.run_cycles(block, L, level, coarse, K, tol=1e-6, max_products=10**6, watch=None) is None


def test_no_products_no_claim(problem):
    L, level, coarse, _ = problem
    outcome = cycles.run_cycles(
        start(problem, torch.float64), L, level, coarse, K, tol=1e-6, max_products=10, watch=None
    )
    assert math.isinf(outcome.error)


def test_residuals_are_those_of_the_sums(problem, monkeypatch):
    """The two ways to the inner products of residuals tell the same of how vectors are mixed."""
    L, level, coarse, _ = problem
    inner = coarse.V.mT @ coarse.V
    looks = []
    for exact in (0.0, 1.0):
        monkeypatch.setattr(Precision, "exact", exact)
        looks.append(cycles._look(start(problem, torch.float64), inner, L, level, coarse, K, 8, 8 / 30, 0.5))
    torch.testing.assert_close(looks[0].mixing, looks[1].mixing)
    assert looks[0].left == pytest.approx(looks[1].left)


@pytest.mark.parametrize("tol", [0.5, 1e-8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_residuals_of_the_ritz_vectors_are_told(problem, dtype, tol):
    L, level, coarse, _ = problem
    block = start(problem, dtype)
    look = cycles._look(block, coarse.V.mT @ coarse.V, L, level, coarse, K, 8, 8 / 30, tol)
    X = block.X.double() @ look.C
    true = torch.linalg.vector_norm(L @ X - X * block.estimate.theta, dim=0)
    torch.testing.assert_close(block.estimate.residuals, true, rtol=1e-2, atol=1e-5)
