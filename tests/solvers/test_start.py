"""A warm start saves products and is never believed where it lacks a frequency."""

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.certificate import Status
from krylow.metrics import subspace_error
from krylow.testing import grid, laplacian_matrix, lowest, random_graph

ITERATIVE = ["lobpcg", "thick_restart"]


@pytest.mark.parametrize("method", ["lobpcg", "thick_restart"])
def test_it_saves_products(method):
    L = laplacian_matrix(grid(30, 21))
    cold = kl.subspace(L, 6, method=method)
    warm = kl.subspace(L, 6, method=method, start=cold)
    assert warm.products < cold.products
    assert warm.status == Status.CONVERGED


@pytest.mark.parametrize("method", ITERATIVE)
@pytest.mark.parametrize("columns", [slice(1, 6), slice(5, 10), slice(-5, None)])
def test_a_start_without_wanted_vectors(method, columns):
    L = laplacian_matrix(random_graph(600, 0.02, seed=2))
    U = lowest(L, 600)[1]
    found = kl.subspace(L, 5, method=method, start=U[:, columns], tol=1e-4)
    assert found.status == Status.CONVERGED
    assert float(subspace_error(found.basis, U[:, :5])) <= 1e-4


@pytest.mark.parametrize("method", ITERATIVE)
def test_few_dependent_or_zero_columns(method):
    L = laplacian_matrix(random_graph(80, 0.1, seed=0))
    ones = torch.ones(80, 1, dtype=L.dtype)
    for start in (ones, ones.expand(80, 7), torch.zeros(80, 3), ones.numpy()):
        found = kl.subspace(L, 3, method=method, start=start)
        assert float(subspace_error(found.basis, lowest(L, 3)[1])) <= 1e-3


def test_a_start_of_another_shape_is_refused():
    L = laplacian_matrix(random_graph(10, seed=0))
    for start in (torch.ones(9, 2), torch.ones(10), torch.ones(2, 10, 2), torch.ones(10, 0)):
        with pytest.raises(kl.InputError, match=r"start must be a Subspace or a real block"):
            kl.subspace(L, 2, method="lobpcg", start=start)
    with pytest.raises(kl.InputError, match="start must be finite"):
        kl.subspace(L, 2, method="lobpcg", start=torch.full((10, 2), torch.nan))


@pytest.mark.parametrize("method", ITERATIVE)
def test_a_start_above_the_cut_of_a_large_graph(method):
    """An invariant subspace of higher frequencies is not taken for the lowest one where no proof says so."""
    sizes = [60] * 40
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), sizes)
    W = rng.random((2400, 2400)) < np.where(labels[:, None] == labels, 0.3, 0.002)
    W = np.tril(W, -1)
    lam, U = np.linalg.eigh(np.diag((W + W.T).sum(0)) - 1.0 * (W + W.T))
    k = 5 + int(np.argmax(np.diff(lam[4:14]) / lam[5:14]))
    L = kl.laplacian(scipy.sparse.csr_array(1.0 * (W + W.T)))
    found = kl.subspace(L, k, method=method, start=U[:, k : 2 * k], tol=1e-2)
    error = float(subspace_error(found.basis, torch.from_numpy(U[:, :k].copy())))
    assert found.status != Status.CONVERGED or error <= 1e-2
