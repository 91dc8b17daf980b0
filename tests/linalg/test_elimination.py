"""Static condensation, and factors of the Schur complement, against dense linear algebra."""

import numpy as np
import pytest
import scipy.sparse

import krylow as kl
from krylow.linalg import elimination
from krylow.linalg.elimination import EliminationSettings, Factor, condense
from krylow.testing import random_graph


def roads(n=120, extra=14, seed=0, weighted=False):
    """A random tree with a few more edges: paths, pendant trees, cycles and hubs."""
    rng = np.random.default_rng(seed)
    parent = [int(rng.integers(max(0, i - 4), i)) for i in range(1, n)]
    i, j = np.r_[np.arange(1, n), rng.integers(0, n, extra)], np.r_[parent, rng.integers(0, n, extra)]
    i, j = i[i != j], j[i != j]
    weight = 10.0 ** rng.uniform(-1, 1, i.size) if weighted else np.ones(i.size)
    W = scipy.sparse.csr_array((weight, (i, j)), shape=(n, n))
    return scipy.sparse.csr_array(kl.laplacian(W + W.T).to_scipy())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("slowest", [4.0, 40.0, np.inf])
def test_it_is_the_schur_complement_with_its_mass(slowest, weighted):
    L, shift = roads(weighted=weighted), 0.3
    core = condense(L, shift, slowest)
    dense = L.toarray() + shift * np.eye(L.shape[0])
    T, C = np.setdiff1d(np.arange(L.shape[0]), core.nodes), core.nodes
    assert T.size > 0.2 * L.shape[0]
    onto = -np.linalg.solve(dense[np.ix_(T, T)], dense[np.ix_(T, C)])
    S = dense[np.ix_(C, C)] + dense[np.ix_(C, T)] @ onto
    M = np.eye(C.size) + onto.T @ onto
    np.testing.assert_allclose(core.S.toarray(), S, rtol=0, atol=1e-12 * np.abs(S).max())
    np.testing.assert_allclose(core.M.toarray(), M, rtol=0, atol=1e-12 * np.abs(M).max())
    Y = np.random.default_rng(1).standard_normal((C.size, 3))
    X = core.extend(Y, np.empty((L.shape[0], 0)))
    np.testing.assert_allclose(X[C], Y)
    np.testing.assert_allclose(X[T], onto @ Y, rtol=0, atol=1e-12)
    ones = np.broadcast_to(np.ones(1), (L.shape[0], 2))
    np.testing.assert_array_equal(core.extend(Y, ones), np.concatenate([ones, X], axis=1))


@pytest.mark.parametrize("light", [0, 40])
@pytest.mark.parametrize("slowest", [0.0, 40.0])
def test_solves_are_those_of_the_whole(slowest, light):
    L, shift = roads(seed=1, weighted=True), 0.1
    core = condense(L, shift, slowest)
    factor = Factor(core.S, settings=EliminationSettings(light=light, cheap=0.0))
    assert factor.counts == bool(light)
    X = np.random.default_rng(0).standard_normal((L.shape[0], 4))
    expected = np.linalg.solve(L.toarray() + shift * np.eye(L.shape[0]), X)
    np.testing.assert_allclose(core.solve(factor, X), expected, rtol=0, atol=1e-11)
    y = X[: core.nodes.size, 0]
    np.testing.assert_allclose(factor.solve(y), np.linalg.solve(core.S.toarray(), y), rtol=0, atol=1e-11)
    rounded = factor.solve(X[: core.nodes.size].astype(np.float32))
    assert rounded.dtype == np.float32
    np.testing.assert_allclose(rounded, np.linalg.solve(core.S.toarray(), X[: core.nodes.size]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("light", [0, 40], ids=["SuperLU", "own"])
@pytest.mark.parametrize("slowest", [0.0, 4.0, 40.0])
def test_eigenvalues_below_a_number_are_counted(slowest, light):
    for L in (roads(seed=2), roads(seed=3, weighted=True), roads(n=60, extra=60, seed=4)):
        core = condense(L, 0.2, slowest)
        factor = Factor(core.S, settings=EliminationSettings(light=light))
        lam = np.linalg.eigvalsh(L.toarray())
        for k in (1, 2, 7, 30, 50):
            sigma = 0.6 * lam[k - 1] + 0.4 * lam[k]
            count = core.below(factor, sigma)
            assert count.below == k
            assert count.rounding < 1e-9


def test_below_a_small_number_they_are_counted_on_the_schur_complement_alone(monkeypatch):
    """As many as below it at least, and none beyond it by more than the norm of the inverse lets."""
    monkeypatch.setattr(elimination, "condense", None)
    seen = 0
    for L in (roads(seed=2), roads(seed=3, weighted=True), roads(n=900, extra=20, seed=5)):
        core = condense(L, 0.0, 4.0)
        factor, lam = Factor(core.S, settings=EliminationSettings(small=0.3)), np.linalg.eigvalsh(L.toarray())
        for sigma in np.linspace(0.01, 0.3, 40) / core.inverse_norm:
            count = core.below(factor, sigma)
            norm = core.inverse_bound if sigma * core.inverse_bound <= 0.3 else core.inverse_norm
            assert (lam < sigma).sum() <= count.below <= (lam < sigma / (1 - sigma * norm)).sum()
            assert count.rounding < 1e-9
            seen = max(seen, count.below)
    assert seen > 5


def test_pieces_stay_as_fast_as_asked_for():
    n = 400
    path = scipy.sparse.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], shape=(n, n))
    L = scipy.sparse.csr_array(kl.laplacian(path).to_scipy())
    sizes = []
    for slowest in (2.0, 30.0):
        core = condense(L, 0.0, slowest)
        T = np.setdiff1d(np.arange(n), core.nodes)
        lowest = np.linalg.eigvalsh(L.toarray()[np.ix_(T, T)])[0]
        assert 0.5 / slowest <= lowest
        sizes.append(core.nodes.size)
    assert sizes[1] < sizes[0] < n


