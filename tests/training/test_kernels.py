import pytest
import torch

from krylow.linalg.cg import conjugate_gradients
from krylow.training import kernels
from krylow.training.kernels import diagonal_cg, tensor_cg


@pytest.fixture
def system():
    source = torch.Generator().manual_seed(0)
    q = 1 + 20 * torch.rand(3, 2, 15, dtype=torch.float64, generator=source)
    return q, torch.randn(3, 2, 15, dtype=torch.float64, generator=source)


@pytest.mark.parametrize("solve", [diagonal_cg, tensor_cg])
@pytest.mark.parametrize("steps", [1, 4, 9])
def test_it_is_the_iteration_of_conjugate_gradients(solve, steps, system):
    q, b = system
    expected = conjugate_gradients(lambda X: q[..., None] * X, b[..., None], steps=steps).x[..., 0]
    torch.testing.assert_close(solve(q, b, steps), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("solve", [diagonal_cg, tensor_cg])
def test_the_gradient_is_that_of_the_truncated_iteration(solve, system):
    q, b = (t[:1, :, :6].clone().requires_grad_() for t in system)
    assert torch.autograd.gradcheck(lambda q, b: solve(q, b, 4), (q, b))


def test_after_convergence_nothing_changes_and_nothing_is_nan(system):
    q, b = system
    q = torch.full_like(q, 2.0).requires_grad_()  # one step solves it
    b = b.clone()
    b[0, 0] = 0
    x = diagonal_cg(q, b, 8)
    torch.testing.assert_close(x, b / 2)
    (gradient,) = torch.autograd.grad(x.sum(), q)
    assert torch.isfinite(gradient).all()


def test_without_numba_the_tensors_do_it(monkeypatch, system):
    q, b = system
    expected = diagonal_cg(q, b, 5)
    monkeypatch.setattr(kernels, "njit", None)
    monkeypatch.setattr(kernels, "_forward", None)
    torch.testing.assert_close(diagonal_cg(q, b, 5), expected)
