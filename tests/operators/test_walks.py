"""One walk over a graph, compiled and not."""

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.csgraph import connected_components

import krylow as kl
from krylow.operators import SparseOperator
from krylow.operators.walks import mirrored, move_rows, permuted_rows, walk
from krylow.testing import block_diagonal, grid, path, random_graph


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def kernel(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr("krylow._kernels.available", lambda: False)
    else:
        pytest.importorskip("numba")


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
    found = walk(sparse(W))
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
    found = walk(sparse(W[shuffle][:, shuffle]))
    place = np.argsort(found.order)
    i, j = np.nonzero(W.numpy()[shuffle][:, shuffle])
    assert np.abs(place[i] - place[j]).max() <= 12  # a level of a strip five wide, and the next one


def test_widths():
    assert walk(sparse(path(100))).widest == 1 / 100  # from an end
    assert walk(sparse(torch.ones(20, 20).double() - torch.eye(20).double())).widest == 19 / 20
    two = block_diagonal(path(30), path(30))
    assert walk(sparse(two)).widest == 1 / 60  # each component by itself


def test_entries_that_are_zero_join_nothing():
    crow, col = torch.tensor([0, 2, 4]), torch.tensor([0, 1, 0, 1])
    linked = SparseOperator(crow, col, torch.tensor([1.0, -1.0, -1.0, 1.0]))
    cut = linked.like(torch.tensor([1.0, 0.0, 0.0, 1.0]))
    assert walk(linked).components == 1
    assert walk(cut).components == 2
    assert cut.host_indices()[0].tolist() == [0, 2, 4]  # the walk reads, and writes nowhere
    assert cut.host_indices()[1].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_permuted_rows(index):
    W = scipy.sparse.csr_array(random_graph(40, 0.2, seed=2).numpy())
    order = np.random.default_rng(1).permutation(40)
    crow, col, values = permuted_rows(W.indptr.astype(index), W.indices.astype(index), W.data, order)
    found = scipy.sparse.csr_array((values, col, crow), shape=W.shape)
    np.testing.assert_array_equal(found.toarray(), W.toarray()[order][:, order])
    assert (crow.dtype, col.dtype) == (index, index)


@pytest.mark.parametrize("columns", [1, 3, 20])
def test_rows_are_moved_in_place(columns):
    rng = np.random.default_rng(0)
    X, order = rng.standard_normal((50, columns)), rng.permutation(50)
    order[[3, order.tolist().index(3)]] = 3, order[3]  # a row that stays
    moved = X.copy()
    move_rows(moved, order)
    np.testing.assert_array_equal(moved[order], X)
    assert order[3] == 3


def test_mirror_images(kernel, request):
    compiled = "compiled" in request.node.name
    W = scipy.sparse.csr_array(random_graph(50, 0.2, seed=3).numpy() * 1.0)
    assert mirrored(W.indptr, W.indices, W.data) is compiled
    off = W.copy()
    off.data[7] = np.nextafter(off.data[7], 2)
    assert not mirrored(off.indptr, off.indices, off.data)
    swapped = W.copy()
    swapped.indices[:] = (swapped.indices + 1) % 50
    swapped.sort_indices()
    assert not mirrored(swapped.indptr, swapped.indices, swapped.data)


def test_what_differs_by_rounding_is_symmetric_still():
    W = random_graph(30, 0.3, seed=4) * 0.1
    W[0, W[0].nonzero()[0, 0]] *= 1 + 1e-16 * 4
    kl.laplacian(scipy.sparse.csr_array(W.numpy()))
    W[0, W[0].nonzero()[0, 0]] *= 1.001
    with pytest.raises(kl.InputError, match="symmetric"):
        kl.laplacian(scipy.sparse.csr_array(W.numpy()))
