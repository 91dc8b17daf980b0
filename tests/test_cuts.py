"""Fiedler pairs and partitions of graphs whose cuts are known, and against a count of the cut edges."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.spatial
import torch

import krylow as kl
from krylow.operators import SparseOperator
from krylow.testing import block_diagonal, complete, cycle, grid, path, random_graph, star


def test_the_fiedler_pair_of_a_path_is_a_cosine():
    n = 12
    value, vector = kl.fiedler(kl.laplacian(path(n)))
    assert value == pytest.approx(2 - 2 * math.cos(math.pi / n))
    cosine = torch.cos(math.pi * (torch.arange(n) + 0.5) / n).double()
    torch.testing.assert_close(vector, cosine / cosine.norm())


def test_a_repeated_value_is_said():
    found = kl.fiedler(kl.laplacian(complete(5)))
    assert found.value == pytest.approx(5.0)
    assert found.status == kl.Status.NO_GAP
    assert found.connected


@pytest.mark.parametrize("kind", ["combinatorial", "normalized"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_graph_in_two_pieces_has_value_zero_and_a_vector_that_tells_them_apart(kind, sparse):
    W = block_diagonal(star(4), cycle(3))
    L = kl.laplacian(W.to_sparse() if sparse else W, kind)
    found = kl.fiedler(L)
    assert not found.connected
    assert found.value == 0
    assert "not connected" in repr(found)
    torch.testing.assert_close(L @ found.vector, torch.zeros(7, dtype=W.dtype))
    assert float(found.vector[:4].max()) * float(found.vector[4:].max()) < 0
    if kind == "combinatorial" or sparse:
        trivial = torch.ones(7) if kind == "combinatorial" else W.sum(-1).sqrt()
        assert abs(float(found.vector @ trivial.to(W.dtype))) < 1e-12


def test_a_long_path_is_connected_though_its_value_is_tiny():
    n = 20_000
    index = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    found = kl.fiedler(kl.laplacian(torch.cat([index, index.flip(0)], 1)))
    assert found.connected
    assert 0 < float(found.value) < 1e-7


def test_a_batch_is_a_loop():
    graphs = [random_graph(8, seed=1), block_diagonal(path(3), path(3)), path(5)]
    batch = kl.fiedler(kl.laplacian(graphs))
    for i, W in enumerate(graphs):
        one = kl.fiedler(kl.laplacian(W))
        torch.testing.assert_close(batch.value[i], one.value)
        assert bool(batch.connected[i]) == bool(one.connected)
        torch.testing.assert_close(batch.vector[i, : len(W)].abs(), one.vector.abs())


def cut_of(W, labels):
    apart = labels[:, None] != labels
    return float((W * apart).sum() / 2)


@pytest.mark.parametrize("method", ["bisection", "kmeans"])
def test_cliques_joined_by_a_wire_are_the_parts(method):
    W = block_diagonal(complete(6), complete(6), complete(6), complete(6))
    for i in (5, 11, 17):
        W[i, i + 1] = W[i + 1, i] = 0.1
    found = kl.partition(kl.laplacian(W), 4, method=method)
    assert found.cut == pytest.approx(0.3)
    assert found.sizes.tolist() == [6] * 4
    assert found.balance == 1
    assert all(len(part.unique()) == 1 for part in found.labels.reshape(4, 6))


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 8])
def test_bisection_is_balanced_and_reports_the_cut_of_its_labels(parts):
    W = grid(9, 13)
    found = kl.partition(kl.laplacian(W.to_sparse()), parts)
    assert found.cut == pytest.approx(cut_of(W, found.labels))
    assert found.sizes.tolist() == np.bincount(found.labels.numpy(), minlength=parts).tolist()
    assert int(found.sizes.max() - found.sizes.min()) <= math.ceil(math.log2(parts + 1))
    if parts == 2:
        assert found.cut == 10  # along the shorter side of 9, with one step since 117 nodes are odd


@pytest.mark.parametrize("columns", [40, 80])
def test_a_grid_is_cut_nearly_along_its_shorter_side(columns):
    found = kl.partition(kl.laplacian(grid(40, columns).to_sparse()), 2)
    assert 40 <= found.cut <= 1.25 * 40
    assert found.balance == 1


def test_a_bisection_of_few_nodes_is_the_best_one_of_all_or_nearly():
    for seed in range(20):
        W = random_graph(10, seed=seed)
        found = kl.partition(kl.laplacian(W), 2)
        sides = itertools.combinations(range(10), 5)
        best = min(cut_of(W, torch.isin(torch.arange(10), torch.tensor(side))) for side in sides)
        assert best * (1 - 1e-12) <= found.cut <= 1.1 * best


def random_rows(n, edges, weights, seed=0):
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, n, (2, edges))
    W = sp.coo_array((weights(rng, edges) * (i != j), (i, j)), shape=(n, n)).tocsr()
    return W + W.T


HARD = {
    "weights of both signs": random_rows(1500, 4000, lambda rng, m: rng.standard_normal(m)),
    "weights of many orders": random_rows(1500, 4000, lambda rng, m: 10.0 ** rng.uniform(-12, 12, m)),
    "many components": random_rows(1500, 700, lambda rng, m: np.ones(m)),
    "one large component": random_rows(1500, 1500, lambda rng, m: np.ones(m)),
    "a star": sp.csr_array(star(1500).numpy()),
    "all pairs": sp.csr_array(complete(300).numpy()),
    "no edges": sp.csr_array((1500, 1500)),
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("parts", [2, 7, 64])
def test_any_graph_is_divided_evenly(name, parts):
    W = HARD[name]
    L = SparseOperator.from_matrix(sp.diags_array(W.sum(1)) - W, psd=False)
    found = kl.partition(L, parts)
    edges, labels = W.tocoo(), found.labels.numpy()
    apart = edges.data[labels[edges.row] != labels[edges.col]]
    assert found.cut == pytest.approx(apart.sum() / 2, rel=1e-12, abs=1e-14 * np.abs(apart).sum())
    np.testing.assert_array_equal(found.sizes, np.bincount(labels, minlength=parts))
    assert int(found.sizes.max() - found.sizes.min()) <= math.ceil(math.log2(parts + 1))
    drawn = np.random.default_rng(0).permutation(np.arange(len(labels)) * parts // len(labels))
    assert found.cut <= edges.data[drawn[edges.row] != drawn[edges.col]].sum() / 2


def test_the_order_of_the_nodes_makes_little_difference():
    points = np.random.default_rng(0).random((3000, 2))
    near = scipy.spatial.cKDTree(points).query(points, 7)[1][:, 1:]
    A = sp.coo_array((np.ones(near.size), (np.repeat(np.arange(3000), 6), near.ravel())), shape=(3000, 3000)).tocsr()
    W = A.maximum(A.T)
    cuts = []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(3000)
        cuts.append(kl.partition(kl.laplacian(W[order][:, order]), 4).cut)
    assert max(cuts) <= 1.3 * min(cuts)


def test_components_are_kept_whole_where_they_fit():
    W = block_diagonal(cycle(4), complete(5), path(4), complete(5))
    assert kl.partition(kl.laplacian(W), 2).cut == 0
    alone = kl.partition(kl.laplacian(torch.zeros(4, 4)), 3)
    assert (alone.cut, sorted(alone.sizes.tolist())) == (0, [1, 1, 2])


def test_every_node_may_be_a_part_of_its_own():
    assert sorted(kl.partition(kl.laplacian(cycle(5)), 5).labels.tolist()) == [0, 1, 2, 3, 4]


def test_what_is_refused():
    with pytest.raises(kl.InputError, match="parts"):
        kl.partition(kl.laplacian(path(3)), 4)
    with pytest.raises(kl.InputError, match="one graph"):
        kl.partition(kl.laplacian([path(3), path(4)]), 2)
    with pytest.raises(kl.InputError, match="method"):
        kl.partition(kl.laplacian(path(3)), 2, method="metis")
    with pytest.raises(kl.InputError, match="two nodes"):
        kl.fiedler(kl.laplacian(torch.zeros(1, 1)))
