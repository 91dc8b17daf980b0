"""Traversals, passes over rows and aggregates, beside scipy."""

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse import csgraph

import krylow as kl
from krylow import _native


def graph(n=200, seed=0, p=0.02):
    upper = np.triu(np.random.default_rng(seed).random((n, n)) < p, 1)
    W = scipy.sparse.csr_array((upper | upper.T).astype(float))
    return scipy.sparse.csr_array(kl.laplacian(W).to_scipy())


def parts(L, index=np.int32):
    return L.indptr.astype(index), L.indices.astype(index), L.data


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("p", [0.005, 0.02, 0.2])
def test_components_and_distances(p, index):
    L = graph(p=p)
    crow, col, values = parts(L, index)
    order, labels, components, widest = _native.search(crow, col, values, False, 0.25)
    count, expected = csgraph.connected_components(L, directed=False)
    assert components == count
    assert len(set(zip(labels.tolist(), expected.tolist(), strict=True))) == count
    np.testing.assert_array_equal(np.sort(order), np.arange(200))
    assert (np.diff(labels[order]) >= 0).all()
    steps = csgraph.shortest_path(L != 0, unweighted=True, directed=False)
    firsts = order[np.r_[True, np.diff(labels[order]) > 0]]
    distance = steps[firsts[labels], np.arange(200)]
    for component in range(count):
        own = order[labels[order] == component]
        assert (np.diff(distance[own]) >= 0).all()
    assert widest == max(np.unique(np.c_[labels, distance], axis=0, return_counts=True)[1])
    widths, last = _native.levels(crow, col, int(firsts[0]))
    reached = steps[firsts[0]][np.isfinite(steps[firsts[0]])].astype(int)
    np.testing.assert_array_equal(widths, np.bincount(reached))
    assert steps[firsts[0], last] == reached.max()


def test_entries_of_zero_join_nothing():
    L = graph()
    values = np.where(L.data < 0, 0.0, L.data)
    assert _native.search(*parts(L)[:2], values, True, 0.25)[2] == 200
    assert _native.search(*parts(L)[:2], None, True, 0.25)[2] < 200


def test_what_rows_say():
    L = graph()
    L.data[L.indptr[5]] += 1.0
    low, high, flat, positive = _native.look(*parts(L), 8.0, 2e-16)
    diagonal, sizes = L.diagonal(), abs(L).sum(1)
    np.testing.assert_allclose((low, high), ((2 * diagonal - sizes).min(), sizes.max()))
    assert (~flat).nonzero()[0].tolist() == [5]
    x = np.random.default_rng(0).uniform(1, 2, 200)
    D = scipy.sparse.diags_array(1 / x)
    scaled = scipy.sparse.csr_array(D @ graph() @ D)
    assert _native.null_rows(*parts(scaled), x, 8.0, 2e-16)[0].all()
    assert not positive
    assert _native.look(*parts(-graph()), 8.0, 2e-16)[3]


def test_asymmetry_in_the_last_bit_is_seen():
    L = graph()
    crow, col, values = parts(L)
    assert _native.mirror_balance(crow, col, values.view(np.uint64)) == 0
    values[1] = np.nextafter(values[1], 9.0)  # the first one off the diagonal
    assert _native.mirror_balance(crow, col, values.view(np.uint64)) != 0


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("order_type", [np.int32, np.int64])
def test_permutations(order_type, threads):
    L, order = graph(), np.random.default_rng(0).permutation(200).astype(order_type)
    rows, columns, entries = np.empty(201, np.int32), np.empty(L.nnz, np.int32), np.empty(L.nnz, np.float32)
    _native.permute(*parts(L), order, rows, columns, entries, threads)
    found = scipy.sparse.csr_array((entries, columns, rows), shape=L.shape)
    assert abs(found - L[order][:, order]).max() == 0
    for dtype in (np.float32, np.float64):
        X = np.random.default_rng(1).standard_normal((200, 7)).astype(dtype)
        moved = np.empty_like(X)
        _native.scatter_rows(X, order, moved, threads)
        np.testing.assert_array_equal(moved[order], X)


def test_permutations_that_threads_share():
    n = 150_000
    L, order = scipy.sparse.eye_array(n, format="csr"), np.random.default_rng(0).permutation(n)
    L = scipy.sparse.csr_array(L + scipy.sparse.diags_array(np.arange(1.0, n), offsets=1) * 1.0)
    L = scipy.sparse.csr_array(L + L.T)
    outs = [(np.empty(n + 1, np.int32), np.empty(L.nnz, np.int32), np.empty(L.nnz)) for _ in range(2)]
    for threads, out in zip((1, 4), outs, strict=True):
        _native.permute(*parts(L), order, *out, threads)
    for one, four in zip(*outs, strict=True):
        np.testing.assert_array_equal(one, four)
    X, moved = np.random.default_rng(1).standard_normal((n, 9)), np.empty((n, 9))
    _native.scatter_rows(X, order, moved, 4)
    np.testing.assert_array_equal(moved[order], X)


def test_communities_of_cliques():
    W = scipy.sparse.csr_array(scipy.sparse.block_diag([np.ones((20, 20))] * 5))
    labels = _native.propagate(*parts(W)[:2], 6, 0.99)
    assert len(np.unique(labels)) == 5
    assert all(len(set(labels[20 * i : 20 * i + 20])) == 1 for i in range(5))


