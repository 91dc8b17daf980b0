import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from krylow.krylov.cg import conjugate_gradients
from krylow.testing import from_spectrum

F32, F64 = torch.float32, torch.float64


def randn(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Counted:
    """The product with a matrix, and how often it was taken."""

    def __init__(self, A):
        self.A, self.calls = A, []

    def __call__(self, X):
        self.calls.append(X.shape[-1])
        return self.A @ X


def spd(n=20, condition=100.0, seed=0):
    return from_spectrum(np.geomspace(1, condition, n), seed=seed)


@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
def test_solves(batch, columns):
    items = int(np.prod(batch))
    A = torch.stack([spd(seed=s) for s in range(items)]).reshape(*batch, 20, 20)
    b = randn(*batch, 20, columns)
    found = conjugate_gradients(A.matmul, b, steps=200, tol=1e-12)
    torch.testing.assert_close(found, torch.linalg.solve(A, b), rtol=1e-9, atol=1e-10)
    true = (b - A @ found).norm(dim=-2) / b.norm(dim=-2)
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
    torch.testing.assert_close(found, best, rtol=1e-9, atol=1e-11)


def test_n_different_eigenvalues_take_n_steps():
    A = from_spectrum([1.0] * 5 + [2.0] * 5 + [7.0] * 5)
    product = Counted(A)
    conjugate_gradients(product, randn(15, 2), steps=50, tol=1e-12)
    assert product.calls == [2] * 3


def test_a_column_without_curvature_is_left_alone():
    A = torch.diag(torch.tensor([1.0, 2.0, -1.0, 3.0], dtype=F64))
    b = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], dtype=F64)
    x = conjugate_gradients(A.matmul, b, steps=10, tol=1e-12)
    torch.testing.assert_close(x[:, 0], b[:, 0] / A.diagonal())
    assert not x[:, 1].any()


def test_products_are_steps():
    product = Counted(spd())
    conjugate_gradients(product, randn(20, 2), steps=9)
    assert product.calls == [2] * 9


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
    plain, preconditioned = Counted(A), Counted(A)
    conjugate_gradients(plain, b, steps=500, tol=1e-10)
    jacobi = conjugate_gradients(preconditioned, b, steps=500, tol=1e-10, preconditioner=lambda r: inverse * r)
    torch.testing.assert_close(jacobi, torch.linalg.solve(A, b), rtol=1e-6, atol=1e-12)
    assert len(preconditioned.calls) < len(plain.calls) / 4


def test_perfect_preconditioner_takes_one_step():
    A = spd()
    inverse = torch.linalg.inv(A)
    product = Counted(A)
    conjugate_gradients(product, randn(20, 1), steps=10, tol=1e-10, preconditioner=inverse.matmul)
    assert product.calls == [1]


@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_zero_and_solved_columns_are_frozen_without_nan(dtype):
    A = torch.stack([torch.eye(6), 2 * torch.eye(6), spd(6).float()]).to(dtype)
    b = randn(3, 6, 2, dtype=dtype)
    b[0, :, 0] = 0
    found = conjugate_gradients(A.matmul, b, steps=60)
    assert found.isfinite().all()
    assert (found[0, :, 0] == 0).all()
    torch.testing.assert_close(found, torch.linalg.solve(A, b), rtol=1e-3 if dtype == F32 else 1e-9, atol=1e-5)


def test_an_indefinite_matrix_gives_no_nan():
    A = torch.diag(torch.tensor([-1.0, -2.0, -3.0], dtype=F64))
    found = conjugate_gradients(A.matmul, randn(3, 1), steps=10, tol=1e-8)
    assert found.isfinite().all()


def test_gradcheck_of_truncated_and_converged_solves():
    A, b = spd(6), randn(6, 2).requires_grad_()
    B = torch.linalg.cholesky(A).requires_grad_()
    for steps in (2, 6):
        assert gradcheck(lambda B, b, steps=steps: conjugate_gradients((B @ B.mT).matmul, b, steps=steps), (B, b))


def test_gradient_of_a_zero_right_hand_side_is_finite():
    A = spd(5).requires_grad_()
    b = torch.zeros(5, 1, dtype=F64, requires_grad=True)
    conjugate_gradients(A.matmul, b, steps=4).sum().backward()
    assert A.grad.isfinite().all()
    assert b.grad.isfinite().all()
