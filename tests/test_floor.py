"""The floor under the first dropped eigenvalue: never above it, and it sees what a subspace missed."""

import pytest
import torch

from krylow._floor import lifted_dense
from krylow.certificate import Status, certify
from krylow.operators import DenseOperator, FunctionOperator
from krylow.testing import block_diagonal, complete, from_spectrum, laplacian_matrix, lowest, random_graph

F64 = torch.float64


def certificate(L, X, *, following):
    return certify(DenseOperator(L), X, following=torch.tensor(following, dtype=F64))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("size", [0.0, 1e-4, 1e-1])
def test_it_is_never_above_the_dropped_eigenvalue(seed, size):
    L = laplacian_matrix(random_graph(18, 0.3, seed=seed))
    lam, U = lowest(L, 6)
    noise = torch.randn(18, 5, dtype=F64, generator=torch.Generator().manual_seed(seed))
    X = torch.linalg.qr(U[:, :5] + size * noise).Q
    found = certificate(L, X, following=float(lam[5]) * 1.3 + 0.1)
    assert found.proved
    assert float(found.floor) <= float(lam[5])


def test_it_comes_close_to_a_converged_next_value():
    lam = [0.0, 1.0, 2.0, 5.0, 7.0]
    L = from_spectrum(lam, seed=0)
    found = certificate(L, lowest(L, 3)[1], following=5.0)
    assert 4.8 <= float(found.floor) <= 5.0
    assert Status(int(found.statuses)) == Status.CONVERGED


def test_a_missed_copy_of_an_eigenvalue_is_seen():
    L = laplacian_matrix(block_diagonal(complete(4), complete(4)))  # 0 twice, then 4
    _, U = lowest(L, 8)
    X = torch.stack([U[:, 0], U[:, 2]], dim=-1)  # one of the null vectors left out
    found = certificate(L, torch.linalg.qr(X).Q, following=4.0)
    assert float(found.floor) == -torch.inf
    assert Status(int(found.statuses)) != Status.CONVERGED


@pytest.mark.parametrize("seed", range(5))
def test_a_function_gets_an_estimate_from_the_complement(seed):
    L = laplacian_matrix(random_graph(80, 0.1, seed=seed))
    lam, U = lowest(L, 4)
    found = certify(FunctionOperator(L.matmul, 80), U[:, :3])
    assert not found.proved
    assert float(found.floor) == pytest.approx(float(lam[3]), abs=1e-6)


def test_padding_is_lifted_above_the_spectrum():
    L = torch.zeros(4, 4, dtype=F64)
    L[:3, :3] = laplacian_matrix(complete(3))
    mask = torch.tensor([True, True, True, False])
    values = torch.linalg.eigvalsh(lifted_dense(DenseOperator(L, mask=mask)))
    assert values[:3].tolist() == pytest.approx([0.0, 3.0, 3.0], abs=1e-12)
    assert float(values[3]) > 3
