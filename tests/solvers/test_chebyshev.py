import numpy as np
import pytest
import scipy.sparse
import torch
from numpy.polynomial import chebyshev

import krylow as kl
from krylow._random import gaussian
from krylow.krylov.chebyshev import chebyshev_filter
from krylow.operators import DenseOperator
from krylow.solvers.chebyshev import chebyshev_subspace
from krylow.testing import complete, cycle, laplacian_matrix, lowest, random_graph

F64 = torch.float64


def scalar(x):
    return torch.tensor(float(x), dtype=F64)


@pytest.mark.parametrize("degree", [1, 2, 5, 30])
def test_filter_is_the_chebyshev_polynomial(degree):
    L = laplacian_matrix(random_graph(20, seed=1))
    lam, U = np.linalg.eigh(L.numpy())
    low, high, first = lam[6], lam[-1], lam[0]
    X = gaussian(DenseOperator(L), 3)
    Y = chebyshev_filter(DenseOperator(L), X, degree, scalar(low), scalar(high), scalar(first))
    coefficients = np.zeros(degree + 1)
    coefficients[-1] = 1

    def T(x):
        return chebyshev.chebval((2 * x - low - high) / (high - low), coefficients)

    expected = U @ np.diag(T(lam) / T(first)) @ U.T @ X.numpy()
    np.testing.assert_allclose(Y.numpy(), expected, rtol=1e-8, atol=1e-10)


def test_a_high_degree_does_not_overflow():
    L = kl.laplacian(random_graph(20, seed=1))
    lam = torch.linalg.eigvalsh(L.to_dense())
    Y = chebyshev_filter(L, gaussian(L, 2), 4000, lam[-2], lam[-1], lam[0])
    assert Y.isfinite().all()
    assert float(Y.norm()) > 1e-3


def test_filter_cost():
    L = kl.laplacian(random_graph(20, seed=1))
    chebyshev_filter(L, gaussian(L, 3), 7, scalar(1), scalar(9), scalar(0))
    assert (L.products, L.passes) == (21, 7)


def test_subspace_converges_and_is_counted():
    L = laplacian_matrix(random_graph(150, 0.05, seed=1))
    operator = DenseOperator(L)
    pairs = chebyshev_subspace(operator, gaussian(operator, 10), 5, tol=1e-10, max_products=20000)
    U = lowest(L, 5)[1]
    missed = U - pairs.X[:, :5] @ (pairs.X[:, :5].mT @ U)
    assert float(missed.square().sum()) / 5 <= 1e-9
    assert operator.products <= 20000


def test_one_eigenvalue_in_the_whole_block():
    operator = DenseOperator(laplacian_matrix(complete(10)) + torch.eye(10, dtype=F64))
    X = torch.eye(10, dtype=F64)[:, :4] - 0.1  # orthogonal to the constant vector
    pairs = chebyshev_subspace(operator, X, 2, tol=1e-8, max_products=500)
    assert pairs.X.isfinite().all()
    np.testing.assert_allclose(pairs.theta, 11)


@pytest.mark.parametrize("k", [1, 2])
def test_a_gap_beside_a_hub_is_seen_in_float32(k):
    """A wheel: the null vector, pairs from just above 1 on, and the hub's frequency of a thousand."""
    W = torch.zeros(1001, 1001)
    W[:1000, :1000] = cycle(1000)
    W[1000, :1000] = W[:1000, 1000] = 1
    found = kl.subspace(laplacian_matrix(W), k, method="chebyshev")
    assert found.products < 10_000
    if k == 1:
        assert found.status is kl.Status.CONVERGED
        torch.testing.assert_close(found.basis.abs(), torch.full((1001, 1), 1001**-0.5), rtol=0.2, atol=0)
    else:
        assert found.status is not kl.Status.CONVERGED


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("k", [2, 3, 6])
def test_copies_are_not_lost_beside_a_null_vector_that_is_amplified_far_more(k, dtype):
    """A complete bipartite graph: 0, and 20 as often as 29 times."""
    W = torch.zeros(50, 50, dtype=dtype)
    W[:20, 20:] = W[20:, :20] = 1
    found = kl.subspace(laplacian_matrix(W), k, method="chebyshev")
    assert found.status is kl.Status.NO_GAP
    np.testing.assert_allclose(found.ritz_values[1:], 20, rtol=1e-4)


@pytest.mark.parametrize("k", [4, 20])
def test_a_cut_inside_copies_that_fill_the_rest_of_the_block_is_named(k):
    """A cube in ten dimensions: frequencies of 10 and 45 copies."""
    edge = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=F64)
    L = torch.zeros(1, 1, dtype=F64)
    for _ in range(10):
        L = torch.kron(L, torch.eye(2, dtype=F64)) + torch.kron(torch.eye(len(L), dtype=F64), edge)
    found = kl.subspace(L, k, method="chebyshev", max_products=10_000)
    assert found.status is kl.Status.NO_GAP
    assert int(found.certificate.well_defined) == (1 if k < 11 else 11)


@pytest.mark.parametrize("n", [600, 1200, 2000])
def test_a_null_vector_far_below_the_first_ritz_values_does_not_overflow(n):
    """A complete graph in float32: random vectors have little of it, and a filter amplifies it beyond all bounds."""
    found = kl.subspace(kl.laplacian(complete(n)).to(torch.float32), 1, method="chebyshev", tol=1e-6)
    assert found.status is kl.Status.CONVERGED
    torch.testing.assert_close(found.basis.abs(), torch.full((n, 1), n**-0.5), rtol=0, atol=1e-4)


@pytest.mark.parametrize("method", ["chebyshev", "multilevel"])
@pytest.mark.parametrize("seed", range(3))
def test_frequencies_too_low_for_a_filter_are_not_said_to_have_no_gap(method, seed):
    """A grid with weights over twelve orders: a filter hardly amplifies any of them, and all look equal to it."""
    rng = np.random.default_rng(seed)
    path, same = scipy.sparse.diags_array(np.ones(49), offsets=1), scipy.sparse.eye_array(50)
    W = scipy.sparse.csr_array(scipy.sparse.triu(scipy.sparse.kron(path, same) + scipy.sparse.kron(same, path)))
    W.data = 10.0 ** rng.uniform(-12, 0, W.nnz)
    assert kl.subspace(kl.laplacian(W + W.T), 45, method=method, tol=2e-4).status is not kl.Status.NO_GAP
