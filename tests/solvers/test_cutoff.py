"""All frequencies up to a cutoff of graphs beyond the size that a dense factor proves, against dense truth."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import krylow as kl
from krylow._checks import InputError
from krylow.graph import as_operator
from krylow_lab.large.graphs import make

FAMILIES = {"grid": 2500, "knn2d": 2600, "smallworld": 2500, "powerlaw": 3000}
METHODS = ("auto", "chebyshev", "multilevel", "davidson", "shift_invert")


@cache
def truth(family):
    L = as_operator(make(family, FAMILIES[family], 0))
    lam, U = np.linalg.eigh(L.to_scipy().toarray())
    return L, lam, U


def widest_gap(lam, least=4, most=15):
    """Return how many frequencies lie below the widest gap among low ones, and its middle."""
    k = least + int(np.argmax(np.diff(lam)[least - 1 : most]))
    return k, float(lam[k - 1] + lam[k]) / 2


def off(found, U):
    """Return the normalised squared error of a subspace."""
    k = found.basis.shape[1]
    return 1 - np.linalg.norm(U[:, :k].T @ found.basis.numpy()) ** 2 / k


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS)
def test_a_cutoff_in_the_widest_gap_converges(family, method):
    if method == "shift_invert" and family in ("smallworld", "powerlaw"):
        pytest.skip("their factors are dense")
    L, lam, U = truth(family)
    k, cutoff = widest_gap(lam)
    found = kl.subspace(L, cutoff=cutoff, method=method)
    assert found.status is kl.Status.CONVERGED
    assert found.basis.shape[1] == k == int(found.kept)
    assert np.isfinite(float(found.error_bound))
    assert cutoff < float(found.certificate.floor) <= lam[k] * (1 + 1e-6)
    assert off(found, U) <= 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_lowpass_at_a_cutoff_is_the_projection(family):
    L, lam, U = truth(family)
    k, cutoff = widest_gap(lam)
    x = np.random.default_rng(0).standard_normal((L.n, 2))
    y = kl.lowpass(L, x, cutoff=cutoff, tol=1e-8)
    np.testing.assert_allclose(y, U[:, :k] @ (U[:, :k].T @ x), atol=2e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_many_frequencies_beyond_the_first_estimate_are_kept(family):
    L, lam, U = truth(family)
    k, cutoff = widest_gap(lam, 50, 70)
    for method in ("chebyshev", "davidson"):
        found = kl.subspace(L, cutoff=cutoff, method=method)
        assert found.status is kl.Status.CONVERGED
        assert found.basis.shape[1] == k
        assert off(found, U) <= 1e-3


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS[1:4])
def test_the_null_vector_alone_is_kept(family, method):
    L, lam, _ = truth(family)
    for cutoff in (0.0, float(lam[1]) / 2):
        found = kl.subspace(L, cutoff=cutoff, method=method)
        assert found.status is kl.Status.CONVERGED
        assert found.basis.shape[1] == 1 == int(found.kept)
        torch.testing.assert_close(found.basis[:, 0].abs(), torch.full((L.n,), L.n**-0.5).double())


@pytest.mark.parametrize("method", METHODS)
def test_a_cutoff_below_all_frequencies_keeps_none(method):
    L, _, _ = truth("grid")
    found = kl.subspace(L, cutoff=-1.0, method=method)
    assert found.status is kl.Status.CONVERGED
    assert int(found.kept) == 0
    assert not bool(found.basis.any())


def test_none_is_kept_below_the_lowest_frequency_of_a_graph_without_a_null_vector():
    L, _, _ = truth("smallworld")
    raised = as_operator(sp.csr_array(L.to_scipy() + sp.eye_array(L.n)))
    found = kl.subspace(raised, cutoff=0.9, method="chebyshev")
    assert int(found.kept) == 0
    assert not bool(found.basis.any())


def test_a_cutoff_that_keeps_nearly_all_is_exact_or_refused():
    L, lam, _ = truth("grid")
    found = kl.subspace(L, cutoff=float(lam[-2] + lam[-1]) / 2)
    assert found.status is kl.Status.CONVERGED
    assert found.basis.shape[1] == L.n - 1
    large = as_operator(make("smallworld", 5000, 0))
    for cutoff in (1e6, 0.5 * float(large.gershgorin()[1])):
        with pytest.raises(InputError, match="fewer than a quarter of the 5000 frequencies"):
            kl.subspace(large, cutoff=cutoff)


@pytest.mark.parametrize("method", METHODS)
def test_a_cutoff_inside_a_cluster_is_never_a_wrong_answer(method):
    # Frequencies of a torus are repeated 4 or 8 times: a cutoff within rounding of one keeps all copies, or none, or
    # is not converged.
    ring = sp.diags_array([1.0, 1.0, 1.0, 1.0], offsets=[-49, -1, 1, 49], shape=(50, 50))
    eye = sp.eye_array(50)
    L = kl.laplacian(sp.csr_array(sp.kron(ring, eye) + sp.kron(eye, ring)))
    one = 2 - 2 * np.cos(2 * np.pi * np.arange(50) / 50)
    lam = np.sort((one[:, None] + one).ravel())
    for cutoff in (lam[7], lam[7] * (1 + 1e-12), lam[7] * (1 - 1e-12), lam[7] * (1 + 1e-6)):
        found = kl.subspace(L, cutoff=float(cutoff), method=method)
        if found.status is kl.Status.CONVERGED:
            near = abs(cutoff / lam[7] - 1) < 1e-9
            assert int(found.kept) in ((5, 9) if near else (9,))


def test_a_cutoff_too_near_a_frequency_of_few_products_is_not_converged():
    L, lam, _ = truth("smallworld")
    found = kl.subspace(L, cutoff=float(lam[20] + lam[21]) / 2, method="chebyshev", max_products=200)
    assert found.status is not kl.Status.CONVERGED


def test_a_function_is_cut_at_a_frequency():
    L, lam, U = truth("smallworld")
    A = kl.operators.FunctionOperator(lambda X: L @ X, L.n, dtype=L.dtype, device=L.device, bounds=L.gershgorin())
    found = kl.subspace(A, cutoff=float(lam[0] + lam[1]) / 2)
    assert found.status is kl.Status.CONVERGED
    assert found.basis.shape[1] == 1
    assert off(found, U) <= 1e-3
