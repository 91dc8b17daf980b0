import copy
import pickle

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.operators import SparseOperator
from krylow.testing import random_graph, rounding

F32, F64 = torch.float32, torch.float64


def uneven(n=300, seed=0):
    """Rows of very different lengths, empty ones among them."""
    rng = np.random.default_rng(seed)
    W = scipy.sparse.random_array((n, n), density=0.03, rng=rng, format="lil")
    W[7] = rng.standard_normal(n)
    keep = scipy.sparse.diags_array((np.arange(n) % 5 != 0).astype(float))
    return scipy.sparse.csr_array(keep @ (W + W.T) @ keep)


def operator(matrix, dtype=F64, index=torch.int64):
    crow, col = (torch.from_numpy(part).to(index) for part in (matrix.indptr, matrix.indices))
    return SparseOperator(crow, col, torch.from_numpy(matrix.data).to(dtype))


def gaussian(*shape, dtype=F64, seed=1):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def close_to_the_step(found, L, X, Y):
    """Compare with 2 L X - X / 2 + Y / 4 by scipy, in float64."""
    expected = 2 * (L @ X.double().numpy()) - 0.5 * X.double().numpy() + 0.25 * Y.double().numpy()
    noise = rounding(X.dtype, 10, np.abs(expected).max())
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=noise)


def test_from_coo_takes_any_order_and_adds_up():
    row, col = torch.tensor([2, 0, 1, 0, 2]), torch.tensor([0, 2, 1, 2, 0])
    values = torch.tensor([1.0, 1.0, 5.0, 2.0, 2.0], requires_grad=True)
    L = SparseOperator.from_coo(row, col, values, 3)
    assert L.to_dense().tolist() == [[0, 0, 3], [0, 5, 0], [3, 0, 0]]
    assert L.values.numel() == 3
    L.to_dense()[0, 2].backward()
    assert values.grad.tolist() == [0, 1, 0, 1, 0]


def test_rows_pointers_and_diagonal():
    matrix = scipy.sparse.csr_array(random_graph(8, seed=0).numpy() + np.diag(np.arange(8.0)))
    L = SparseOperator.from_matrix(matrix)
    np.testing.assert_array_equal(L.crow, matrix.indptr)
    np.testing.assert_array_equal(L.col, matrix.indices)
    np.testing.assert_array_equal(L.row, matrix.tocoo().row)
    np.testing.assert_array_equal(L.diagonal(), matrix.diagonal())


def test_an_empty_graph_multiplies_to_zero():
    L = kl.laplacian(scipy.sparse.csr_array((5, 5)))
    assert (L @ torch.ones(5, 2, dtype=F64) == 0).all()
    assert [float(b) for b in L.gershgorin()] == [0, 0]


def test_bounds_are_the_dense_ones():
    for signed in (False, True):
        W = random_graph(12, seed=1, signed=signed)
        dense, sparse = kl.laplacian(W), kl.laplacian(scipy.sparse.csr_array(W.numpy()))
        torch.testing.assert_close(sparse.gershgorin(), dense.gershgorin())


def test_the_gradient_has_the_matrix_places_only():
    """A graph whose dense gradient would not fit: 100,000 nodes."""
    n = 100_000
    ring = torch.arange(n)
    edge_index = torch.stack([torch.cat([ring, ring.roll(1)]), torch.cat([ring.roll(1), ring])])
    weight = torch.ones(2 * n, dtype=F64, requires_grad=True)
    L = kl.laplacian((edge_index, weight))
    x = torch.randn(n, 1, dtype=F64, generator=torch.Generator().manual_seed(0))
    (x.mT @ (L @ x)).sum().backward()
    i, j = edge_index  # d/dw_ij of sum_ij w_ij x_i (x_i - x_j)
    expected = (x[i] * (x[i] - x[j]))[:, 0]
    torch.testing.assert_close(weight.grad, expected)


@pytest.mark.parametrize("columns", [1, 2, 8, 15, 16, 17, 31, 32, 33, 64, 65, 100])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_a_step_of_every_width(columns, dtype):
    matrix = uneven()
    L, X, Y = operator(matrix, dtype), gaussian(300, columns, dtype=dtype), gaussian(300, columns, dtype=dtype, seed=2)
    close_to_the_step(L.three_term(X, Y, 2.0, -0.5, 0.25), matrix, X, Y)
    before = Y.clone()
    assert L.three_term(X, Y, 2.0, -0.5, 0.25, out=Y) is Y
    close_to_the_step(Y, matrix, X, before)
    assert L.products == 2 * columns


@pytest.mark.parametrize("columns", [5, 8, 70])
@pytest.mark.parametrize("far", [True, False])
def test_neighbours_far_and_near_in_memory(far, columns):
    n, rng = 2**21 // columns, np.random.default_rng(0)
    rows = np.arange(n).repeat(3)
    columns_of = rng.integers(0, n, rows.size) if far else (rows + rng.integers(-9, 9, rows.size)) % n
    matrix = scipy.sparse.csr_array((rng.standard_normal(rows.size), (rows, columns_of)), shape=(n, n))
    X, Y = gaussian(n, columns), gaussian(n, columns, seed=2)
    close_to_the_step(operator(matrix).three_term(X, Y, 2.0, -0.5, 0.25), matrix, X, Y)


