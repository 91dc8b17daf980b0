import torch

from krylow.linalg.rayleigh_ritz import rayleigh_ritz
from krylow.testing import laplacian_matrix, lowest, random_graph, rounding

F64 = torch.float64


def test_the_rotation_makes_the_projected_matrix_diagonal():
    L = laplacian_matrix(random_graph(12, seed=0))
    V = torch.linalg.qr(torch.randn(12, 5, dtype=F64, generator=torch.Generator().manual_seed(0))).Q
    theta, Y = rayleigh_ritz(V, L @ V, 3)
    X = V @ Y
    torch.testing.assert_close(X.mT @ L @ X, torch.diag(theta), rtol=0, atol=rounding(F64, 12, 10))
    assert (theta.diff() > 0).all()


def test_an_invariant_subspace_gives_its_eigenvalues():
    L = laplacian_matrix(random_graph(12, seed=0))
    lam, U = lowest(L, 4)
    Q = torch.linalg.qr(torch.randn(4, 4, dtype=F64, generator=torch.Generator().manual_seed(0))).Q
    theta, _ = rayleigh_ritz(U @ Q, L @ U @ Q, 4)
    torch.testing.assert_close(theta, lam, rtol=0, atol=rounding(F64, 12, 10))
