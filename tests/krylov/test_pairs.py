import numpy as np
import pytest
import torch

from krylow.krylov.pairs import Ritz, rotate, settled
from krylow.operators import DenseOperator
from krylow.testing import laplacian_matrix, random_graph, rounding

F64 = torch.float64


def test_rotate_gives_rayleigh_ritz_pairs():
    L = laplacian_matrix(random_graph(20, seed=0))
    X = torch.randn(20, 5, dtype=F64, generator=torch.Generator().manual_seed(0))
    operator = DenseOperator(L)
    pairs = rotate(operator, X)
    Q = np.linalg.qr(X.numpy())[0]
    np.testing.assert_allclose(pairs.theta, np.linalg.eigvalsh(Q.T @ L.numpy() @ Q), atol=1e-12)
    torch.testing.assert_close(pairs.X.mT @ pairs.X, torch.eye(5, dtype=F64), rtol=0, atol=rounding(F64, 20))
    H = pairs.X.mT @ L @ pairs.X
    torch.testing.assert_close(H, torch.diag(pairs.theta), rtol=0, atol=rounding(F64, 20, 20))
    torch.testing.assert_close(pairs.residuals, (L @ pairs.X - pairs.X * pairs.theta).norm(dim=-2))
    assert operator.products == 5


def test_nearly_dependent_columns_stay_orthonormal():
    X = torch.randn(30, 1, dtype=F64, generator=torch.Generator().manual_seed(0)).repeat(1, 4)
    X = X + 1e-10 * torch.randn(30, 4, dtype=F64, generator=torch.Generator().manual_seed(1))
    U = rotate(DenseOperator(laplacian_matrix(random_graph(30, seed=0))), X).X
    torch.testing.assert_close(U.mT @ U, torch.eye(4, dtype=F64), rtol=0, atol=rounding(F64, 30))


def test_estimate_is_davis_kahan_with_the_next_pair():
    theta = torch.tensor([0.0, 1.0, 3.0], dtype=F64)
    residuals = torch.tensor([0.1, 0.2, 0.5], dtype=F64)
    pairs = Ritz(theta, torch.eye(3, dtype=F64), residuals)
    assert float(pairs.estimate(2)) == pytest.approx(((0.1 / (3 - 0.5)) ** 2 + (0.2 / (3 - 0.5 - 1)) ** 2) / 2)
    assert float(pairs.estimate(3)) == float("inf")  # no next pair, no gap


def test_no_vectors_left_means_no_error():
    theta = torch.tensor([0.0, 1.0, torch.inf], dtype=F64)
    assert float(Ritz(theta, torch.eye(3, dtype=F64), torch.tensor([0.1, 0.1, 0.0], dtype=F64)).estimate(2)) == 0


def test_settled_is_relative_to_the_norm():
    L = DenseOperator(laplacian_matrix(random_graph(10, seed=0)))
    norm = float(L.norm_bound())
    root = torch.finfo(F64).eps ** 0.5
    assert bool(settled(L.norm_bound(), torch.tensor([0.0, 0.9 * root * norm], dtype=F64)))
    assert not bool(settled(L.norm_bound(), torch.tensor([0.0, 1.1 * root * norm], dtype=F64)))
