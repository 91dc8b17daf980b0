import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.operators import ordering
from krylow.operators.ordering import far_share, permuted, reordered, reordered_if_it_pays
from krylow.operators.walks import walk
from krylow.testing import random_graph


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
    torch.testing.assert_close(other.back(other.operator @ other.forward(X)), dense @ X)
    torch.testing.assert_close(other.back(other.forward(X[:, 0])), X[:, 0], rtol=0, atol=0)
    assert (other.operator.psd, other.operator.dtype) == (L.psd, L.dtype)
    if kind == "normalized":
        torch.testing.assert_close(other.back(other.operator.null_vector), L.null_vector)


def test_neighbours_come_near(monkeypatch):
    monkeypatch.setattr(ordering, "NEAR", 200)
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
    assert walk(L).widest > ordering.WIDE
    assert reordered_if_it_pays(L) is None


def test_isolated_nodes_and_an_empty_graph():
    W = scipy.sparse.csr_array((20, 20))
    other = reordered(kl.laplacian(W))
    assert sorted(other.order.tolist()) == list(range(20))
    assert far_share(other.operator) == 0
    assert walk(other.operator).widest == 1 / 20
