import pytest
import torch

from krylow.linalg.basis import GrowingBasis


@pytest.mark.parametrize("tracked", [False, True])
def test_columns_in_order(tracked):
    columns = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0))
    basis = GrowingBasis(columns[..., :1], 5, tracked=tracked)
    basis.append(columns[..., 1:3])
    assert basis.width == 3
    torch.testing.assert_close(basis.matrix(), columns[..., :3], rtol=0, atol=0)
    basis.append(columns[..., 3:])
    torch.testing.assert_close(basis.matrix(), columns, rtol=0, atol=0)


def test_a_gradient_reaches_every_column():
    columns = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    basis = GrowingBasis(columns[:, :1], 3, tracked=True)
    early = basis.matrix().sum()
    basis.append(columns[:, 1:])
    (early + (2 * basis.matrix()).sum()).backward()
    assert columns.grad.tolist() == [[3.0, 2.0, 2.0]] * 4
