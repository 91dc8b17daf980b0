import numpy as np
import pytest
import torch

from krylow.linalg.eigh import eigh, eigvalsh, lowest_eigenpairs
from krylow.testing import from_spectrum, laplacian_matrix, projector, random_graph, rounding

F32, F64 = torch.float32, torch.float64


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", [(), (3,), (40,), (2, 40)])
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_eigh_is_numpys(threads, batch, dtype):
    items = int(np.prod(batch))
    S = torch.stack([laplacian_matrix(random_graph(12, seed=s)) for s in range(items)]).reshape(*batch, 12, 12)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        values, vectors = eigh(S.to(dtype))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(S.numpy()), atol=rounding(dtype, 12, 20))
    rebuilt = (vectors * values[..., None, :]) @ vectors.mT
    torch.testing.assert_close(rebuilt, S.to(dtype), rtol=0, atol=rounding(dtype, 12, 20))


@pytest.mark.parametrize("n", [8, 130, 200])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("batch", [(), (2,), (20,)])
def test_lowest_pairs(n, k, batch):
    S = torch.stack([from_spectrum(np.arange(n), seed=s) for s in range(int(np.prod(batch)))]).reshape(*batch, n, n)
    values, vectors = lowest_eigenpairs(S, k)
    assert values.shape == (*batch, k)
    assert vectors.shape == (*batch, n, k)
    np.testing.assert_allclose(values, np.broadcast_to(np.arange(k), (*batch, k)), atol=rounding(F64, n, n))
    residual = S @ vectors - vectors * values[..., None, :]
    assert float(residual.abs().max()) <= rounding(F64, n, n)
    P = projector(vectors)
    torch.testing.assert_close(P @ P, P, rtol=0, atol=rounding(F64, n))


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_what_lapack_leaves_as_nan_is_decomposed_again(batch, monkeypatch):
    S = laplacian_matrix(random_graph(8, seed=0)).to(F32).expand(*batch, 8, 8).clone()
    values, vectors = torch.linalg.eigh, torch.linalg.eigvalsh

    def failing(A):
        theta, U = values(A)
        if A.dtype == F32:
            theta.view(-1, 8)[-1, 3], U.view(-1, 8, 8)[-1, :, 3] = torch.nan, torch.nan
        return theta, U

    monkeypatch.setattr(torch.linalg, "eigh", failing)
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda A: failing(A)[0])
    theta, U = eigh(S)
    true = vectors(S.double())
    assert torch.allclose(theta.double(), true, atol=1e-5)
    assert torch.allclose(eigvalsh(S).double(), true, atol=1e-5)
    assert torch.allclose(U * theta[..., None, :] @ U.mT, S, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_where_lapack_gives_up_in_single_precision_it_is_asked_in_double(threads, monkeypatch):
    S = laplacian_matrix(random_graph(8, seed=0)).to(F32).expand(40, 8, 8).clone()
    plain, values = torch.linalg.eigh, torch.linalg.eigvalsh

    def failing(A):
        if A.dtype == F32:
            raise torch.linalg.LinAlgError("The algorithm failed to converge")
        return plain(A)

    monkeypatch.setattr(torch.linalg, "eigh", failing)
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda A: failing(A)[0])
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    theta, U = eigh(S)
    assert theta.dtype == U.dtype == F32
    true = values(S.double())
    assert torch.allclose(theta.double(), true, atol=1e-5)
    assert torch.allclose(eigvalsh(S).double(), true, atol=1e-5)
    assert torch.allclose(U * theta[..., None, :] @ U.mT, S, atol=1e-5)


def test_an_error_that_double_precision_would_not_help_stays_one(monkeypatch):
    def failing(A):
        raise torch.linalg.LinAlgError("The algorithm failed to converge")

    monkeypatch.setattr(torch.linalg, "eigh", failing)
    for S in (torch.eye(3, dtype=F64), torch.full((3, 3), torch.nan)):
        with pytest.raises(torch.linalg.LinAlgError):
            eigh(S)
