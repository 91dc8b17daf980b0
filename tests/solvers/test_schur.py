"""Sparse graphs by Lanczos on the inverse of a Schur complement, against dense eigenvectors and closed forms."""

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.linalg.elimination import condense_graph
from krylow.solvers import ShiftInvert, _schur
from krylow.testing import lowest
from krylow_lab.large import graphs


def line(n):
    return scipy.sparse.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], shape=(n, n)).tocsr()


def grid(a, b):
    eye = scipy.sparse.eye_array
    return scipy.sparse.csr_array(scipy.sparse.kron(line(a), eye(b)) + scipy.sparse.kron(eye(a), line(b)))


def roads(n, seed=0):
    """Streets of a coarse grid, some of them closed, each with bends on it, and a few dead ends."""
    rng = np.random.default_rng(seed)
    side = int((n / 6) ** 0.5)
    streets = scipy.sparse.triu(grid(side, side)).tocoo()
    open_ = rng.random(streets.nnz) < 0.8
    i, j = streets.row[open_], streets.col[open_]
    bends = rng.multinomial(n - side**2, np.full(i.size + 20, 1 / (i.size + 20)))
    starts, ends, rows, cols = np.r_[i, rng.integers(0, side**2, 20)], np.r_[j, np.full(20, -1)], [], []
    following = side**2
    for a, b, count in zip(starts, ends, bends, strict=True):
        chain = [a, *range(following, following + count), *([b] if b >= 0 else [])]
        following += count
        rows += chain[:-1]
        cols += chain[1:]
    W = scipy.sparse.csr_array((np.ones(len(rows)), (rows, cols)), shape=(n, n))
    W = W + W.T
    _, label = scipy.sparse.csgraph.connected_components(W)
    main = np.nonzero(label == np.bincount(label).argmax())[0]
    W = scipy.sparse.csr_array(W[main][:, main])
    W.data[:] = 1.0
    return W


ROADS = roads(700)
COPY = roads(250, seed=3)


@pytest.fixture(autouse=True)
def small_graphs_are_large(monkeypatch):
    """What is not counted by inertia is not proved by a dense factor either."""
    monkeypatch.setattr("krylow.result.PROOF_LIMIT", 200)
    monkeypatch.setattr("krylow.certificate.PROOF_LIMIT", 200)


@pytest.fixture(params=[{}, {"condense": False}, {"inertia": False}], ids=["condensed", "whole", "not counted"])
def solver(request):
    return ShiftInvert(**request.param)


def assert_right(W, k, tol, kind=None, solver=ShiftInvert()):  # noqa: B008 - frozen
    L = kl.laplacian(W, kind)
    assert L.n > 200
    sub = kl.subspace(L, k, method=solver, tol=tol)
    _, U = lowest(L.to_dense(), k)
    error = float(kl.metrics.subspace_error(sub.basis, U))
    assert sub.status.name == "CONVERGED"
    assert error <= float(sub.error_bound) <= tol
    residuals = torch.linalg.vector_norm(L @ sub.basis - sub.basis * sub.ritz_values, dim=0)
    torch.testing.assert_close(sub.residuals, residuals, rtol=1e-3, atol=1e-7)
    return sub


@pytest.mark.parametrize("k", [7, 30])
@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_roads(solver, tol, k):
    sub = assert_right(ROADS, k, tol, solver=solver)
    assert sub.evidence is not None


def test_a_count_of_the_frequencies_is_a_proof(solver):
    sub = assert_right(ROADS, 7, 1e-3, solver=solver)
    lam = np.linalg.eigvalsh(sub.operator.to_dense())
    assert sub.certificate.proved == solver.inertia
    if sub.certificate.proved:
        assert lam[6] < float(sub.certificate.floor) < lam[7]


def test_a_count_that_rounding_could_change_is_no_proof():
    """One edge of a path is as heavy as the reciprocal of rounding: pivots are off by about the gap."""
    weights = np.ones(299)
    weights[150] = 1e10
    for top, proved in ((1.0, True), (1e9, False)):
        W = scipy.sparse.diags_array([np.where(weights > 1, top, weights)] * 2, offsets=[-1, 1], shape=(300, 300))
        found = kl.subspace(kl.laplacian(W), 5, method=ShiftInvert(condense=False, dense=0))
        assert found.evidence.proved == proved


@pytest.mark.parametrize("kind", ["normalized", "generalized"])
def test_other_laplacians(kind):
    loops = scipy.sparse.diags_array((np.arange(ROADS.shape[0]) % 9 == 0) * 0.5)
    assert_right(ROADS + loops if kind == "generalized" else ROADS, 8, 1e-4, kind)


def test_weights_and_signs():
    rng = np.random.default_rng(0)
    upper = scipy.sparse.triu(ROADS).tocoo()
    for weight in (10.0 ** rng.uniform(-2, 1, upper.nnz), np.where(rng.random(upper.nnz) < 0.05, -1.0, 1.0)):
        W = scipy.sparse.csr_array((weight, (upper.row, upper.col)), shape=ROADS.shape)
        assert_right(W + W.T, 8, 1e-4)


