"""Two-grid cycles, beside the true eigenvectors of a grid."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import torch

import krylow as kl
from krylow.graph import as_operator
from krylow.metrics import subspace_error
from krylow.operators import Operator
from krylow.solvers._aggregation import aggregate
from krylow.solvers._block import Block
from krylow.solvers._coarse import CoarseGraph, solve_coarsest
from krylow.solvers._cycles import CycleSettings, TwoGrid
from krylow.solvers._filter import Precision
from krylow.solvers.chebyshev import Goal
from krylow_lab.large import graphs, reference
from soak.families import FAMILIES, reweighted

K, WIDTH = 11, 16
SETTINGS = CycleSettings()


@pytest.fixture(scope="module")
def problem():
    L = as_operator(graphs.make("grid", 6000, 0))
    level = aggregate(L, torch.ones(L.n, dtype=torch.float64), 8 * SETTINGS.interval / 2)
    _, truth = reference.grid_eigenpairs(*graphs.grid(6000), K)
    return L, level, solve_coarsest(CoarseGraph(level.coarse), K, WIDTH, 1e-12), torch.from_numpy(truth)


def cycles(problem, dtype=torch.float64, tol=1e-9, max_products=10**6, settings=SETTINGS):
    L, level, coarse, _ = problem
    A = L if dtype == torch.float64 else L.float()
    block = Block(A, level.prolong(coarse.V).to(dtype), 8.0, orthonormal=True)
    return TwoGrid(block, L, level, coarse, Goal(K, tol, max_products), settings)


def run(problem, dtype, tol, settings=SETTINGS):
    found = cycles(problem, dtype, tol, settings=settings)
    outcome = found.run()
    return found.block, outcome, float(subspace_error(found.block.turned()[:, :K].double(), problem[3]))


@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-3), (torch.float32, 1e-6), (torch.float64, 1e-9)])
def test_the_error_is_reached_and_estimated(problem, dtype, tol):
    block, outcome, error = run(problem, dtype, tol)
    assert outcome is not None
    assert outcome.error <= tol
    assert error <= 3 * outcome.error
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(block.X.mT @ block.X, torch.eye(WIDTH, dtype=dtype), rtol=0, atol=problem[0].n * eps)
    lam = torch.linalg.eigvalsh(block.X.double().mT @ (problem[0] @ block.X.double()))
    torch.testing.assert_close(block.estimate.theta, lam, rtol=1e3 * eps, atol=1e3 * eps)


def test_a_weak_smoother_is_made_stronger_near_the_end(problem):
    weak = replace(SETTINGS, degree=1, rough=math.inf)
    _, outcome, error = run(problem, torch.float64, 1e-7, weak)
    assert outcome is not None
    assert error <= 3 * outcome.error <= 3e-7
    assert run(problem, torch.float64, 1e-7, replace(weak, most_degree=1))[1] is None


def test_a_correction_removes_the_error(problem):
    """With the wrong sign, or without the overestimation of coarse frequencies, it would not."""
    found, errors = cycles(problem), []
    for _ in range(2):
        measured = found.measure(1e-9)
        errors.append(float(subspace_error(torch.linalg.qr(found.block.X @ measured.C[:, :K]).Q, problem[3])))
        found.correct(measured, 1.0)
        torch.testing.assert_close(found.inner, found.block.X.mT @ found.block.X)  # known without a product
    assert errors[1] < errors[0] / 20


def test_ritz_vectors_and_their_components_outside(problem):
    found = cycles(problem)
    measured, block, truth = found.measure(1e-9), found.block, problem[3]
    X = block.X @ measured.C
    torch.testing.assert_close(X.mT @ X, torch.eye(WIDTH, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(X.mT @ (problem[0] @ X), torch.diag(block.estimate.theta), rtol=0, atol=1e-10)
    torch.testing.assert_close(measured.C @ measured.inverse, torch.eye(WIDTH, dtype=torch.float64), rtol=0, atol=1e-10)
    outside = (X[:, :K] - truth @ (truth.mT @ X[:, :K])).norm(dim=0)
    estimated, true = (float(part[1:].square().mean()) for part in (block.estimate.outside[:K], outside))
    assert 1 / 3 < estimated / true < 3


def test_a_block_without_full_rank_is_left_to_sweeps(problem):
    found = cycles(problem, tol=1e-6)
    found.block.X[:, 1] = found.block.X[:, 0]
    assert found.run() is None


def test_no_products_no_claim(problem):
    found = cycles(problem, tol=1e-6, max_products=10)
    assert math.isinf(found.run().error)
    assert found.done == 0


def test_a_small_error_is_not_concluded_from_one_cycle(problem):
    assert run(problem, torch.float64, 1e-3)[1].settled
    found = cycles(problem, tol=9e-5)  # which the first reaches, in a block of two thirds more columns than wanted
    assert found.run().settled
    assert found.done > 1


def test_residuals_are_those_of_the_sums(problem, monkeypatch):
    """The two ways to the inner products of residuals agree on how vectors are mixed."""
    looks = []
    for exact in (0.0, 1.0):
        monkeypatch.setattr(Precision, "exact", exact)
        looks.append(cycles(problem, tol=0.5).measure(0.5))
    torch.testing.assert_close(looks[0].mixing, looks[1].mixing)
    torch.testing.assert_close(looks[0].shifts, looks[1].shifts)


@pytest.mark.parametrize("tol", [0.5, 1e-8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_residuals_of_the_ritz_vectors_are_measured(problem, dtype, tol):
    found = cycles(problem, dtype, tol)
    measured, estimate = found.measure(tol), found.block.estimate
    X = found.block.X.double() @ measured.C
    true = torch.linalg.vector_norm(problem[0] @ X - X * estimate.theta, dim=0)
    torch.testing.assert_close(estimate.residuals, true, rtol=1e-2, atol=1e-5)


def _spread_tree() -> tuple[Operator, np.ndarray]:
    """Return the normalized Laplacian of a deep tree, and its lowest eigenvectors."""
    rng = np.random.default_rng([43, 9])
    W = reweighted(FAMILIES["deep tree"](int(rng.integers(2200, 2800)), rng), "lognormal", rng)
    L = kl.laplacian(W, "normalized")
    return L, scipy.linalg.eigh(L.to_scipy().toarray(), subset_by_index=[0, 25])[1]


def test_what_cycles_hardly_change_is_in_the_bound():
    """On trees a cycle leaves much of components between the coarse graph's frequencies and the smoother's."""
    L, U = _spread_tree()
    for k in (2, 3, 5, 8):
        for tol in (1e-2, 1e-3):
            sub = kl.subspace(L, k, method="multilevel", tol=tol)
            if str(sub.status) == "CONVERGED":
                missed = U[:, :k] - sub.basis.numpy() @ (sub.basis.numpy().T @ U[:, :k])
                assert np.square(missed).sum() / k <= float(sub.error_bound) + 1e-12, (k, tol)
