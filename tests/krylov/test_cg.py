import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from krylow.krylov.cg import conjugate_gradients, conjugate_gradients_
from krylow.testing import from_spectrum

F32, F64 = torch.float32, torch.float64


def randn(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def spd(n=20, condition=100.0, seed=0):
    return from_spectrum(np.geomspace(1, condition, n), seed=seed)


@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
def test_solves(batch, columns):
    items = int(np.prod(batch))
    A = torch.stack([spd(seed=s) for s in range(items)]).reshape(*batch, 20, 20)
    b = randn(*batch, 20, columns)
    found = conjugate_gradients(A.matmul, b, steps=200, tol=1e-12)
    torch.testing.assert_close(found.x, torch.linalg.solve(A, b), rtol=1e-9, atol=1e-10)
    assert found.converged.shape == found.residuals.shape == (*batch, columns)
    assert found.converged.all()
    true = (b - A @ found.x).norm(dim=-2) / b.norm(dim=-2)
    assert (true <= 1e-11).all()


@pytest.mark.parametrize("m", [1, 3, 7])
def test_truncated_iterate_minimises_the_energy_norm(m):
    """After m steps x is the best point of the Krylov space K_m(A, b)."""
    A, b = spd(), randn(20, 1)
    K = [b]
    for _ in range(m - 1):
        K.append(A @ K[-1] / (A @ K[-1]).norm())
    Q = torch.linalg.qr(torch.cat(K, -1)).Q
    best = Q @ torch.linalg.solve(Q.mT @ A @ Q, Q.mT @ b)
    found = conjugate_gradients(A.matmul, b, steps=m)
    torch.testing.assert_close(found.x, best, rtol=1e-9, atol=1e-11)
    assert found.steps == m


def test_n_different_eigenvalues_take_n_steps():
    A = from_spectrum([1.0] * 5 + [2.0] * 5 + [7.0] * 5)
    found = conjugate_gradients(A.matmul, randn(15, 2), steps=50, tol=1e-12)
    assert found.steps == 3


@pytest.mark.parametrize("preconditioned", [True, False])
@pytest.mark.parametrize("steps", [1, 4, 200])
def test_in_place_takes_the_same_steps(steps, preconditioned):
    A, b = spd(condition=1e3), randn(20, 5)
    b[:, 2] = 0
    b[:, 3] = torch.linalg.eigh(A).eigenvectors[:, 7]  # solved before the others
    near = torch.linalg.inv(A + torch.diag(randn(20).abs())).matmul if preconditioned else None
    expected = conjugate_gradients(A.matmul, b, steps=steps, tol=1e-11, preconditioner=near)
    left = b.clone()
    x = conjugate_gradients_(A.matmul, left, steps=steps, tol=1e-11, preconditioner=near)
    torch.testing.assert_close(x, expected.x, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(left, b - A @ x, rtol=0, atol=1e-10)
    assert not x[:, 2].any()


def test_in_place_a_column_without_curvature_is_left_alone():
    A = torch.diag(torch.tensor([1.0, 2.0, -1.0, 3.0], dtype=F64))
    b = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], dtype=F64)
    x = conjugate_gradients_(A.matmul, b.clone(), steps=10, tol=1e-12)
    torch.testing.assert_close(x[:, 0], b[:, 0] / A.diagonal())
    assert not x[:, 1].any()


def test_products_are_steps():
    calls = []
    A = spd()

    def product(X):
        calls.append(X.shape[-1])
        return A @ X

    assert conjugate_gradients(product, randn(20, 2), steps=9).steps == 9
    assert calls == [2] * 9


def test_preconditioner_saves_steps_and_keeps_the_answer():
    scale = torch.logspace(0, 4, 30, dtype=F64)
    A = (
        torch.diag(scale)
        @ (torch.eye(30, dtype=F64) + 0.02 * from_spectrum(np.linspace(-1, 1, 30)))
        @ torch.diag(scale)
    )
    A = (A + A.mT) / 2
    b = randn(30, 2)
    inverse = 1 / A.diagonal()[:, None]
    plain = conjugate_gradients(A.matmul, b, steps=500, tol=1e-10)
    jacobi = conjugate_gradients(A.matmul, b, steps=500, tol=1e-10, preconditioner=lambda r: inverse * r)
    torch.testing.assert_close(jacobi.x, torch.linalg.solve(A, b), rtol=1e-6, atol=1e-12)
    assert jacobi.steps < plain.steps / 4


def test_perfect_preconditioner_takes_one_step():
    A = spd()
    inverse = torch.linalg.inv(A)
    found = conjugate_gradients(A.matmul, randn(20, 1), steps=10, tol=1e-10, preconditioner=inverse.matmul)
    assert found.steps == 1


@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_zero_and_solved_columns_are_frozen_without_nan(dtype):
    A = torch.stack([torch.eye(6), 2 * torch.eye(6), spd(6).float()]).to(dtype)
    b = randn(3, 6, 2, dtype=dtype)
    b[0, :, 0] = 0
    found = conjugate_gradients(A.matmul, b, steps=60)
    assert found.x.isfinite().all()
    assert (found.x[0, :, 0] == 0).all()
    torch.testing.assert_close(found.x, torch.linalg.solve(A, b), rtol=1e-3 if dtype == F32 else 1e-9, atol=1e-5)


def test_statuses_are_of_each_column():
    A = torch.stack([spd(condition=2.0), spd(condition=1e8)])
    found = conjugate_gradients(A.matmul, randn(2, 20, 2), steps=12, tol=1e-6)
    assert found.converged.tolist() == [[True, True], [False, False]]
    assert found.steps == 12


def test_an_indefinite_matrix_is_not_reported_as_solved():
    A = torch.diag(torch.tensor([-1.0, -2.0, -3.0], dtype=F64))
    found = conjugate_gradients(A.matmul, randn(3, 1), steps=10, tol=1e-8)
    assert found.x.isfinite().all()
    assert not found.converged.any()


def test_gradcheck_of_truncated_and_converged_solves():
    A, b = spd(6), randn(6, 2).requires_grad_()
    B = torch.linalg.cholesky(A).requires_grad_()
    for steps in (2, 6):
        assert gradcheck(lambda B, b, steps=steps: conjugate_gradients((B @ B.mT).matmul, b, steps=steps).x, (B, b))


def test_gradient_of_a_zero_right_hand_side_is_finite():
    A = spd(5).requires_grad_()
    b = torch.zeros(5, 1, dtype=F64, requires_grad=True)
    conjugate_gradients(A.matmul, b, steps=4).x.sum().backward()
    assert A.grad.isfinite().all()
    assert b.grad.isfinite().all()
