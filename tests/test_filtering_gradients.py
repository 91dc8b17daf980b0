"""Gradients of kl.filter in the signal, the graph and the response, against autograd and finite differences."""

import pytest
import torch
from torch.autograd import gradcheck

import krylow as kl
from krylow import responses as r
from krylow.operators import DenseOperator, FunctionOperator
from krylow.testing import cycle, laplacian_matrix, random_graph

F64 = torch.float64
METHODS = ["exact", "chebyshev", "lanczos"]


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def symmetric(A):
    return DenseOperator((A + A.mT) / 2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("W", [random_graph(7, 0.6, seed=1), cycle(6)], ids=["random", "repeated frequencies"])
def test_in_signal_graph_and_parameter(W, method):
    L, x = laplacian_matrix(W).requires_grad_(), randn(len(W), 2).requires_grad_()
    tau = torch.tensor(0.4, dtype=F64, requires_grad=True)
    assert gradcheck(
        lambda L, x, tau: kl.filter(symmetric(L), x, r.Heat(tau), method=method, tol=1e-13), (L, x, tau), atol=1e-6
    )


@pytest.mark.parametrize("method", METHODS)
def test_of_a_bank(method):
    L, x = laplacian_matrix(random_graph(6, 0.7, seed=2)).requires_grad_(), randn(6, 2).requires_grad_()
    a, mu = (torch.tensor(v, dtype=F64, requires_grad=True) for v in (0.4, 1.5))

    def filtered(L, x, a, mu):
        bank = [r.Tikhonov(a), r.Gaussian(2.0, mu), torch.cos]
        return kl.filter(symmetric(L), x, bank, method=method, tol=1e-13)

    assert gradcheck(filtered, (L, x, a, mu), atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_of_a_batch_and_a_shared_signal(method):
    L = torch.stack([laplacian_matrix(random_graph(5, 0.7, seed=s)) for s in range(2)]).requires_grad_()
    x, b = randn(5, 1).requires_grad_(), randn(2).requires_grad_()
    assert gradcheck(
        lambda L, x, b: kl.filter(symmetric(L), x, r.Rational(b, [1.0, 0.3]), method=method, tol=1e-13),
        (L, x, b),
        atol=1e-6,
    )


@pytest.mark.parametrize("method", [*METHODS, "lowpass"])
def test_of_a_jump_between_frequencies(method):
    """Only gaps between kept and dropped frequencies enter, whatever finds them."""
    A, x = laplacian_matrix(random_graph(8, 0.6, seed=3)), randn(8, 2)
    lam = torch.linalg.eigvalsh(A)
    response = r.LowPass(float(lam[3] + lam[4]) / 2)
    if method == "chebyshev":
        pytest.skip("a damped series is another function: its gradient is its own")
    L, signal = A.clone().requires_grad_(), x.clone().requires_grad_()
    assert gradcheck(
        lambda L, x: kl.filter(symmetric(L), x, response, method=method, tol=1e-10), (L, signal), atol=1e-5
    )


@pytest.mark.parametrize("degree", [1, 2, 3, 9, 40])
def test_the_series_gradient_is_that_of_its_recurrence(degree):
    """Backward without a tape is backward through a tape, at any degree: the reverse recurrence meets the first."""
    L, x, c = (
        t.requires_grad_() for t in (laplacian_matrix(random_graph(9, 0.5, seed=1)), randn(9, 2), randn(degree + 1, 3))
    )
    low, high = torch.tensor(0.0, dtype=F64), torch.tensor(9.0, dtype=F64)

    def taped(L, x, c):
        A = (2 * (L + L.mT) / 2 - 9 * torch.eye(9, dtype=F64)) / 9
        terms = [x, A @ x]
        for _ in range(degree - 1):
            terms.append(2 * A @ terms[-1] - terms[-2])
        return torch.einsum("jnc,jf->ncf", torch.stack(terms), c)

    from krylow.krylov.chebyshev import chebyshev_adjoint, chebyshev_series

    weight = randn(9, 2, 3, seed=5)
    wanted = torch.autograd.grad((taped(L, x, c) * weight).sum(), (L, x, c))
    found = torch.autograd.grad((chebyshev_series(symmetric(L), x, c, low, high) * weight).sum(), (L, x, c))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    # The adjoint is the same form, with the signal and the weights in each other's place.
    X = weight.clone().requires_grad_()
    found = torch.autograd.grad((chebyshev_adjoint(symmetric(L), X, c, low, high) * x).sum(), (L, X, c))
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found[1], taped(L, x, c), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found[2], wanted[2], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_in_the_weights_of_edges_dense_and_sparse_agree(method):
    W = random_graph(12, 0.4, seed=4)
    index, x = W.nonzero().T, randn(12, 2)
    weight = W[index[0], index[1]].clone().requires_grad_()
    dense = W.clone().requires_grad_()
    weights = randn(12, 2, seed=3)
    by_edges = kl.filter(kl.laplacian((index, weight), num_nodes=12), x, r.Heat(0.5), method=method, tol=1e-12)
    by_matrix = kl.filter(kl.laplacian(dense), x, r.Heat(0.5), method="exact")
    (found,) = torch.autograd.grad((by_edges * weights).sum(), weight)
    (wanted,) = torch.autograd.grad((by_matrix * weights).sum(), dense)
    torch.testing.assert_close(found, wanted[index[0], index[1]], rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_in_the_parameters_of_a_function_operator(method):
    A, x = laplacian_matrix(random_graph(7, 0.6, seed=1)), randn(7, 1)

    def filtered(s):
        L = FunctionOperator(lambda X: s * (A @ X), 7, bounds=(0.0, 30.0), parameters=(s,))
        return kl.filter(L, x, r.Heat(0.3), method=method, tol=1e-12)

    assert gradcheck(filtered, (torch.tensor(1.2, dtype=F64, requires_grad=True),), atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_signal_in_an_invariant_subspace_has_the_whole_gradient(method):
    """The constant signal closes its Krylov space after one step; its gradient lies outside of it."""
    A = laplacian_matrix(random_graph(7, 0.6, seed=1)).requires_grad_()
    x = torch.ones(7, 1, dtype=F64, requires_grad=True)
    assert gradcheck(lambda A, x: kl.filter(symmetric(A), x, r.Heat(0.5), method=method, tol=1e-13), (A, x), atol=1e-6)


@pytest.mark.parametrize("method", ["exact", "chebyshev"])
def test_of_putting_a_signal_together(method):
    A, c = laplacian_matrix(random_graph(6, 0.7, seed=2)).requires_grad_(), randn(6, 2, 3).requires_grad_()
    bank = r.MexicanHat(3, lmax=9.0)
    assert gradcheck(lambda A, c: bank.adjoint(symmetric(A), c, method=method, tol=1e-13), (A, c), atol=1e-6)


def test_a_module_is_a_response_and_learns():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Unflatten(-1, (-1, 1)), torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
    )
    L, x = laplacian_matrix(random_graph(8, 0.6, seed=1)), randn(8, 2)
    for method in METHODS:
        net.zero_grad()
        kl.filter(L, x, net, method=method).square().sum().backward()
        assert all(bool(p.grad.abs().sum() > 0) for p in net.parameters())
