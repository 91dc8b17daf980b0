import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import krylow as kl
from krylow.krylov.lanczos import Krylov, lanczos
from krylow.krylov.ritz import Ritz, relaxed_matrix, ritz, rotate, settled, symmetrized_matrix
from krylow.operators import DenseOperator
from krylow.testing import HARD_GRAPHS, laplacian_matrix, lowest, projector, random_graph, rounding

F32, F64 = torch.float32, torch.float64


def randn(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def relaxed(n=30, m=8, strength=0.5, seed=0):
    L = laplacian_matrix(random_graph(n, 0.3, seed=seed))
    u = strength * randn(2, m, seed=seed)
    return L, lanczos(DenseOperator(L), randn(n, 1), m, gamma1=1 - u[0] ** 2, gamma2=1 + u[1] ** 2)


def coefficients(m, gamma2, seed=0, dtype=F64):
    """A recurrence's coefficients with any gamma2, without the recurrence."""
    rng = torch.Generator().manual_seed(seed)
    alpha, beta = (torch.rand(m, dtype=F64, generator=rng).to(dtype) + 0.5 for _ in range(2))
    V = torch.linalg.qr(randn(m + 5, m, seed=seed)).Q.to(dtype)
    steps = torch.tensor(m)
    gammas = torch.full((m,), float(gamma2), dtype=dtype)
    return Krylov(V, alpha, beta, torch.zeros(m + 5, 1, dtype=dtype), steps, torch.ones(m, dtype=dtype), gammas)


def test_classical_matrix_is_the_projection_of_L():
    L = laplacian_matrix(random_graph(20, seed=1))
    krylov = lanczos(DenseOperator(L), randn(20, 1), 6, reorthogonalize=True)
    T = relaxed_matrix(krylov)
    torch.testing.assert_close(T, krylov.V.mT @ L @ krylov.V, rtol=0, atol=rounding(F64, 20, 20))
    S, log_d = symmetrized_matrix(krylov)
    torch.testing.assert_close(S, T, rtol=0, atol=0)
    assert (log_d == 0).all()


def test_symmetrised_matrix_is_similar_to_the_relaxed_one():
    _, krylov = relaxed()
    T = relaxed_matrix(krylov)
    S, log_d = symmetrized_matrix(krylov)
    d = log_d.exp()
    torch.testing.assert_close(S, S.mT, rtol=0, atol=0)
    torch.testing.assert_close(d[:, None] * S / d[None, :], T)
    assert not torch.allclose(T, T.mT)
    spectrum = np.sort_complex(np.linalg.eigvals(T.numpy()))
    assert np.abs(spectrum.imag).max() <= 1e-8
    np.testing.assert_allclose(torch.linalg.eigvalsh(S), spectrum.real, atol=1e-8)


def test_eigh_on_the_nonsymmetric_matrix_would_be_wrong():
    """It reads one triangle and drops gamma2: the values differ, and ours are the true ones."""
    _, krylov = relaxed(strength=1.0)
    wrong = torch.linalg.eigvalsh(relaxed_matrix(krylov))
    theta, _, _ = ritz(krylov, 3)
    assert float((wrong[:3] - theta).abs().max()) > 1e-2


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_ritz_vectors_are_the_lifted_eigenvectors(strength):
    _, krylov = relaxed(strength=strength)
    theta, basis, following = ritz(krylov, 3)
    values, vectors = np.linalg.eig(relaxed_matrix(krylov).numpy())
    order = np.argsort(values.real)
    lifted = krylov.V.numpy() @ vectors.real[:, order[:3]]
    Q = torch.from_numpy(np.linalg.qr(lifted)[0])
    torch.testing.assert_close(projector(basis), projector(Q), rtol=0, atol=1e-9)
    np.testing.assert_allclose(theta, values.real[order[:3]], atol=1e-9)
    assert float(following) == pytest.approx(values.real[order[3]])


def test_relaxed_ritz_space_is_a_krylov_space_with_the_dropped_values_filtered_out():
    """span = K_k(L, prod_{i>k} (L - theta_i) v_1): the gammas are implicit-restart shifts."""
    L, krylov = relaxed(m=6, strength=0.6)
    k = 2
    theta = np.sort(np.linalg.eigvals(relaxed_matrix(krylov).numpy()).real)
    v = krylov.V[:, :1]
    for t in theta[k:]:
        v = L @ v - t * v
        v = v / v.norm()
    Q = torch.linalg.qr(torch.cat([v, L @ v], -1)).Q
    torch.testing.assert_close(projector(ritz(krylov, k)[1]), projector(Q), rtol=0, atol=1e-8)


@pytest.mark.parametrize("k", [1, 4, 20])
def test_all_steps_give_the_exact_subspace(k):
    L = laplacian_matrix(random_graph(20, seed=1))
    krylov = lanczos(DenseOperator(L), randn(20, 1), 20, reorthogonalize=True)
    theta, basis, following = ritz(krylov, k)
    lam, U = lowest(L, k)
    torch.testing.assert_close(theta, lam, rtol=0, atol=1e-10)
    torch.testing.assert_close(projector(basis), projector(U), rtol=0, atol=1e-8)
    assert float(following) == (pytest.approx(float(lowest(L, 20)[0][k])) if k < 20 else float("inf"))


@pytest.mark.parametrize("gamma2", [1.0001, 1.5, 30.0, 600.0])
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_scaling_products_neither_over_nor_underflow(gamma2, dtype):
    m = 200  # 600^-100 is 1e-278, and 600^100 would be 1e278
    krylov = coefficients(m, gamma2, dtype=dtype)
    S, log_d = symmetrized_matrix(krylov)
    assert S.isfinite().all()
    expected = -0.5 * np.log(gamma2) * np.arange(m)
    np.testing.assert_allclose(log_d, expected, rtol=1e-4 if dtype == F32 else 1e-12, atol=1e-6)
    theta, basis, _ = ritz(krylov, 5)
    assert basis.isfinite().all()
    # Scaled, the vectors are alike near the top and differ by powers of the distances of their values, which float32
    # may not resolve: then the later ones are missing, and said to be.
    live = theta.isfinite()
    assert int(live.sum()) >= (1 if dtype == F32 else 5)
    torch.testing.assert_close(basis.mT @ basis, torch.diag(live.to(dtype)), rtol=0, atol=rounding(dtype, m))


@pytest.mark.parametrize("m", [12, 40])
@pytest.mark.parametrize("gamma2", [1.2, 4.0, 600.0])
def test_lifted_vectors_are_eigenvectors_however_large_gamma2(m, gamma2):
    krylov = coefficients(m, gamma2)
    T = relaxed_matrix(krylov)
    theta, basis, _ = ritz(krylov, 1)
    y = krylov.V.mT @ basis  # V is orthonormal here
    residual = float((T @ y - theta * y).norm())
    assert residual <= rounding(F64, m, float(torch.linalg.matrix_norm(T, 2)))


def test_fewer_live_steps_than_k():
    krylov = lanczos(kl.laplacian(HARD_GRAPHS["complete"]()), randn(50, 1), 6)
    theta, basis, following = ritz(krylov, 4)
    assert theta[:2].isfinite().all()
    assert theta[2:].tolist() == [torch.inf, torch.inf]
    assert float(following) == torch.inf
    assert (basis[:, 2:] == 0).all()
    torch.testing.assert_close(basis[:, :2].mT @ basis[:, :2], torch.eye(2, dtype=F64), rtol=0, atol=1e-12)
    assert float(theta[0]) == pytest.approx(0, abs=1e-10)
    assert float(theta[1]) == pytest.approx(50)


def test_fewer_steps_than_k():
    krylov = lanczos(kl.laplacian(random_graph(10, seed=0)), randn(10, 1), 2)
    theta, basis, following = ritz(krylov, 5)
    assert theta.shape == (5,)
    assert basis.shape == (10, 5)
    assert theta[2:].isinf().all()
    assert (basis[:, 2:] == 0).all()
    assert float(following) == torch.inf


def test_dead_steps_come_last_even_where_the_spectrum_is_negative_or_zero():
    for L in (-laplacian_matrix(HARD_GRAPHS["star"]()), torch.zeros(20, 20, dtype=F64)):
        krylov = lanczos(DenseOperator(L), randn(20, 1), 8)
        live = int(krylov.steps)
        theta, basis, _ = ritz(krylov, 8)
        assert theta[:live].isfinite().all()
        assert theta[live:].isinf().all()
        assert (basis[:, live:] == 0).all()


def test_dependent_ritz_vectors_are_missing_ones():
    """A degenerate basis holds fewer vectors than it has columns; what is missing is zero, last, and at infinity."""
    V = coefficients(6, 1.0).V.clone()
    V[:, 1] = V[:, 0]
    alpha, beta = torch.arange(6, dtype=F64), torch.zeros(6, dtype=F64)  # every column is its own Ritz vector
    theta, basis, following = ritz(Krylov(V, alpha, beta, torch.zeros(11, 1, dtype=F64), torch.tensor(6)), 4)
    assert theta.tolist() == [0, 2, 3, torch.inf]
    assert float(following) == 4
    torch.testing.assert_close(projector(basis), projector(V[:, [0, 2, 3]]), rtol=0, atol=1e-13)
    assert (basis[:, 3] == 0).all()


def test_gradcheck_through_lanczos_and_the_small_problem():
    n, m, k = 8, 5, 2
    x = randn(n, 1)
    L = laplacian_matrix(random_graph(n, seed=1)).requires_grad_()
    g1, g2 = (1 - 0.1 * randn(m).abs()).requires_grad_(), (1 + 0.1 * randn(m, seed=1).abs()).requires_grad_()

    def filtered(L, g1, g2):
        U = ritz(lanczos(DenseOperator((L + L.mT) / 2), randn(n, 1), m, gamma1=g1, gamma2=g2), k)[1]
        return U @ (U.mT @ x)

    assert gradcheck(filtered, (L, g1, g2))


def test_gradient_with_dead_steps_is_finite():
    L = laplacian_matrix(HARD_GRAPHS["two K4"]()).requires_grad_()
    U = ritz(lanczos(DenseOperator(L), randn(8, 1), 6), 2)[1]
    (U @ (U.mT @ randn(8, 1))).sum().backward()
    assert L.grad.isfinite().all()


def test_rotate_gives_rayleigh_ritz_pairs():
    L = laplacian_matrix(random_graph(20, seed=0))
    X = torch.randn(20, 5, dtype=F64, generator=torch.Generator().manual_seed(0))
    operator = DenseOperator(L)
    pairs = rotate(operator, X)
    Q = np.linalg.qr(X.numpy())[0]
    np.testing.assert_allclose(pairs.theta, np.linalg.eigvalsh(Q.T @ L.numpy() @ Q), atol=1e-12)
    torch.testing.assert_close(pairs.X.mT @ pairs.X, torch.eye(5, dtype=F64), rtol=0, atol=rounding(F64, 20))
    H = pairs.X.mT @ L @ pairs.X
    torch.testing.assert_close(H, torch.diag(pairs.theta), rtol=0, atol=rounding(F64, 20, 20))
    torch.testing.assert_close(pairs.residuals, (L @ pairs.X - pairs.X * pairs.theta).norm(dim=-2))
    assert operator.products == 5


def test_nearly_dependent_columns_stay_orthonormal():
    X = torch.randn(30, 1, dtype=F64, generator=torch.Generator().manual_seed(0)).repeat(1, 4)
    X = X + 1e-10 * torch.randn(30, 4, dtype=F64, generator=torch.Generator().manual_seed(1))
    U = rotate(DenseOperator(laplacian_matrix(random_graph(30, seed=0))), X).X
    torch.testing.assert_close(U.mT @ U, torch.eye(4, dtype=F64), rtol=0, atol=rounding(F64, 30))


def test_estimate_is_davis_kahan_with_the_next_pair():
    theta = torch.tensor([0.0, 1.0, 3.0], dtype=F64)
    residuals = torch.tensor([0.1, 0.2, 0.5], dtype=F64)
    pairs = Ritz(theta, torch.eye(3, dtype=F64), residuals)
    assert float(pairs.estimate(2)) == pytest.approx(((0.1 / (3 - 0.5)) ** 2 + (0.2 / (3 - 0.5 - 1)) ** 2) / 2)
    assert float(pairs.estimate(3)) == float("inf")  # no next pair, no gap


def test_no_vectors_left_means_no_error():
    theta = torch.tensor([0.0, 1.0, torch.inf], dtype=F64)
    assert float(Ritz(theta, torch.eye(3, dtype=F64), torch.tensor([0.1, 0.1, 0.0], dtype=F64)).estimate(2)) == 0


@pytest.mark.parametrize(
    ("theta", "residual", "ended"),
    [
        ([0.0, 1.0, 1.5, 3.0], 0.9e-12, True),  # rounding
        ([0.0, 1.0, 1.5, 3.0], 1.1e-12, False),  # a gap, which smaller residuals will show
        ([0.0, 1.0, 1.0, 3.0], 1.7e-6, True),  # a tie of values that are right to rounding: residuals' squares over 3
        ([0.0, 1.0, 1.0, 3.0], 1.8e-6, False),
        ([1.0, 1.0, 1.0, 1.0], 1e-6, False),  # how far other values are is not known
    ],
)
def test_an_iteration_ends_at_rounding_or_at_a_tie_of_values_that_are_right_to_it(theta, residual, ended):
    theta = torch.tensor(theta, dtype=F64)
    pairs = Ritz(theta, torch.eye(4, dtype=F64), torch.full_like(theta, residual))
    assert bool(settled(pairs, 2, torch.tensor(1e-12, dtype=F64))) == ended
