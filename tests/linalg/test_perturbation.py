import pytest
import torch

from krylow.linalg.perturbation import davis_kahan
from krylow.testing import from_spectrum, lowest

F64 = torch.float64


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_is_above_the_error(seed):
    """On perturbed exact subspaces, with the true gap."""
    k, lam = 3, [0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 6.0, 9.0]
    L = from_spectrum(lam, seed=seed)
    U = lowest(L, k)[1]
    rng = torch.Generator().manual_seed(seed)
    for size in (1e-6, 1e-3, 0.1, 0.3):
        X = torch.linalg.qr(U + size * torch.randn(8, k, dtype=F64, generator=rng)).Q
        theta, Y = torch.linalg.eigh(X.mT @ L @ X)
        X = X @ Y
        residuals = (L @ X - X * theta).norm(dim=-2)
        error = float((U - X @ (X.mT @ U)).square().sum()) / k
        assert error <= float(davis_kahan(residuals, 2.0 - theta)) + 1e-15


def test_values_by_hand():
    residuals = torch.tensor([[3e-2, 4e-2], [3.0, 4.0], [1.0, 1.0], [0.0, 0.0]], dtype=F64)
    gap = torch.tensor([0.5, 0.5, 0.0, -1.0], dtype=F64)
    bound = davis_kahan(residuals, gap[:, None])
    assert float(bound[0]) == pytest.approx((9e-4 + 16e-4) / 2 / 0.25)
    assert bound[1:].tolist() == [1.0, torch.inf, torch.inf]  # no error is larger than 1; no gap, no bound
