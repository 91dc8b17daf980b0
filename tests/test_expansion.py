import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev
from torch.autograd import gradcheck

import krylow as kl
from krylow.api import SIGNAL_METHODS
from krylow.density import estimated_cutoff
from krylow.expansion import chebyshev_coefficients, chebyshev_lowpass
from krylow.krylov.signal import lanczos_lowpass
from krylow.operators import DenseOperator
from krylow.testing import cycle, grid, laplacian_matrix, lowest, path, projector, random_graph

F64 = torch.float64


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def scalar(x):
    return torch.tensor(float(x), dtype=F64)


@pytest.mark.parametrize("cutoff", [0.3, 1.0, 2.7])
def test_coefficients_are_the_integrals(cutoff):
    """c_j = 2/pi int f(x) T_j(x) / sqrt(1 - x^2) dx, by quadrature in the angle."""
    low, high, degree = 0.0, 3.0, 6
    points = 200_000
    phi = (np.arange(points) + 0.5) * np.pi / points
    inside = (np.cos(phi) * (high - low) + high + low) / 2 <= cutoff
    expected = [(2 if j else 1) * np.mean(inside * np.cos(j * phi)) for j in range(degree + 1)]
    found = chebyshev_coefficients(scalar(cutoff), scalar(low), scalar(high), degree)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("jackson", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_filter_is_the_polynomial_of_the_operator(jackson, signed):
    L = laplacian_matrix(random_graph(15, seed=1, signed=signed))
    operator = DenseOperator(L)
    low, high = operator.gershgorin()
    c = chebyshev_coefficients(scalar(2.0), low, high, 20, jackson=jackson)
    lam, U = np.linalg.eigh(L.numpy())
    h = chebyshev.chebval((2 * lam - float(low + high)) / float(high - low), c.numpy())
    x = randn(15, 2)
    y = chebyshev_lowpass(operator, x, cutoff=2.0, degree=20, jackson=jackson)
    np.testing.assert_allclose(y, U @ np.diag(h) @ U.T @ x.numpy(), atol=1e-10)
    assert operator.products == 20 * 2


def test_jackson_stays_in_the_unit_interval_and_plain_overshoots():
    lam = torch.linspace(0, 2, 1001, dtype=F64)
    low, high = scalar(0), scalar(2)
    responses = {}
    for jackson in (False, True):
        c = chebyshev_coefficients(scalar(0.7), low, high, 60, jackson=jackson)
        responses[jackson] = torch.from_numpy(chebyshev.chebval((lam - 1).numpy(), c.numpy()))
    assert float(responses[True].max()) <= 1 + 1e-12
    assert float(responses[True].min()) >= -1e-12
    assert float(responses[False].max()) > 1.02
    away = (lam - 0.7).abs() > 0.15
    ideal = (lam <= 0.7).double()
    assert float((responses[True] - ideal)[away].abs().max()) < 0.05


def test_a_higher_degree_is_closer_to_the_ideal_filter():
    L = laplacian_matrix(random_graph(40, 0.2, seed=0))
    lam, U = lowest(L, 40)
    k = 5
    cutoff = float(lam[k - 1] + lam[k]) / 2
    x = randn(40, 1)
    ideal = projector(U[:, :k]) @ x
    errors = [
        float((chebyshev_lowpass(DenseOperator(L), x, cutoff=cutoff, degree=d, jackson=True) - ideal).norm())
        for d in (20, 80, 600)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.05 * float(ideal.norm())


@pytest.mark.parametrize("k", [3, 10, 30])
def test_estimated_cutoff_counts_eigenvalues(k):
    L = laplacian_matrix(random_graph(60, 0.2, seed=1))
    lam = lowest(L, 60)[0]
    operator = DenseOperator(L)
    eye = torch.eye(60, dtype=F64)  # every vector once: the trace is exact
    omega = float(estimated_cutoff(operator, k, degree=200, z=eye))
    assert abs(int((lam <= omega).sum()) - k) <= 1


def test_estimated_cutoff_of_a_batch_is_deterministic():
    L = DenseOperator(torch.stack([laplacian_matrix(random_graph(30, seed=s)) for s in range(2)]))
    first, second = estimated_cutoff(L, 4), estimated_cutoff(L, 4)
    assert first.shape == (2,)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


# Lanczos on the signal ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["k", "cutoff"])
@pytest.mark.parametrize("signed", [False, True])
def test_all_steps_give_the_ideal_filter(by, signed):
    L = laplacian_matrix(random_graph(16, seed=1, signed=signed))
    lam, U = lowest(L, 16)
    k = 4
    limit = {"k": k} if by == "k" else {"cutoff": float(lam[k - 1] + lam[k]) / 2}
    x = randn(16, 3)
    y = lanczos_lowpass(DenseOperator(L), x, m=16, **limit)
    torch.testing.assert_close(y, projector(U[:, :k]) @ x, rtol=0, atol=1e-8)


def test_truncated_is_the_definition():
    """||x|| V f(T) e_1 with V and T from an explicit orthonormal Krylov basis."""
    L = laplacian_matrix(random_graph(20, seed=1))
    x, m, cutoff = randn(20, 1), 7, 2.0
    K = [x / x.norm()]
    for _ in range(m - 1):
        w = L @ K[-1]
        basis = torch.cat(K, -1)
        for _ in range(2):
            w = w - basis @ (basis.mT @ w)
        K.append(w / w.norm())
    V = torch.cat(K, -1)
    theta, Y = torch.linalg.eigh(V.mT @ L @ V)
    f = torch.diag((theta <= cutoff).double())
    expected = x.norm() * V @ Y @ f @ Y.mT @ torch.eye(m, 1, dtype=F64)
    operator = DenseOperator(L)
    torch.testing.assert_close(lanczos_lowpass(operator, x, cutoff=cutoff, m=m), expected, rtol=0, atol=1e-10)
    assert operator.products == m


def test_cutoff_sees_every_copy_of_a_repeated_value():
    """The signal's own Krylov space holds its component in each eigenspace: with a cutoff nothing is missed."""
    for W in (cycle(12), grid(4, 4)):
        L = laplacian_matrix(W)
        n = W.shape[0]
        lam, U = lowest(L, n)
        k = next(k for k in range(3, n) if lam[k] - lam[k - 1] > 0.1)
        x = randn(n, 2)
        y = lanczos_lowpass(DenseOperator(L), x, cutoff=float(lam[k - 1] + lam[k]) / 2, m=n)
        torch.testing.assert_close(y, projector(U[:, :k]) @ x, rtol=0, atol=1e-8)


def test_batches_and_shared_signals():
    L = torch.stack([laplacian_matrix(random_graph(10, seed=s)) for s in range(3)])
    P = projector(lowest(L, 2)[1])
    for x in (randn(3, 10, 2), randn(10, 2)):
        torch.testing.assert_close(lanczos_lowpass(DenseOperator(L), x, k=2, m=10), P @ x, rtol=0, atol=1e-8)
    single = laplacian_matrix(path(10))
    x = randn(4, 10, 2)
    expected = projector(lowest(single, 2)[1]) @ x
    torch.testing.assert_close(lanczos_lowpass(DenseOperator(single), x, k=2, m=10), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("method", SIGNAL_METHODS)
def test_zero_signal_is_zero(method):
    y = kl.lowpass(laplacian_matrix(path(6)), torch.zeros(6, 2, dtype=F64), 2, method=method)
    assert (y == 0).all()


def test_gradcheck():
    L = laplacian_matrix(random_graph(7, seed=1)).requires_grad_()
    x = randn(7, 2).requires_grad_()
    lam = lowest(L, 7)[0]
    cutoff = float(lam[2] + lam[3]) / 2

    def by_lanczos(L, x):
        return lanczos_lowpass(DenseOperator((L + L.mT) / 2), x, k=2, m=4)

    assert gradcheck(by_lanczos, (L, x))
    assert gradcheck(lambda x: chebyshev_lowpass(DenseOperator(L.detach()), x, cutoff=cutoff, degree=5), (x,))


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_low_degrees(degree):
    L = laplacian_matrix(path(6))
    y = chebyshev_lowpass(DenseOperator(L), randn(6, 1), cutoff=1.0, degree=degree)
    assert y.shape == (6, 1)
    assert y.isfinite().all()


@pytest.mark.parametrize("cutoff", [-0.5, 0.0, 1.0, 2.0, 3.0])
def test_coefficients_have_a_gradient_at_and_beyond_the_ends(cutoff):
    low, high = (torch.tensor(b, dtype=F64, requires_grad=True) for b in (0.0, 2.0))
    c = chebyshev_coefficients(torch.tensor(cutoff, dtype=F64), low, high, 5)
    c.sum().backward()
    assert bool(torch.isfinite(torch.stack([low.grad, high.grad])).all())
    kept = float(c[0])  # the mean of the response: all, none, or something between
    assert kept == (0.0 if cutoff <= 0 else 1.0 if cutoff >= 2 else pytest.approx(0.5))
