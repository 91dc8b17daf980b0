import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import krylow as kl
from krylow.krylov.probe import inverse_polynomial, polynomial_product, response, unit_interval
from krylow.operators import DenseOperator
from krylow.testing import HARD_GRAPHS, complete, laplacian_matrix, random_graph, rounding

F32, F64 = torch.float32, torch.float64


def randn(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def by_definition(L, z, a, power):
    """(I + sum a_t L~^t)^-p z / norm with numpy's eigendecomposition, L~ by Gershgorin's bounds."""
    L, z, a = (t.detach().numpy() for t in (L, z, a))
    radius = np.abs(L).sum(1) - np.abs(np.diag(L))
    low, high = min(0.0, (np.diag(L) - radius).min()), (np.diag(L) + radius).max()
    lam, U = np.linalg.eigh(L)
    lam = (lam - low) / (high - low)
    h = (1 + sum(c * lam ** (t + 1) for t, c in enumerate(a))) ** -float(power)
    v = U @ (h[:, None] * (U.T @ z))
    return torch.from_numpy(v / np.linalg.norm(v))


@pytest.mark.parametrize("solver", ["krylov", "cg"])
@pytest.mark.parametrize(("degree", "power"), [(1, 1), (3, 2), (7, 3), (11, 6)])
@pytest.mark.parametrize("signed", [False, True])
def test_both_solvers_give_the_filtered_vector(solver, degree, power, signed):
    L = laplacian_matrix(random_graph(20, seed=0, signed=signed))
    z, a = randn(20, 1), randn(degree, seed=1).abs()
    v = inverse_polynomial(DenseOperator(L), z, a, power, 60, solver=solver)
    torch.testing.assert_close(v, by_definition(L, z, a, power), rtol=0, atol=1e-9)


@pytest.mark.parametrize("signed", [False, True])
def test_the_two_agree_on_a_larger_graph(signed):
    L = DenseOperator(laplacian_matrix(random_graph(150, 0.05, seed=0, signed=signed)))
    z, a = randn(150, 1), torch.full((7,), 0.7, dtype=F64)
    fast, literal = (inverse_polynomial(L, z, a, 3, 60, solver=s) for s in ("krylov", "cg"))
    torch.testing.assert_close(fast, literal, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("degree", "power", "steps"), [(7, 3, 10), (2, 1, 5)])
def test_cost(degree, power, steps):
    a, z = torch.ones(degree, dtype=F64), randn(40, 1)
    L = kl.laplacian(random_graph(40, seed=0))
    inverse_polynomial(L, z, a, power, steps, solver="krylov")
    assert L.products == steps
    L = kl.laplacian(random_graph(40, seed=0))
    inverse_polynomial(L, z, a, power, steps, solver="cg")
    assert L.products == power * steps * degree


@pytest.mark.parametrize("solver", ["krylov", "cg"])
def test_gradcheck(solver):
    L = laplacian_matrix(random_graph(6, 1.0, seed=2)).requires_grad_()
    z, a = randn(6, 1).requires_grad_(), randn(3, seed=1).abs().requires_grad_()

    def probe(L, z, a):
        return inverse_polynomial(DenseOperator((L + L.mT) / 2, psd=True), z, a, 2, 4, solver=solver)

    assert gradcheck(probe, (L, z, a))


@pytest.mark.parametrize("solver", ["krylov", "cg"])
def test_gradcheck_on_a_signed_graph(solver):
    """Here the shift by Gershgorin's lower bound carries a gradient too."""
    L = laplacian_matrix(random_graph(6, 1.0, seed=2, signed=True)).requires_grad_()
    a = randn(3, seed=1).abs()

    def probe(L):
        return inverse_polynomial(DenseOperator((L + L.mT) / 2), randn(6, 1), a, 2, 4, solver=solver)

    assert gradcheck(probe, (L,))


@pytest.mark.parametrize("solver", ["krylov", "cg"])
def test_gradient_direction_is_the_same_in_float32(solver):
    grads = {}
    for dtype in (F32, F64):
        L = DenseOperator(laplacian_matrix(random_graph(100, 0.1, seed=1)).to(dtype), psd=True)
        a = torch.full((7,), 0.7, dtype=dtype, requires_grad=True)
        v = inverse_polynomial(L, randn(100, 1, dtype=dtype), a, 3, 10, solver=solver)
        (v.mT @ (L @ v)).sum().backward()
        grads[dtype] = a.grad.double()
    cosine = torch.nn.functional.cosine_similarity(grads[F32], grads[F64], dim=0)
    assert float(cosine) > 0.999


def test_polynomial_product():
    L = laplacian_matrix(random_graph(8, seed=0))
    a, X = randn(4, seed=1).abs(), randn(8, 3)
    expected = X + sum(a[t] * torch.linalg.matrix_power(L, t + 1) @ X for t in range(4))
    operator = DenseOperator(L)
    torch.testing.assert_close(polynomial_product(operator, a, X), expected)
    assert operator.products == 4 * 3


@pytest.mark.parametrize("name", list(HARD_GRAPHS))
def test_scaled_operator_lies_in_the_unit_interval(name):
    W = HARD_GRAPHS[name]()
    L = kl.laplacian(W)
    lam = torch.linalg.eigvalsh(unit_interval(L).to_dense())
    noise = rounding(F64, L.n)
    assert float(lam[0]) >= -noise
    assert float(lam[-1]) <= 1 + noise


@pytest.mark.parametrize("solver", ["krylov", "cg"])
@pytest.mark.parametrize("name", list(HARD_GRAPHS))
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_hard_graphs_give_a_unit_vector(solver, name, dtype):
    L = kl.laplacian(HARD_GRAPHS[name]().to(dtype))
    v = inverse_polynomial(L, randn(L.n, 1, dtype=dtype), torch.ones(5, dtype=dtype), 3, 12, solver=solver)
    assert v.isfinite().all()
    assert float(v.norm()) == pytest.approx(1, abs=rounding(dtype, L.n))


@pytest.mark.parametrize("solver", ["krylov", "cg"])
def test_batch_is_the_loop_and_a_bad_item_does_no_harm(solver):
    L = torch.stack([laplacian_matrix(random_graph(9, seed=0)), torch.zeros(9, 9), laplacian_matrix(complete(9))])
    z, a = randn(3, 9, 1), torch.ones(3, dtype=F64)
    v = inverse_polynomial(DenseOperator(L), z, a, 2, 12, solver=solver)
    for i in range(3):
        alone = inverse_polynomial(DenseOperator(L[i]), z[i], a, 2, 12, solver=solver)
        torch.testing.assert_close(v[i], alone, rtol=0, atol=1e-10)


def test_response_is_the_definition():
    a, lam = randn(5, seed=1).abs(), torch.linspace(0, 1, 11, dtype=F64)
    expected = (1 + sum(a[t] * lam ** (t + 1) for t in range(5))) ** -3.0
    torch.testing.assert_close(response(a, 3)(lam), expected)


def test_response_does_not_overflow():
    assert response(torch.full((7,), 1e30), 6)(torch.tensor([0.0, 1.0])).tolist() == [1.0, 0.0]
