"""Minimum-degree orders, against elimination itself."""

import numpy as np
import pytest
import scipy.sparse

from krylow.linalg.elimination import minimum_degree


def pattern(n=200, extra=30, seed=0):
    """A random tree with a few more edges, and a diagonal."""
    rng = np.random.default_rng(seed)
    i = np.r_[np.arange(1, n), rng.integers(0, n, extra)]
    j = np.r_[rng.integers(0, np.arange(1, n)), rng.integers(0, n, extra)]
    W = scipy.sparse.csr_array((np.ones(i.size), (i, j)), shape=(n, n))
    return scipy.sparse.csr_array(W + W.T + scipy.sparse.eye_array(n))


@pytest.fixture
def order():
    return minimum_degree


def eliminated(A, place):
    """Eliminate in the order given; return the degrees met, and the least degrees that there were then."""
    filled = A.toarray() != 0
    np.fill_diagonal(filled, False)
    left, met, least = np.ones(len(filled), dtype=bool), [], []
    for v in np.argsort(place):
        near = np.flatnonzero(filled[v] & left)
        met.append(near.size)
        least.append(filled[left][:, left].sum(1).min())
        filled[np.ix_(near, near)] = True
        filled[near, near] = False
        left[v] = False
    return met, least


@pytest.mark.parametrize("seed", range(4))
def test_each_node_has_the_fewest_neighbours_when_its_turn_comes(order, seed):
    A = pattern(seed=seed)
    place, entries = order(A.indptr, A.indices)
    assert sorted(place) == list(range(200))
    met, least = eliminated(A, place)
    assert met == least
    assert entries == sum(met)


def test_a_path_has_no_fill(order):
    path = scipy.sparse.csr_array(scipy.sparse.diags_array([np.ones(59), np.ones(60), np.ones(59)], offsets=[-1, 0, 1]))
    assert order(path.indptr, path.indices)[1] == 59


def test_graphs_whose_lists_get_long_are_given_up(order):
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, 400, (2, 800))
    W = scipy.sparse.csr_array((np.ones(800), (i, j)), shape=(400, 400))
    A = scipy.sparse.csr_array(W + W.T)
    assert A.nnz <= 6 * 400
    assert order(A.indptr, A.indices) is None
    dense = scipy.sparse.csr_array(np.ones((20, 20)))
    assert order(dense.indptr, dense.indices) is None
