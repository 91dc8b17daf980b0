"""What the recipes do beside naming their parts; the contract suite has the rest."""

import pytest
import torch

import krylow as kl
from krylow.recipes import METHODS, RECIPES
from krylow.testing import laplacian_matrix, lowest, projector, random_graph


def test_every_recipe_is_a_method():
    assert set(METHODS) == set(RECIPES)
    for name in METHODS:
        assert name in (RECIPES[name].__name__).strip("_")


@pytest.mark.parametrize("method", ["thick_restart", "chebyshev", "lanczos"])
def test_a_cutoff_grows_k_until_it_is_passed(method):
    L = laplacian_matrix(random_graph(40, 0.3, seed=3))
    lam, U = lowest(L, 30)
    cutoff = float(lam[20] + lam[21]) / 2  # more than the first guess of 8
    found = kl.subspace(L, cutoff=cutoff, method=method, m=40 if method == "lanczos" else None, tol=1e-10)
    assert found.k == 21
    torch.testing.assert_close(projector(found.basis), projector(U[:, :21]), rtol=0, atol=1e-4)
