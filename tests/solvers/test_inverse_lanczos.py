"""Band Lanczos in the inner product of a mass, against scipy's dense generalised eigenproblem."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse

from krylow.solvers._inverse_lanczos import InverseLanczos


def pencil(n=60, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n))
    M = scipy.sparse.diags_array(rng.uniform(0.5, 2, n)).tocsr() + 0.1 * scipy.sparse.eye_array(n, k=1).tocsr()
    M = scipy.sparse.csr_array(M + M.T)
    return A @ A.T + 0.1 * np.eye(n), M


def run(S, M, size, keep, steps, deflated=None, starts=1, seed=0):
    deflated = np.zeros((0, S.shape[0])) if deflated is None else deflated
    image = np.eye(S.shape[0]) if M is None else M.toarray()

    def product(y):
        z = np.linalg.solve(S, y)
        return z - deflated.T @ (deflated @ (image @ z))

    lanczos = InverseLanczos(product, M, deflated, size, keep, np.random.default_rng(seed))
    lanczos.start(starts)
    for _ in range(steps):
        lanczos.advance()
    return lanczos


@pytest.mark.parametrize(("size", "steps"), [(40, 30), (16, 80)], ids=["one basis", "restarted"])
@pytest.mark.parametrize("starts", [1, 3])
def test_the_largest_values_of_the_inverse(starts, size, steps):
    S, M = pencil()
    lanczos = run(S, M, size, 9, steps, starts=starts)
    values, Y, residuals = lanczos.ritz()
    lam, U = scipy.linalg.eigh(S, M.toarray())
    np.testing.assert_allclose(values[:4], 1 / lam[:4], rtol=1e-9)
    X = lanczos.vectors(Y[:, :6])
    np.testing.assert_allclose(X.T @ (M @ X), np.eye(6), atol=1e-12)
    np.testing.assert_allclose(np.abs(np.diag(U[:, :4].T @ (M @ X[:, :4]))), 1, atol=1e-8)
    R = np.linalg.solve(S, M @ X) - X * values[:6]
    measured = np.sqrt(np.einsum("ij,ij->j", R, M @ R))
    np.testing.assert_allclose(residuals[:6], measured, rtol=1e-6, atol=1e-12 * values[0])


def test_a_start_sees_one_copy_and_another_start_the_next():
    values = np.r_[1.0, 1.0, 1.0, np.linspace(3, 40, 37)]
    lanczos = run(np.diag(values), None, 36, 12, 12)
    assert (np.abs(lanczos.ritz()[0] - 1) < 1e-6).sum() == 1
    lanczos.start(2)
    for _ in range(30):
        lanczos.advance()
    assert (np.abs(lanczos.ritz()[0] - 1) < 1e-6).sum() == 3


def test_what_is_deflated_does_not_come_back():
    S, M = pencil(seed=1)
    lam, U = scipy.linalg.eigh(S, M.toarray())
    values, _, _ = run(S, M, 40, 9, 35, deflated=U[:, :2].T.copy()).ritz()
    np.testing.assert_allclose(values[:3], 1 / lam[2:5], rtol=1e-9)


def test_a_closed_space_takes_another_start_until_everything_is_found():
    lanczos = run(np.diag([1.0, 1.0, 2.0, 2.0, 2.0]), None, 9, 4, 20)
    np.testing.assert_allclose(lanczos.ritz()[0], [1, 1, 0.5, 0.5, 0.5], rtol=1e-12)
    assert not lanczos.advance()


@pytest.mark.parametrize("keep", [6, 20])
def test_a_basis_of_the_whole_space_is_multiplied_to_its_end(keep):
    S, M = pencil(n=15)
    deflated = scipy.linalg.eigh(S, M.toarray())[1][:, :1].T.copy()
    lanczos = run(S, M, 40, keep, 14, deflated=deflated)
    values, _, residuals = lanczos.ritz()
    np.testing.assert_allclose(values, 1 / scipy.linalg.eigvalsh(S, M.toarray())[1:], rtol=1e-9)
    assert residuals.max() <= 1e-12 * values[0]
    assert not lanczos.advance()


@pytest.mark.parametrize(("size", "steps"), [(40, 36), (24, 120)], ids=["one basis", "restarted"])
@pytest.mark.parametrize("mass", [True, False])
def test_vectors_that_wait_are_multiplied_together(mass, size, steps):
    S, M = pencil()
    M = M if mass else None
    calls = []

    def product(y):
        calls.append(1 if y.ndim == 1 else y.shape[1])
        return np.linalg.solve(S, y)

    lanczos = InverseLanczos(product, M, np.zeros((0, 60)), size, 9, np.random.default_rng(0))
    lanczos.start(4)
    for _ in range(steps):
        lanczos.advance()
    values, Y, residuals = lanczos.ritz()
    lam = scipy.linalg.eigvalsh(S, None if M is None else M.toarray())
    np.testing.assert_allclose(values[:4], 1 / lam[:4], rtol=1e-8)
    image = np.eye(60) if M is None else M.toarray()
    X = lanczos.vectors(Y[:, :4])
    np.testing.assert_allclose(X.T @ image @ X, np.eye(4), atol=1e-10)
    K = np.linalg.solve(S, image @ X)
    true = [np.sqrt(r @ image @ r) for r in (K - X * values[:4]).T]
    np.testing.assert_allclose(residuals[:4], true, atol=1e-8)
    assert max(calls) == 4
    assert lanczos.products == sum(calls)


@pytest.mark.parametrize(("size", "steps"), [(40, 9), (12, 30)], ids=["one basis", "restarted"])
def test_vectors_a_step_ahead_are_those_that_the_map_makes(size, steps):
    S, M = pencil()
    lanczos = InverseLanczos(lambda y: np.linalg.solve(S, y), M, np.zeros((0, 60)), size, 5, np.random.default_rng(0))
    lanczos.start()
    for _ in range(steps):
        lanczos.advance()
    _, Y, _ = lanczos.ritz()
    products, X, image = lanczos.products, lanczos.advanced(Y[:, :3]), M.toarray()
    np.testing.assert_allclose(X.T @ image @ X, np.eye(3), atol=1e-10)
    K = np.linalg.solve(S, image @ lanczos.vectors(Y[:, :3]))
    np.testing.assert_allclose(X @ (X.T @ image @ K), K, atol=1e-10 * np.abs(K).max())  # the same span
    assert lanczos.products == products


def test_a_basis_takes_more_starts_when_it_is_widened():
    values = np.r_[np.ones(9), np.linspace(3, 40, 37)]
    lanczos = run(np.diag(values), None, 14, 11, 12)
    lanczos.widen(12)  # no less than there is
    assert lanczos.size == 14
    lanczos.widen(30)
    held = lanczos.ritz()[0]
    lanczos.start(8)
    for _ in range(60):
        lanczos.advance()
    np.testing.assert_allclose(lanczos.ritz()[0][:9], 1, atol=1e-6)
    assert (np.abs(held - 1) < 1e-6).sum() == 1


@pytest.mark.parametrize("mass", [False, True])
def test_rounding_does_not_add_up_over_restarts(mass):
    S, M = pencil()
    lanczos = run(S, M if mass else None, 16, 9, 20)
    lanczos.rows[lanczos.first] *= 1 + 1e-6  # as if many restarts had gone by
    lanczos.restart()
    basis = lanczos.rows[lanczos.first : lanczos.first + lanczos.filled]
    np.testing.assert_allclose(basis @ (M @ basis.T if mass else basis.T), np.eye(lanczos.filled), atol=1e-12)
    for i, image in lanczos.images.items():
        np.testing.assert_allclose(image, M @ basis[i] if mass else basis[i], atol=1e-12)