@pytest.mark.parametrize("labels_type", [np.int32, np.int64])
def test_aggregates(level, labels_type):
    L, v = graph(), np.random.default_rng(0).uniform(1, 2, 200)
    labels, count = _native.aggregate(*parts(L), 0.1, 0.0)
    assert set(labels) == set(range(count))
    touching = scipy.sparse.csr_array((np.ones(200), (np.arange(200), labels)), shape=(200, count))
    for a in range(count):  # connected
        own = np.flatnonzero(labels == a)
        assert csgraph.connected_components(L[own][:, own], directed=False)[0] == 1
    labels = labels.astype(labels_type)
    squares = np.zeros(count)
    _native.add_squares(labels, v, squares)
    np.testing.assert_allclose(squares, touching.T @ v**2)
    sizes = np.sqrt(squares)
    P = scipy.sparse.diags_array(v) @ touching @ scipy.sparse.diags_array(1 / sizes)
    expected = (P.T @ L @ P).toarray()
    rows, columns, values = _native.coarsen(*parts(L), labels, v, sizes)
    coarse = scipy.sparse.csr_array((values, columns, rows), shape=(count, count))
    assert coarse.has_canonical_format
    np.testing.assert_allclose(coarse.toarray(), expected, atol=1e-12)
    for dtype, columns in [(np.float32, 5), (np.float64, 19), (np.float64, 1)]:
        rng = np.random.default_rng(1)
        X, Z = rng.standard_normal((200, columns)).astype(dtype), rng.standard_normal((count, columns)).astype(dtype)
        noise = 20 * np.finfo(dtype).eps
        total = np.zeros((count, columns))
        _native.restrict(labels, v, sizes, X, total)
        np.testing.assert_allclose(total, P.T @ X, atol=1e-12)
        wide = np.zeros((200, columns + 3), dtype)
        _native.prolong(labels, v, sizes, Z, wide[:, 1 : columns + 1])  # part of a wider block
        np.testing.assert_allclose(wide[:, 1 : columns + 1], P @ Z, atol=noise)
        assert not wide[:, 0].any()
        assert not wide[:, columns + 1 :].any()
        changed = X.copy()
        _native.subtract(labels, v, sizes, Z, changed)
        np.testing.assert_allclose(changed, X - P @ Z, atol=noise)
    ones = np.broadcast_to(1.0, 200)  # entries that share their memory
    _native.add_squares(labels, ones, squares)
    np.testing.assert_allclose(squares, touching.T @ (v**2 + 1))


def cut_of(L, side):
    edges = L.tocoo()
    return -edges.data[side[edges.row] != side[edges.col]].sum() / 2


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("kind", ["ones", "orders", "signed"])
def test_refinement_of_a_cut(kind, index):
    rng = np.random.default_rng(0)
    L = graph(p=0.03)
    W = scipy.sparse.triu(L, 1).tocsr()
    drawn = {"ones": W.data, "orders": -(10.0 ** rng.uniform(-9, 9, W.nnz)), "signed": rng.standard_normal(W.nnz)}
    W.data = drawn[kind]
    L = scipy.sparse.csr_array(W + W.T)
    for weights in (np.ones(200), rng.integers(1, 5, 200).astype(float)):
        total, most = weights.sum(), weights.max()
        for _ in range(5):
            start = rng.integers(0, 2, 200).astype(np.uint8)
            own = weights @ (1 - start)
            side = start.copy()
            args = parts(L, index)
            before = _native.refine(*args, weights, side, own, 0.0, 0, 50)  # no pass: the cut as it is
            np.testing.assert_array_equal(side, start)
            assert before == pytest.approx(cut_of(L, side), rel=1e-12)
            after = _native.refine(*args, weights, side, own, 0.0, 8, 50)
            assert after == pytest.approx(cut_of(L, side), rel=1e-12)
            assert after < before
            assert weights @ (1 - side) == own
            again = _native.refine(*args, weights, side, own, 0.0, 8, 50)
            assert again <= after + 1e-12 * abs(after)
            _native.refine(*args, weights, side, total / 3, most / 2, 8, 50)
            assert abs(weights @ (1 - side) - total / 3) <= most / 2


def test_a_refinement_undoes_moves_that_do_not_help():
    L = scipy.sparse.csr_array(scipy.sparse.block_diag([20 * np.eye(20) - np.ones((20, 20))] * 2))
    L = L.tolil()
    L[0, 20] = L[20, 0] = -1.0
    side = np.repeat(np.array([0, 1], np.uint8), 20)
    assert _native.refine(*parts(scipy.sparse.csr_array(L)), np.ones(40), side, 20.0, 5.0, 8, 50) == 1
    assert side.tolist() == [0] * 20 + [1] * 20
    side[:] = 0  # no node is at a cut, and the sides are uneven
    assert _native.refine(*parts(scipy.sparse.csr_array(L)), np.ones(40), side, 20.0, 0.0, 8, 50) == 1
    assert side.sum() == 20


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("nodes_type", [np.int32, np.int64])
def test_the_graph_of_some_nodes(index, nodes_type):
    L = graph()
    for size in (0, 1, 70, 200):
        nodes = np.random.default_rng(size).permutation(200)[:size].astype(nodes_type)
        rows, columns, values = _native.subgraph(*parts(L, index), nodes)
        found = scipy.sparse.csr_array((values, columns, rows), shape=(size, size))
        assert abs(found - L[nodes][:, nodes]).sum() == 0
        assert rows.dtype == columns.dtype == index
