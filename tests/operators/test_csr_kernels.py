"""The compiled product against scipy's in float64."""

import numpy as np
import pytest
import scipy.sparse
import torch

from krylow._kernels import available, csr
from krylow.operators import SparseOperator, csr_kernels
from krylow.testing import rounding

pytestmark = pytest.mark.skipif(not available(), reason="needs numba (pip install .[large])")


def matrix(n=300, seed=0, density=0.03):
    """Rows of very different lengths, empty ones among them."""
    rng = np.random.default_rng(seed)
    W = scipy.sparse.random_array((n, n), density=density, rng=rng, format="lil")
    W[7] = rng.standard_normal(n)
    L = scipy.sparse.csr_array(W + W.T)
    keep = scipy.sparse.diags_array((np.arange(n) % 5 != 0).astype(float))
    return scipy.sparse.csr_array(keep @ L @ keep)


def step(L, X, Y, dtype, index, out=None, a=2.0, b=-0.5, c=0.25):
    out = np.full_like(X, np.nan) if out is None else out
    csr_kernels.three_term(L.indptr.astype(index), L.indices.astype(index), L.data.astype(dtype), X, Y, a, b, c, out)
    return out


@pytest.mark.parametrize("columns", [1, 2, 8, 15, 16, 17, 31, 32, 33, 64, 65, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_width(columns, dtype):
    L, rng = matrix(), np.random.default_rng(1)
    X, Y = (rng.standard_normal((300, columns)).astype(dtype) for _ in range(2))
    expected = 2 * (L @ X.astype(float)) - 0.5 * X + 0.25 * Y
    noise = rounding(torch.float32 if dtype == np.float32 else torch.float64, 10, np.abs(expected).max())
    np.testing.assert_allclose(step(L, X, Y, dtype, np.int32), expected, rtol=0, atol=noise)
    np.testing.assert_allclose(step(L, X, Y, dtype, np.int32, out=Y), expected, rtol=0, atol=noise)


@pytest.mark.parametrize("columns", [5, 8, 70])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("far", [True, False])
def test_neighbours_far_and_near_in_memory(far, dtype, columns):
    n, rng = 10 * csr.FAR // (columns * np.dtype(dtype).itemsize), np.random.default_rng(0)
    if columns > 8:
        n = 10 * csr.FAR // (csr.GROUP * csr.VECTOR_BITS // 8)
    rows = np.arange(n).repeat(3)
    columns_of = rng.integers(0, n, rows.size) if far else (rows + rng.integers(-9, 9, rows.size)) % n
    L = scipy.sparse.csr_array((rng.standard_normal(rows.size), (rows, columns_of)), shape=(n, n))
    X, Y = (rng.standard_normal((n, columns)).astype(dtype) for _ in range(2))
    out = step(L, X, Y, dtype, np.int32)  # which compiles what is asked next, too
    assert csr._far(L.indptr, L.indices, X, 0, n) == far
    expected = 2 * (L @ X.astype(float)) - 0.5 * X + 0.25 * Y
    noise = rounding(torch.float32 if dtype == np.float32 else torch.float64, 10, np.abs(expected).max())
    np.testing.assert_allclose(out, expected, rtol=0, atol=noise)


def test_long_indices_give_the_same_bits():
    L, rng = matrix(), np.random.default_rng(1)
    X, Y = rng.standard_normal((2, 300, 20))
    np.testing.assert_array_equal(step(L, X, Y, float, np.int64), step(L, X, Y, float, np.int32))


def test_rows_outside_the_range_are_left_alone():
    L, rng = matrix(), np.random.default_rng(1)
    X, Y, out = rng.standard_normal((3, 300, 70))
    compiled = csr.three_term
    written = out.copy()
    compiled(L.indptr, L.indices, L.data, X, Y, written, 2.0, -0.5, 0.25, True, True, 10, 200)
    np.testing.assert_array_equal(written[:10], out[:10])
    np.testing.assert_array_equal(written[200:], out[200:])
    expected = (2 * (L @ X) - 0.5 * X + 0.25 * Y)[10:200]
    np.testing.assert_allclose(written[10:200], expected, atol=1e-11)


def test_terms_that_are_left_out_are_not_read():
    L = matrix()
    X = np.ones((300, 4))
    X[0] = np.inf  # row and column 0 are empty
    Y = step(L, X, None, float, np.int32, a=1.0, b=0.0)
    np.testing.assert_allclose(Y, L @ np.ones((300, 4)), atol=1e-12)


def test_threads_give_the_same_bits(monkeypatch):
    L, rng = matrix(), np.random.default_rng(1)
    X, Y = rng.standard_normal((2, 300, 40))
    alone = step(L, X, Y, float, np.int32)
    monkeypatch.setattr(csr_kernels, "WORK_PER_THREAD", 1)
    for threads in (2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        np.testing.assert_array_equal(step(L, X, Y, float, np.int32), alone)


def test_no_entries():
    L = scipy.sparse.csr_array((5, 5))
    X = np.ones((5, 3))
    np.testing.assert_array_equal(step(L, X, X, float, np.int32), -0.25 * X)


def test_which_kernel():
    assert csr_kernels.kernel_in_use(torch.float32, 32) == "numba"
    assert csr_kernels.kernel_in_use(torch.float64, 1) == "scipy"
    assert csr_kernels.kernel_in_use(torch.float64, 32, "cuda") == "torch"


def operator(dtype=torch.float64, index=torch.int64):
    L = matrix()
    crow, col = (torch.from_numpy(part).to(index) for part in (L.indptr, L.indices))
    return SparseOperator(crow, col, torch.from_numpy(L.data).to(dtype))


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [1, 5, 32])
def test_the_operator_gives_the_same_answer_by_every_kernel(monkeypatch, dtype, index, columns):
    L = operator(dtype, index)
    X = torch.randn(300, 2 * columns, dtype=dtype, generator=torch.Generator().manual_seed(0))[:, ::2]
    Y = X.flip(0)
    plain = L @ X, L.three_term(X, Y, 2.0, -0.5, 0.25)
    monkeypatch.setattr(csr_kernels, "LEAST_WORK", 0)
    compiled = L @ X, L.three_term(X, Y, 2.0, -0.5, 0.25)
    monkeypatch.setattr("krylow._kernels.available", lambda: False)
    scipys = L @ X, L.three_term(X, Y, 2.0, -0.5, 0.25)
    for other in (compiled, scipys):
        for answer, expected in zip(other, plain, strict=True):
            noise = rounding(dtype, 10, float(expected.abs().max()))
            torch.testing.assert_close(answer, expected, rtol=0, atol=noise)
            assert answer.dtype == dtype
    assert L.products == 6 * columns


def test_blocks_that_are_not_contiguous(monkeypatch):
    monkeypatch.setattr(csr_kernels, "LEAST_WORK", 0)
    L = operator()
    X = torch.randn(4, 300, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).mT
    out = torch.zeros(4, 300, dtype=torch.float64).mT
    assert L.three_term(X, None, 1.0, 0.5, out=out) is out
    torch.testing.assert_close(out, L.to_dense() @ X + 0.5 * X)
    stacked = torch.randn(3, 300, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(L.three_term(stacked, stacked, 1.0, 0.5, 1.0), L.to_dense() @ stacked + 1.5 * stacked)


def test_a_gradient_is_recorded_whatever_the_size(monkeypatch):
    monkeypatch.setattr(csr_kernels, "LEAST_WORK", 0)
    L = operator()
    X = torch.ones(300, 4, dtype=torch.float64, requires_grad=True)
    L.three_term(X, None, 2.0, 1.0).sum().backward()
    expected = 2 * L.to_dense().sum(0)[:, None].expand(300, 4) + 1
    torch.testing.assert_close(X.grad, expected)


def test_values_in_float32_and_their_shared_indices():
    L = operator()
    L.host_indices()
    half = L.float()
    assert half.dtype == torch.float32
    assert half.host_indices()[1] is L.host_indices()[1]


@pytest.mark.parametrize("compiled", [True, False])
def test_quotients_and_residuals_of_unit_vectors(monkeypatch, compiled):
    rng = np.random.default_rng(0)
    W = scipy.sparse.random_array((3000, 3000), density=0.003, rng=rng)
    A = scipy.sparse.csr_array(W + W.T)
    A.indices, A.indptr = A.indices.astype(np.int32), A.indptr.astype(np.int32)
    L = SparseOperator(*(torch.from_numpy(part) for part in (A.indptr, A.indices, A.data)))
    X = torch.from_numpy(np.linalg.qr(rng.standard_normal((3000, 20)))[0])
    if not compiled:
        monkeypatch.setattr("krylow._kernels.available", lambda: False)
    Y = torch.from_numpy(A @ X.numpy())
    theta = (X * Y).sum(0)
    for near in (torch.zeros(20).double(), theta + 1e-3):
        found, residuals = L.quotients(X, near)
        torch.testing.assert_close(found, theta)
        torch.testing.assert_close(residuals, (Y - theta * X).norm(dim=0))
    assert L.products == 40


@pytest.mark.parametrize("columns", [2, 5, 8, 31, 70])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_a_product_are_float64_whatever_its_factors_are(dtype, columns, monkeypatch):
    monkeypatch.setattr(csr_kernels, "LEAST_WORK", 0)
    M = matrix()
    L = SparseOperator(*(torch.from_numpy(part) for part in (M.indptr, M.indices, M.data))).like(
        torch.from_numpy(M.data).to(dtype)
    )
    X = torch.randn(300, columns, generator=torch.Generator().manual_seed(0))
    expected = L.double().to_scipy() @ X.double().numpy()
    rows, room = L.exact_rows(X), np.full((93, columns), np.nan)
    rows(7, 100, room)
    np.testing.assert_allclose(room, expected[7:100], rtol=1e-14, atol=1e-13)
    assert (L.products, L.passes) == (columns, 1)
    assert L.exact_rows(X.mT.contiguous().mT) is None


@pytest.mark.parametrize("work", [0, 10**9], ids=["compiled", "plain"])
def test_quotients_of_a_block_in_float64_on_an_operator_in_float32(work, monkeypatch):
    monkeypatch.setattr(csr_kernels, "LEAST_WORK", work)
    M = matrix()
    L = SparseOperator(*(torch.from_numpy(part) for part in (M.indptr, M.indices, M.data))).float()
    X = torch.linalg.qr(torch.randn(300, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).Q
    image = torch.from_numpy(L.double().to_scipy() @ X.numpy())
    found, residuals = L.quotients(X, torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(found, (X * image).sum(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(residuals, torch.linalg.vector_norm(image - X * found, dim=0), rtol=1e-9, atol=0)
