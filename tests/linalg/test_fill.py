"""The estimate of a factor's entries against scipy's own factorisation."""

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import splu

import krylow as kl
from krylow.graph import as_operator
from krylow.linalg.elimination import condense_graph
from krylow.linalg.fill import condensed_fill, estimate_fill
from krylow_lab.large.graphs import make


def line(n):
    return scipy.sparse.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], shape=(n, n))


def grid(side, dimensions):
    W = 0
    for axis in range(dimensions):
        parts = [line(side) if axis == other else scipy.sparse.eye_array(side) for other in range(dimensions)]
        term = parts[0]
        for part in parts[1:]:
            term = scipy.sparse.kron(term, part)
        W = W + term
    return scipy.sparse.csr_array(W)


def tree(n, seed=0):
    rng = np.random.default_rng(seed)
    parent = np.array([rng.integers(max(0, i - 50), i) for i in range(1, n)])
    W = scipy.sparse.csr_array((np.ones(n - 1), (np.arange(1, n), parent)), shape=(n, n))
    return W + W.T


def random_regular(n, degree=8, seed=0):
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, n, (2, n * degree // 2))
    W = scipy.sparse.csr_array((np.ones(i.size), (i, j)), shape=(n, n))
    W = W + W.T
    W.setdiag(0)
    return W


def subdivided(W):
    """Every edge becomes a path of three, as roads have nodes that are no crossings."""
    upper = scipy.sparse.triu(W).tocoo()
    n, m = W.shape[0], upper.nnz
    a, b = n + np.arange(m), n + m + np.arange(m)
    i, j = np.r_[upper.row, a, b], np.r_[a, b, upper.col]
    W = scipy.sparse.csr_array((np.ones(3 * m), (i, j)), shape=(n + 2 * m,) * 2)
    return W + W.T


def true_entries(L):
    matrix = scipy.sparse.csc_array(L.to_scipy() + 1e-3 * scipy.sparse.eye_array(L.n))
    factor = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    return factor.L.nnz


CASES = {
    "path": line(5000),
    "cycle": line(3000) + scipy.sparse.csr_array(([1.0, 1.0], ([0, 2999], [2999, 0])), shape=(3000, 3000)),
    "tree": tree(5000),
    "plane": grid(70, 2),
    "solid": grid(14, 3),
    "roads": subdivided(grid(40, 2)),
    "random": random_regular(1500),
    "two planes": scipy.sparse.block_diag([grid(50, 2), grid(50, 2)]),
}


@pytest.mark.parametrize("name", list(CASES))
def test_within_a_small_factor(name):
    L = kl.laplacian(scipy.sparse.csr_array(CASES[name]))
    found, truth = estimate_fill(L), true_entries(L)
    assert truth / 4 <= found.entries <= 4 * truth


@pytest.mark.parametrize("name", ["path", "cycle", "tree"])
def test_nodes_of_degree_one_and_two_are_eliminated(name):
    assert estimate_fill(kl.laplacian(scipy.sparse.csr_array(CASES[name]))).remaining <= 0.05 * CASES[name].shape[0]


def test_a_plane_separates_by_a_line():
    found = estimate_fill(kl.laplacian(grid(60, 2)))
    assert found.remaining >= 3590  # all but corners
    assert 30 <= found.separator <= 70


def test_no_edges():
    found = estimate_fill(kl.laplacian(scipy.sparse.csr_array((7, 7))))
    assert (found.remaining, found.separator) == (0, 0)
    assert 7 <= found.entries <= 21


def test_the_graph_is_left_alone():
    L = kl.laplacian(grid(30, 2))
    before = [part.copy() for part in L.host_indices()]
    estimate_fill(L)
    for part, old in zip(L.host_indices(), before, strict=True):
        np.testing.assert_array_equal(part, old)


@pytest.mark.parametrize("family", ["road", "grid"])
def test_the_estimate_of_a_condensed_graph_is_like_that_of_the_whole(family):
    L = as_operator(make(family, 5000, 0))
    whole, core = estimate_fill(L), condensed_fill(condense_graph(L))
    assert 1 / 2 < core.entries / whole.entries < 2
