"""Implicit restarts with given shifts are a filtered start, without its rounding."""

import pytest
import torch

import krylow as kl
from krylow.krylov.lanczos import lanczos
from krylow.krylov.restart import implicit_restart
from krylow.krylov.ritz import relaxed_matrix, ritz
from krylow.nn.probes import leja_order
from krylow.testing import from_spectrum, laplacian_matrix, projector, random_graph, rounding

F64 = torch.float64


def start(n, seed=0):
    return torch.randn(n, 1, dtype=F64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])  # none, part of a cycle, whole cycles, and a rest
@pytest.mark.parametrize("seed", range(3))
def test_the_space_is_that_of_the_filtered_start(count, seed):
    L = kl.laplacian(random_graph(30, 0.3, seed=seed))
    dense, z = L.to_dense(), start(30, seed)
    high = float(torch.linalg.eigvalsh(dense)[-1])
    shifts = torch.linspace(0.3, 0.9, max(count, 1), dtype=F64)[:count] * high
    found = implicit_restart(L, z, 4, 8, shifts)
    v = z
    for r in shifts:
        v = v - dense @ v / r
        v = v / v.norm()
    expected = lanczos(kl.operators.DenseOperator(dense), v, 8, reorthogonalize=True).V
    torch.testing.assert_close(projector(found.V), projector(expected), rtol=0, atol=1e-6)
    assert L.products == 8 + count


@pytest.mark.parametrize("count", [4, 12, 24])
def test_it_is_a_lanczos_factorisation(count):
    dense = laplacian_matrix(random_graph(40, 0.2, seed=1))
    high = float(torch.linalg.eigvalsh(dense)[-1])
    shifts = torch.linspace(0.2, 1.0, count, dtype=F64) * high
    found = implicit_restart(kl.operators.DenseOperator(dense), start(40), 5, 10, shifts)
    atol = rounding(F64, 40, 100 * high)
    torch.testing.assert_close(found.V.mT @ found.V, torch.eye(10, dtype=F64), rtol=0, atol=atol)
    last = torch.zeros(10, 1, dtype=F64)
    last[-1] = 1
    residual = dense @ found.V - found.V @ relaxed_matrix(found) - found.residual @ last.mT
    assert float(residual.abs().max()) <= atol


def test_batch_is_the_loop_of_singles():
    items = [laplacian_matrix(random_graph(20, 0.4, seed=s)) for s in range(3)]
    z = torch.stack([start(20, s) for s in range(3)])
    shifts = torch.tensor([[5.0, 6.0, 7.0]] * 3, dtype=F64) + torch.arange(3, dtype=F64)[:, None] / 10
    batch = implicit_restart(kl.operators.DenseOperator(torch.stack(items)), z, 3, 6, shifts)
    for i, item in enumerate(items):
        single = implicit_restart(kl.operators.DenseOperator(item), z[i], 3, 6, shifts[i])
        torch.testing.assert_close(projector(batch.V[i]), projector(single.V), rtol=0, atol=1e-9)


def test_it_survives_a_filter_that_a_vector_does_not():
    """Sixty roots leave a vector k dimensions of it and rounding; the restarted basis keeps the weakest of them."""
    k, n = 10, 100
    lam = torch.cat([torch.linspace(0, 2, k, dtype=F64), torch.linspace(4, 16, n - k, dtype=F64)])
    dense = from_spectrum(lam.tolist(), seed=0)
    U = torch.linalg.eigh(dense)[1][:, :k]
    angle = torch.pi * (torch.arange(60, dtype=F64) + 0.5) / 60
    roots = leja_order((10 - 6 * torch.cos(angle)).tolist())
    L = kl.operators.DenseOperator(dense)
    z = start(n)
    net = kl.nn.UnrolledLanczos(k, 2 * k, kl.nn.RootProbe(60), init=0.0, reorthogonalize=True).double()
    with torch.no_grad():
        net.probe.log_rho.copy_((torch.tensor(roots, dtype=F64) / (dense.diagonal().mean())).log())
        restarted = kl.metrics.subspace_error(net(L, z=z).basis, U)
        plain = lanczos(L, net.probe(L, z), 2 * k, reorthogonalize=True)
        filtered = kl.metrics.subspace_error(ritz(plain, k)[1], U)
    assert float(restarted) <= 1e-6
    assert float(filtered) > 100 * float(restarted)


def test_an_invariant_start_is_frozen():
    n = 6
    dense = laplacian_matrix(torch.ones(n, n, dtype=F64) - torch.eye(n, dtype=F64))
    found = implicit_restart(
        kl.operators.DenseOperator(dense), torch.ones(n, 1, dtype=F64), 2, 4, torch.tensor([6.0, 6.0], dtype=F64)
    )
    assert bool(torch.isfinite(found.V).all())
    assert int(found.steps) <= 2


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_a_closed_space_gives_no_vectors_of_rounding(count, dtype):
    """K5 has two eigenvalues: whatever m is, a Krylov space holds the constant vector and one more."""
    dense = laplacian_matrix(torch.ones(5, 5, dtype=F64) - torch.eye(5, dtype=F64)).to(dtype)
    shifts = torch.linspace(6.0, 9.0, count, dtype=dtype)
    found = implicit_restart(kl.operators.DenseOperator(dense), start(5).to(dtype), 2, 9, shifts)
    assert int(found.steps) == 2
    constant = torch.full((5, 1), 5**-0.5, dtype=dtype)
    assert float((found.V.mT @ constant).norm()) == pytest.approx(1.0, abs=rounding(dtype, 5, 100))
