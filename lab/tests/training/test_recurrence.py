import pytest
import torch

from krylow.extract import ritz
from krylow.metrics import subspace_error
from krylow.operators import DiagonalOperator
from krylow.refine.lanczos import lanczos
from krylow_lab.training import kernels
from krylow_lab.training.recurrence import diagonal_lanczos
from krylow_lab.training.span_error import span_error

K, M, N = 3, 6, 14


@pytest.fixture
def problem():
    """Four graphs: two ordinary ones, one whose start lives in two eigenvectors, one without a start."""
    source = torch.Generator().manual_seed(0)
    lam = 5 * torch.rand(4, N, dtype=torch.float64, generator=source).sort(-1).values
    v = torch.randn(4, N, 1, dtype=torch.float64, generator=source)
    v[2, 2:] = 0
    v[3] = 0
    gamma1 = 1 - 0.3 * torch.rand(4, M, dtype=torch.float64, generator=source)
    gamma2 = 1 + 0.3 * torch.rand(4, M, dtype=torch.float64, generator=source)
    gamma1[2], gamma2[2] = 1, 1  # relaxed, it would not close
    return lam, v, gamma1, gamma2


def fast(lam, v, gamma1, gamma2):
    return diagonal_lanczos(DiagonalOperator(lam), v, M, gamma1, gamma2)


def slow(lam, v, gamma1, gamma2):
    return lanczos(DiagonalOperator(lam), v, M, gamma1=gamma1, gamma2=gamma2)


def test_it_is_the_recurrence_with_its_breakdowns(problem):
    ours, theirs = fast(*problem), slow(*problem)
    assert ours.steps.tolist() == theirs.steps.tolist()
    assert ours.steps[2] < M
    assert ours.steps[3] == 0
    for name in ("V", "alpha", "beta", "residual"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-9, atol=1e-11)


def test_neutral_gammas_leave_an_invariant_subspace(problem):
    lam, v, gamma1, _ = problem
    one = torch.ones_like(gamma1)
    krylov = fast(lam[:2], v[:2], one[:2], one[:2])
    torch.testing.assert_close(krylov.V.mT @ krylov.V, torch.eye(M, dtype=lam.dtype).expand(2, M, M), rtol=0, atol=1e-9)


def test_products_are_counted(problem):
    lam, *rest = problem
    L = DiagonalOperator(lam)
    diagonal_lanczos(L, rest[0], M, *rest[1:])
    assert (L.products, L.passes) == (M, M)


def test_every_output_of_the_recurrence_has_its_gradient(problem):
    lam, *inputs = (t[:2] for t in problem)
    inputs = [t.clone().requires_grad_() for t in inputs]

    def outputs(v, gamma1, gamma2):
        krylov = fast(lam, v, gamma1, gamma2)
        return krylov.V, krylov.alpha, krylov.beta, krylov.residual

    assert torch.autograd.gradcheck(outputs, inputs, atol=1e-4)


def gradients(function, problem, weights):
    lam, *inputs = problem
    inputs = [t.clone().requires_grad_() for t in inputs]
    return torch.autograd.grad((function(lam, *inputs) * weights).sum(), inputs)


def theory(way):
    def loss(*inputs):
        krylov = way(*inputs)
        return krylov.alpha.square().sum(-1) - 0.3 * krylov.beta.square().sum(-1)

    return loss


def error_of(way):
    def error(*inputs):
        basis = ritz(way(*inputs), K)[1]
        return subspace_error(basis, torch.eye(N, K, dtype=basis.dtype).expand(*basis.shape))

    return error


def compiled_error(*inputs):
    return span_error(fast(*inputs), K)


@pytest.mark.parametrize(("ours", "theirs"), [(theory(fast), theory(slow)), (compiled_error, error_of(slow))])
def test_values_and_gradients_are_those_of_the_tensors_at_breakdowns_too(ours, theirs, problem):
    weights = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    torch.testing.assert_close(ours(*problem), theirs(*problem), rtol=1e-10, atol=1e-12)
    for a, b in zip(gradients(ours, problem, weights), gradients(theirs, problem, weights), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


def test_the_error_is_measured_against_an_independent_span(problem):
    lam, v, gamma1, gamma2 = (t[:2] for t in problem)
    krylov = fast(lam, v, gamma1, gamma2)
    T = torch.diag_embed(gamma1 * krylov.alpha) + torch.diag_embed(krylov.beta[:, :-1], offset=-1)
    T = T + torch.diag_embed(gamma2[:, 1:] * krylov.beta[:, :-1], offset=1)  # the paper's matrix, not symmetric
    values, Y = torch.linalg.eig(T)
    lowest = values.real.argsort(-1)[:, :K]
    X = krylov.V @ torch.take_along_dim(Y.real, lowest[:, None, :], dim=-1)
    Q = torch.linalg.qr(X).Q
    expected = 1 - Q[:, :K].square().sum((-2, -1)) / K
    torch.testing.assert_close(span_error(krylov, K), expected, rtol=1e-9, atol=1e-12)


def test_gammas_of_any_size_and_clusters_do_no_harm():
    source = torch.Generator().manual_seed(1)
    lam = torch.cat([torch.zeros(1, 4), 1 + 1e-13 * torch.rand(1, 5, generator=source), torch.full((1, 5), 3.0)], -1)
    v = torch.randn(1, N, 1, dtype=torch.float64, generator=source)
    gamma1, gamma2 = torch.linspace(-40, 1, M, dtype=torch.float64), torch.linspace(1, 90, M, dtype=torch.float64)
    problem = (lam.double(), v, gamma1.expand(1, M), gamma2.expand(1, M))
    torch.testing.assert_close(compiled_error(*problem), error_of(slow)(*problem), rtol=1e-6, atol=1e-9)
    weights = torch.ones(1, dtype=torch.float64)
    assert all(torch.isfinite(g).all() for g in gradients(compiled_error, problem, weights))


def test_without_numba_the_tensors_do_it(monkeypatch, problem):
    expected = compiled_error(*problem)
    monkeypatch.setattr(kernels, "njit", None)
    torch.testing.assert_close(compiled_error(*problem), expected)