def test_dense_and_unsymmetric_patterns_are_left_whole():
    dense = scipy.sparse.csr_array(
        kl.laplacian(scipy.sparse.csr_array(random_graph(30, 0.5, seed=0).numpy())).to_scipy()
    )
    core = condense(dense, 0.5, 40.0)
    assert core.M is None
    np.testing.assert_allclose(core.S.toarray(), dense.toarray() + 0.5 * np.eye(30))
    L = roads()
    lopsided = scipy.sparse.csr_array(scipy.sparse.triu(L))
    assert condense(lopsided, 0.5, 40.0).M is None


def test_the_matrix_is_left_alone():
    L = roads()
    before = [part.copy() for part in (L.indptr, L.indices, L.data)]
    core = condense(L, 0.5, 40.0)
    core.below(Factor(core.S), 0.1)
    for part, old in zip((L.indptr, L.indices, L.data), before, strict=True):
        np.testing.assert_array_equal(part, old)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("slowest", [4.0, 40.0, np.inf])
def test_the_inverse_of_the_eliminated_part_is_bounded(slowest, weighted):
    L = roads(weighted=weighted)
    core = condense(L, 0.0, slowest)
    T = np.setdiff1d(np.arange(L.shape[0]), core.nodes)
    inverse = np.linalg.inv(L.toarray()[np.ix_(T, T)])
    assert core.inverse_norm == pytest.approx(inverse.sum(1).max())
    assert core.inverse_norm >= np.linalg.norm(inverse, 2)
    assert core.inverse_norm <= core.inverse_bound <= 8 * core.inverse_norm


@pytest.mark.parametrize("slowest", [4.0, 40.0])
def test_the_bound_on_the_way_holds_for_weights_on_neighbours_above_one(slowest):
    """A normalised Laplacian is not dominated by its diagonal: what a node passes on may be more than it has."""
    for seed in range(6):
        W = scipy.sparse.csr_array(scipy.sparse.triu(-roads(seed=seed, weighted=True), 1))
        core = condense(scipy.sparse.csr_array(kl.laplacian(W + W.T, kind="normalized").to_scipy()), 0.0, slowest)
        assert 0 < core.inverse_norm <= core.inverse_bound


def test_the_norm_is_not_known_with_positive_entries():
    L = roads()
    i, j = (int(place[np.flatnonzero(L.tocoo().row != L.tocoo().col)[0]]) for place in L.tocoo().coords)
    dense = L.toarray()
    dense[i, i] += 2.0
    dense[j, j] += 2.0
    dense[i, j] = dense[j, i] = 0.5
    assert condense(scipy.sparse.csr_array(dense), 0.0, 40.0).inverse_norm == np.inf
    assert condense(L, 0.3, 0.0).inverse_norm == 0.0
