"""Lanczos on the inverse; the contract suite has what it shares with the other methods."""

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.operators import DenseOperator, FunctionOperator
from krylow.refine.shift_invert import shift_invert
from krylow.start.gaussian import gaussian
from krylow.testing import laplacian_matrix, lowest, projector, random_graph

F64 = torch.float64


def solve(L, k, **options):
    settings = {"basis_size": 24, "tol": 1e-12, "max_products": 2000, **options}
    return shift_invert(L, gaussian(L, 1), k, **settings)


@pytest.mark.parametrize("signed", [False, True], ids=["positive", "signed"])
@pytest.mark.parametrize("seed", range(3))
def test_sparse_and_dense_factors_find_the_lowest_pairs(seed, signed):
    W = random_graph(50, 0.15, seed=seed, signed=signed)
    dense = laplacian_matrix(W)
    lam, U = lowest(dense, 5)
    k = 1 + int((lam[1:] - lam[:-1]).argmax())  # the widest of the first gaps
    for L in (DenseOperator(dense), kl.laplacian(scipy.sparse.csr_array(W.numpy()))):
        found = solve(L, k)
        torch.testing.assert_close(found.theta[:k], lam[:k], rtol=0, atol=1e-8)
        torch.testing.assert_close(projector(found.X[:, :k]), projector(U[:, :k]), rtol=0, atol=1e-5)


def test_its_residuals_are_those_of_the_graph_not_of_the_inverse():
    L = kl.laplacian(random_graph(50, 0.15, seed=0))
    found = solve(L, 3, tol=1e-4)
    measured = torch.linalg.vector_norm(L @ found.X - found.X * found.theta, dim=-2)
    torch.testing.assert_close(found.residuals, measured, rtol=0, atol=1e-12)


def test_it_costs_products_only_at_the_end():
    L = kl.laplacian(random_graph(60, 0.1, seed=0))
    solve(L, 4)
    assert L.passes <= 3


def test_it_sees_what_products_hardly_can():
    """The lowest frequencies of a path of 3000 nodes are 1e-6 of its largest."""
    n, k = 3000, 5
    path = scipy.sparse.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], shape=(n, n))
    found = solve(kl.laplacian(path), k, tol=1e-4)
    j = torch.arange(n, dtype=F64)[:, None]
    U = torch.cos(torch.pi * (j + 0.5) * torch.arange(k, dtype=F64) / n)
    assert float(kl.metrics.subspace_error(found.X[:, :k], U / U.norm(dim=0))) <= 1e-8


def test_a_function_cannot_be_factorised():
    with pytest.raises(kl.InputError, match="entries must be known, got a function"):
        solve(FunctionOperator(lambda X: X, 5, bounds=(0.0, 1.0)), 2)
