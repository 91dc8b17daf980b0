"""LOBPCG is right on graphs that are hard for it, batched, and costs what it says."""

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.certificate import Status
from krylow.metrics import subspace_error
from krylow.operators import DenseOperator, FunctionOperator
from krylow.solvers import LOBPCG, Problem
from krylow.testing import cycle, from_spectrum, grid, laplacian_matrix, lowest, path, random_graph
from soak.case import GRAPHS
from soak.families import reweighted
from soak.unseen import UNSEEN

F64 = torch.float64


@pytest.mark.parametrize("kind", ["dense", "function"])
@pytest.mark.parametrize("signed", [False, True])
def test_finds_the_lowest_pairs(kind, signed):
    L = laplacian_matrix(random_graph(120, 0.06, seed=1, signed=signed))
    operator = DenseOperator(L) if kind == "dense" else FunctionOperator(L.matmul, 120)
    found = kl.subspace(operator, 4, method="lobpcg", tol=1e-10)
    np.testing.assert_allclose(found.ritz_values, lowest(L, 4)[0], atol=1e-7)
    assert found.status == Status.CONVERGED


@pytest.mark.parametrize("W", [cycle(400), path(300), grid(20, 20)], ids=["cycle", "path", "grid"])
def test_repeated_and_crowded_frequencies(W):
    L = laplacian_matrix(W)
    k = 5 if len(W) == 400 else 4
    k = 6 if torch.equal(W, grid(20, 20)) else k
    found = kl.subspace(L, k, method="lobpcg", tol=1e-8)
    assert found.status == Status.CONVERGED
    assert float(subspace_error(found.basis, lowest(L, k)[1])) <= 1e-8


@pytest.mark.parametrize("spread", [1e-6, 1e-9, 1e-11])
def test_a_small_gap_is_resolved(spread):
    values = torch.cat([torch.tensor([0.0, spread, 2 * spread, 4 * spread]), torch.linspace(0.1, 1.0, 46)]).double()
    L = from_spectrum(values)
    found = kl.subspace(DenseOperator(L), 2, method="lobpcg", tol=1e-4, max_products=5000)
    U = lowest(L, 2)[1]
    assert found.status != Status.CONVERGED or float(subspace_error(found.basis, U)) <= 1e-4
    assert spread < 1e-10 or found.status == Status.CONVERGED


def test_graphs_of_a_batch_iterate_together():
    L = torch.stack([laplacian_matrix(random_graph(60, 0.1, seed=s)) for s in range(3)])
    found = kl.subspace(L, 3, method="lobpcg", tol=1e-8)
    alone = [kl.subspace(L[i], 3, method="lobpcg", tol=1e-8) for i in range(3)]
    for i in range(3):
        torch.testing.assert_close(found.ritz_values[i], alone[i].ritz_values)
    costs = [one.products for one in alone]
    assert 0.7 * max(costs) <= found.products < sum(costs)
    assert found.status == Status.CONVERGED


def test_signed_graphs_that_converge_at_different_speed():
    graphs = [random_graph(20 + 10 * i, 0.3, seed=i, signed=i % 2 == 0) for i in range(6)]
    found = kl.subspace(kl.laplacian(graphs), 3, method="lobpcg", tol=1e-6)
    assert found.basis.isfinite().all()
    assert found.status == Status.CONVERGED
    for i, W in enumerate(graphs):
        np.testing.assert_allclose(found.ritz_values[i], lowest(laplacian_matrix(W), 3)[0], atol=1e-6)
        assert (found.basis[i, len(W) :] == 0).all()  # padding is no part of a graph


def test_a_locked_column_costs_no_product():
    """One very low frequency converges long before the others."""
    L = from_spectrum([0.0, *np.linspace(1.0, 1.5, 40), *np.linspace(2.0, 10.0, 100)])

    def products(lock):
        return kl.subspace(DenseOperator(L), 4, method=LOBPCG(lock=lock), tol=1e-8).products

    assert products(0.1) < products(1e-300)


