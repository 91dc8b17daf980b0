import pytest
import torch
from torch.autograd import gradcheck

import krylow as kl
from krylow import losses
from krylow.krylov.lanczos import lanczos
from krylow.operators import DenseOperator
from krylow.testing import laplacian_matrix, lowest, random_graph

F64 = torch.float64


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("weight", [1.0, 0.01])
def test_theory_loss_is_the_papers(weight):
    L = torch.stack([laplacian_matrix(random_graph(12, seed=s)) for s in range(2)])
    krylov = lanczos(DenseOperator(L), randn(2, 12, 1), 5)
    found = losses.theory_loss(krylov, weight)
    assert found.shape == (2,)
    for i in range(2):
        alphas = sum(float(krylov.alpha[i, j]) ** 2 for j in range(5))
        betas = sum(float(krylov.beta[i, j - 1]) ** 2 for j in range(1, 5))  # beta_1 to beta_{m-1}, not beta_m
        assert float(found[i]) == pytest.approx(alphas - weight * betas)


@pytest.mark.parametrize("m", [1, 2, 5])
def test_theory_loss_of_means_is_the_authors(m):
    krylov = lanczos(DenseOperator(laplacian_matrix(random_graph(12, seed=0))), randn(12, 1), m)
    authors = 0.01 * krylov.alpha.square().mean()
    if m > 1:
        authors = authors - 0.01 * krylov.beta[:-1].square().mean()
    found = losses.theory_loss(krylov, reduction="mean")
    assert 0.01 * float(found) == pytest.approx(float(authors))
    with pytest.raises(kl.InputError, match="reduction must be one of 'sum', 'mean'"):
        losses.theory_loss(krylov, reduction="max")


def test_theory_loss_is_differentiable_and_falls_with_the_gammas():
    L = DenseOperator(laplacian_matrix(random_graph(12, seed=0)))
    g1 = torch.full((5,), 0.9, dtype=F64, requires_grad=True)
    g2 = torch.full((5,), 1.1, dtype=F64, requires_grad=True)

    def loss(g1, g2):
        return losses.theory_loss(lanczos(L, randn(12, 1), 5, gamma1=g1, gamma2=g2))

    assert gradcheck(loss, (g1, g2))
    assert float(loss(g1, 50 * g2)) < float(loss(g1, g2))  # unbounded below


def test_subspace_loss_is_the_error_and_its_gradient_goes_down():
    L = laplacian_matrix(random_graph(20, 0.3, seed=1))
    U = lowest(L, 3)[1]
    net = kl.nn.UnrolledLanczos(3, 6, init=0.3).double()
    loss = losses.subspace_loss(net(L).basis, U)
    assert float(loss) == pytest.approx(float(kl.metrics.subspace_error(net(L).basis, U)))
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    with torch.no_grad():
        size = sum(float(p.grad.square().sum()) for p in net.parameters())
        for p in net.parameters():
            p -= 1e-4 / size**0.5 * p.grad
    assert float(losses.subspace_loss(net(L).basis, U)) < float(loss)
