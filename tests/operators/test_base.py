import pytest
import torch

from krylow import InputError
from krylow.operators import DenseOperator, Operator


def test_the_base_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Operator((), 3, torch.float64, torch.device("cpu"))


class Identity(Operator):
    """A subclass that implements no more than it must."""

    def _multiply(self, X):
        return X.clone()

    def diagonal(self):
        return torch.ones(*self.batch_shape, self.n)

    def gershgorin(self):
        return torch.full(self.batch_shape, -1.0), torch.full(self.batch_shape, 1.0)

    def detach(self):
        return self

    def double(self):
        return self


def test_what_follows_from_the_product():
    L = Identity((2,), 3, torch.float32, torch.device("cpu"))
    torch.testing.assert_close(L.to_dense(), torch.eye(3).expand(2, 3, 3))
    assert L.norm_bound().tolist() == [1, 1]
    assert L.tensors == ()
    assert not L.requires_grad
    assert L.sizes.tolist() == [3, 3]
    assert Identity((), 3, torch.float32, torch.device("cpu")).to_scipy().toarray().tolist() == torch.eye(3).tolist()


def test_a_block_of_no_columns():
    L = DenseOperator(torch.eye(3))
    assert (L @ torch.ones(3, 0)).shape == (3, 0)
    assert L.products == 0


def test_a_recurrence_on_a_block_of_another_dtype_is_refused():
    with pytest.raises(InputError, match=r"dtype torch.float64, got torch.float32"):
        DenseOperator(torch.eye(3, dtype=torch.float64)).three_term(torch.ones(3, 1), None, 1.0, 0.0)
