"""The paper's theorem and lemmas as properties of random graphs, against independent computations."""

import numpy as np
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from krylow.krylov.lanczos import Krylov, lanczos
from krylow.krylov.probe import inverse_polynomial
from krylow.krylov.ritz import relaxed_matrix, symmetrized_matrix
from krylow.nn import InversePolynomialProbe
from krylow.operators import DenseOperator
from krylow.testing import laplacian_matrix, random_graph, rounding

F64 = torch.float64
SEEDS = st.integers(0, 2**16)


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


@given(n=st.integers(4, 30), K=st.integers(1, 10), m=st.integers(1, 12), signed=st.booleans(), seed=SEEDS)
def test_theorem_1_on_lanczos_from_a_low_frequency_start(n, K, m, signed, seed):
    """Both bounds, with the largest epsilon and beta_min that the assumptions allow.

    A random start meets the assumption alpha_i < lambda_{K+1} on few graphs; one with little weight on the high
    frequencies meets it on most.
    """
    assume(n > K)
    m = min(m, n)
    L = laplacian_matrix(random_graph(n, 0.4, seed=seed, signed=signed))
    lam, U = np.linalg.eigh(L.numpy())
    c = randn(n, 1, seed=seed).numpy()
    c[K:] *= 0.05
    krylov = lanczos(DenseOperator(L), torch.from_numpy(U @ c), m, reorthogonalize=True)
    assume(int(krylov.steps) == m)
    alpha, beta = krylov.alpha.numpy(), krylov.beta.numpy()[:-1]
    check_theorem_1(lam, U, K, krylov.V.numpy(), alpha, beta, L.numpy())


@given(n=st.integers(3, 12), K=st.integers(1, 6), m=st.integers(1, 6), seed=SEEDS)
def test_theorem_1_on_any_orthonormal_basis_with_a_tridiagonal_projection(n, K, m, seed):
    """Matrices built to meet the assumptions: T_m itself padded by high frequencies, in a random basis."""
    rng = np.random.default_rng(seed)
    alpha, beta = rng.uniform(0, 1, m), rng.uniform(0.1, 2, m - 1)
    T = np.diag(alpha) + np.diag(beta, 1) + np.diag(beta, -1)
    A = np.zeros((m + n, m + n))
    A[:m, :m] = T
    A[m:, m:] = np.diag(rng.uniform(5, 9, n))
    Q = np.linalg.qr(rng.standard_normal((m + n, m + n)))[0]
    L = Q @ A @ Q.T
    lam, U = np.linalg.eigh((L + L.T) / 2)
    assume(m + n > K)
    check_theorem_1(lam, U, K, Q[:, :m], alpha, beta, L)


def check_theorem_1(lam, U, K, V, alpha, beta, L):
    m = len(alpha)
    noise = rounding(F64, len(lam), np.abs(lam).max())
    epsilon = lam[K] - alpha.max()
    assume(lam[K] - lam[K - 1] > 1e-6)
    assume(epsilon > 1e-6)
    P = U[:, :K] @ U[:, :K].T
    coverage = np.trace(P @ V @ V.T)
    assert coverage >= m * epsilon / (lam[K] - lam[0]) - noise / (lam[K] - lam[0])
    assert coverage <= min(m, K) + noise
    theta = np.linalg.eigvalsh(V.T @ L @ V)
    if m > 1:
        beta_min = np.abs(beta).min()
        assert theta[0] <= (lam[K] - epsilon) - 2 * beta_min * np.cos(np.pi / (m + 1)) + noise
    assert theta[0] <= lam[K] - epsilon + noise


@given(m=st.integers(2, 8), gammas=st.lists(st.floats(0.01, 4.0), min_size=16, max_size=16), seed=SEEDS)
def test_lemma_1_real_spectrum_of_the_relaxed_matrix(m, gammas, seed):
    """T_m of any relaxed run is D S D^-1 with S symmetric, so its eigenvalues are real: numpy's are."""
    L = laplacian_matrix(random_graph(20, 0.4, seed=seed))
    g1, g2 = torch.tensor(gammas[:m], dtype=F64), torch.tensor(gammas[8 : 8 + m], dtype=F64)
    krylov = lanczos(DenseOperator(L), randn(20, 1, seed=seed), m, gamma1=1 - g1, gamma2=g2)
    assume(int(krylov.steps) == m)
    T = relaxed_matrix(krylov)
    S, log_d = symmetrized_matrix(krylov)
    d = log_d.exp()
    torch.testing.assert_close(S, S.mT, rtol=0, atol=0)
    torch.testing.assert_close(d[:, None] * S / d, T, rtol=1e-9, atol=1e-9)
    spectrum = np.linalg.eigvals(T.numpy())
    size = np.linalg.norm(T.numpy(), 2) * max(1, float(d.max() / d.min()))  # their condition is at most that of D
    assert np.abs(spectrum.imag).max() <= rounding(F64, m, size)
    np.testing.assert_allclose(np.sort(spectrum.real), np.linalg.eigvalsh(S.numpy()), atol=rounding(F64, m, size))


