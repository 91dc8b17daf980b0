import pytest
import torch
from torch.nn.functional import softplus

import krylow as kl
from krylow import InputError
from krylow.krylov.probe import inverse_polynomial, unit_interval
from krylow.nn import GaussianProbe, InversePolynomialProbe
from krylow.testing import random_graph

F64 = torch.float64


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def test_gaussian_probe_is_z_and_costs_nothing():
    L = kl.laplacian(random_graph(9, seed=0))
    z = randn(9, 1)
    assert torch.equal(GaussianProbe()(L, z), z)
    assert L.products == 0
    assert list(GaussianProbe().parameters()) == []
    assert GaussianProbe().response(torch.tensor([0.0, 0.5])).tolist() == [1, 1]


@pytest.mark.parametrize("solver", ["krylov", "cg"])
def test_coefficients_are_softplus_and_reach_the_filter(solver):
    probe = InversePolynomialProbe(4, 2, 20, solver).double()
    with torch.no_grad():
        probe.b.copy_(torch.tensor([-3.0, 0.0, 1.0, 5.0]))
    torch.testing.assert_close(probe.coefficients, softplus(probe.b))
    L, z = kl.laplacian(random_graph(12, seed=0)), randn(12, 1)
    expected = inverse_polynomial(L, z, softplus(probe.b), 2, 20, solver=solver)
    torch.testing.assert_close(probe(L, z), expected)


@pytest.mark.parametrize("solver", ["krylov", "cg"])
def test_response_is_what_it_does_to_eigenvectors(solver):
    probe = InversePolynomialProbe(4, 2, 30, solver).double()
    L = kl.laplacian(random_graph(12, seed=0))
    lam, U = torch.linalg.eigh(unit_interval(L).to_dense())
    v = probe(L, U.sum(-1, keepdim=True))
    h = probe.response(lam)
    torch.testing.assert_close((U.mT @ v)[:, 0], h / h.norm(), rtol=0, atol=1e-8)


def test_config_rebuilds_it():
    probe = InversePolynomialProbe(5, 4, 6, "cg")
    again = InversePolynomialProbe(**probe.config())
    assert again.config() == probe.config()
    assert GaussianProbe(**GaussianProbe().config()).config() == {}


def test_every_coefficient_learns():
    probe = InversePolynomialProbe(5, 2, 8).double()
    L, z = kl.laplacian(random_graph(12, seed=0)), randn(12, 1)
    v = probe(L, z)
    (v.mT @ (L @ v)).sum().backward()
    assert (probe.b.grad != 0).all()
    assert (probe.b.grad < 0).all()  # more of any power lowers the vector's frequency


def inverse_softplus(x):
    return torch.log(torch.expm1(x))


def cg_numbers(A, b, steps):
    """Step sizes and momenta of textbook conjugate gradients on A x = b."""
    r, d, sizes, momenta = b, b, [], []
    for _ in range(steps):
        size = (r @ r) / (d @ A @ d)
        following = r - size * A @ d
        momentum = (following @ following) / (r @ r)
        sizes, momenta = [*sizes, size], [*momenta, momentum]
        r, d = following, following + momentum * d
    return torch.stack(sizes), torch.stack(momenta)


def polynomial_matrix(L, a):
    lam, U = torch.linalg.eigh(unit_interval(L).to_dense())
    return U @ torch.diag(1 + sum(a[t] * lam ** (t + 1) for t in range(len(a)))) @ U.mT


def test_learned_steps_begin_near_zero_where_the_probe_returns_z():
    L, z = kl.laplacian(random_graph(20, seed=0)), randn(20, 1)
    probe = InversePolynomialProbe(7, 6, 10, "learned_cg").double()
    assert {name: tuple(p.shape) for name, p in probe.named_parameters()} == {
        "b": (6, 7),
        "step": (6, 10),
        "momentum": (6, 10),
    }
    assert all(0 < float(t.detach().max()) < 0.01 for t in probe.learned_steps)
    v = probe(L, z).detach()
    assert float((v * z).sum() / z.norm()) == pytest.approx(1, abs=1e-2)
    with torch.no_grad():
        probe.step.fill_(-30.0)
        probe.momentum.fill_(-30.0)
    torch.testing.assert_close(probe(L, z), z / z.norm(), rtol=0, atol=1e-9)


def test_learned_steps_with_the_numbers_of_conjugate_gradients_are_conjugate_gradients():
    L, z = kl.laplacian(random_graph(15, seed=0)), randn(15, 1)
    p, steps, degree = 3, 5, 2
    probe = InversePolynomialProbe(degree, p, steps, "learned_cg").double()
    literal = InversePolynomialProbe(degree, p, steps, "cg").double()
    A = polynomial_matrix(L, literal.coefficients.detach())
    b = z[:, 0] / z.norm()
    with torch.no_grad():
        for i in range(p):
            sizes, momenta = cg_numbers(A, b, steps)
            probe.step[i], probe.momentum[i] = inverse_softplus(sizes), inverse_softplus(momenta)
            x = inverse_polynomial(L, b[:, None], literal.coefficients, 1, steps, solver="cg")
            b = x[:, 0]
    torch.testing.assert_close(probe(L, z), literal(L, z), rtol=0, atol=1e-10)


def test_learned_steps_cost_no_product_for_a_residual_that_nobody_reads():
    L = kl.laplacian(random_graph(12, seed=0))
    InversePolynomialProbe(4, 3, 5, "learned_cg").double()(L, randn(12, 1))
    assert L.products == 3 * (5 - 1) * 4


@pytest.mark.parametrize("scaled", [True, False])
def test_response_of_learned_steps_is_what_they_do_to_eigenvectors(scaled):
    probe = InversePolynomialProbe(3, 2, 6, "learned_cg", scaled).double()
    with torch.no_grad():
        for i, parameter in enumerate(probe.parameters()):
            parameter.copy_(randn(*parameter.shape, seed=i) - 3)
    L = kl.laplacian(random_graph(12, seed=0))
    lam, U = torch.linalg.eigh((unit_interval(L) if scaled else L).to_dense())
    v = (U.mT @ probe(L, U.sum(-1, keepdim=True)))[:, 0]
    h = probe.response(lam)
    assert float(probe.response(torch.zeros(1, dtype=F64)).detach()) == pytest.approx(1)
    torch.testing.assert_close(v / v[0], h, rtol=1e-9, atol=1e-9)


def test_only_learned_steps_have_learned_steps():
    with pytest.raises(InputError, match="only the solver 'learned_cg'"):
        _ = InversePolynomialProbe(solver="cg").learned_steps


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"degree": 0}, "degree must be between 1 and 10000, got 0"),
        ({"power": 1.5}, "power must be an integer, got 1.5"),
        ({"cg_steps": -1}, "cg_steps must be between 1 and 10000, got -1"),
        ({"solver": "lu"}, "solver must be one of 'krylov', 'cg', 'learned_cg', got 'lu'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        InversePolynomialProbe(**arguments)
