import pytest
import torch
from torch.nn.functional import softplus

import krylow as kl
from krylow import InputError
from krylow.nn import GaussianProbe, InversePolynomialProbe
from krylow.start.probe import inverse_polynomial, unit_interval
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"degree": 0}, "degree must be at least 1, got 0"),
        ({"power": 1.5}, "power must be an integer, got 1.5"),
        ({"cg_steps": -1}, "cg_steps must be at least 1, got -1"),
        ({"solver": "lu"}, "solver must be one of 'krylov', 'cg', got 'lu'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        InversePolynomialProbe(**arguments)
