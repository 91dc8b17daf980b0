import pytest
import torch

import krylow as kl
from krylow.linalg.cg import conjugate_gradients
from krylow_lab.training import kernels
from krylow_lab.training.kernels import diagonal_probe, polynomial, tensor_cg, unit
from krylow_lab.training.spectra import Spectra


@pytest.fixture
def system():
    source = torch.Generator().manual_seed(0)
    a = 0.2 + torch.rand(3, 1, 3, dtype=torch.float64, generator=source)
    lam = 2 * torch.rand(3, 2, 15, dtype=torch.float64, generator=source)
    return a, lam, torch.randn(3, 2, 15, dtype=torch.float64, generator=source)


@pytest.fixture(params=["compiled", "tensors"])
def way(request, monkeypatch):
    if request.param == "tensors":
        monkeypatch.setattr(kernels, "njit", None)
        monkeypatch.setattr(kernels, "_forward", None)  # so that it cannot be called
    return request.param


def literal(a, lam, z, power, steps):
    q = 1 + sum(a[..., t, None] * lam ** (t + 1) for t in range(a.shape[-1]))
    for _ in range(power):
        z = conjugate_gradients(lambda X: q[..., None] * X, (z / z.norm(dim=-1, keepdim=True))[..., None], steps=steps)
        z = z.x[..., 0]
    return z / z.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize(("power", "steps"), [(1, 1), (2, 4), (3, 9)])
def test_it_is_the_iteration_of_conjugate_gradients(way, power, steps, system):
    expected = literal(*system, power, steps)
    torch.testing.assert_close(diagonal_probe(*system, power, steps), expected, rtol=1e-9, atol=1e-11)


def test_the_gradient_is_that_of_the_truncated_iteration(way, system):
    a, lam, z = system
    a, z = a[:1].clone().requires_grad_(), z[:1, :, :6].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, z: diagonal_probe(a, lam[:1, :, :6], z, 2, 3), (a, z))


def test_after_convergence_nothing_changes_and_nothing_is_nan(way, system):
    a, lam, z = system
    a = a.clone().requires_grad_()
    v = diagonal_probe(a, torch.ones_like(lam), z, 2, 8)  # one value: one step solves it
    torch.testing.assert_close(v, unit(z))
    (gradient,) = torch.autograd.grad((v * z).sum(), a)
    assert torch.isfinite(gradient).all()


def test_single_precision_is_computed_by_tensors(system):
    a, lam, z = (t.float() for t in system)
    v = diagonal_probe(a, lam, z, 2, 3)
    assert v.dtype == torch.float32
    torch.testing.assert_close(v.double(), diagonal_probe(*system, 2, 3), rtol=1e-3, atol=1e-4)


def test_tensor_cg_solves(system):
    a, lam, z = system
    q = polynomial(a, lam)
    torch.testing.assert_close(tensor_cg(q, z, 15), z / q, rtol=1e-6, atol=1e-8)


def test_polynomial():
    a, lam = torch.tensor([2.0, 3.0]), torch.tensor([0.0, 1.0, 2.0])
    assert polynomial(a, lam).tolist() == [1.0, 6.0, 17.0]


@pytest.mark.parametrize(("steps", "real"), [(10, True), (30, False)])
def test_after_many_steps_on_a_laplacian_the_gradient_points_where_rounding_does(monkeypatch, steps, real):
    lam = Spectra.of(kl.data.sbm(16, 100, 4, dtype=torch.float64)).eigenvalues
    source = torch.Generator().manual_seed(0)
    z = torch.randn(16, 100, dtype=torch.float64, generator=source)
    weights = torch.randn(16, 100, dtype=torch.float64, generator=source)

    def gradient():
        a = torch.full((16, 7), 0.69, dtype=torch.float64, requires_grad=True)
        return torch.autograd.grad((diagonal_probe(a, lam, z, 3, steps) * weights).sum(), a)[0]

    one = gradient()
    monkeypatch.setattr(kernels, "njit", None)  # the same by another order of summation
    cosine = torch.cosine_similarity(one, gradient(), dim=-1)
    assert (cosine.min() > 0.99) if real else (cosine.min() < 0)
