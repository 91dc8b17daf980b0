import numpy as np
import pytest
import torch

import krylow as kl
from krylow._checks import InputError
from krylow.nn import RootProbe, UnrolledLanczos
from krylow.nn.probes import chebyshev_roots, leja_order


@pytest.fixture
def L():
    return kl.laplacian(kl.data.sbm(2, 40, 4, dtype=torch.float64))


def test_it_is_the_polynomial_of_its_roots(L):
    probe = RootProbe(5, 0.6, 2.2).double()
    z = torch.randn(2, 40, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scale = L.diagonal().mean(-1)
    expected = z
    for rho in probe.rho.detach().tolist():
        expected = expected - (L.to_dense() @ expected) / (rho * scale[:, None, None])
    expected = expected / expected.norm(dim=-2, keepdim=True)
    before = L.products
    torch.testing.assert_close(probe(L, z), expected)
    assert L.products - before == 5


def test_its_response_is_what_it_does_to_eigenvectors(L):
    probe = RootProbe(4).double()
    lam, U = torch.linalg.eigh(L.to_dense())
    z = U.sum(-1, keepdim=True)  # every frequency alike
    v = U.mT @ probe(L, z)
    h = torch.stack([probe.response(row) for row in lam / L.diagonal().mean(-1, keepdim=True)])
    torch.testing.assert_close(v[..., 0], h / h.norm(dim=-1, keepdim=True), rtol=1e-8, atol=1e-10)


def test_chebyshev_roots_are_those_of_the_polynomial():
    x = (np.array(chebyshev_roots(6, 1.0, 5.0)) - 3) / 2
    assert np.abs(np.polynomial.chebyshev.chebval(x, [0] * 6 + [1])).max() < 1e-10


def test_many_roots_survive_single_precision_in_this_order_and_not_in_the_ascending_one(L):
    exact = RootProbe(40, 0.3, 2.4).double()
    z = torch.randn(2, 40, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = exact(L, z).detach()
    single = kl.laplacian(kl.data.sbm(2, 40, 4, dtype=torch.float32))
    leja = RootProbe(40, 0.3, 2.4)
    ascending = RootProbe(40, 0.3, 2.4)
    with torch.no_grad():
        ascending.log_rho.copy_(ascending.log_rho.sort().values)
    good, bad = (p(single, z.float()).detach().double() for p in (leja, ascending))
    assert (good - expected).abs().max() < 1e-3
    assert (bad - expected).abs().max() > 10 * (good - expected).abs().max()


def test_leja_order_keeps_the_points():
    points = chebyshev_roots(9, 0.5, 2.5)
    ordered = leja_order(points)
    assert sorted(ordered) == points
    assert ordered[0] == max(points)
    assert ordered[1] == min(points)


def test_gradcheck(L):
    probe = RootProbe(3).double()
    z = torch.randn(2, 40, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def value(log_rho):
        return torch.func.functional_call(probe, {"log_rho": log_rho}, (L, z)).pow(3).sum()

    assert torch.autograd.gradcheck(value, probe.log_rho.detach().clone().requires_grad_())


def test_saved_and_loaded(L, tmp_path):
    net = UnrolledLanczos(3, 6, RootProbe(4, 0.4, 2.0), init=0.0).double()
    with torch.no_grad():
        net.probe.log_rho.add_(0.1)
    net.save(tmp_path / "net.safetensors", card={"data": "sbm"})
    loaded = kl.load(tmp_path / "net.safetensors")
    assert loaded.config() == net.config()
    assert loaded.card == {"data": "sbm"}
    assert torch.equal(loaded(L).basis, net(L).basis)


def test_an_empty_graph_gives_no_nan():
    L = kl.laplacian(torch.zeros(4, 4))
    assert torch.isfinite(RootProbe(3)(L, torch.ones(4, 1))).all()


@pytest.mark.parametrize("interval", [(2.0, 1.0), (0.0, 1.0), (-1.0, 1.0)])
def test_bad_intervals(interval):
    with pytest.raises(InputError):
        RootProbe(3, *interval)
