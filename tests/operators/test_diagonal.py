import torch

from krylow.operators import DiagonalOperator

F64 = torch.float64


def test_bounds_are_the_extreme_values_or_those_given():
    lam = torch.tensor([[3.0, -1.0, 2.0], [0.0, 5.0, 1.0]], dtype=F64)
    low, high = DiagonalOperator(lam).gershgorin()
    assert (low.tolist(), high.tolist()) == ([-1, 0], [3, 5])
    bounds = (torch.tensor([-2.0, 0.0]), torch.tensor([4.0, 9.0]))
    L = DiagonalOperator(lam, bounds=bounds)
    for operator in (L, L.detach(), L.double()):
        assert operator.gershgorin()[1].tolist() == [4, 9]
    assert L.double().gershgorin()[0].dtype == F64
