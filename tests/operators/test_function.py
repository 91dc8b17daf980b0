import pytest
import torch

from krylow.operators import FunctionOperator
from krylow.testing import HARD_GRAPHS, grid, laplacian_matrix, path, random_graph, rounding, star

F32, F64 = torch.float32, torch.float64


def of(L, **options):
    return FunctionOperator(L.matmul, L.shape[-1], batch_shape=tuple(L.shape[:-2]), dtype=L.dtype, **options)


def test_given_bounds_cost_nothing():
    L = of(laplacian_matrix(path(9)), bounds=(0.0, 4.0))
    assert [float(b) for b in L.gershgorin()] == [0, 4]
    assert L.products == 0


def test_bounds_of_each_graph():
    matrices = laplacian_matrix(torch.stack([random_graph(20, seed=0), 5 * random_graph(20, seed=1)]))
    low, high = of(matrices).gershgorin()
    lam = torch.linalg.eigvalsh(matrices)
    assert (low <= lam[:, 0] + 1e-9).all()
    assert (high >= lam[:, -1] - 1e-9).all()
    given = of(matrices, bounds=(torch.zeros(2), torch.tensor([1.0, 2.0])))
    assert given.gershgorin()[1].tolist() == [1, 2]


@pytest.mark.parametrize("name", list(HARD_GRAPHS))
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_estimated_bounds_of_hard_graphs(name, dtype):
    L = laplacian_matrix(HARD_GRAPHS[name]())
    lam = torch.linalg.eigvalsh(L)
    low, high = of(L.to(dtype)).gershgorin()
    noise = rounding(dtype, L.shape[0], float(lam.abs().max()))
    assert float(low) <= float(lam[0]) + noise
    assert float(high) >= float(lam[-1]) - noise


@pytest.mark.parametrize("W", [path(400), grid(20, 20), star(300), random_graph(300, 0.03, seed=0)])
def test_estimated_bounds_of_larger_graphs(W):
    L = laplacian_matrix(W)
    lam = torch.linalg.eigvalsh(L)
    low, high = of(L).gershgorin()
    assert float(low) <= float(lam[0]) + 1e-8
    assert float(lam[-1]) - 1e-8 <= float(high) <= 1.5 * float(lam[-1])


def test_double_keeps_the_functions_own_precision():
    matrix = laplacian_matrix(path(5)).float()
    seen = []

    def multiply(X):
        seen.append(X.dtype)
        return matrix @ X

    L = FunctionOperator(multiply, 5, dtype=F32).double()
    assert (L @ torch.ones(5, 1, dtype=F64)).dtype == F64
    assert seen == [F32]
