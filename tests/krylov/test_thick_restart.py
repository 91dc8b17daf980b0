import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow._random import gaussian
from krylow.krylov.restart import Restart, block_lanczos, thick_restart
from krylow.operators import DenseOperator
from krylow.testing import HARD_GRAPHS, grid, laplacian_matrix, lowest, random_graph, rounding

F32, F64 = torch.float32, torch.float64


@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("block", [1, 2, 3, 8])
@pytest.mark.parametrize("name", list(HARD_GRAPHS))
def test_block_recurrence_holds_and_is_orthonormal(name, block, dtype):
    L = kl.laplacian(HARD_GRAPHS[name]().to(dtype))
    block = min(block, L.n)
    V, T, R = block_lanczos(L, gaussian(L, block), 5)
    n, width = L.n, V.shape[-1]
    norms = V.norm(dim=-2)
    live = norms > 0.5
    expected = torch.diag(live.to(dtype))
    torch.testing.assert_close(V.mT @ V, expected, rtol=0, atol=rounding(dtype, n))
    assert (norms[~live] == 0).all()
    E = torch.zeros(width, block, dtype=dtype)
    E[-block:] = torch.eye(block, dtype=dtype)
    error = L @ V - V @ T - R @ E.mT
    assert float(error.abs().max()) <= rounding(dtype, n, float(L.norm_bound()))
    torch.testing.assert_close(T, T.mT, rtol=0, atol=0)
    outside = torch.ones(width, width).triu(2 * block).bool()
    assert float(T[outside].abs().max() if outside.any() else 0) <= rounding(dtype, n, float(L.norm_bound()))


def test_block_of_a_batch_is_the_loop():
    L = torch.stack([laplacian_matrix(random_graph(15, seed=s)) for s in range(3)])
    X = torch.randn(3, 15, 2, dtype=F64, generator=torch.Generator().manual_seed(0))
    V, T, _ = block_lanczos(DenseOperator(L), X, 4)
    for i in range(3):
        v, t, _ = block_lanczos(DenseOperator(L[i]), X[i], 4)
        torch.testing.assert_close(V[i], v, rtol=0, atol=1e-10)
        torch.testing.assert_close(T[i], t, rtol=0, atol=1e-9)


@pytest.mark.parametrize("block", [1, 3])
def test_the_basis_stays_bounded_and_the_answer_converges(block):
    L = laplacian_matrix(random_graph(200, 0.05, seed=1))
    operator = DenseOperator(L)
    X = gaussian(operator, block)
    pairs = thick_restart(operator, X, 5, Restart(basis_size=16, tol=1e-10, max_products=5000))
    lam, U = lowest(L, 5)
    missed = U - pairs.X[:, :5] @ (pairs.X[:, :5].mT @ U)
    assert float(missed.square().sum()) / 5 <= 1e-9
    np.testing.assert_allclose(pairs.theta[:5], lam, atol=1e-6)
    assert pairs.X.shape[-1] <= 16
    assert operator.products <= 5000


def test_residuals_are_the_true_ones():
    L = laplacian_matrix(random_graph(120, 0.05, seed=2))
    operator = DenseOperator(L)
    pairs = thick_restart(operator, gaussian(operator, 2), 4, Restart(14, 3000, tol=1e-4, recheck=False))
    true = (L @ pairs.X - pairs.X * pairs.theta).norm(dim=-2)
    torch.testing.assert_close(pairs.residuals, true, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-10])
def test_the_recheck_keeps_the_error_within_tol(seed, tol):
    L = laplacian_matrix(random_graph(120, 0.06, seed=seed))
    operator = DenseOperator(L)
    pairs = thick_restart(operator, gaussian(operator, 2), 4, Restart(basis_size=14, tol=tol, max_products=20000))
    U = lowest(L, 4)[1]
    missed = U - pairs.X[:, :4] @ (pairs.X[:, :4].mT @ U)
    assert float(missed.square().sum()) / 4 <= tol
    assert operator.products < 20000


@pytest.mark.parametrize("budget", [10, 37, 60])
def test_the_budget_is_kept(budget):
    operator = DenseOperator(laplacian_matrix(grid(15, 15)))
    thick_restart(operator, gaussian(operator, 3), 4, Restart(basis_size=12, tol=0.0, max_products=budget))
    assert budget - 3 < operator.products <= budget


def test_a_missed_copy_is_found_by_the_recheck():
    """One Krylov sequence holds one vector of a repeated eigenvalue; the recheck finds the others."""
    L = laplacian_matrix(torch.block_diag(*[random_graph(25, 0.3, seed=s) for s in range(4)]))
    operator = DenseOperator(L)
    found = {}
    for recheck in (False, True):
        pairs = thick_restart(operator, gaussian(operator, 1), 4, Restart(16, 4000, tol=1e-8, recheck=recheck))
        found[recheck] = int((pairs.theta[:4].abs() < 1e-6).sum())
    assert found[True] == 4
    assert found[False] < 4


@pytest.mark.parametrize("n", [1, 2, 3, 9])
@pytest.mark.parametrize("block", [1, 2, 8])
def test_small_graphs_are_exhausted(n, block):
    if block > n:
        block = n
    L = laplacian_matrix(random_graph(n, seed=0))
    for k in range(1, n + 1):
        operator = DenseOperator(L)
        pairs = thick_restart(operator, gaussian(operator, block), k, Restart(max(2 * k, k + 24), 1000))
        np.testing.assert_allclose(pairs.theta[:k], lowest(L, k)[0], atol=1e-12)


@pytest.mark.parametrize("budget", range(100, 140, 5))
def test_a_budget_that_ends_at_the_recheck_still_answers(budget):
    L = kl.laplacian(random_graph(120, 0.05, seed=1))
    found = kl.subspace(L, 3, method="thick_restart", tol=1e-10, max_products=budget)
    assert found.products <= budget
    assert bool(torch.isfinite(found.basis).all())


def test_copies_are_not_missed_in_float32_at_a_loose_tolerance():
    """Residuals that a loose tolerance leaves of some vectors are larger than the distance of most frequencies."""
    W = scipy.sparse.csr_array(scipy.sparse.block_diag([grid(47, 47).numpy(), scipy.sparse.csr_array((8, 8))]))
    L = kl.laplacian(W).to(F32)
    sub = kl.subspace(L, 19, method="thick_restart", tol=1e-2)
    assert int((sub.ritz_values < 1e-3).sum()) == 9  # the grid, and eight nodes alone
    assert str(sub.status) == "CONVERGED"
    short = kl.subspace(L, 19, method="thick_restart", tol=1e-2, max_products=700)
    assert int((short.ritz_values < 1e-3).sum()) < 9
    assert str(short.status) != "CONVERGED"
