import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.linalg.row_blocks import project_by_blocks
from krylow.testing import random_graph

F64 = torch.float64


def basis(n=40, k=5):
    return torch.linalg.qr(torch.randn(n, k, dtype=F64, generator=torch.Generator().manual_seed(0))).Q


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("width", [0, 1, 3, 10])
def test_blocks_give_the_whole(order, width):
    U = basis()
    x = np.asarray(np.random.default_rng(0).standard_normal((40, width)), order=order)
    expected = U.numpy() @ (U.numpy().T @ x)
    np.testing.assert_allclose(project_by_blocks(U, x, most_columns=3, entries=16), expected, atol=1e-13)
    assert project_by_blocks(U, x, x, most_columns=3, entries=16) is x
    np.testing.assert_allclose(x, expected, atol=1e-13)


def test_results_that_do_not_fit_are_refused():
    U, x = basis(), np.ones((40, 2))
    for out in (np.ones((40, 3)), np.ones((40, 2), dtype=np.float32), [[1.0]]):
        with pytest.raises(kl.InputError, match="out must be a writable numpy array of float64 and shape"):
            project_by_blocks(U, x, out)
    x[3, 1] = np.nan
    with pytest.raises(kl.InputError, match="the signal must be finite"):
        project_by_blocks(U, x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_signal_on_disk_is_filtered_as_one_in_memory(tmp_path, dtype):
    L = kl.laplacian(scipy.sparse.csr_array(random_graph(60, 0.1, seed=0).numpy().astype(dtype)))
    x = np.random.default_rng(1).standard_normal((60, 7)).astype(dtype)
    disk = np.memmap(tmp_path / "x", dtype=dtype, mode="w+", shape=x.shape)
    disk[:] = x
    target = np.memmap(tmp_path / "y", dtype=dtype, mode="w+", shape=x.shape)
    expected = kl.lowpass(L, x, k=4)
    noise = 1e-5 if dtype == np.float32 else 1e-12
    y = kl.lowpass(L, disk, k=4)
    assert type(y) is np.ndarray
    np.testing.assert_allclose(y, expected, atol=noise)
    assert kl.lowpass(L, disk, k=4, out=target) is target
    np.testing.assert_allclose(np.asarray(target), expected, atol=noise)
    np.testing.assert_allclose(kl.lowpass(L, x, k=4, out=np.empty_like(x)), expected, atol=noise)


def test_what_has_no_blocks_says_so():
    L = kl.laplacian(random_graph(20, seed=0))
    x = np.ones((20, 2))
    with pytest.raises(kl.InputError, match="out is for signals"):
        kl.lowpass(L, torch.ones(20, 2, dtype=F64), k=2, out=x)
    with pytest.raises(kl.InputError, match="out is for one graph and methods that find a subspace"):
        kl.lowpass(L, x, k=2, method="polynomial", out=x.copy())
    with pytest.raises(kl.InputError, match="one row per node"):
        kl.lowpass(L, np.ones((21, 2)), k=2, out=np.ones((21, 2)))
