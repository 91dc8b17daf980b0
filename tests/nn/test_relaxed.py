"""The relaxed recurrence on small matrices is Lanczos's on them, and its backward pass a tape's."""

import torch
from torch.autograd import gradcheck

from krylow.nn.relaxed import relaxed_recurrence
from krylow.operators import DenseOperator
from krylow.refine.lanczos import lanczos

F64 = torch.float64


def problem(*sizes, m=6):
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(len(sizes), m, m, generator=generator, dtype=F64)
    live = torch.arange(m) < torch.tensor(sizes)[:, None]
    A = (A + A.mT) / 2 * live[:, :, None] * live[:, None, :]
    gamma1, gamma2 = (1 + sign * 0.3 * torch.rand(m, generator=generator, dtype=F64) for sign in (-1, 1))
    return A.requires_grad_(), gamma1.requires_grad_(), gamma2.requires_grad_(), live


def test_it_is_lanczos_in_value_and_gradient():
    A, gamma1, gamma2, live = problem(6, 4, 1, 0)
    e1 = torch.eye(6, 1, dtype=F64) * live[:, :1, None]
    ours = relaxed_recurrence(A, gamma1, gamma2, live)
    tape = lanczos(DenseOperator(A, mask=live), e1, 6, gamma1=gamma1, gamma2=gamma2)
    assert ours.steps.tolist() == tape.steps.tolist() == [6, 4, 1, 0]
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(shape, generator=generator, dtype=F64) for shape in ((4, 6, 6), (4, 6), (4, 5))]
    grads = []
    for krylov in (ours, tape):
        parts = (krylov.V, krylov.alpha, krylov.beta[:, :-1])
        value = sum((w * part).sum() for w, part in zip(weights, parts, strict=True))
        gradient = torch.autograd.grad(value, (A, gamma1, gamma2))
        grads.append(((gradient[0] + gradient[0].mT) / 2, *gradient[1:]))  # along symmetric matrices
    torch.testing.assert_close((ours.V, ours.alpha, ours.beta[:, :-1]), (tape.V, tape.alpha, tape.beta[:, :-1]))
    torch.testing.assert_close(*grads)
    assert all(g.abs().max() > 0.1 for g in grads[0])


def test_gradcheck():
    A, gamma1, gamma2, live = problem(4, 3, m=4)

    def run(A, gamma1, gamma2):
        krylov = relaxed_recurrence((A + A.mT) / 2, gamma1, gamma2, live)
        return krylov.V, krylov.alpha, krylov.beta[:, :-1]

    assert gradcheck(run, (A, gamma1, gamma2))


def test_one_step_and_a_zero_matrix_are_finite():
    A = torch.zeros(2, 3, 3, dtype=F64, requires_grad=True)
    gamma = torch.ones(3, dtype=F64, requires_grad=True)
    krylov = relaxed_recurrence(A, gamma, gamma, torch.ones(2, 3, dtype=torch.bool))
    assert krylov.steps.tolist() == [1, 1]
    (krylov.V.sum() + krylov.alpha.sum() + krylov.beta.sum()).backward()
    assert torch.isfinite(A.grad).all()
