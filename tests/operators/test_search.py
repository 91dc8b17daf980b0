"""Breadth-first search, its order and components."""

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.csgraph import connected_components

import krylow as kl
from krylow.operators import SparseOperator
from krylow.operators.ordering import breadth_first_search, permuted
from krylow.testing import block_diagonal, grid, path, random_graph


def sparse(W):
    return kl.laplacian(scipy.sparse.csr_array(W.numpy()))


GRAPHS = {
    "grid": grid(9, 7),
    "pieces": block_diagonal(path(7), grid(4, 4), torch.zeros(3, 3, dtype=torch.float64), path(2)),
    "random": random_graph(60, 0.05, seed=1),
    "empty": torch.zeros(5, 5, dtype=torch.float64),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_components_and_order(name):
    W = GRAPHS[name]
    found = breadth_first_search(sparse(W))
    count, labels = connected_components(W.numpy(), directed=False)
    assert found.components == count
    same = found.labels[:, None] == found.labels
    np.testing.assert_array_equal(same, labels[:, None] == labels)
    assert sorted(found.order) == list(range(len(W)))
    blocks = found.labels[found.order]
    assert (np.diff(blocks) != 0).sum() == count - 1  # one component after the other


def test_neighbours_are_near_in_the_order():
    W = grid(40, 5)
    shuffle = np.random.default_rng(0).permutation(200)
    found = breadth_first_search(sparse(W[shuffle][:, shuffle]))
    place = np.argsort(found.order)
    i, j = np.nonzero(W.numpy()[shuffle][:, shuffle])
    assert np.abs(place[i] - place[j]).max() <= 12  # a level of a strip five wide, and the next one


def test_widths():
    assert breadth_first_search(sparse(path(100))).width == 1 / 100  # from an end
    assert breadth_first_search(sparse(torch.ones(20, 20).double() - torch.eye(20).double())).width == 19 / 20
    two = block_diagonal(path(30), path(30))
    assert breadth_first_search(sparse(two)).width == 1 / 60  # each component by itself


def test_entries_that_are_zero_join_nothing():
    crow, col = torch.tensor([0, 2, 4]), torch.tensor([0, 1, 0, 1])
    linked = SparseOperator(crow, col, torch.tensor([1.0, -1.0, -1.0, 1.0]))
    cut = linked.like(torch.tensor([1.0, 0.0, 0.0, 1.0]))
    assert breadth_first_search(linked).components == 1
    assert breadth_first_search(cut).components == 2
    assert cut.host_indices()[0].tolist() == [0, 2, 4]  # the search reads, and writes nowhere
    assert cut.host_indices()[1].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("columns", [1, 3, 20])
def test_rows_are_moved_back(columns):
    L = sparse(random_graph(50, 0.2, seed=2))
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    order[[3, order.tolist().index(3)]] = torch.tensor([3, int(order[3])])  # a row that stays
    X = torch.randn(50, columns, generator=torch.Generator().manual_seed(1))
    assert torch.equal(permuted(L, order).back(X[order].contiguous()), X)


def test_what_differs_by_rounding_is_symmetric_still():
    W = random_graph(30, 0.3, seed=4) * 0.1
    W[0, W[0].nonzero()[0, 0]] *= 1 + 1e-16 * 4
    kl.laplacian(scipy.sparse.csr_array(W.numpy()))
    W[0, W[0].nonzero()[0, 0]] *= 1.001
    with pytest.raises(kl.InputError, match="symmetric"):
        kl.laplacian(scipy.sparse.csr_array(W.numpy()))
