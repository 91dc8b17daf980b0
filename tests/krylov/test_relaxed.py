"""The relaxed recurrence on small matrices is Lanczos's on them, and its backward pass a tape's."""

import pytest
import torch
from torch.autograd import gradcheck

from krylow.krylov import relaxed
from krylow.krylov.lanczos import lanczos, tridiagonal
from krylow.krylov.relaxed import relaxed_recurrence
from krylow.operators import DenseOperator

F64 = torch.float64


@pytest.fixture(params=["compiled", "tensors"], autouse=True)
def way(request, monkeypatch):
    """Every test here runs compiled, as on the host, and by tensors, as on other devices."""
    if request.param == "tensors":
        monkeypatch.setattr(relaxed, "_on_host", lambda A: False)


def problem(*sizes, m=6):
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(len(sizes), m, m, generator=generator, dtype=F64)
    live = torch.arange(m) < torch.tensor(sizes)[:, None]
    A = (A + A.mT) / 2 * live[:, :, None] * live[:, None, :]
    gamma1, gamma2 = (1 + sign * 0.3 * torch.rand(m, generator=generator, dtype=F64) for sign in (-1, 1))
    start = torch.randn(len(sizes), m, 1, generator=generator, dtype=F64) * live[..., None]
    start = start / start.norm(dim=-2, keepdim=True).clamp(min=1e-9)
    return A.requires_grad_(), start.requires_grad_(), gamma1.requires_grad_(), gamma2.requires_grad_(), live


@pytest.mark.parametrize("m", [1, 3, 6])
def test_it_is_lanczos_in_value_and_gradient(m):
    A, start, gamma1, gamma2, live = problem(6, 4, 1, 0)
    ours = relaxed_recurrence(A, start, gamma1[:m], gamma2[:m], live)
    tape = lanczos(DenseOperator(A, mask=live), start, m, gamma1=gamma1[:m], gamma2=gamma2[:m])
    assert ours.steps.tolist() == tape.steps.tolist() == [m, min(m, 4), 1, 0]
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(shape, generator=generator, dtype=F64) for shape in ((4, 6, m), (4, m), (4, m - 1))]
    grads = []
    for krylov in (ours, tape):
        parts = (krylov.V, krylov.alpha, krylov.beta[:, :-1])
        value = sum((w * part).sum() for w, part in zip(weights, parts, strict=True))
        grad_A, grad_start, *grad_gammas = torch.autograd.grad(value, (A, start, gamma1, gamma2))
        along = grad_start - start * (start * grad_start).sum(-2, keepdim=True)  # among unit vectors
        grads.append(((grad_A + grad_A.mT) / 2, along.detach(), *grad_gammas))  # and symmetric matrices
    torch.testing.assert_close((ours.V, ours.alpha, ours.beta[:, :-1]), (tape.V, tape.alpha, tape.beta[:, :-1]))
    torch.testing.assert_close(*grads)
    if m > 1:
        assert all(g.abs().max() > 0.1 for g in grads[0])


def test_gradcheck():
    A, start, gamma1, gamma2, live = problem(4, 3, m=4)

    def run(A, start, gamma1, gamma2):
        start = start / start.norm(dim=-2, keepdim=True)
        krylov = relaxed_recurrence((A + A.mT) / 2, start, gamma1, gamma2, live)
        return krylov.V, krylov.alpha, krylov.beta[:, :-1]

    assert gradcheck(run, (A, start, gamma1, gamma2))


def test_one_step_and_a_zero_matrix_are_finite():
    A = torch.zeros(2, 3, 3, dtype=F64, requires_grad=True)
    gamma = torch.ones(3, dtype=F64, requires_grad=True)
    krylov = relaxed_recurrence(
        A, torch.eye(3, 1, dtype=F64).expand(2, 3, 1), gamma, gamma, torch.ones(2, 3, dtype=torch.bool)
    )
    assert krylov.steps.tolist() == [1, 1]
    (krylov.V.sum() + krylov.alpha.sum() + krylov.beta.sum()).backward()
    assert torch.isfinite(A.grad).all()


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_neutral_steps_on_a_tridiagonal_matrix_return_the_matrix(dtype):
    """However long: from the first unit vector there is nothing to round."""
    m, generator = 40, torch.Generator().manual_seed(0)
    alpha, beta = (torch.rand(3, size, generator=generator, dtype=dtype) for size in (m, m - 1))
    H, one = tridiagonal(alpha, beta, beta), torch.ones(m, dtype=dtype)
    start = torch.eye(m, 1, dtype=dtype).expand(3, m, 1)
    found = relaxed_recurrence(H, start, one, one, torch.ones(3, m, dtype=torch.bool))
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(found.V, torch.eye(m, dtype=dtype).expand(3, m, m), rtol=0, atol=4 * eps)
    torch.testing.assert_close((found.alpha, found.beta[:, :-1]), (alpha, beta), rtol=0, atol=4 * eps)