def test_products_are_limited():
    L = laplacian_matrix(path(300))
    found = kl.subspace(L, 4, method="lobpcg", tol=1e-10, max_products=100)
    assert found.products <= 100
    assert found.status == Status.MAX_STEPS


def test_ritz_pairs_are_confirmed_by_products():
    operator = DenseOperator(laplacian_matrix(random_graph(80, 0.1, seed=3)))
    problem = Problem(operator, 4, kl.profile.GraphProfile(operator), tol=1e-8)
    pairs = LOBPCG().solve(problem)
    true = (operator @ pairs.X - pairs.X * pairs.theta).norm(dim=-2)
    torch.testing.assert_close(pairs.residuals, true, rtol=1e-6, atol=1e-9)


def test_a_failure_of_the_product_is_raised():
    def fail(X):
        raise RuntimeError("the function is broken")

    with pytest.raises(RuntimeError, match="the function is broken"):
        kl.subspace(FunctionOperator(fail, 40, bounds=(0.0, 1.0)), 3, method="lobpcg")


@pytest.mark.parametrize("k", [1, 2, 4])
def test_nodes_alone_beside_a_large_graph_are_not_overlooked(k):
    """Of a few nodes a random block has too little for a loose tolerance to notice."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 4000, (2, 40_000))
    W = scipy.sparse.coo_array((np.ones(40_000), ends), shape=(4002, 4002))
    L = kl.laplacian(scipy.sparse.csr_array(W + W.T), "normalized").float()
    found = kl.subspace(L, k, method="lobpcg", tol=1e-3)
    zero = min(k, 3)
    assert float(found.ritz_values[:zero].abs().max()) <= 1e-6
    assert found.status == (Status.CONVERGED if k == 4 else Status.NO_GAP)


def test_the_basis_is_orthonormal_to_rounding_beside_a_constant_null_vector():
    """LAPACK's sums over thousands of equal entries are off by more than a hundred eps."""
    L = kl.laplacian(UNSEEN["Kleinberg"](4000, np.random.default_rng(2)))
    V = kl.subspace(L, 10, method="lobpcg", tol=1e-4).basis.numpy()
    assert np.linalg.norm(V.T @ V - np.eye(10), 2) <= 50 * np.finfo(float).eps


@pytest.mark.parametrize("seed", [4, 7, 20])
def test_weights_over_twelve_orders_in_float32_keep_the_basis_orthonormal(seed):
    """Where fewer directions are left than the block has columns: what rounding leaves is not blown up to one."""
    rng = np.random.default_rng(seed)
    W = np.triu(rng.random((31, 31)) < 0.15, 1) * 10.0 ** rng.uniform(-12, 0, (31, 31))
    L = kl.laplacian(torch.from_numpy(np.pad(W + W.T, (0, 3))), "generalized")
    found = kl.subspace(L.float(), 13, method="lobpcg", tol=1e-5, max_products=8400)
    V = found.basis.double()
    torch.testing.assert_close(V.mT @ V, torch.eye(13, dtype=torch.float64), rtol=0, atol=2e-6)
    if found.status == Status.CONVERGED:
        U = torch.linalg.eigh(L.to_dense()).eigenvectors[:, :13]
        assert float((V - U @ (U.mT @ V)).square().mean()) <= 1e-5


@pytest.mark.parametrize("most", [40, 80])
def test_a_guard_that_the_budget_stopped_bounds_nothing(most):
    """Equal graphs side by side: copies of a frequency lie below a guard that has not converged."""
    rng = np.random.default_rng(1)
    W = reweighted(GRAPHS["equal graphs"](2200, rng), "twelve orders", rng)
    W = W + scipy.sparse.diags_array((rng.random(2200) < 0.1) * rng.uniform(0.1, 2, 2200))
    L = kl.laplacian(W, "generalized")
    found = kl.subspace(L, 10, method="lobpcg", tol=1e-2, max_products=18 * most)
    exact = kl.subspace(L, 10, method="exact")
    assert found.status != Status.CONVERGED or float(kl.metrics.subspace_error(found.basis, exact.basis)) <= 1e-2
