import numpy as np
import scipy.sparse
import torch

import krylow as kl
from krylow.operators import SparseOperator
from krylow.testing import random_graph

F64 = torch.float64


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
