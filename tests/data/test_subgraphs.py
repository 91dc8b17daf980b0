import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.csgraph import connected_components

from krylow._checks import InputError
from krylow.data import connected_subgraphs, sbm, tudataset


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def path(n):
    upper = np.diag(np.ones(n - 1), 1)
    return upper + upper.T


def is_connected(W):
    return connected_components(scipy.sparse.csr_array(W.numpy()), directed=False)[0] == 1


@pytest.mark.parametrize("root", ["first", "random"])
def test_subgraphs_are_connected_and_simple(root):
    graphs = list(sbm(10, 60, 4, 0.1, 0.01, generator=seeded(0)))
    W = connected_subgraphs(graphs, 20, root=root, generator=seeded(1))
    assert W.shape[1:] == (20, 20)
    assert torch.equal(W, W.mT)
    assert not W.diagonal(dim1=-2, dim2=-1).any()
    assert all(is_connected(w) for w in W)


@pytest.mark.parametrize("root", ["first", "random"])
def test_subgraphs_are_induced(root):
    # A self-loop on every node carries its number, which tells where it went; the search does not mind it.
    graph = sbm(1, 40, 2, 0.15, 0.05, generator=seeded(2), dtype=torch.float64)[0] + torch.arange(1.0, 41).diag()
    (W,) = connected_subgraphs([graph], 15, root=root, generator=seeded(3), dtype=torch.float64)
    nodes = W.diagonal().long() - 1
    assert len(nodes.unique()) == 15
    assert torch.equal(W, graph[nodes][:, nodes])


def test_breadth_first_from_the_lowest_node():
    # A star around node 2 whose leaf 0 is the root: 0, then its one neighbour 2, then the leaves in ascending order.
    star = np.zeros((6, 6))
    star[2, [0, 1, 3, 4, 5]] = star[[0, 1, 3, 4, 5], 2] = [10, 11, 13, 14, 15]
    (W,) = connected_subgraphs([star], 4, dtype=torch.float64)
    assert W[1].tolist() == [10, 0, 11, 13]


def test_breadth_goes_before_depth():
    # A ring: the search takes both neighbours before the next ones, so that the cut is a path with the root inside.
    ring = path(9)
    ring[0, 8] = ring[8, 0] = 1
    (W,) = connected_subgraphs([ring], 5)
    assert W.sum(-1).tolist() == [2, 2, 2, 1, 1]


def test_only_the_largest_component_counts():
    # Nodes 0-2 are a path, 3-7 a longer one: the cut starts at 3. Ten nodes in all, but never six connected.
    graph = scipy.sparse.block_diag([path(3), 2 * path(5), np.zeros((2, 2))], format="csr")
    (W,) = connected_subgraphs([graph], 5, dtype=torch.float64)
    np.testing.assert_array_equal(W.numpy(), 2 * path(5))
    with pytest.raises(InputError, match="got 6, while the largest connected component of 1 graphs has 5 nodes"):
        connected_subgraphs([graph], 6)


def test_of_equal_components_the_lower_one():
    graph = scipy.sparse.block_diag([path(3), 2 * path(3)])
    np.testing.assert_array_equal(connected_subgraphs([graph], 3)[0].numpy(), path(3))


def test_small_graphs_are_dropped_and_order_is_kept():
    graphs = [2 * path(6), path(3), 5 * path(4), np.zeros((9, 9)), np.zeros((0, 0))]
    W = connected_subgraphs(graphs, 4)
    assert W.amax(dim=(-2, -1)).tolist() == [2, 5]


def test_every_form_of_a_graph_is_the_same_and_stays_as_it_is():
    dense = path(5)
    sparse = scipy.sparse.csr_array(dense)
    sparse.data[:] = 0  # stored zeros are no edges
    with_zeros = sparse + scipy.sparse.csr_array(dense)
    stored = with_zeros.copy()
    W = connected_subgraphs([dense, torch.from_numpy(dense), with_zeros, scipy.sparse.coo_matrix(dense)], 3)
    assert all(torch.equal(w, W[0]) for w in W)
    assert stored.nnz == with_zeros.nnz
    with pytest.raises(InputError, match="has 1 nodes"):
        connected_subgraphs([sparse], 2)
    assert sparse.nnz == 8


def test_a_seed_decides_the_random_roots():
    graphs = list(sbm(10, 60, 4, 0.2, 0.02, generator=seeded(4)))
    first, again, other = (connected_subgraphs(graphs, 20, root="random", generator=seeded(s)) for s in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(
        connected_subgraphs(graphs, 20, generator=seeded(5)), connected_subgraphs(graphs, 20, generator=seeded(6))
    )


@pytest.mark.parametrize(
    ("graphs", "options", "message"),
    [
        ([path(4)], {"size": 0}, "size must be at least 1"),
        ([path(4)], {"root": "last"}, "root must be one of 'first', 'random', got 'last'"),
        ([path(4), np.ones((2, 3))], {"size": 2}, r"square adjacency, got shape \(2, 3\) for graph 1"),
        ([np.diag([1.0], 1)], {"size": 2}, "asymmetric adjacency for graph 0"),
        ([], {}, "largest connected component of 0 graphs has 0 nodes"),
    ],
)
def test_bad_input(graphs, options, message):
    with pytest.raises(InputError, match=message):
        connected_subgraphs(graphs, **options)


@pytest.mark.data
@pytest.mark.usefixtures("proteins")
@pytest.mark.parametrize("root", ["first", "random"])
def test_the_real_proteins_give_the_papers_238_graphs(root):
    W = connected_subgraphs(tudataset("PROTEINS", download=False), 50, root=root)
    assert W.shape == (238, 50, 50)
    assert torch.equal(W, W.mT)
    assert all(is_connected(w) for w in W)
