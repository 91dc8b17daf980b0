"""Static condensation and sparse factors, beside dense linear algebra."""

import numpy as np
import pytest
import scipy.sparse

import krylow as kl
from krylow import _native


def roads(n=150, extra=20, seed=0):
    """A random tree with a few more edges and weights of several magnitudes, plus a multiple of the identity."""
    rng = np.random.default_rng(seed)
    i = np.r_[np.arange(1, n), rng.integers(0, n, extra)]
    j = np.r_[[rng.integers(max(0, a - 4), a) for a in range(1, n)], rng.integers(0, n, extra)]
    i, j = i[i != j], j[i != j]
    W = scipy.sparse.csr_array((10.0 ** rng.uniform(-1, 1, i.size), (i, j)), shape=(n, n))
    L = scipy.sparse.csr_array(kl.laplacian(W + W.T).to_scipy() + 0.3 * scipy.sparse.eye_array(n))
    L.sort_indices()
    return L


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("slowest", [4.0, 1e9])
def test_the_core_is_the_schur_complement(level, slowest, index):
    A = roads()
    found = _native.eliminate(A.indptr.astype(index), A.indices.astype(index), A.data, 0.1, slowest, 64)
    symmetric, order, coefficients, C, rows, columns, S, M, farthest, joined = found
    assert symmetric
    assert joined == A.nnz - 150
    assert len(order) + len(C) == 150
    dense = A.toarray() + 0.1 * np.eye(150)
    T = np.setdiff1d(np.arange(150), C)
    onto = -np.linalg.solve(dense[np.ix_(T, T)], dense[np.ix_(T, C)])
    core, mass = (scipy.sparse.csr_array((part, columns, rows), shape=(len(C), len(C))).toarray() for part in (S, M))
    np.testing.assert_allclose(core, dense[np.ix_(C, C)] + dense[np.ix_(C, T)] @ onto, atol=1e-11)
    np.testing.assert_allclose(mass, np.eye(len(C)) + onto.T @ onto, atol=1e-11)
    assert np.linalg.inv(dense[np.ix_(T, T)]).sum(1).max() <= farthest
    for width in (1, 5, 24):
        X = np.random.default_rng(0).standard_normal((150, width))
        extended = X.copy()
        _native.extend(order, coefficients, extended)
        np.testing.assert_allclose(extended[T], onto @ X[C], atol=1e-11)
        np.testing.assert_array_equal(extended[C], X[C])
        Z = X.copy()
        _native.down(order, coefficients, Z)
        Z[C] = np.linalg.solve(core, Z[C])
        _native.up(order, coefficients, Z)
        np.testing.assert_allclose(dense @ Z, X, atol=1e-10)
    labels = np.full(150, -1)
    labels[C] = np.arange(len(C))
    _native.inherit(order, labels)
    assert (labels >= 0).all()


def test_a_pattern_that_is_not_symmetric_is_said_to_be_so():
    A = scipy.sparse.csr_array(np.triu(roads().toarray()))
    assert not _native.eliminate(A.indptr.astype(np.int32), A.indices.astype(np.int32), A.data, 0.0, 9.0, 64)[0]


@pytest.mark.parametrize("dense", [False, True])
def test_the_factor_reconstructs_the_matrix(level, dense):
    A = roads(60) if not dense else scipy.sparse.csr_array(np.ones((60, 60)) + 60 * np.eye(60))
    n, rows = 60, (A.indptr.astype(np.int32), A.indices.astype(np.int32))
    place, entries, done = _native.minimum_degree(*rows, 1_000_000)
    assert done
    np.testing.assert_array_equal(np.sort(place), np.arange(n))
    at = np.argsort(place)
    parent, counts = _native.tree_and_counts(*rows, place, at)
    assert counts.sum() == entries
    columns, G, D, largest = _native.factorise(*rows, A.data, place, at, parent, np.r_[0, counts.cumsum()])
    assert columns.entries == entries
    assert largest <= np.abs(A.data).max() * n
    ordered = A.toarray()[np.ix_(at, at)]
    # L from the solves: the factor's own places are its own affair.
    identity = np.eye(n)
    _native.substitute(columns, G, D, identity)
    np.testing.assert_allclose(ordered @ identity, np.eye(n), atol=1e-11)
    np.testing.assert_allclose(np.prod(np.sign(D)) * np.log(np.abs(D)).sum(), np.linalg.slogdet(ordered)[1])
    assert (D < 0).sum() == (np.linalg.eigvalsh(ordered) < 0).sum()
    for dtype, noise in [(np.float32, 1e-4), (np.float64, 1e-11)]:
        for shape in [(n,), (n, 1), (n, 7), (n, 40)]:
            X = np.random.default_rng(0).standard_normal(shape).astype(dtype)
            Y = X.copy()
            _native.substitute(columns, G.astype(dtype), D.astype(dtype), Y)
            np.testing.assert_allclose(ordered @ Y, X, atol=noise * max(1, np.abs(Y).max()))


def test_minimum_degree_gives_up_where_lists_get_long():
    A = scipy.sparse.csr_array(np.ones((60, 60)))
    assert not _native.minimum_degree(A.indptr.astype(np.int32), A.indices.astype(np.int32), 100)[2]
