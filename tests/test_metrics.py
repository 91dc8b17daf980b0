import numpy as np
import pytest
import scipy.linalg
import torch
from torch.autograd import gradcheck

from krylow import InputError, metrics
from krylow.krylov.lanczos import lanczos
from krylow.operators import DenseOperator
from krylow.testing import laplacian_matrix, lowest, random_graph, rounding

F32, F64 = torch.float32, torch.float64


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def basis(n, k, seed):
    return torch.linalg.qr(randn(n, k, seed=seed)).Q


@pytest.mark.parametrize(("k_hat", "k"), [(3, 3), (5, 3), (2, 3)])
def test_subspace_error_is_the_papers_definition(k_hat, k):
    U_hat, U = basis(8, k_hat, 0).numpy(), basis(8, k, 1).numpy()
    frobenius = np.linalg.norm((np.eye(8) - U_hat @ U_hat.T) @ U)
    found = metrics.subspace_error(torch.from_numpy(U_hat), torch.from_numpy(U), squared=False)
    assert float(found) == pytest.approx(frobenius)
    normalised = metrics.subspace_error(torch.from_numpy(U_hat), torch.from_numpy(U))
    assert float(normalised) == pytest.approx(frobenius**2 / k)


def test_subspace_error_range_and_invariance():
    U = basis(8, 3, 0)
    R = torch.linalg.qr(randn(3, 3)).Q
    assert float(metrics.subspace_error(U @ R, U)) <= rounding(F64) ** 2
    assert float(metrics.subspace_error(U * torch.tensor([1.0, -1.0, 1.0]), U)) <= rounding(F64) ** 2
    complement = torch.from_numpy(scipy.linalg.null_space(U.mT.numpy()))[:, :3]
    assert float(metrics.subspace_error(complement, U)) == pytest.approx(1)


def test_batches():
    U_hat, U = torch.stack([basis(8, 3, s) for s in range(4)]), torch.stack([basis(8, 3, s + 9) for s in range(4)])
    for metric in (metrics.subspace_error, metrics.krylov_ceiling, metrics.principal_angles):
        batch = metric(U_hat, U)
        for i in range(4):
            torch.testing.assert_close(batch[i], metric(U_hat[i], U[i]))
    assert metrics.orthogonality_loss(U).shape == (4,)


def test_error_is_differentiable():
    assert gradcheck(metrics.subspace_error, (randn(5, 2).requires_grad_(), basis(5, 2, 1).requires_grad_()))


@pytest.mark.parametrize(("k_hat", "k"), [(3, 3), (5, 3), (2, 3)])
def test_angles_are_scipys(k_hat, k):
    U_hat, U = basis(9, k_hat, 0), basis(9, k, 1)
    expected = np.sort(scipy.linalg.subspace_angles(U_hat.numpy(), U.numpy()))
    np.testing.assert_allclose(metrics.principal_angles(U_hat, U), expected, atol=1e-12)


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-6, 0.1, 0.8, 1.5, np.pi / 2 - 1e-9, np.pi / 2])
def test_angles_are_right_at_both_ends(angle):
    e = torch.eye(5, dtype=F64)
    tilted = torch.stack([np.cos(angle) * e[0] + np.sin(angle) * e[3], e[1]], -1)
    found = metrics.principal_angles(tilted, e[:, :2])
    np.testing.assert_allclose(found, sorted([0.0, angle]), rtol=1e-7, atol=1e-15)


def test_error_is_the_sum_of_squared_sines():
    U_hat, U = basis(9, 4, 0), basis(9, 4, 1)
    sines = metrics.principal_angles(U_hat, U).sin()
    assert float(metrics.subspace_error(U_hat, U)) == pytest.approx(float(sines.square().mean()))


def test_orthogonality_loss():
    assert float(metrics.orthogonality_loss(basis(8, 3, 0))) <= rounding(F64, 8)
    V = torch.tensor([[1.0, 0.6], [0.0, 0.8]], dtype=F64)
    assert float(metrics.orthogonality_loss(V)) == pytest.approx(0.6 * 2**0.5)
    assert float(metrics.orthogonality_loss(2 * torch.eye(2))) == pytest.approx(3 * 2**0.5)


# The Krylov ceiling ---------------------------------------------------------------------------------------------


def test_ceiling_is_the_least_error_of_any_subspace_inside():
    V, U = randn(10, 5), basis(10, 3, 1)
    ceiling = float(metrics.krylov_ceiling(V, U))
    Q = np.linalg.qr(V.numpy())[0]
    left, sigma, _ = np.linalg.svd(Q.T @ U.numpy())
    assert ceiling == pytest.approx(1 - (sigma[:3] ** 2).mean())
    best = torch.from_numpy(Q @ left[:, :3])
    assert float(metrics.subspace_error(best, U)) == pytest.approx(ceiling)
    for seed in range(20):
        other = torch.linalg.qr(V @ randn(5, 3, seed=seed)).Q
        assert float(metrics.subspace_error(other, U)) >= ceiling - 1e-12


def test_ceiling_ignores_zero_and_dependent_columns_and_their_size():
    V, U = randn(10, 4), basis(10, 3, 1)
    expected = float(metrics.krylov_ceiling(V, U))
    padded = torch.cat([torch.zeros(10, 1, dtype=F64), V * torch.tensor([1e-8, 1.0, 1e8, 3.0]), V[:, :1]], -1)
    assert float(metrics.krylov_ceiling(padded, U)) == pytest.approx(expected, abs=1e-12)


def test_gammas_do_not_move_the_ceiling():
    L = laplacian_matrix(random_graph(30, 0.2, seed=0))
    U = lowest(L, 3)[1]
    z = randn(30, 1)
    plain = lanczos(DenseOperator(L), z, 6)
    relaxed = lanczos(
        DenseOperator(L), z, 6, gamma1=torch.full((6,), 0.8, dtype=F64), gamma2=torch.full((6,), 1.3, dtype=F64)
    )
    first, second = (float(metrics.krylov_ceiling(k.V, U)) for k in (plain, relaxed))
    assert second == pytest.approx(first, abs=1e-9)
    assert first > 0.01


@pytest.mark.parametrize("metric", [metrics.subspace_error, metrics.principal_angles, metrics.krylov_ceiling])
def test_bases_of_different_spaces(metric):
    with pytest.raises(InputError, match=r"same n, got shapes \(5, 2\) and \(6, 2\)"):
        metric(torch.eye(5)[:, :2], torch.eye(6)[:, :2])
