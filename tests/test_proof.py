"""Proofs on request: a proof or a check must never confirm a wrong answer."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import torch

import krylow as kl
from krylow.krylov.ritz import Evidence, Ritz
from krylow.linalg.inertia import DenseCounter, SparseCounter
from krylow.operators import FunctionOperator
from krylow.proof import ProofSettings
from krylow.proof.shared import inverse_bound
from krylow.solvers import Solver

F64 = torch.float64
SPARSE, DENSE = ProofSettings(max_products=4000), ProofSettings(max_fill=0, max_products=4000)
CHECK = ProofSettings(max_fill=0, dense=0, max_products=10_000)
PATHS = {"sparse": (SPARSE, "proved"), "dense": (DENSE, "proved"), "check": (CHECK, "checked")}


def path(n):
    return sp.diags_array([np.ones(n - 1)] * 2, offsets=[1, -1])


def grid(rows, columns):
    return sp.csr_array(sp.kron(path(rows), sp.eye_array(columns)) + sp.kron(sp.eye_array(rows), path(columns)))


def random_sparse(n, seed, weights=0.0):
    rng = np.random.default_rng(seed)
    ends = rng.integers(n, size=(2, 3 * n))
    ends = ends[:, ends[0] != ends[1]]
    W = sp.csr_array((np.exp(weights * rng.standard_normal(ends.shape[1])), ends), shape=(n, n))
    return sp.csr_array(W + W.T + path(n))


def truth(L, k):
    values, vectors = scipy.linalg.eigh(L.to_scipy().toarray().astype(float))
    return values, vectors[:, :k]


def error_of(sub, U):
    X = sub.basis.double().numpy()
    return float(np.square(U - X @ (X.T @ U)).sum()) / U.shape[1]


@dataclass(frozen=True)
class Misses(Solver):
    """LAPACK's eigenvectors but for some, with a small error, and what a mistaken solver says of them."""

    missed: tuple[int, ...] = (1,)
    noise: float = 1e-6

    name = "misses"

    def describe(self, problem):
        return "an answer that lacks eigenvectors"

    def solve(self, problem):
        L, k = problem.operator, problem.k
        values, vectors = torch.linalg.eigh(L.double().to_dense())
        kept = [i for i in range(L.n) if i not in self.missed][: k + 1]
        X, theta = vectors[..., kept], values[..., kept]
        draws = torch.randn(X.shape, dtype=F64, generator=torch.Generator().manual_seed(0))
        X = torch.linalg.qr(X + self.noise * draws / L.n**0.5).Q
        sure = None if L.batch_shape else Evidence(1e-9, float(theta[k]), k, 0 * theta[:k], restored=True)
        return Ritz(theta, X, 0 * theta, evidence=sure).to(L.dtype)


@pytest.mark.parametrize("way", PATHS)
@pytest.mark.parametrize("method", ["auto", "chebyshev", "lobpcg", "thick_restart"])
def test_a_right_answer_is_confirmed(way, method):
    settings, kind = PATHS[way]
    L = kl.laplacian(grid(10, 14))
    values, U = truth(L, 7)
    sub = kl.subspace(L, 7, method=method, prove=settings)
    assert (sub.status.name, sub.certificate.kind) == ("CONVERGED", kind)
    assert sub.certificate.proved == (kind == "proved")
    assert sub.certificate.checked == (kind == "checked")
    assert values[6] < float(sub.certificate.floor) < values[7]
    assert error_of(sub, U) <= float(sub.error_bound) <= 1e-3


@pytest.mark.parametrize("way", PATHS)
@pytest.mark.parametrize("missed", [(0,), (3,), (5,), (1, 2), (0, 4)])
def test_what_a_solver_has_missed_is_found(way, missed):
    settings, kind = PATHS[way]
    L = kl.laplacian(random_sparse(150, 1))
    _, U = truth(L, 6)
    sub = kl.subspace(L, 6, method=Misses(missed), prove=settings)
    assert (sub.status.name, sub.certificate.kind) == ("CONVERGED", kind)
    assert error_of(sub, U) <= float(sub.error_bound) <= 1e-3
    assert "of 6 vectors had been missing" in sub.why
    assert kl.subspace(L, 6, method=Misses(missed)).basis.shape == sub.basis.shape


