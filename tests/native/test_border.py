"""What does not fit raises ValueError or IndexError, or TypeError where it is no array; nothing is read outside."""

import contextlib
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from krylow import _native

REFUSED = (ValueError, IndexError, TypeError)
CROW, COL = np.array([0, 2, 3, 4], np.int32), np.array([0, 1, 2, 0], np.int32)


@pytest.mark.parametrize(
    ("crow", "col", "error"),
    [
        ([0, 2, 1, 4], [0, 1, 2, 0], ValueError),  # not ascending
        ([1, 2, 3, 4], [0, 1, 2, 0], ValueError),  # not from 0
        ([0, 2, 3, 5], [0, 1, 2, 0], ValueError),  # beyond the entries
        ([0, 2, 3, 3], [0, 1, 2, 0], ValueError),  # short of the entries
        ([-1, 2, 3, 4], [0, 1, 2, 0], ValueError),
        ([], [], ValueError),
        ([0, 2, 3, 4], [0, 1, 3, 0], IndexError),  # column n
        ([0, 2, 3, 4], [0, 1, -1, 0], IndexError),
        ([0, 2, 3, 4], [0, 1, 2**31 - 1, 0], IndexError),
        ([0, 2, 3, 4], [0, 1, -(2**31), 0], IndexError),
    ],
)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_rows_that_are_none(crow, col, error, index):
    crow, col = np.array(crow, index), np.array(col, index)
    with pytest.raises(error):
        _native.Pattern(crow, col)
    with pytest.raises(error):
        _native.search(crow, col, None, True, 0.25)


def test_arrays_of_another_kind():
    for crow, col in [
        (CROW.astype(np.int64), COL),
        (CROW.astype(float), COL),
        (CROW, COL.astype(np.uint32)),
        (CROW[::-1], COL),
        (CROW, np.repeat(COL, 2)[::2]),
        (CROW[None], COL),
    ]:
        with pytest.raises(ValueError):
            _native.Pattern(crow, col)
    with pytest.raises(TypeError):
        _native.Pattern([0, 1], [0])


def test_blocks_that_do_not_fit():
    P, V, X, out = _native.Pattern(CROW, COL), np.ones(4), np.ones((3, 5)), np.empty((3, 5))
    fits = {"values": V, "X": X, "Y": X.copy(), "out": out}
    _native.three_term(P, *fits.values(), 1.0, 0.0, 0.0)
    wrong = [
        {"values": np.ones(3)},
        {"values": np.ones(4, np.int8)},
        {"values": np.ones((4, 1))},
        {"X": np.ones((4, 5))},
        {"X": np.ones((3, 5), np.float16)},
        {"X": np.ones((5, 3)).T},
        {"X": np.ones(3)},
        {"X": np.ones((3, 10))[:, ::2]},
        {"Y": np.ones((3, 4))},
        {"Y": np.ones((3, 5), np.float32)},
        {"out": np.empty((2, 5))},
        {"out": np.empty((3, 5), np.float32)},
        {"out": X},  # what is read is not written
        {"out": np.broadcast_to(0.0, (3, 5))},
    ]
    for change in wrong:
        with pytest.raises(REFUSED):
            _native.three_term(P, *{**fits, **change}.values(), 1.0, 0.0, 0.0)
    for start, stop in [(-1, 2), (2, 1), (0, 4)]:
        with pytest.raises(IndexError):
            _native.exact_rows(P, V, X, start, stop, np.empty((max(0, stop - start), 5)))


def test_no_rows_and_no_columns():
    empty = np.zeros(1, np.int32), np.zeros(0, np.int32)
    P = _native.Pattern(*empty)
    _native.three_term(P, np.zeros(0), np.zeros((0, 3)), None, np.zeros((0, 3)), 1.0, 0.0, 0.0)
    _native.three_term(_native.Pattern(CROW, COL), np.ones(4), np.ones((3, 0)), None, np.ones((3, 0)), 1.0, 0.0, 0.0)
    assert _native.search(*empty, None, True, 0.25)[2] == 0
    assert _native.aggregate(*empty, np.zeros(0), 0.1, 0.0)[1] == 0
    assert _native.eliminate(*empty, np.zeros(0), 0.0, 9.0, 64)[0]
    assert _native.minimum_degree(*empty, 10)[2]


