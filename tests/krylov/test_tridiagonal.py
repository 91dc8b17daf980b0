import numpy as np
import pytest
import torch

from krylow.krylov.lanczos import tridiagonal


@pytest.mark.parametrize("m", [1, 2, 5])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_diagonals(m, batch):
    rng = np.random.default_rng(0)
    d, b, a = rng.random((*batch, m)), rng.random((*batch, m - 1)), rng.random((*batch, m - 1))
    T = tridiagonal(*map(torch.from_numpy, (d, b, a))).numpy()
    for i in np.ndindex(*batch):
        np.testing.assert_array_equal(T[i], np.diag(d[i]) + np.diag(b[i], -1) + np.diag(a[i], 1))