@pytest.mark.parametrize("way", PATHS)
@pytest.mark.parametrize("missed", [(0,), (3,), (5,)])
def test_or_the_status_says_so(way, missed):
    settings, kind = PATHS[way]
    once = ProofSettings(max_fill=settings.max_fill, dense=settings.dense, rounds=0)
    sub = kl.subspace(kl.laplacian(random_sparse(150, 1)), 6, method=Misses(missed), prove=once)
    assert (sub.status.name, sub.certificate.kind) == ("MISSED", kind)
    assert sub.error_bound == torch.inf


def test_a_graph_of_a_batch_that_lacks_a_vector():
    W = torch.stack([torch.from_numpy(random_sparse(40, seed).toarray()) for seed in range(3)])
    L = kl.laplacian(W)
    assert kl.subspace(L, 4, prove=True).statuses.tolist() == [0, 0, 0]
    found = kl.subspace(L, 4, method=Misses((2,)), prove=True)
    assert [kl.Status(code).name for code in found.statuses.tolist()] == ["MISSED"] * 3


def test_graphs_of_several_sizes():
    graphs = [random_sparse(n, n).toarray() for n in (12, 30, 21)]
    sub = kl.subspace(kl.laplacian(graphs), 3, prove=True)
    assert (sub.status.name, sub.certificate.kind) == ("CONVERGED", "proved")
    for i, W in enumerate(graphs):
        values, _ = truth(kl.laplacian(W), 3)
        assert values[2] < float(sub.certificate.floor[i]) < values[3]
    everything = kl.subspace(kl.laplacian(graphs), 12, prove=True)
    assert everything.certificate.proved
    assert everything.certificate.floor[0] == torch.inf


@pytest.mark.parametrize("way", ["sparse", "dense"])
def test_a_cut_inside_a_multiplicity_is_proved_to_be_one(way):
    settings, _ = PATHS[way]
    for W, k in ((grid(20, 20), 2), (sp.block_diag([grid(9, 11)] * 3), 5), (sp.csr_array(1 - np.eye(30)), 4)):
        sub = kl.subspace(kl.laplacian(sp.csr_array(W)), k, prove=settings)
        assert (sub.status.name, sub.certificate.kind) == ("NO_GAP", "proved")


@pytest.mark.parametrize("way", PATHS)
def test_equal_components_are_no_gap(way):
    L = kl.laplacian(sp.csr_array(sp.block_diag([random_sparse(50, 3)] * 4)))
    settings, kind = PATHS[way]
    assert kl.subspace(L, 6, prove=settings).status.name == "NO_GAP"
    whole = kl.subspace(L, 8, prove=settings)
    assert (whole.status.name, whole.certificate.kind) == ("CONVERGED", kind)
    missing = kl.subspace(L, 8, method=Misses((2, 7)), prove=settings)
    assert missing.status.name != "CONVERGED" or error_of(missing, truth(L, 8)[1]) <= 1e-3


@pytest.mark.parametrize("way", PATHS)
@pytest.mark.parametrize("size", [1e-9, 1e-13, 1e-15])
def test_a_gap_that_rounding_covers_is_never_confirmed(way, size):
    """Two equal pieces, one a little heavier: the gap after the third eigenvalue is ``size``, relatively."""
    piece = random_sparse(60, 5)
    L = kl.laplacian(sp.csr_array(sp.block_diag([piece, (1 + size) * piece])))
    sub = kl.subspace(L, 3, method=Misses(()), prove=PATHS[way][0])
    if sub.status.name == "CONVERGED":
        assert size == 1e-9
        assert sub.certificate.kind == "proved"
    wrong = kl.subspace(L, 3, method=Misses((2,)), prove=PATHS[way][0])
    assert wrong.status.name != "CONVERGED" or size == 1e-9


def test_float32_is_proved_about_the_graph():
    L = kl.laplacian(grid(10, 14))
    _, U = truth(L, 7)
    sub = kl.subspace(L.to(torch.float32), 7, prove=True)
    assert (sub.status.name, sub.certificate.kind) == ("CONVERGED", "proved")
    assert error_of(sub, U) <= float(sub.error_bound)