def test_labels_orders_and_trees_that_do_not_fit():
    V, ones, sizes = np.ones(4), np.ones(3), np.ones(2)
    matrix = CROW, COL, V
    for labels in ([0, 1, 2], [0, -1, 1], [0, 1]):
        labels = np.array(labels, np.int32)
        with pytest.raises(REFUSED):
            _native.coarsen(*matrix, labels, ones, sizes)
        for call, blocks in [
            (_native.restrict, (np.ones((3, 2)), np.ones((2, 2)))),
            (_native.prolong, (np.ones((2, 2)), np.ones((3, 2)))),
            (_native.subtract, (np.ones((2, 2)), np.ones((3, 2)))),
        ]:
            with pytest.raises(REFUSED):
                call(labels, ones, sizes, *blocks)
        with pytest.raises(REFUSED):
            _native.add_squares(labels, ones, np.zeros(2))
    for order in ([0, 1, 3], [0, -1, 2], [0, 0, 2], [0, 1]):
        order = np.array(order)
        with pytest.raises(REFUSED):
            _native.scatter_rows(np.ones((3, 2)), order, np.ones((3, 2)), 1)
        with pytest.raises(REFUSED):
            _native.permute(*matrix, order, np.empty(4, np.int32), np.empty(4, np.int32), np.empty(4), 1)
        with pytest.raises(REFUSED):
            _native.tree_and_counts(CROW, COL, order, order)
    passes = np.array([[0, 1, 3]], np.int32), np.ones((1, 3))
    for call in (_native.down, _native.up, _native.extend):
        with pytest.raises(IndexError):
            call(*passes, np.ones((3, 2)))
    with pytest.raises(IndexError):
        _native.inherit(passes[0], np.zeros(3, np.int64))
    with pytest.raises(IndexError):
        _native.levels(CROW, COL, 3)


def test_cuts_and_nodes_that_do_not_fit():
    V, weights, side = np.ones(4), np.ones(3), np.array([0, 1, 0], np.uint8)
    _native.refine(CROW, COL, V, weights, side, 2.0, 0.0, 2, 5)  # of no symmetric pattern, and nothing outside is read
    assert set(side) <= {0, 1}
    for own, sides in [
        (np.ones(2), side),
        (np.ones(3, np.float32), side),
        (weights, np.zeros(4, np.uint8)),
        (weights, np.zeros(3)),
        (weights, np.zeros(3, bool)),
        (weights, np.array([0, 2, 0], np.uint8)),
        (weights, np.array([0, 255, 0], np.uint8)),
        (weights, np.zeros(6, np.uint8)[::2]),
    ]:
        with pytest.raises(REFUSED):
            _native.refine(CROW, COL, V, own, sides, 2.0, 0.0, 2, 5)
    for number in (np.nan, np.inf, -np.inf):
        for values, own, target in [(V * number, weights, 1.0), (V, weights * number, 1.0), (V, weights, number)]:
            _native.refine(CROW, COL, values, own, side, target, 0.0, 2, 5)
            assert set(side) <= {0, 1}
    for nodes in ([0, 3], [-1], [1, 1], [0, 1, 2, 0]):
        with pytest.raises(REFUSED):
            _native.subgraph(CROW, COL, V, np.array(nodes))
    with pytest.raises(REFUSED):
        _native.subgraph(CROW, COL, V, np.array([0.0, 1.0]))


def test_patterns_that_are_not_symmetric_or_name_a_column_twice():
    labels, ones = np.array([0, 0, 1], np.int32), np.ones(3)
    one_way = np.array([0, 1, 2, 2], np.int32), np.array([2, 2], np.int32)
    with pytest.raises(ValueError, match="symmetric"):
        _native.coarsen(*one_way, np.ones(2), labels, ones, ones[:2])
    twice = np.array([0, 2, 3, 3], np.int32), np.array([1, 1, 0], np.int32)
    with pytest.raises(ValueError, match="ascending"):
        _native.eliminate(*twice, ones, 0.0, 9.0, 64)
    with pytest.raises(ValueError, match="twice"):
        _native.minimum_degree(*twice, 100)


def test_a_tree_of_another_matrix_is_refused():
    A = scipy.sparse.csr_array(np.ones((4, 4)) + 4 * np.eye(4))
    rows, own = (A.indptr.astype(np.int32), A.indices.astype(np.int32)), np.arange(4)
    parent, counts = _native.tree_and_counts(*rows, own, own)
    start = np.r_[0, counts.cumsum()]
    _native.factorise(*rows, A.data, own, own, parent, start)
    for tree, starts in [
        (np.full(4, -1), start),
        (np.zeros(4, np.int64), start),
        (np.full(4, 9), start),
        (own, start),
        (parent, np.zeros(5, np.int64)),
        (parent, start + 1),
        (parent, start[::-1].copy()),
        (parent, 2 * start),
    ]:
        with pytest.raises(ValueError):
            _native.factorise(*rows, A.data, own, own, tree, starts)