def test_it_iterates_on_the_schur_complement():
    """A path of 20,000 nodes, of which a fraction remains."""
    n, k = 20_000, 9
    L = kl.laplacian(line(n))
    assert condense_graph(L).nodes.size < n / 8
    sub = kl.subspace(L, k, method="shift_invert", tol=1e-6)
    j = torch.arange(n, dtype=torch.float64)[:, None]
    U = torch.cos(torch.pi * (j + 0.5) * torch.arange(k, dtype=torch.float64) / n)
    assert sub.status.name == "CONVERGED"
    assert float(kl.metrics.subspace_error(sub.basis, U / U.norm(dim=0))) <= float(sub.error_bound)


@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_extended_vectors_are_the_answer_where_the_pieces_are_fast(monkeypatch, tol):
    """On a path of 20,000 nodes they are good enough for 1e-3 by a bound that holds, and for 1e-8 are improved."""
    n, k, refined = 20_000, 9, []
    original = _schur._refined
    monkeypatch.setattr(_schur, "_refined", lambda *given: refined.append(original(*given)) or refined[-1])
    L = kl.laplacian(line(n))
    sub = kl.subspace(L, k, method="shift_invert", tol=tol)
    assert len(refined) == (tol < 1e-3)
    U = torch.cos(torch.pi * (torch.arange(n)[:, None] + 0.5) * torch.arange(k, dtype=torch.float64) / n)
    assert float(kl.metrics.subspace_error(sub.basis, U / U.norm(dim=0))) <= float(sub.error_bound) <= tol
    torch.testing.assert_close(sub.basis.mT @ sub.basis, torch.eye(k, dtype=torch.float64), rtol=0, atol=1e-10)
    residuals = torch.linalg.vector_norm(L @ sub.basis - sub.basis * sub.ritz_values, dim=0)
    torch.testing.assert_close(sub.residuals, residuals, rtol=1e-3, atol=1e-9)


def test_schur_complements_of_hardly_more_nodes_than_are_sought():
    ring, n = 50, 856
    ends = np.arange(n)
    others = np.where(ends < ring, (ends + 1) % ring, np.random.default_rng(0).integers(0, ring, n))
    W = scipy.sparse.csr_array((np.ones(n), (ends, others)), shape=(n, n))
    for k in (12, 14):
        assert_right(W + W.T, k, 1e-6)


def test_copies_of_a_graph_are_all_found(solver):
    """Four equal components: every frequency comes four times, of which one start sees one."""
    W = scipy.sparse.csr_array(scipy.sparse.block_diag([COPY] * 4))
    lam = np.linalg.eigvalsh(kl.laplacian(COPY).to_scipy().toarray())
    for k in (4, 12):
        sub = kl.subspace(kl.laplacian(W), k, method=solver, tol=1e-6)
        assert sub.status.name == "CONVERGED"
        expected = torch.from_numpy(np.repeat(lam, 4)[:k].copy())
        torch.testing.assert_close(sub.ritz_values, expected, rtol=1e-4, atol=1e-9)
    sub = kl.subspace(kl.laplacian(W), 10, method=solver, tol=1e-6)
    assert sub.status.name == "NO_GAP"
    assert int(sub.certificate.well_defined) == 8


def test_a_square_has_no_gap_inside_a_pair(solver):
    L = kl.laplacian(grid(21, 21))
    statuses = {k: kl.subspace(L, k, method=solver).status.name for k in (2, 3, 5, 6)}
    assert statuses == {2: "NO_GAP", 3: "CONVERGED", 5: "NO_GAP", 6: "CONVERGED"}


def test_isolated_nodes_and_components_are_deflated():
    W = scipy.sparse.csr_array(scipy.sparse.block_diag([ROADS, COPY, np.zeros((3, 3))]))
    sub = assert_right(W, 9, 1e-5)
    assert float(sub.ritz_values[:5].abs().max()) < 1e-12
    assert kl.subspace(kl.laplacian(W), 4, method="shift_invert").status.name == "NO_GAP"
    assert kl.subspace(kl.laplacian(W), 5, method="shift_invert").status.name == "CONVERGED"


def test_what_was_not_finished_is_not_called_converged():
    sub = kl.subspace(kl.laplacian(ROADS), 20, method="shift_invert", tol=1e-8, max_products=24)
    assert sub.status.name == "MAX_STEPS"
    assert sub.basis.shape[-1] == 20


def test_single_precision_follows_the_input():
    sub = kl.subspace(kl.laplacian(ROADS.astype(np.float32)), 7, method="shift_invert")
    assert sub.basis.dtype == torch.float32
    assert sub.status.name == "CONVERGED"


