"""What every operator must do. Adding an operator is adding a row to ``ROWS``."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.linalg import aslinearoperator
from torch.autograd import gradcheck

from krylow import InputError, laplacian, operators
from krylow.graph import as_operator
from krylow.operators import DenseOperator, DiagonalOperator, FunctionOperator, SparseOperator
from krylow.testing import laplacian_matrix, random_graph, rounding

N = 9
F32, F64 = torch.float32, torch.float64


@dataclass(frozen=True)
class Row:
    """``build(matrix)`` makes the operator; ``matrix(dtype)`` is what it must be."""

    build: Callable
    batch: tuple[int, ...] = ()
    diagonal: bool = False

    def matrix(self, dtype=F64):
        items = int(np.prod(self.batch))
        L = torch.stack([laplacian_matrix(random_graph(N, seed=i, signed=i % 2 == 1)) for i in range(items)])
        L = L.reshape(*self.batch, N, N)
        if self.diagonal:
            L = torch.diag_embed(torch.linalg.eigvalsh(L))
        return L.to(dtype)


def function(matrix):
    return FunctionOperator(
        lambda X: matrix @ X, N, batch_shape=tuple(matrix.shape[:-2]), dtype=matrix.dtype, parameters=(matrix,)
    )


def csr(matrix):
    row, col = matrix.detach().nonzero(as_tuple=True)
    return SparseOperator.from_coo(row, col, matrix[row, col], N)


ROWS = {
    "dense": Row(DenseOperator),
    "dense batch": Row(DenseOperator, (3,)),
    "dense batch of batches": Row(DenseOperator, (2, 2)),
    "sparse": Row(csr),
    "function": Row(function),
    "function batch": Row(function, (3,)),
    "diagonal": Row(lambda m: DiagonalOperator(m.diagonal(dim1=-2, dim2=-1)), diagonal=True),
    "diagonal batch": Row(lambda m: DiagonalOperator(m.diagonal(dim1=-2, dim2=-1)), (3,), diagonal=True),
    "random walk": Row(lambda m: operators.RandomWalkOperator(DenseOperator(m), m.new_ones(m.shape[:-1]))),
    "random walk batch": Row(lambda m: operators.RandomWalkOperator(DenseOperator(m), m.new_ones(m.shape[:-1])), (3,)),
    "scipy LinearOperator": Row(lambda m: as_operator(aslinearoperator(m.detach().numpy()))),
}
DIFFERENTIABLE = [name for name in ROWS if name != "scipy LinearOperator"]


@pytest.fixture(params=list(ROWS))
def row(request):
    return ROWS[request.param]


@pytest.fixture(params=[F32, F64], ids=["float32", "float64"])
def dtype(request):
    return request.param


def block(row, columns, dtype=F64):
    return torch.randn(*row.batch, N, columns, dtype=dtype, generator=torch.Generator().manual_seed(4))


def test_every_operator_has_a_row():
    """Walks on graphs of equal degrees are symmetric; others, and complex matrices, are in ``test_similar.py``."""
    built = {type(row.build(row.matrix())) for row in ROWS.values()}
    built |= {operators.SimilarOperator, operators.MagneticOperator}
    public = {getattr(operators, name) for name in operators.__all__} - {operators.Operator}
    assert built == public


@pytest.mark.parametrize("columns", [1, 2, 7])
def test_product_is_the_matrix_product(row, dtype, columns):
    matrix, X = row.matrix(dtype), block(row, columns, dtype)
    Y = row.build(matrix) @ X
    expected = matrix.double().numpy() @ X.double().numpy()
    assert Y.shape == X.shape
    assert Y.dtype == dtype
    np.testing.assert_allclose(Y.numpy(), expected, rtol=0, atol=rounding(dtype, N, np.abs(expected).max()))


def test_vector_of_one_graph(row):
    L = row.build(row.matrix())
    x = block(row, 1)[..., 0]
    if row.batch:
        with pytest.raises(InputError, match=r"\(\*batch, 9, s\)"):
            L @ torch.ones(N, dtype=F64)
    else:
        torch.testing.assert_close(L @ x, row.matrix() @ x)
        assert L.products == 1


def test_products_count_columns_and_passes_count_sweeps(row):
    L = row.build(row.matrix())
    assert (L.products, L.passes) == (0, 0)
    L @ block(row, 3)
    L @ block(row, 1)
    assert (L.products, L.passes) == (4, 2)
    L.to_dense()
    L.diagonal()
    assert (L.products, L.passes) == (4, 2)


@pytest.mark.parametrize("columns", [1, 2, 7, 16, 33])
@pytest.mark.parametrize("second", [True, False], ids=["with Y", "without"])
def test_three_term_step(row, dtype, columns, second):
    matrix, X = row.matrix(dtype), block(row, columns, dtype)
    Y = 3 * X.flip(-2) - 1 if second else None
    L = row.build(matrix)
    expected = 2.0 * (matrix.double() @ X.double()) - 0.5 * X.double()
    if second:
        expected = expected + 0.25 * Y.double()
    noise = rounding(dtype, N, float(expected.abs().max()))
    fresh = L.three_term(X, Y, 2.0, -0.5, 0.25)
    assert (L.products, L.passes) == (columns, 1)
    torch.testing.assert_close(fresh.double(), expected, rtol=0, atol=noise)
    assert fresh.dtype == dtype
    a, b, c = (torch.full((*row.batch, 1, 1), v, dtype=dtype) for v in (2.0, -0.5, 0.25))
    torch.testing.assert_close(L.three_term(X, Y, a, b, c).double(), expected, rtol=0, atol=noise)
    for out in (torch.full_like(X, torch.nan), *([Y.clone()] if second else [])):
        before = X.clone()
        written = L.three_term(X, out if second and not out.isnan().any() else Y, 2.0, -0.5, 0.25, out=out)
        assert written is out
        torch.testing.assert_close(out.double(), expected, rtol=0, atol=noise)
        assert torch.equal(X, before)


def test_three_term_step_refuses_blocks_that_do_not_fit(row):
    L, X = row.build(row.matrix()), block(row, 2)
    with pytest.raises(InputError, match="Y must be of X's shape"):
        L.three_term(X, block(row, 3), 1.0, 1.0, 1.0)
    with pytest.raises(InputError, match="out must be of X's shape"):
        L.three_term(X, None, 1.0, 1.0, out=block(row, 2).float())
    with pytest.raises(InputError, match="out must not share memory with X"):
        L.three_term(X, None, 1.0, 1.0, out=X)
    with pytest.raises(InputError, match="out has no gradient"):
        L.three_term(X.clone().requires_grad_(), None, 1.0, 1.0, out=torch.empty_like(X))


def test_three_term_step_broadcasts_its_numbers_over_a_batch():
    row = ROWS["dense batch"]
    X, a = block(row, 2), torch.tensor([1.0, 2.0, 3.0], dtype=F64)[:, None, None]
    result = row.build(row.matrix()).three_term(X, X, a, 2 * a, -a)
    torch.testing.assert_close(result, a * (row.matrix() @ X) + a * X)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_of_a_three_term_step(name):
    row = ROWS[name]
    X, Y = block(row, 2).requires_grad_(), block(row, 2).flip(-2).requires_grad_()
    a, b, c = (torch.full((*row.batch, 1, 1), v, dtype=F64, requires_grad=True) for v in (2.0, -0.5, 0.25))
    assert gradcheck(row.build(row.matrix()).three_term, (X, Y, a, b, c))
    if row.diagonal:
        return
    matrix = row.matrix().requires_grad_()
    pattern = (matrix.detach() != 0).to(F64)

    def step(matrix):
        half = (matrix + matrix.mT) / 2
        L = csr_masked(half, pattern) if name == "sparse" else row.build(half)
        return L.three_term(X.detach(), Y.detach(), 2.0, -0.5, 0.25)

    assert gradcheck(step, (matrix,))


def test_to_dense_and_diagonal(row, dtype):
    matrix = row.matrix(dtype)
    L = row.build(matrix)
    torch.testing.assert_close(L.to_dense(), matrix, rtol=0, atol=0)
    torch.testing.assert_close(L.diagonal(), matrix.diagonal(dim1=-2, dim2=-1), rtol=0, atol=0)


def test_to_scipy(row):
    L = row.build(row.matrix())
    if row.batch:
        with pytest.raises(InputError, match=r"takes one graph, got a batch of .*: index the batch"):
            L.to_scipy()
        return
    exported = L.to_scipy()
    assert scipy.sparse.issparse(exported)
    np.testing.assert_array_equal(exported.toarray(), row.matrix().numpy())


def test_scipy_export_is_a_copy():
    L = laplacian(scipy.sparse.csr_array(random_graph(5, seed=1).numpy()))
    before = L.to_dense().clone()
    L.to_scipy().data[:] = 0
    torch.testing.assert_close(L.to_dense(), before, rtol=0, atol=0)


def test_bounds_hold_the_spectrum(row, dtype):
    lam = np.linalg.eigvalsh(row.matrix().numpy())
    low, high = row.build(row.matrix(dtype)).gershgorin()
    noise = rounding(dtype, N, np.abs(lam).max())
    assert low.shape == high.shape == row.batch
    assert (low.double().numpy() <= lam[..., 0] + noise).all()
    assert (high.double().numpy() >= lam[..., -1] - noise).all()


def test_norm_bound(row):
    norm = np.abs(np.linalg.eigvalsh(row.matrix().numpy())).max(-1)
    bound = row.build(row.matrix()).norm_bound()
    assert not bound.requires_grad
    assert (bound.numpy() >= norm - rounding(F64, N, norm.max())).all()


def test_shape_sizes_and_repr(row, dtype):
    L = row.build(row.matrix(dtype))
    assert L.shape == (*row.batch, N, N)
    assert L.batch_shape == row.batch
    assert L.dtype == dtype
    assert L.sizes.shape == row.batch
    assert bool((L.sizes == N).all())
    assert str(N) in repr(L)
    assert "products=0" in repr(L)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_with_respect_to_entries_and_block(name):
    row = ROWS[name]
    matrix = row.matrix().requires_grad_()
    X = block(row, 2).requires_grad_()

    def product(matrix, X):
        # L is symmetric: perturb it as such, since no operator promises more
        return row.build((matrix + matrix.mT) / 2 if not row.diagonal else matrix) @ X

    if name == "sparse":  # only the entries that are there
        pattern = (matrix.detach() != 0).to(F64)
        assert gradcheck(lambda m, X: csr_masked((m + m.mT) / 2, pattern) @ X, (matrix, X))
    else:
        assert gradcheck(product, (matrix, X))


def csr_masked(matrix, pattern):
    row, col = pattern.nonzero(as_tuple=True)
    return SparseOperator.from_coo(row, col, matrix[row, col], N)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_detached_and_double(name):
    row = ROWS[name]
    matrix = row.matrix(F32).requires_grad_()
    L = row.build(matrix)
    assert L.requires_grad
    L @ block(row, 2, F32)
    for other, dtype in ((L.detach(), F32), (L.double(), F64)):
        assert other.products == 0
        assert other.dtype == dtype
        Y = other @ block(row, 2, dtype)
        assert not Y.requires_grad
        assert Y.dtype == dtype
        torch.testing.assert_close(
            Y.double(),
            row.matrix(F32).double() @ block(row, 2, dtype).double(),
            rtol=0,
            atol=rounding(F32, N, float(row.matrix().abs().max())),
        )


def test_double_multiplies_in_float64():
    matrix = laplacian_matrix(random_graph(N, seed=2)).float()
    x = torch.randn(N, 1, dtype=F64, generator=torch.Generator().manual_seed(0))
    expected = matrix.double() @ x
    for L in (DenseOperator(matrix), csr(matrix)):
        torch.testing.assert_close(L.double() @ x, expected, rtol=0, atol=rounding(F64, N, 10))


def test_wrong_block_is_refused(row):
    with pytest.raises(InputError, match=r"a block must be \(\*batch, 9, s\), got shape"):
        row.build(row.matrix()) @ torch.ones(*row.batch, N + 1, 2, dtype=F64)


@pytest.mark.parametrize("name", ["dense", "sparse", "function", "diagonal"])
def test_one_matrix_multiplies_a_batch_of_blocks(name):
    row = ROWS[name]
    X = torch.randn(4, 3, N, 2, dtype=F64, generator=torch.Generator().manual_seed(1))
    expected = np.einsum("ij,abjs->abis", row.matrix().numpy(), X.numpy())
    torch.testing.assert_close(row.build(row.matrix()) @ X, torch.from_numpy(expected))


def test_permuting_the_nodes_permutes_the_product(row):
    if row.diagonal:
        matrix = row.matrix()
        order = torch.arange(N - 1, -1, -1)
    else:
        matrix, order = row.matrix(), torch.randperm(N, generator=torch.Generator().manual_seed(2))
    X = block(row, 2)
    permuted = matrix[..., order, :][..., :, order]
    torch.testing.assert_close(row.build(permuted) @ X[..., order, :], (row.build(matrix) @ X)[..., order, :])
