import pytest
import torch
from torch.autograd import gradcheck

import krylow as kl
from krylow.autodiff.implicit import attach_gradient
from krylow.operators import DenseOperator, FunctionOperator
from krylow.testing import block_diagonal, complete, grid, laplacian_matrix, lowest, projector, random_graph, real_gaps

F64 = torch.float64


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def attached(L, k):
    """The exact subspace with the implicit gradient."""
    theta, U = lowest(L, k)
    return attach_gradient(DenseOperator(L), U, theta)


def test_value_is_unchanged():
    L = laplacian_matrix(random_graph(8, seed=0)).requires_grad_()
    torch.testing.assert_close(attached(L, 2).detach(), lowest(L, 2)[1], rtol=0, atol=0)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("batch", [False, True])
def test_gradcheck(signed, batch):
    items = [laplacian_matrix(random_graph(8, 0.6, seed=s, signed=signed)) for s in range(3)]
    L = torch.stack(items) if batch else items[0]
    k = next(k for k in real_gaps(L, least=1e-2) if k >= 2)
    x = randn(8, 1)

    def filtered(L):
        U = attached((L + L.mT) / 2, k)
        return U @ (U.mT @ x)

    assert gradcheck(filtered, (L.requires_grad_(),), eps=1e-6, atol=1e-6)


@pytest.mark.parametrize(("W", "k"), [(block_diagonal(complete(4), complete(4)), 2), (grid(5, 5), 3)])
def test_repeated_kept_values(W, k):
    n = W.shape[0]
    L = laplacian_matrix(W).requires_grad_()
    x, c = randn(n, 1), randn(n, 1, seed=1)
    U = attached(L, k)
    (c * (U @ (U.mT @ x))).sum().backward()
    assert L.grad.isfinite().all()
    h = 1e-5
    for seed in range(3):
        E = randn(n, n, seed=5 + seed)
        E = (E + E.mT) / 2

        def value(t, E=E):
            return float((c * (projector(lowest(L.detach() + t * E, k)[1]) @ x)).sum())

        assert float((L.grad * E).sum()) == pytest.approx((value(h) - value(-h)) / (2 * h), rel=1e-5, abs=1e-7)


def test_sparse_and_function_operators_get_the_dense_gradient():
    W = random_graph(10, 0.4, seed=3)
    k = next(k for k in real_gaps(laplacian_matrix(W), least=1e-2) if k >= 2)
    theta, U = lowest(laplacian_matrix(W), k)
    c = randn(10, k)
    grads = {}
    for kind in ("dense", "function"):
        L = laplacian_matrix(W).requires_grad_()
        operator = DenseOperator(L) if kind == "dense" else FunctionOperator(lambda X, L=L: L @ X, 10, parameters=(L,))
        V = attach_gradient(operator, U, theta)
        (V @ (V.mT @ c) * c).sum().backward()
        grads[kind] = (L.grad + L.grad.mT) / 2
    torch.testing.assert_close(grads["function"], grads["dense"], rtol=0, atol=1e-9)

    weights = W[W != 0].clone().requires_grad_()
    row, col = W.nonzero(as_tuple=True)
    operator = kl.laplacian((torch.stack([row, col]), weights), num_nodes=10)
    V = attach_gradient(operator, U, theta)
    (V @ (V.mT @ c) * c).sum().backward()
    G = grads["dense"]
    expected = G[row, row] - G[row, col]  # dL/dw of entry (i, j): +1 at (i, i), -1 at (i, j)
    torch.testing.assert_close(weights.grad, expected, rtol=0, atol=1e-8)