def test_too_large_a_factor_is_refused():
    with pytest.raises(kl.InputError, match=r"at most 1e\+03 entries, got one of about .*chebyshev"):
        kl.subspace(kl.laplacian(grid(40, 40)), 5, method=ShiftInvert(max_fill=1000))


def test_equal_calls_give_equal_answers():
    L = kl.laplacian(ROADS)
    first, second = (kl.subspace(L, 7, method="shift_invert", seed=3).basis for _ in range(2))
    assert torch.equal(first, second)


def test_the_gradient_is_that_of_the_projector():
    W = torch.from_numpy(ROADS.toarray()).to_sparse_coo().coalesce()
    values = W.values().clone().requires_grad_()
    L = kl.laplacian(torch.sparse_coo_tensor(W.indices(), values, W.shape))
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(L.n))
    kl.subspace(L, 7, method="shift_invert", tol=1e-12).project(x).square().sum().backward()
    lam, U = torch.linalg.eigh(L.to_dense().detach())
    a, b = U[:, :7].T @ x, U[:, 7:].T @ x
    mixed = (a[:, None] * b[None, :]) / (lam[:7, None] - lam[None, 7:])
    G = 2 * U[:, :7] @ mixed @ U[:, 7:].T  # d(x' P x) = <G, dL>
    i, j = W.indices()
    by_entry = G.diagonal()[i] - G[i, j]
    paired = torch.sparse_coo_tensor(W.indices(), values.grad, W.shape).to_dense()
    expected = torch.sparse_coo_tensor(W.indices(), by_entry, W.shape).to_dense()
    torch.testing.assert_close(
        paired + paired.T, expected + expected.T, rtol=1e-4, atol=1e-4 * float(by_entry.abs().max())
    )


def test_small_components_at_high_frequencies_spoil_neither_count_nor_values(monkeypatch):
    """Frequencies are a millionth of the highest ones: a small component there doubles a Rayleigh quotient."""
    monkeypatch.setattr(graphs, "BENDS", 0.0)
    L = graphs.laplacian(graphs.road(100_000, np.random.default_rng(0)))
    exact = kl.subspace(L, 9, method="shift_invert", tol=1e-9).ritz_values
    for k in range(5, 9):
        found = kl.subspace(L, k, method="shift_invert", tol=1e-3)
        assert found.status == kl.Status.CONVERGED
        torch.testing.assert_close(found.ritz_values, exact[:k], rtol=1e-2, atol=1e-15)


def star(branches, length):
    """Return equal paths that meet in one node: most frequencies are there once a path, less one."""
    first = 1 + length * np.arange(branches)
    along = (first[:, None] + np.arange(length - 1)).ravel()
    rows, cols = np.r_[np.zeros(branches, int), along], np.r_[first, along + 1]
    n = 1 + branches * length
    W = scipy.sparse.csr_array((np.ones(rows.size), (rows, cols)), shape=(n, n))
    return scipy.sparse.csr_array(W + W.T)


@pytest.mark.parametrize("branches", [23, 40])
def test_more_copies_of_a_frequency_than_there_are_starts(branches):
    assert assert_right(star(branches, 30), branches, 1e-3).certificate.proved


def test_a_cut_inside_many_copies_is_named_and_ends():
    """The first of hundreds of copies; the residuals of the largest values are never as small as those of the last."""
    n = sum(3**level for level in range(7))
    child = np.arange(1, n)
    W = scipy.sparse.csr_array((np.ones(n - 1), ((child - 1) // 3, child)), shape=(n, n))
    L, k = kl.laplacian(scipy.sparse.csr_array(W + W.T)), 42
    sub = kl.subspace(L, k, method="shift_invert", max_products=20_000)
    lam = np.linalg.eigvalsh(L.to_dense())
    assert sub.status.name == "NO_GAP"
    np.testing.assert_allclose(sub.ritz_values, lam[:k], atol=1e-9)
    np.testing.assert_allclose(sub.basis.T @ sub.basis, np.eye(k), atol=1e-12)
    defined = int(sub.certificate.well_defined)
    assert lam[defined] - lam[defined - 1] > 1e-6
    np.testing.assert_allclose(lam[defined:k], lam[k], atol=1e-9)


@pytest.mark.parametrize("k", [13, 16, 25])
def test_copies_next_to_a_gap_that_is_none(solver, k):
    """Cliques in a row by edges over orders of magnitude: values next to the copies of a frequency look like a gap."""
    rng, number, size = np.random.default_rng(0), 12, 40
    W = scipy.sparse.lil_array(scipy.sparse.block_diag([np.ones((size, size)) - np.eye(size)] * number))
    for i in range(number - 1):
        W[i * size, (i + 1) * size + 1] = W[(i + 1) * size + 1, i * size] = 10 ** rng.uniform(-6, 0)
    sub = kl.subspace(kl.laplacian(scipy.sparse.csr_array(W)), k, method=solver)
    assert sub.status.name == "NO_GAP" if solver.inertia else sub.status.name != "CONVERGED"
