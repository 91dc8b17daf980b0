"""A scipy LinearOperator in: a matrix that is known by its products only."""

import numpy as np
import pytest
import scipy.sparse.linalg
import torch
from scipy.sparse.linalg import LinearOperator

import krylow as kl
from krylow.testing import gap_at, laplacian_matrix, lowest, random_graph

K = 4


@pytest.fixture(scope="module")
def L():
    L = laplacian_matrix(random_graph(80, 0.1, seed=2))
    assert gap_at(L, K) > 1e-3
    return L.numpy()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_subspace_of_a_linear_operator_is_that_of_its_matrix(L, dtype):
    A = L.astype(dtype)
    calls = []
    operator = LinearOperator(A.shape, matvec=lambda x: calls.append(1) or A @ x, dtype=dtype)
    sub = kl.subspace(operator, k=K, tol=1e-8 if dtype == np.float64 else 1e-6)
    assert sub.basis.dtype == torch.from_numpy(A).dtype
    assert sub.method == "thick_restart"
    assert len(calls) >= sub.products > 0
    assert float(kl.metrics.subspace_error(sub.basis.double(), lowest(torch.from_numpy(L), K)[1])) < 1e-6
    assert sub.status is kl.Status.CONVERGED


def test_operators_that_scipy_composes_are_taken_too(L):
    half = scipy.sparse.linalg.aslinearoperator(np.linalg.cholesky(L + np.eye(80)))
    composed = half @ half.T  # L + I: the same subspace, frequencies higher by one
    sub = kl.subspace(composed, k=K, tol=1e-8)
    lam, U = lowest(torch.from_numpy(L), K)
    assert float(kl.metrics.subspace_error(sub.basis, U)) < 1e-6
    assert torch.allclose(sub.ritz_values, lam + 1, atol=1e-6)


def test_a_signal_is_filtered_by_a_linear_operator(L):
    x = np.random.default_rng(0).standard_normal((80, 3))
    y = kl.lowpass(scipy.sparse.linalg.aslinearoperator(L), x, k=K, tol=1e-10)
    U = lowest(torch.from_numpy(L), K)[1].numpy()
    assert isinstance(y, np.ndarray)
    assert np.allclose(y, U @ (U.T @ x), atol=1e-4)


def test_linear_operators_that_cannot_be_a_laplacian_are_refused():
    with pytest.raises(kl.InputError, match="square"):
        kl.subspace(LinearOperator((3, 2), matvec=lambda x: np.zeros(3)), k=1)
    with pytest.raises(kl.InputError, match="real"):
        kl.subspace(LinearOperator((2, 2), matvec=lambda x: 1j * x, dtype=np.complex128), k=1)
