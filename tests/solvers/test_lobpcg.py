import numpy as np
import pytest
import torch

import krylow as kl
from krylow._random import gaussian
from krylow.certificate import Status
from krylow.operators import DenseOperator, FunctionOperator
from krylow.solvers.lobpcg import lobpcg
from krylow.testing import laplacian_matrix, lowest, random_graph


@pytest.mark.parametrize("kind", ["dense", "function"])
@pytest.mark.parametrize("signed", [False, True])
def test_finds_the_lowest_pairs(kind, signed):
    L = laplacian_matrix(random_graph(120, 0.06, seed=1, signed=signed))
    operator = DenseOperator(L) if kind == "dense" else FunctionOperator(L.matmul, 120)
    pairs = lobpcg(operator, gaussian(operator, 7), 4, tol=1e-10, max_products=20000)
    np.testing.assert_allclose(pairs.theta[:4], lowest(L, 4)[0], atol=1e-7)
    true = (L @ pairs.X - pairs.X * pairs.theta).norm(dim=-2)
    torch.testing.assert_close(pairs.residuals, true, rtol=1e-6, atol=1e-9)


def test_a_batch_costs_its_dearest_graph():
    L = torch.stack([laplacian_matrix(random_graph(60, 0.1, seed=s)) for s in range(3)])
    operator = DenseOperator(L)
    X = gaussian(operator, 5)
    pairs = lobpcg(operator, X, 3, tol=1e-8, max_products=5000)
    costs = []
    for i in range(3):
        single = DenseOperator(L[i])
        alone = lobpcg(single, X[i], 3, tol=1e-8, max_products=5000)
        costs.append(single.products)
        torch.testing.assert_close(pairs.theta[i], alone.theta)
    assert operator.products == max(costs)


def test_padding_is_no_part_of_a_graph():
    graphs = [random_graph(6, seed=0), random_graph(30, 0.2, seed=1)]
    L = kl.laplacian(graphs)
    pairs = lobpcg(L, gaussian(L, 4), 2, tol=1e-10, max_products=5000)
    for i, W in enumerate(graphs):
        np.testing.assert_allclose(pairs.theta[i, :2], lowest(laplacian_matrix(W), 2)[0], atol=1e-7)
    assert (pairs.X[0, 6:] == 0).all()


@pytest.mark.parametrize("error", [Exception("Dense eigensolver failed"), ValueError("not positive definite")])
def test_a_failure_inside_scipy_is_no_answer_but_no_crash(monkeypatch, error):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr("krylow.solvers.lobpcg.scipy_lobpcg", fail)
    found = kl.subspace(kl.laplacian(random_graph(40, 0.2, seed=0)), 3, method="lobpcg")
    assert found.status == Status.MAX_STEPS
    assert found.basis.isfinite().all()


def test_a_failure_of_the_product_is_raised():
    def fail(X):
        raise RuntimeError("the function is broken")

    with pytest.raises(RuntimeError, match="the function is broken"):
        kl.subspace(FunctionOperator(fail, 40, bounds=(0.0, 1.0)), 3, method="lobpcg")
