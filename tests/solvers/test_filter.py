"""The polynomial of a filter, and the top of a spectrum from a few products beside all of it."""

import numpy as np
import pytest
import torch

from krylow.operators import DenseOperator, FunctionOperator
from krylow.solvers._filter import Filter, spectrum_top
from krylow.testing import block_diagonal, laplacian_matrix, path, random_graph, star


@pytest.mark.parametrize("degree", [1, 2, 7])
def test_a_filter_is_the_scaled_chebyshev_polynomial(degree):
    p = Filter(degree, 2.0, 6.0, 0.5)
    T = np.polynomial.chebyshev.Chebyshev([0] * degree + [1])
    theta = torch.tensor([0.5, 1.0, 1.9], dtype=torch.float64)
    values = np.abs(T((theta.numpy() - 4) / 2))
    np.testing.assert_allclose(p.amplification(theta), values)
    assert p.bound == pytest.approx(1 / values[0])
    torch.testing.assert_close(p.frequencies(torch.from_numpy(values) * p.bound), theta)
    assert p.amplification(torch.tensor([3.0, 9.0])).tolist() == [1, 1]


def top(L):
    return float(np.linalg.eigvalsh(L.numpy())[-1])


@pytest.mark.parametrize("seed", range(3))
def test_top_of_the_spectrum(seed):
    L = laplacian_matrix(random_graph(400, 0.05, seed=seed))
    found = spectrum_top(DenseOperator(L))
    assert top(L) <= found <= 1.3 * top(L)
    assert found <= float(DenseOperator(L).gershgorin()[1])


def test_a_heavy_node_does_not_hide_a_pair_with_a_larger_frequency():
    W = block_diagonal(random_graph(300, 0.02, seed=0), 8 * path(2), star(12))  # 12 edges at a node, and 2 * 8
    L = laplacian_matrix(W)
    assert top(L) >= 16
    assert spectrum_top(DenseOperator(L)) >= top(L)


def test_nothing_on_the_diagonal():
    W = random_graph(300, 0.05, seed=1)
    assert top(W) <= spectrum_top(DenseOperator(W)) <= float(W.sum(1).max())


def test_products_are_counted():
    L = DenseOperator(laplacian_matrix(random_graph(300, 0.05, seed=2)))
    spectrum_top(L)
    assert L.products == 5
    hidden = FunctionOperator(lambda X: L.matrix @ X, 300, dtype=torch.float64, bounds=(0.0, 60.0))
    assert spectrum_top(hidden) >= top(L.matrix)
    assert hidden.products == 8
