"""Signs, the trivial vector and the word on convergence that all integrations share."""

import pytest
import torch

import krylow as kl
from krylow.graph import as_operator
from krylow.integrations._frequencies import fixed_signs, unconverged, without_trivial
from krylow.testing import complete, path, random_graph
from krylow_lab.large.graphs import make


def test_rounding_does_not_choose_between_equally_large_entries():
    for rounding in (-1e-9, 0.0, 1e-9):
        u = torch.tensor([[-0.5], [0.7], [-0.7 + rounding]], dtype=torch.float64)
        assert torch.equal(fixed_signs(u), u)
        assert torch.equal(fixed_signs(-u), u)
    assert torch.equal(fixed_signs(torch.zeros(3, 2)), torch.zeros(3, 2))
    assert fixed_signs(torch.zeros(2, 0, 4)).shape == (2, 0, 4)


def test_signs_of_a_batch_are_those_of_its_items():
    basis = torch.randn(5, 7, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(fixed_signs(basis), torch.stack([fixed_signs(item) for item in basis]))
    assert torch.equal(fixed_signs(-basis), fixed_signs(basis))


def test_the_trivial_vector_is_rotated_out_only_where_zero_is_repeated():
    L = torch.stack([kl.laplacian(W).to_dense() for W in (random_graph(6, seed=1), torch.block_diag(path(2), path(4)))])
    theta, U = torch.linalg.eigh(L)
    kept, values = without_trivial(U[..., :4], theta[..., :4], torch.ones(2, 6, dtype=L.dtype), 1e-9)
    assert torch.equal(kept[0], U[0, :, 1:4])
    assert torch.allclose(values, theta[..., 1:4], atol=1e-12)
    assert torch.allclose(kept.sum(-2), torch.zeros(2, 3, dtype=L.dtype), atol=1e-12)
    assert torch.allclose(L @ kept, kept * values[..., None, :], atol=1e-12)


@pytest.mark.parametrize("method", ["chebyshev", "thick_restart", "shift_invert"])
def test_what_has_converged_is_not_advised_about_and_what_has_not_is(method):
    L = kl.laplacian(path(300))
    assert unconverged(kl.subspace(L, 5, method=method, tol=1e-6)) is None
    assert unconverged(kl.subspace(L, 5, method="exact")) is None
    if method != "shift_invert":  # which converges with the fewest solves there can be
        short = kl.subspace(L, 5, method=method, tol=1e-6, max_products=60)
        assert short.status is kl.Status.MAX_STEPS
        assert "max_products" in unconverged(short)


def test_an_answer_that_is_good_but_not_as_good_as_asked_for_is_advised_about():
    L = kl.laplacian(random_graph(120, 0.05, seed=1))
    found = kl.subspace(L, 3, method="thick_restart", tol=1e-10, max_products=60)
    assert 1e-10 < float(found.error_bound) < 1e-2
    assert unconverged(found)


def test_a_missing_gap_is_no_failure_to_converge():
    found = kl.subspace(kl.laplacian(complete(60)), 5, method="thick_restart")
    assert found.status is kl.Status.NO_GAP
    assert unconverged(found) is None


@pytest.mark.parametrize("method", ["multilevel", "chebyshev", "shift_invert"])
def test_a_large_graph_is_judged_by_what_its_refinement_measured(method):
    """Residuals of L overrate an error of one large graph by orders of magnitude."""
    L = as_operator(make("knn2d", 2500, 0))
    found = kl.subspace(L, 6, method=method, tol=1e-6)
    assert found.status is kl.Status.CONVERGED
    assert unconverged(found) is None
    if method != "shift_invert":
        short = kl.subspace(L, 6, method=method, tol=1e-6, max_products=400)
        assert short.status is kl.Status.MAX_STEPS
        assert "max_products" in unconverged(short)
