"""Shift-invert Lanczos on small graphs; the contract suite has what it shares with the other methods."""

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.operators import DenseOperator, FunctionOperator
from krylow.solvers import ShiftInvert
from krylow.testing import laplacian_matrix, lowest, projector, random_graph

F64 = torch.float64


def solve(L, k, tol=1e-12, **settings):
    return kl.subspace(L, k, tol=tol, method=ShiftInvert(**settings), max_products=2000)


@pytest.mark.parametrize("signed", [False, True], ids=["positive", "signed"])
@pytest.mark.parametrize("seed", range(3))
def test_sparse_and_dense_factors_find_the_lowest_pairs(seed, signed):
    W = random_graph(50, 0.15, seed=seed, signed=signed)
    dense = laplacian_matrix(W)
    lam, U = lowest(dense, 5)
    k = 1 + int((lam[1:] - lam[:-1]).argmax())  # the widest of the first gaps
    for L in (DenseOperator(dense), kl.laplacian(scipy.sparse.csr_array(W.numpy()))):
        found = solve(L, k)
        torch.testing.assert_close(found.ritz_values, lam[:k], rtol=0, atol=1e-8)
        torch.testing.assert_close(projector(found.basis), projector(U[:, :k]), rtol=0, atol=1e-5)


def test_its_residuals_are_those_of_the_graph_not_of_the_inverse():
    L = kl.laplacian(random_graph(50, 0.15, seed=0))
    found = solve(L, 3, tol=1e-4)
    measured = torch.linalg.vector_norm(L @ found.basis - found.basis * found.ritz_values, dim=-2)
    torch.testing.assert_close(found.residuals, measured, rtol=0, atol=1e-12)


def test_it_costs_products_only_at_the_end():
    L = kl.laplacian(random_graph(60, 0.1, seed=0))
    solve(L, 4)
    assert L.passes <= 3


def test_it_sees_what_products_hardly_can():
    """The lowest frequencies of a path of 3000 nodes are 1e-6 of its largest."""
    n, k = 3000, 5
    path = scipy.sparse.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], shape=(n, n))
    found = solve(kl.laplacian(path), k, tol=1e-8)
    j = torch.arange(n, dtype=F64)[:, None]
    U = torch.cos(torch.pi * (j + 0.5) * torch.arange(k, dtype=F64) / n)
    assert float(kl.metrics.subspace_error(found.basis, U / U.norm(dim=0))) <= 1e-8


def test_a_function_cannot_be_factorised():
    with pytest.raises(kl.InputError, match="entries must be known, got a function"):
        solve(FunctionOperator(lambda X: X, 5, bounds=(0.0, 1.0)), 2)


def islands(count, size=12):
    W = scipy.sparse.block_diag([random_graph(size, seed=seed).numpy() for seed in range(count)])
    return scipy.sparse.csr_array(W)


def test_more_components_than_wanted_cost_nothing():
    L = kl.laplacian(islands(9))
    found = solve(L, 4)
    assert float(found.ritz_values.abs().max()) < 1e-12
    assert L.products == 0
    assert found.status.name == "NO_GAP"


@pytest.mark.parametrize("kind", ["combinatorial", "normalized"])
@pytest.mark.parametrize("k", [3, 5])
def test_null_vectors_are_deflated(kind, k):
    L = kl.laplacian(islands(3), kind)
    lam, U = lowest(L.to_dense(), k)
    found = solve(L, k)
    torch.testing.assert_close(found.ritz_values, lam, rtol=0, atol=1e-10)
    torch.testing.assert_close(projector(found.basis), projector(U), rtol=0, atol=1e-6)
    assert kl.subspace(L, k=k, method="shift_invert", tol=1e-8).status.name == "CONVERGED"


def test_isolated_nodes_beside_a_graph():
    W = scipy.sparse.csr_array(scipy.sparse.block_diag([random_graph(30, seed=1).numpy(), np.zeros((2, 2))]))
    L = kl.laplacian(W)
    _, U = lowest(L.to_dense(), 5)
    found = solve(L, 5)
    torch.testing.assert_close(projector(found.basis), projector(U), rtol=0, atol=1e-6)


def test_a_graph_of_isolated_nodes_and_one_edge_is_found_whole():
    W = np.zeros((4, 4))
    W[0, 1] = W[1, 0] = 1.0
    sub = kl.subspace(kl.laplacian(scipy.sparse.csr_array(W)), k=4, method="shift_invert")
    torch.testing.assert_close(sub.ritz_values, torch.tensor([0.0, 0.0, 0.0, 2.0], dtype=F64), rtol=0, atol=1e-9)


def test_a_factor_that_would_be_too_large_is_refused_before_it_is_begun():
    L = kl.laplacian(scipy.sparse.csr_array(random_graph(60, 0.2, seed=0).numpy()))
    with pytest.raises(kl.InputError, match=r"at most 1e\+02 entries, got one of about .*chebyshev"):
        solve(L, 3, max_fill=100)


def test_weights_over_twelve_orders_of_magnitude():
    rng = np.random.default_rng(0)
    upper = scipy.sparse.triu(scipy.sparse.csr_array(random_graph(40, 0.1, seed=3).numpy())).tocoo()
    weight = 10.0 ** rng.uniform(-6, 6, upper.nnz)
    W = scipy.sparse.csr_array((weight, (upper.row, upper.col)), shape=(40, 40))
    L = kl.laplacian(W + W.T)
    sub = kl.subspace(L, k=3, method="shift_invert", tol=1e-10)
    residual = torch.linalg.vector_norm(L @ sub.basis - sub.basis * sub.ritz_values, dim=-2)
    assert float(residual.max()) <= 1e-12 * float(L.norm_bound())


@pytest.mark.parametrize("seed", range(3))
def test_frequencies_over_twelve_orders_of_magnitude_are_resolved(seed):
    """Rounding of the largest value of the inverse covers the last wanted one: a dense factor resolves those."""
    n, k, weight = 44, 37, 10.0 ** np.sort(np.random.default_rng(seed).uniform(-6, 6, 44))
    ring = scipy.sparse.csr_array((weight, (np.arange(n), (np.arange(n) + 1) % n)), shape=(n, n))
    L = kl.laplacian(ring + ring.T)
    sub = kl.subspace(L, k, method="shift_invert", tol=1e-6)
    assert sub.status.name == "CONVERGED"
    assert float(kl.metrics.subspace_error(sub.basis, lowest(L.to_dense(), k)[1])) <= 1e-6


def test_a_cutoff_and_a_basis_of_one_vector_are_answered():
    """A restart that keeps no vector at all polishes an empty block."""
    W = np.array([[0.0, 2.0, -1.0], [2.0, 1.0, -1.0], [-1.0, -1.0, 0.0]])
    L = kl.laplacian(scipy.sparse.csr_array(W), "normalized")
    found = kl.subspace(L, cutoff=1.0, method="shift_invert", m=1, tol=1e-2, start=np.ones((3, 2)))
    below = np.linalg.eigvalsh(L.to_dense().numpy())
    assert found.k == (below <= 1.0).sum() or found.status.name != "CONVERGED"


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("loops", [0.0, 1.0])
def test_a_basis_of_fewer_vectors_than_are_wanted_is_enlarged(m, loops):
    """A sparse graph of a few nodes alone is decomposed by a dense factor, whose restarts need more than k vectors."""
    L = kl.laplacian(scipy.sparse.csr_array(loops * np.eye(2)))
    found = kl.subspace(L, 2, method="shift_invert", m=m)
    assert found.status.name == "CONVERGED"
    torch.testing.assert_close(projector(found.basis), torch.eye(2, dtype=F64))