@given(
    m=st.integers(2, 10),
    seed=SEEDS,
    sign=st.sampled_from([-1.0, 1.0]),
)
def test_lemma_1_off_diagonals(m, seed, sign):
    """The symmetric form has sqrt(b_j c_{j-1}) beside its diagonal; with gamma2 < 0 the spectrum may be complex."""
    rng = np.random.default_rng(seed)
    alpha, beta = rng.standard_normal(m), rng.uniform(0.1, 2, m)
    gamma2 = rng.uniform(0.1, 5, m)
    krylov = Krylov(
        *(torch.from_numpy(x) for x in (np.eye(m), alpha, beta, np.zeros((m, 1)))),
        steps=torch.tensor(m),
        gamma1=torch.ones(m, dtype=F64),
        gamma2=torch.from_numpy(gamma2),
    )
    S, _ = symmetrized_matrix(krylov)
    np.testing.assert_allclose(np.diag(S), alpha)
    np.testing.assert_allclose(np.diag(S, 1), np.sqrt((gamma2[1:] * beta[:-1]) * beta[:-1]))
    if sign < 0 and m == 2 and (alpha[0] - alpha[1]) ** 2 < 4 * gamma2[1] * beta[0] ** 2:
        T = np.array([[alpha[0], -gamma2[1] * beta[0]], [beta[0], alpha[1]]])
        assert np.abs(np.linalg.eigvals(T).imag).max() > 0  # the lemma's condition is needed


@given(
    n=st.integers(2, 25),
    b=st.lists(st.floats(-5, 5), min_size=1, max_size=9),
    power=st.integers(1, 6),
    solver=st.sampled_from(["krylov", "cg"]),
    seed=SEEDS,
)
def test_lemma_2_the_probe_is_low_pass(n, b, power, solver, seed):
    """h(lambda_i) >= h(lambda_j) for lambda_i <= lambda_j, of the response and of what the solver does to a vector."""
    L = laplacian_matrix(random_graph(n, 0.4, seed=seed))
    probe = InversePolynomialProbe(len(b), power, 30, solver).double()
    with torch.no_grad():
        probe.b.copy_(torch.tensor(b, dtype=F64))
        assert (probe.coefficients >= 0).all()
        h = probe.response(torch.linspace(0, 1, 101, dtype=F64))
        assert (h.diff() <= 0).all()
        assert ((h > 0) & (h <= 1)).all()
        lam, U = torch.linalg.eigh(L)
        z = U.sum(-1, keepdim=True)  # every frequency alike
        v = inverse_polynomial(DenseOperator(L, psd=True), z, probe.coefficients, power, 30, solver=solver)
        gains = (U.mT @ v)[:, 0]
        assert (gains.diff() <= 1e-8).all()
        assert (gains >= -1e-8).all()
        definition = 1 + sum(a * (lam / L.diagonal().max() / 2) ** (t + 1) for t, a in enumerate(probe.coefficients))
        expected = definition**-power
        torch.testing.assert_close(gains, expected / expected.norm(), rtol=0, atol=1e-7)


@given(n=st.integers(3, 30), m=st.integers(1, 12), K=st.integers(1, 12), seed=SEEDS)
def test_galerkin_condition_of_the_classical_recurrence(n, m, K, seed):
    """L x_i - theta_i x_i is orthogonal to the Krylov space, eq. (Galerkin)."""
    m = min(m, n)
    K = min(K, m)
    L = laplacian_matrix(random_graph(n, 0.4, seed=seed))
    krylov = lanczos(DenseOperator(L), randn(n, 1, seed=seed), m, reorthogonalize=True)
    assume(int(krylov.steps) == m)
    theta, Y = np.linalg.eigh(relaxed_matrix(krylov).numpy())
    X = krylov.V.numpy() @ Y[:, :K]
    residual = L.numpy() @ X - X * theta[:K]
    assert np.abs(krylov.V.numpy().T @ residual).max() <= rounding(F64, n, float(L.abs().sum(-1).max()))
