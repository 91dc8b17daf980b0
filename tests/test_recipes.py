"""What the recipes do beside naming their parts; the contract suite has the rest."""

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.recipes import METHODS, RECIPES, Options
from krylow.testing import laplacian_matrix, lowest, projector, random_graph

F64 = torch.float64


def test_every_recipe_is_a_method():
    assert set(METHODS) == set(RECIPES)
    for name in METHODS:
        assert name in (RECIPES[name].__name__).strip("_")


def test_shift_invert_costs_products_only_at_the_end():
    L = kl.laplacian(random_graph(60, 0.1, seed=0))
    found = RECIPES["shift_invert"](L, 4, Options())
    assert found.passes <= 3
    assert found.products < 60


def test_shift_invert_sees_what_products_hardly_can():
    """The lowest frequencies of a path of 3000 nodes are 1e-6 of its largest."""
    n, k = 3000, 5
    found = kl.subspace(kl.laplacian(_path(n)), k, method="shift_invert")
    j = torch.arange(n, dtype=F64)[:, None]
    U = torch.cos(torch.pi * (j + 0.5) * torch.arange(k, dtype=F64) / n)
    U = U / U.norm(dim=0)
    assert float(kl.metrics.subspace_error(found.basis, U)) <= 1e-8


def _path(n):
    return scipy.sparse.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], shape=(n, n))


@pytest.mark.parametrize("method", ["thick_restart", "chebyshev", "lanczos"])
def test_a_cutoff_grows_k_until_it_is_passed(method):
    L = laplacian_matrix(random_graph(40, 0.3, seed=3))
    lam, U = lowest(L, 30)
    cutoff = float(lam[20] + lam[21]) / 2  # more than the first guess of 8
    found = kl.subspace(L, cutoff=cutoff, method=method, m=40 if method == "lanczos" else None, tol=1e-10)
    assert found.k == 21
    torch.testing.assert_close(projector(found.basis), projector(U[:, :21]), rtol=0, atol=1e-4)
