"""The fused sparse product beside scipy's."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse

from krylow import _native


def matrix(n=300, seed=0, entries=10):
    """Rows of any length, some empty and one long, columns in any order, repeated entries."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, entries, n)
    counts[3], counts[7] = 0, 4 * entries
    crow = np.r_[0, counts.cumsum()]
    return scipy.sparse.csr_array((rng.standard_normal(crow[-1]), rng.integers(0, n, crow[-1]), crow), shape=(n, n))


def pattern(L, index=np.int32):
    return _native.Pattern(L.indptr.astype(index), L.indices.astype(index))


def tolerance(dtype, expected):
    return 100 * np.finfo(dtype).eps * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("values", [np.float32, np.float64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 64, 65, 70, 129, 200])
def test_a_step_is_three_terms(level, columns, dtype, values, index):
    L, rng = matrix(), np.random.default_rng(1)
    X, Y = rng.standard_normal((2, 300, columns)).astype(dtype)
    P, V = pattern(L, index), L.data.astype(values)
    product = scipy.sparse.csr_array((V.astype(float), L.indices, L.indptr), shape=L.shape) @ X.astype(float)
    out = np.full_like(X, np.nan)
    _native.three_term(P, V, X, None, out, 1.0, 0.0, 0.0)
    np.testing.assert_allclose(out, product, rtol=0, atol=tolerance(dtype, product))
    expected = 2 * product - 0.5 * X + 0.25 * Y
    _native.three_term(P, V, X, Y, out, 2.0, -0.5, 0.25)
    np.testing.assert_allclose(out, expected, rtol=0, atol=tolerance(dtype, expected))
    _native.three_term(P, V, X, Y, Y, 2.0, -0.5, 0.25)
    np.testing.assert_array_equal(Y, out)


@pytest.mark.parametrize("far", [True, False])
@pytest.mark.parametrize("columns", [1, 5, 70])
def test_neighbours_far_and_near_in_memory(level, far, columns):
    n, rng = 30_000, np.random.default_rng(0)
    rows = np.arange(n).repeat(3)
    neighbours = rng.integers(0, n, rows.size) if far else (rows + rng.integers(-9, 9, rows.size)) % n
    L = scipy.sparse.csr_array((rng.standard_normal(rows.size), (rows, neighbours)), shape=(n, n))
    X = rng.standard_normal((n, columns))
    out = np.empty_like(X)
    _native.three_term(pattern(L), L.data, X, None, out, 1.0, 0.0, 0.0)
    np.testing.assert_allclose(out, L @ X, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 6, 40])
def test_rows_in_double_precision(level, dtype, columns):
    L, rng = matrix(), np.random.default_rng(1)
    X = rng.standard_normal((300, columns)).astype(dtype)
    out = np.empty((90, columns))
    _native.exact_rows(pattern(L), L.data, X, 10, 100, out)
    np.testing.assert_allclose(out, (L @ X.astype(float))[10:100], rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [1, 300, 20_000])
def test_quotients(level, n):
    L, rng = matrix(n) if n > 7 else scipy.sparse.csr_array([[2.0]]), np.random.default_rng(1)
    X, near = rng.standard_normal((n, 9)), rng.standard_normal(9)
    rest = L @ X - X * near
    products, squares = _native.quotients(pattern(L), L.data, X, near)
    np.testing.assert_allclose(products, (rest * X).sum(0), rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(squares, (rest * rest).sum(0), rtol=1e-12)


def steps(L, X, threads):
    out = np.empty_like(X)
    _native.three_term(pattern(L), L.data.astype(X.dtype), X, X.copy(), out, 2.0, -0.5, 0.25, threads)
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_bits_do_not_depend_on_the_threads(dtype):
    L, rng = matrix(50_000), np.random.default_rng(0)
    X = rng.standard_normal((50_000, 32)).astype(dtype)
    one, near = steps(L, X, 1), rng.standard_normal(32)
    alone = _native.quotients(pattern(L), L.data, X, near, 1)
    for threads in (2, 3, 8):
        np.testing.assert_array_equal(steps(L, X, threads), one)
        np.testing.assert_array_equal(_native.quotients(pattern(L), L.data, X, near, threads), alone)
    with ThreadPoolExecutor(4) as pool:  # several callers share the threads
        for answer in pool.map(lambda _: steps(L, X, 3), range(12)):
            np.testing.assert_array_equal(answer, one)


def test_the_bits_are_the_same_where_neighbours_are_near_in_one_half_and_far_in_the_other():
    n, entries = 300_000, 20  # compilers vectorise sums of so many, and only those of neighbours that are near
    rng, half = np.random.default_rng(0), np.arange(n // 2)
    near, far = half[:, None] + np.arange(entries), rng.integers(0, n, (n // 2, entries))
    crow, col = np.arange(0, entries * n + 1, entries), np.concatenate([near.ravel(), far.ravel()])
    L = scipy.sparse.csr_array((rng.standard_normal(entries * n), col, crow), shape=(n, n))
    for dtype in (np.float32, np.float64):
        X = rng.standard_normal((n, 1)).astype(dtype)
        np.testing.assert_array_equal(steps(L, X, 2), steps(L, X, 1))


def _in_a_child(connection):
    L, X = matrix(50_000), np.random.default_rng(0).standard_normal((50_000, 32))
    connection.send(steps(L, X, 2).sum())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_makes_threads_of_its_own():
    L, X = matrix(50_000), np.random.default_rng(0).standard_normal((50_000, 32))
    expected = steps(L, X, 2).sum()
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=_in_a_child, args=(theirs,), daemon=True)
    child.start()
    assert ours.poll(60)
    assert ours.recv() == expected
    child.join()
    assert child.exitcode == 0