def test_a_function_is_checked_whatever_its_start():
    L = kl.laplacian(random_sparse(400, 2))
    _, U = truth(L, 5)
    function = FunctionOperator(lambda X: L @ X, L.n)
    sub = kl.subspace(function, 5, prove=True)
    assert (sub.status.name, sub.certificate.kind) == ("CONVERGED", "checked")
    assert "8 random vectors" in sub.why
    assert "probability of" in sub.why
    assert error_of(sub, U) <= float(sub.error_bound)
    found = kl.subspace(function, 5, method=Misses((4,)), prove=True)
    assert error_of(found, U) <= 1e-3
    start = torch.from_numpy(np.ascontiguousarray(truth(L, 9)[1][:, 5:]))  # orthogonal to all that is wanted
    other = kl.subspace(function, 5, method="thick_restart", start=start, prove=True)
    assert other.status.name != "CONVERGED" or error_of(other, U) <= 1e-3


@pytest.mark.parametrize("way", ["sparse", "dense", "check"])
def test_a_cutoff_is_counted(way):
    settings, kind = PATHS[way]
    L = kl.laplacian(grid(10, 14))
    values, _ = truth(L, 1)
    cutoff = float(values[6] + values[7]) / 2
    sub = kl.subspace(L, cutoff=cutoff, prove=settings)
    assert (sub.k, sub.status.name, sub.certificate.kind) == (7, "CONVERGED", kind)
    lacking = kl.subspace(L, cutoff=cutoff, method=Misses((3,)), prove=settings)
    assert lacking.status.name != "CONVERGED"
    none = kl.subspace(
        L + 0 if False else kl.operators.SparseOperator.from_matrix(L.to_scipy() + sp.eye_array(L.n)),
        cutoff=0.5,
        method="shift_invert",
        prove=settings,
    )
    assert none.status.name == "CONVERGED"
    assert int(none.kept) == 0


def test_null_vectors_are_proved_by_the_components():
    L = kl.laplacian(sp.csr_array(sp.block_diag([path(500 + i) for i in range(6)])))
    sub = kl.subspace(L, 6, method="chebyshev", prove=True)
    assert (sub.status.name, sub.certificate.kind) == ("CONVERGED", "proved")
    few = kl.subspace(L, 4, method="chebyshev", prove=True)
    assert (few.status.name, few.certificate.kind) == ("NO_GAP", "proved")


def test_methods_of_a_fixed_number_of_steps_only_report():
    L = kl.laplacian(grid(10, 14))
    sub = kl.subspace(L, 7, method="lanczos", m=12, prove=True)
    assert sub.status.name != "CONVERGED"
    assert torch.equal(sub.basis, kl.subspace(L, 7, method="lanczos", m=12).basis)


def test_the_price_is_told_before():
    L, told = kl.laplacian(grid(10, 14)), []
    sub = kl.subspace(L, 7, method="chebyshev", prove=True, callback=told.append)
    stages = [now.stage for now in told if now.stage]
    assert stages[0].startswith("proof by the inertia of a sparse factor of")
    assert "multiplications" in stages[0]
    assert stages[0] in sub.why
    told.clear()
    kl.subspace(L, 7, method="chebyshev", prove=CHECK, callback=told.append)
    assert any("check by 8 random vectors" in now.stage and "products" in now.stage for now in told)


def test_a_proof_that_is_too_dear_confirms_nothing():
    sub = kl.subspace(kl.laplacian(grid(10, 14)), 7, prove=ProofSettings(max_fill=0, dense=0, max_products=10))
    assert (sub.status.name, sub.certificate.kind) == ("MAX_STEPS", "estimated")
    assert "neither proved nor checked" in sub.why


def test_ctrl_c_in_a_proof_is_no_proof():
    def stop(now):
        if now.stage:
            raise KeyboardInterrupt

    sub = kl.subspace(kl.laplacian(grid(10, 14)), 7, prove=True, callback=stop)
    assert (sub.status.name, sub.certificate.proved) == ("INTERRUPTED", False)


def test_the_words():
    L = kl.laplacian(grid(10, 14))
    for asked, kind in ((False, "proved"), (SPARSE, "proved"), (CHECK, "checked")):
        text = str(kl.subspace(L, 7, prove=asked))
        assert [word for word in ("estimated", "checked", "proved") if word in text] == [kind]
        assert "CONVERGED" in text
    far = kl.subspace(kl.laplacian(grid(50, 61)), 7, method="chebyshev")
    assert "CONVERGED (estimated)" in str(far)
    assert str(far.certificate) in str(far)


