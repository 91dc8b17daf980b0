"""Gram-Schmidt finds the same basis by its loop and by whole columns, and zeros for what depends on earlier columns."""

import pytest
import torch

from krylow.linalg import gram_schmidt as module
from krylow.linalg.gram_schmidt import gram_schmidt as compiled

F64 = torch.float64


def columns(*shape):
    X = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=F64)
    return X / X.norm(dim=-2, keepdim=True)


@pytest.fixture(params=[compiled, module._by_columns], ids=["compiled", "tensors"])
def gram_schmidt(request):
    """Compiled, as on the host, and by tensors, as on other devices."""
    return request.param


def test_it_is_qr_with_a_positive_diagonal(gram_schmidt):
    X = columns(2, 3, 7, 5)
    Q, R, alive = gram_schmidt(X, 1e-12)
    expected, triangle = torch.linalg.qr(X)
    sign = triangle.diagonal(dim1=-2, dim2=-1).sign()
    torch.testing.assert_close(Q, expected * sign[..., None, :])
    torch.testing.assert_close(R, triangle * sign[..., None])
    assert alive.all()
    assert alive.shape == (2, 3, 5)


def test_dependent_columns_are_zero_and_later_ones_do_not_avoid_them(gram_schmidt):
    X = columns(6, 3)
    with_more = torch.stack([X[:, 0], X[:, 0], torch.zeros(6, dtype=F64), X[:, 1], X[:, 2]], -1)[None]
    Q, R, alive = gram_schmidt(with_more, 1e-12)
    assert alive[0].tolist() == [True, False, False, True, True]
    torch.testing.assert_close(Q[0][:, alive[0]], gram_schmidt(X, 1e-12)[0])
    assert not Q[0][:, ~alive[0]].any()
    torch.testing.assert_close(Q @ R, with_more)


def test_nearly_dependent_columns_come_out_orthogonal(gram_schmidt):
    X = columns(8, 2)
    near = torch.stack([X[:, 0], X[:, 0] + 1e-9 * X[:, 1]], -1)
    Q, _, alive = gram_schmidt(near / near.norm(dim=-2, keepdim=True), 1e-12)
    assert alive.all()
    torch.testing.assert_close(Q.mT @ Q, torch.eye(2, dtype=F64), atol=1e-14, rtol=0)


def test_no_items(gram_schmidt):
    Q, R, alive = gram_schmidt(torch.zeros(0, 4, 2), 1e-6)
    assert Q.shape == (0, 4, 2)
    assert R.shape == (0, 2, 2)
    assert alive.shape == (0, 2)
