import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.operators import ordering
from krylow.operators.ordering import breadth_first_search, far_share, permuted
from krylow.testing import random_graph


def reordered(L):
    return permuted(L, torch.from_numpy(breadth_first_search(L).order))


def reordered_if_it_pays(L):
    return ordering.reordered_if_it_pays(L, lambda: breadth_first_search(L))


def shuffled_grid(side, seed=0):
    """A grid whose nodes are numbered at random."""
    line = scipy.sparse.diags_array([np.ones(side - 1)] * 2, offsets=[-1, 1], shape=(side, side))
    W = scipy.sparse.csr_array(scipy.sparse.kron(line, scipy.sparse.eye_array(side)))
    W = W + scipy.sparse.kron(scipy.sparse.eye_array(side), line)
    order = np.random.default_rng(seed).permutation(side * side)
    return scipy.sparse.csr_array(W)[order][:, order]


@pytest.mark.parametrize("kind", ["combinatorial", "normalized"])
def test_a_permuted_operator_is_the_permuted_matrix(kind):
    L = kl.laplacian(scipy.sparse.csr_array(random_graph(30, 0.1, seed=0).numpy()), kind)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    other = permuted(L, order)
    dense = L.to_dense()
    torch.testing.assert_close(other.operator.to_dense(), dense[order][:, order], rtol=0, atol=0)
    X = torch.randn(30, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(other.back(other.operator @ X[other.order]), dense @ X)
    torch.testing.assert_close(other.back(X[:, :1][other.order]), X[:, :1], rtol=0, atol=0)
    torch.testing.assert_close(other.there(X), X[other.order], rtol=0, atol=0)
    assert (other.operator.psd, other.operator.dtype) == (L.psd, L.dtype)
    if kind == "normalized":
        torch.testing.assert_close(other.back(other.operator.null_vector[:, None])[:, 0], L.null_vector)


def test_neighbours_come_near():
    L = kl.laplacian(shuffled_grid(100))
    assert far_share(L, 200) > 0.7
    other = reordered_if_it_pays(L)
    assert far_share(other.operator, 200) == 0
    torch.testing.assert_close(other.operator.diagonal(), L.diagonal()[other.order])


def test_it_does_not_pay_where_neighbours_are_near_already():
    L = reordered(kl.laplacian(shuffled_grid(100))).operator
    assert far_share(L) == 0
    assert reordered_if_it_pays(L) is None


def test_it_does_not_pay_where_no_order_is_near():
    n = 20_000
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, n, (2, 10 * n))
    W = scipy.sparse.csr_array((np.ones(10 * n), (i, j)), shape=(n, n))
    L = kl.laplacian(W + W.T, "combinatorial")
    assert breadth_first_search(L).width > 0.1
    assert reordered_if_it_pays(L) is None


def test_isolated_nodes_and_an_empty_graph():
    W = scipy.sparse.csr_array((20, 20))
    other = reordered(kl.laplacian(W))
    assert sorted(other.order.tolist()) == list(range(20))
    assert far_share(other.operator) == 0
    assert breadth_first_search(other.operator).width == 1 / 20


def blocks(n, number, seed=0):
    """A block model whose nodes are in no order, and its blocks."""
    rng = np.random.default_rng(seed)
    block = rng.integers(number, size=n)
    at = np.argsort(block, kind="stable")
    first = np.searchsorted(block[at], np.arange(number + 1))
    i = rng.integers(n, size=8 * n)
    j = at[first[block[i]] + (rng.random(8 * n) * np.diff(first)[block[i]]).astype(int)]
    k, l = rng.integers(n, size=(2, n // 2))
    W = scipy.sparse.csr_array((np.ones(8 * n + n // 2), (np.r_[i, k], np.r_[j, l])), shape=(n, n))
    return scipy.sparse.csr_array(W + W.T), block


def test_communities_are_put_together():
    W, block = blocks(20_000, 25)
    L = kl.laplacian(W)
    other = ordering.grouped_if_it_pays(L)
    assert other is not None
    moved = block[other.order.numpy()]
    assert np.mean(moved[1:] == moved[:-1]) > 0.95
    named = other.communities.numpy()
    assert set(np.unique(named)) == set(range(named.max() + 1))
    main = np.array([np.bincount(moved[named == name]).argmax() for name in range(named.max() + 1)])
    assert np.mean(main[named] == moved) > 0.95
    X = torch.randn(20_000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(other.back(other.operator @ X[other.order]), L @ X)


def test_a_graph_without_communities_is_left_alone():
    rng = np.random.default_rng(1)
    W = scipy.sparse.csr_array((np.ones(160_000), rng.integers(20_000, size=(2, 160_000))), shape=(20_000, 20_000))
    assert ordering.grouped_if_it_pays(kl.laplacian(scipy.sparse.csr_array(W + W.T))) is None