def test_lowpass():
    L, x = kl.laplacian(grid(10, 14)), np.random.default_rng(0).standard_normal(140)
    _, U = truth(L, 7)
    y = kl.lowpass(L, x, 7, tol=1e-12, prove=True)
    np.testing.assert_allclose(y, U @ (U.T @ x), atol=1e-6)
    with pytest.warns(UserWarning, match="NO_GAP"):
        kl.lowpass(kl.laplacian(grid(20, 20)), np.ones(400), 2, prove=True)
    with pytest.raises(kl.InputError, match="prove"):
        kl.lowpass(L, x, 7, method="polynomial", prove=True)
    with pytest.raises(kl.InputError, match="prove"):
        kl.subspace(L, 7, prove="yes")


def test_the_gradient_passes_through_a_proved_answer():
    W = torch.from_numpy(random_sparse(60, 4).toarray()).requires_grad_()
    sub = kl.subspace(kl.laplacian(W), 4, method=Misses((1,)), prove=True)
    (sub.basis @ sub.basis.mT)[0, 1].backward()
    other = W.detach().clone().requires_grad_()
    exact = kl.subspace(kl.laplacian(other), 4, method="exact").basis
    (exact @ exact.mT)[0, 1].backward()
    torch.testing.assert_close(W.grad, other.grad, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("weights", [0.0, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_counts_enclose_those_of_lapack(seed, weights):
    A = kl.laplacian(random_sparse(150, seed, weights)).to_scipy()
    values = np.linalg.eigvalsh(A.toarray())
    for counter in (SparseCounter(A), DenseCounter(A.toarray())):
        for i in (0, 3, 40, 100):
            sigma = float(values[i] + values[i + 1]) / 2
            most, least = counter.at_most(sigma), counter.at_least(sigma)
            assert most is None or most.below >= i + 1
            assert least is None or least.below <= i + 1
            if values[i + 1] - values[i] > 1e-6 * values[-1]:
                assert most.below == least.below == i + 1


def test_an_indefinite_dense_matrix_with_pivots_in_pairs():
    A = np.random.default_rng(0).standard_normal((90, 90))
    A = A + A.T
    np.fill_diagonal(A, 0)
    values = np.linalg.eigvalsh(A)
    counter = DenseCounter(A)
    for sigma in (-5.0, 0.0, 3.0):
        count = counter.at_most(sigma)
        assert count.below == (values < sigma).sum()
        np.testing.assert_allclose(A @ count.solve(A) - sigma * count.solve(A), A, atol=1e-6)


def test_a_count_at_an_eigenvalue_encloses():
    """At an eigenvalue itself, the two counts differ, or there is none."""
    A = kl.laplacian(grid(12, 12)).to_scipy()
    values = np.linalg.eigvalsh(A.toarray())
    for counter in (SparseCounter(A), DenseCounter(A.toarray())):
        most, least = counter.at_most(float(values[2])), counter.at_least(float(values[2]))
        assert most is None or most.below == 3
        assert least is None or least.below == 1


@pytest.mark.parametrize("noise", [1e-2, 1e-5, 1e-9])
def test_the_bound_by_the_inverse(noise):
    L = kl.laplacian(grid(10, 14))
    values, U = truth(L, 7)
    X = np.linalg.qr(U + noise * np.random.default_rng(0).standard_normal(U.shape))[0]
    sigma = float(values[6] + values[7]) / 2
    A = L.to_scipy().toarray()
    for off in (0, 1e-8):
        Y = np.linalg.solve(A - sigma * np.eye(L.n), X) + off
        parts = (torch.from_numpy(part) for part in (X, Y))
        bound = float(inverse_bound(lambda Z: L @ Z, *parts, torch.tensor(sigma, dtype=F64), 8.0, 5))
        error = float(np.square(U - X @ (X.T @ U)).sum()) / 7
        assert error <= bound <= 10 * error + 1e-14


def test_estimators_prove():
    sklearn = pytest.importorskip("krylow.integrations.sklearn")
    W = grid(10, 14).toarray()
    found = sklearn.LowPassEmbedding(3, affinity="precomputed", kind="combinatorial", prove=True).fit(W).subspace_
    assert found.certificate.kind == "proved"
    assert "proof by the inertia" in found.why
