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


REFINED = ["chebyshev", "davidson", "lobpcg", "thick_restart"]


@pytest.mark.parametrize("W", [grid(30, 21), random_graph(700, 0.02, seed=3)], ids=["grid", "random"])
@pytest.mark.parametrize("method", ["chebyshev", "davidson"])
def test_an_earlier_answer_of_a_graph_of_which_one_edge_in_a_hundred_has_changed(method, W):
    generator = torch.Generator().manual_seed(1)
    changed = torch.where(torch.rand(W.shape, generator=generator).tril(-1) > 0.99, 1.5, 1.0).tril(-1)
    lam = torch.linalg.eigvalsh(laplacian_matrix(W))
    k = 4 + int((lam[4:12] / lam[3:11]).argmax())
    now = W * (changed + changed.mT)
    earlier = kl.subspace(laplacian_matrix(W), k, method=method)
    cold, warm = (kl.subspace(laplacian_matrix(now), k, method=method, start=start) for start in (None, earlier))
    assert warm.products <= cold.products / 3
    assert warm.status == Status.CONVERGED
    assert float(subspace_error(warm.basis, lowest(laplacian_matrix(now), k)[1])) <= 1e-3


@pytest.mark.parametrize("prove", [False, True])
@pytest.mark.parametrize("method", REFINED)
def test_a_vector_that_a_change_has_put_below_the_cut(method, prove):
    """A part of the graph is nearly cut off: its indicator is a new lowest vector, orthogonal to the earlier answer."""
    W = random_graph(500, 0.03, seed=5)
    earlier = kl.subspace(laplacian_matrix(W), 4, method=method)
    now = W.clone()
    now[:40, 40:] *= 1e-3
    now[40:, :40] *= 1e-3
    found = kl.subspace(laplacian_matrix(now), 4, method=method, start=earlier, prove=prove)
    exact = lowest(laplacian_matrix(now), 4)[1]
    assert found.status != Status.CONVERGED or float(subspace_error(found.basis, exact)) <= 1e-3
    assert float(subspace_error(found.basis, exact[:, :2])) <= 1e-2  # a vector that is missed would be half of it


def test_an_earlier_answer_of_a_large_graph_is_refined_where_it_is_proved():
    L = kl.laplacian(scipy.sparse.csr_array(grid(70, 40).numpy()))
    earlier = kl.subspace(L, 6, method="chebyshev")
    cold, warm = (kl.subspace(L, 6, method="chebyshev", start=start, prove=True) for start in (None, earlier))
    assert warm.products <= cold.products / 3
    assert warm.certificate.proved
    assert warm.status == Status.CONVERGED
