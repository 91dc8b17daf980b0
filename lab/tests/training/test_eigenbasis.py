import pytest
import torch

import krylow as kl
from krylow.krylov.lanczos import lanczos
from krylow.krylov.ritz import ritz
from krylow.metrics import subspace_error
from krylow.nn import GaussianProbe, InversePolynomialProbe, RootProbe, UnrolledLanczos
from krylow_lab.training.probe import EigenbasisProbe, to_eigenbasis
from krylow_lab.training.spectra import Spectra

PROBES = {
    "gaussian": GaussianProbe,
    "scaled, truncated": lambda: InversePolynomialProbe(5, 3, 6, "cg", True),
    "as written, truncated": lambda: InversePolynomialProbe(3, 2, 5, "cg", False),
    "scaled, solved": lambda: InversePolynomialProbe(5, 3, 24, "krylov", True),
    "scaled, learned steps": lambda: InversePolynomialProbe(3, 2, 5, "learned_cg", True),
    "roots": lambda: RootProbe(7),
}


@pytest.fixture
def graph(families):
    L = kl.laplacian(families[0].train)
    _, U = torch.linalg.eigh(L.to_dense())
    return L, U


def net_of(name, init=0.2):
    gammas = "sigmoid" if "learned" in name else "square"
    net = UnrolledLanczos(3, 6, PROBES[name](), init=init, gammas=gammas, literal=True).double()
    with torch.no_grad():
        for i, parameter in enumerate(net.parameters()):
            shift = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i), dtype=parameter.dtype)
            parameter.add_(0.1 * shift)
    return net


@pytest.mark.parametrize("name", PROBES)
def test_the_literal_network_on_dense_graphs_computes_the_same(name, families, graph):
    L, U = graph
    spectra = Spectra.of(families[0].train)
    z = torch.randn(*spectra.eigenvalues.shape, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    net = net_of(name)
    diagonal = spectra.operator()
    fast = to_eigenbasis(net).krylov(diagonal, z=z)
    literal = net.krylov(L, z=U @ z)
    torch.testing.assert_close(fast.alpha, literal.alpha, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(fast.beta, literal.beta, rtol=1e-8, atol=1e-8)
    errors = [
        subspace_error(ritz(fast, 3)[1], spectra.target(3).expand(len(z), -1, -1)),
        subspace_error(ritz(literal, 3)[1], U[..., :3]),
    ]
    torch.testing.assert_close(*errors, rtol=1e-6, atol=1e-8)
    assert errors[0].min() > 1e-3  # not the trivial agreement of two exact answers
    assert diagonal.products == L.products


def test_gradients_are_those_of_the_literal_network(families, graph):
    L, U = graph
    spectra = Spectra.of(families[0].train)
    z = torch.randn(*spectra.eigenvalues.shape, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    net = net_of("scaled, truncated")
    twin = to_eigenbasis(net)
    fast = subspace_error(ritz(twin.krylov(spectra.operator(), z=z), 3)[1], spectra.target(3).expand(len(z), -1, -1))
    literal = subspace_error(ritz(net.krylov(L, z=U @ z), 3)[1], U[..., :3])
    ours = torch.autograd.grad(fast.sum(), list(twin.parameters()))
    theirs = torch.autograd.grad(literal.sum(), list(net.parameters()))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_the_literal_cost_is_counted(families):
    spectra = Spectra.of(families[0].train)
    L = spectra.operator()
    EigenbasisProbe(7, 3, 10, "cg").double()(L, torch.ones(*spectra.eigenvalues.shape, 1, dtype=torch.float64))
    assert L.products == 3 * 10 * 7


def test_the_gershgorin_bound_is_that_of_the_graph(families, graph):
    L, _ = graph
    spectra = Spectra.of(families[0].train)
    torch.testing.assert_close(spectra.operator().gershgorin()[1], L.gershgorin()[1])
    assert (spectra.high > spectra.eigenvalues.amax(-1) + 0.5).all()  # so that taking the wrong one would show


def test_networks_change_their_probe_and_nothing_else():
    net = net_of("scaled, truncated")
    there = to_eigenbasis(net)
    assert isinstance(there.probe, EigenbasisProbe)
    assert there.probe.config() == net.probe.config()
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), there.parameters(), strict=True))


@pytest.mark.parametrize(("steps", "real"), [(10, True), (30, False)])
def test_after_many_steps_on_a_laplacian_the_gradient_points_where_rounding_does(steps, real):
    spectra = Spectra.of(kl.data.sbm(16, 100, 4, dtype=torch.float64))
    source = torch.Generator().manual_seed(0)
    z = torch.randn(16, 100, 1, dtype=torch.float64, generator=source)
    weights = torch.randn(16, 100, 1, dtype=torch.float64, generator=source)

    def gradient(order):
        probe = EigenbasisProbe(7, 3, steps, "cg", scaled=False).double()
        L = spectra._map(lambda t: t[..., order] if t.ndim == 2 else t).operator()
        v = probe(L, z[:, order])  # the same by another order of summation
        return torch.stack(
            [torch.autograd.grad(x, probe.b, retain_graph=True)[0] for x in (v * weights[:, order]).sum((-2, -1))]
        )

    cosine = torch.cosine_similarity(gradient(torch.arange(100)), gradient(torch.arange(99, -1, -1)), dim=-1)
    assert (cosine.min() > 0.99) if real else (cosine.min() < 0)


def test_a_solved_system_stays_solved():
    eigenvalues = torch.ones(2, 15, dtype=torch.float64)  # one value: one step solves it
    L = kl.operators.DiagonalOperator(eigenvalues, psd=True)
    z = torch.randn(2, 15, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    probe = EigenbasisProbe(3, 2, 8, "cg", scaled=False).double()
    v = probe(L, z)
    torch.testing.assert_close(v, z / z.norm(dim=-2, keepdim=True))
    assert torch.isfinite(torch.autograd.grad((v * z).sum(), probe.b)[0]).all()


def test_sharp_filters_have_to_be_measured_on_the_graphs_themselves():
    W = kl.data.sbm(4, 100, 4, dtype=torch.float64)
    there, here = Spectra.of(W), Spectra.of(W, dense=True)
    z = torch.randn(4, 100, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def gap(roots, krylov):
        net = UnrolledLanczos(10, 20, RootProbe(roots, 0.6, 2.0), init=0.0, reorthogonalize=True).double()
        errors = [
            subspace_error(ritz(krylov(net, s.operator(), s.rotate(z)), 10)[1], s.target(10).expand(4, -1, -1))
            for s in (there, here)
        ]
        return (errors[1] - errors[0]).abs().max().item()

    def filtered(net, L, v):
        return lanczos(L, net.probe(L, v), net.m, reorthogonalize=True)

    def restarted(net, L, v):
        return net.krylov(L, z=v)

    assert gap(20, filtered) < 1e-6  # mild: the eigenbasis computes the same
    assert gap(60, filtered) > 1e-2  # sharp: only it keeps components below eps times the largest
    assert gap(60, restarted) < 1e-6  # unless the roots are shifts of implicit restarts