small = st.integers(-3, 8)


@settings(max_examples=150)
@given(st.data())
def test_malformed_rows_never_crash(data):
    """Arrays of any numbers: each kernel answers or refuses, and what it answers is of the right size."""
    index = data.draw(st.sampled_from([np.int32, np.int64]))
    n = data.draw(st.integers(0, 6))
    if data.draw(st.booleans()):  # mostly well formed
        counts = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
        crow = np.r_[0, np.cumsum(counts)].astype(index)
        column = st.integers(0, max(0, n - 1)) if data.draw(st.booleans()) else small
        col = np.array(data.draw(st.lists(column, min_size=int(crow[-1]), max_size=int(crow[-1]))), index)
    else:
        crow = np.array(data.draw(st.lists(small, max_size=7)), index)
        col = np.array(data.draw(st.lists(small, max_size=9)), index)
    values = np.linspace(-1.0, 1.0, col.size + data.draw(st.sampled_from([0, 0, 0, 1])))
    rows = max(0, crow.size - 1)
    numbers = np.array(data.draw(st.lists(small, min_size=rows, max_size=rows)), np.int64)
    place = np.argsort(numbers, kind="stable")
    ones, sizes, block = np.ones(rows), np.ones(max(1, rows // 2)), np.ones((rows, 3))
    calls = [
        lambda: _native.three_term(_native.Pattern(crow, col), values, block, None, np.empty((rows, 3)), 1.0, 1.0, 0.0),
        lambda: _native.quotients(_native.Pattern(crow, col), values, block, np.ones(3)),
        lambda: _native.look(crow, col, values, 8.0, 1e-16),
        lambda: _native.null_rows(crow, col, values, ones, 8.0, 1e-16),
        lambda: _native.search(crow, col, values, True, 0.25),
        lambda: _native.levels(crow, col, 0),
        lambda: _native.propagate(crow, col, 3, 0.9),
        lambda: _native.mirror_balance(crow, col, values.view(np.uint64)),
        lambda: _native.aggregate(crow, col, values, 0.1, 0.5),
        lambda: _native.coarsen(crow, col, values, numbers, ones, sizes),
        lambda: _native.eliminate(crow, col, values, 0.1, 9.0, 64),
        lambda: _native.minimum_degree(crow, col, 40),
        lambda: _native.tree_and_counts(crow, col, numbers, place),
        lambda: _native.tree_and_counts(crow, col, place.argsort(), place),
        lambda: _native.factorise(crow, col, values, place.argsort(), place, numbers, np.arange(rows + 1)),
        lambda: _native.scatter_rows(block, numbers, block.copy(), 1),
        lambda: _native.down(numbers[: rows // 3 * 3].reshape(-1, 3).astype(np.int32), np.ones((rows // 3, 3)), block),
    ]
    for call in calls:
        with contextlib.suppress(*REFUSED):
            call()


def test_dense_batches_that_do_not_fit():
    S, k, n = np.ones((2, 6, 6)), 2, 6
    fits = [S, np.empty((2, k)), np.empty((2, n, k)), np.zeros(2, bool), np.ones((n, 4))]
    _native.lowest(*fits, 2e-16)
    for i, wrong in [
        (0, np.ones((2, 6, 5))),
        (1, np.empty((2, 7))),
        (1, np.empty((2, 0))),
        (2, np.empty((2, n, 3))),
        (3, np.zeros(2)),
        (4, np.ones((n, 3))),
    ]:
        with pytest.raises(ValueError):
            _native.lowest(*[wrong if j == i else each for j, each in enumerate(fits)], 2e-16)
    with pytest.raises(ValueError):
        _native.gram_schmidt(S, np.empty((2, 6, 5)), np.zeros((2, 6, 6)), np.zeros((2, 6), bool), 1e-9)


def test_the_stub_names_what_is_there():
    stub = (Path(_native.__file__).parent / "_native.pyi").read_text()
    assert set(re.findall(r"^(?:def|class) (\w+)", stub, re.M)) == {
        name for name in dir(_native) if not name.startswith("_")
    }