def test_long_indices_give_the_same_bits():
    X, Y = gaussian(300, 20), gaussian(300, 20, seed=2)
    first, second = (operator(uneven(), index=kind).three_term(X, Y, 2.0, -0.5) for kind in (torch.int32, torch.int64))
    assert torch.equal(first, second)


@pytest.mark.parametrize("columns", [1, 40])
def test_threads_give_the_same_bits(monkeypatch, columns):
    matrix = scipy.sparse.random_array((2000, 2000), density=0.6, format="csr", rng=np.random.default_rng(0))
    L, X = operator(matrix), gaussian(2000, columns)  # millions of entries: enough for two threads
    alone = L @ X
    for threads in (2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert torch.equal(L @ X, alone)


def test_terms_that_are_left_out_are_not_read():
    X = torch.ones(300, 4, dtype=F64)
    X[0] = torch.inf  # row and column 0 are empty
    torch.testing.assert_close(operator(uneven()) @ X, operator(uneven()) @ torch.ones(300, 4, dtype=F64))


def test_blocks_that_are_not_contiguous():
    L = operator(uneven())
    X, out = gaussian(4, 300).mT, torch.zeros(4, 300, dtype=F64).mT
    assert L.three_term(X, None, 1.0, 0.5, out=out) is out
    torch.testing.assert_close(out, L.to_dense() @ X + 0.5 * X)
    stacked = gaussian(3, 300, 4)
    torch.testing.assert_close(L.three_term(stacked, stacked, 1.0, 0.5, 1.0), L.to_dense() @ stacked + 1.5 * stacked)


def test_a_step_records_a_gradient():
    L, X = operator(uneven()), torch.ones(300, 4, dtype=F64, requires_grad=True)
    L.three_term(X, None, 2.0, 1.0).sum().backward()
    torch.testing.assert_close(X.grad, 2 * L.to_dense().sum(0)[:, None].expand(300, 4) + 1)


def test_another_precision_shares_the_indices():
    L = operator(uneven())
    L.host_indices()
    half = L.float()
    assert half.dtype == F32
    assert half.host_indices()[1] is L.host_indices()[1]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda L: pickle.loads(pickle.dumps(L))])
def test_copies_and_pickles_multiply_alike(again):
    L, X = operator(uneven()), gaussian(300, 4)
    before = L @ X
    assert torch.equal(again(L) @ X, before)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_quotients_and_residuals_of_unit_vectors(dtype):
    L = operator(uneven(), dtype)
    X = torch.linalg.qr(gaussian(300, 20)).Q
    image = torch.from_numpy(L.double().to_scipy() @ X.numpy())
    theta = (X * image).sum(0)
    for near in (torch.zeros(20, dtype=F64), theta + 1e-3):
        found, residuals = L.quotients(X, near)
        torch.testing.assert_close(found, theta, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(residuals, (image - theta * X).norm(dim=0), rtol=1e-9, atol=0)
    assert L.products == 40


@pytest.mark.parametrize("columns", [1, 2, 5, 8, 31, 70])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_rows_of_a_product_are_float64_whatever_its_factors_are(dtype, columns):
    L, X = operator(uneven(), dtype), gaussian(300, columns, dtype=F32)
    expected = L.double().to_scipy() @ X.double().numpy()
    rows, buffer = L.exact_rows(X), np.full((93, columns), np.nan)
    rows(7, 100, buffer)
    np.testing.assert_allclose(buffer, expected[7:100], rtol=1e-14, atol=1e-13)
    assert (L.products, L.passes) == (columns, 1)


def test_bounds_by_hand():
    L = operator(scipy.sparse.csr_array([[3.0, -1.0, 0.5], [-1.0, 2.0, 0.0], [0.5, 0.0, -4.0]]))
    assert [float(bound) for bound in L.gershgorin()] == [-4.5, 4.5]
    zero, positive = L.null_rows()
    assert not zero.any()
    assert positive
    L.values *= 2  # in place: what was known before holds no longer
    assert [float(bound) for bound in L.gershgorin()] == [-9, 9]


def test_rows_that_are_null_up_to_rounding():
    W = np.array([[0.0, 0.1, 0.2, 0.0], [0.1, 0.0, 0.7, 0.0], [0.2, 0.7, 0.0, 0.3], [0.0, 0.0, 0.3, 0.0]])
    matrix, ones = np.diag(W.sum(1)) - W, np.ones(4)
    for x in (None, ones):
        zero, positive = operator(scipy.sparse.csr_array(matrix)).null_rows(x)
        assert zero.all()
        assert not positive
    matrix[1, 1] += 1e-9
    matrix[0, 3] = matrix[3, 0] = 1e-30
    scale = np.array([1.0, 2.0, 3.0, 4.0])
    for L, x in ((matrix, None), (matrix, ones), (matrix / scale, scale)):
        zero, positive = operator(scipy.sparse.csr_array(L)).null_rows(x)
        assert zero.tolist() == [True, False, True, True]
        assert positive


def test_entries_at_the_same_place_stay_where_they_are():
    crow, col = torch.tensor([0, 2, 3]), torch.tensor([0, 0, 1])
    L = SparseOperator(crow, col, torch.tensor([60.0, 60.0, 1.0]))
    assert float(L.gershgorin()[1]) == 120
    assert L.diagonal().tolist() == [120, 1]
    assert col.tolist() == [0, 0, 1]
