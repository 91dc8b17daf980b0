import torch

from krylow.operators import DenseOperator, DiagonalOperator
from krylow.testing import laplacian_matrix, random_graph

F64 = torch.float64


def test_gershgorin_by_hand():
    L = DenseOperator(torch.tensor([[2.0, -1.0, 0.0], [-1.0, -3.0, 0.5], [0.0, 0.5, 1.0]]))
    low, high = L.gershgorin()
    assert (float(low), float(high)) == (-4.5, 3.0)  # -3 - 1.5 and 2 + 1
    assert float(L.norm_bound()) == 4.5


def test_what_is_known_to_be_psd_has_no_negative_bound():
    L = laplacian_matrix(random_graph(8, seed=0)).float()
    low, _ = DenseOperator(L - 0.5 * torch.eye(8)).gershgorin()
    assert float(low) < 0
    low, _ = DenseOperator(L, psd=True).gershgorin()
    assert float(low) == 0


def test_one_column_takes_its_own_way_to_the_same_product():
    matrix = laplacian_matrix(torch.stack([random_graph(30, seed=s) for s in range(3)]))
    X = torch.randn(3, 30, 2, dtype=F64, generator=torch.Generator().manual_seed(0))
    L = DenseOperator(matrix)
    torch.testing.assert_close(torch.cat([L @ X[..., :1], L @ X[..., 1:]], -1), L @ X)


def test_mask_and_sizes_survive_detach_and_double():
    mask = torch.tensor([[True, True, False]])
    L = DenseOperator(torch.zeros(1, 3, 3), mask=mask, psd=True)
    for other in (L.detach(), L.double()):
        assert torch.equal(other.mask, mask)
        assert other.psd
        assert other.sizes.tolist() == [2]


def test_bounds_of_a_diagonal_are_the_extreme_values_or_those_given():
    lam = torch.tensor([[3.0, -1.0, 2.0], [0.0, 5.0, 1.0]], dtype=F64)
    low, high = DiagonalOperator(lam).gershgorin()
    assert (low.tolist(), high.tolist()) == ([-1, 0], [3, 5])
    bounds = (torch.tensor([-2.0, 0.0]), torch.tensor([4.0, 9.0]))
    L = DiagonalOperator(lam, bounds=bounds)
    for operator in (L, L.detach(), L.double()):
        assert operator.gershgorin()[1].tolist() == [4, 9]
    assert L.double().gershgorin()[0].dtype == F64
