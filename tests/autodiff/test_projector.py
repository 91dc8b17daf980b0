import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from krylow.autodiff.projector import lowest_eigenspace, orthonormalize
from krylow.testing import from_spectrum, lowest, projector, rounding

F64 = torch.float64


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def filtered(S, k, x):
    Y = lowest_eigenspace((S + S.mT) / 2, k)[1]
    return Y @ (Y.mT @ x)


def directional(S, k, x, c, E, h=1e-5):
    """Finite difference of c^T P(S) x along E, by numpy's own eigenvectors."""

    def value(A):
        return float((c * (projector(lowest(A, k)[1]) @ x)).sum())

    return (value(S + h * E) - value(S - h * E)) / (2 * h)


def test_values_and_vectors():
    S = from_spectrum([5.0, 1.0, 3.0, 2.0])
    values, Y = lowest_eigenspace(S, 2)
    np.testing.assert_allclose(values, [1, 2, 3, 5], atol=1e-13)
    torch.testing.assert_close(projector(Y), projector(lowest(S, 2)[1]), rtol=0, atol=1e-13)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_gradcheck_at_simple_values(k):
    S = from_spectrum([0.0, 1.0, 2.5, 4.0, 7.0]).requires_grad_()
    assert gradcheck(lambda S, x: filtered(S, k, x), (S, randn(5, 2).requires_grad_()))


@pytest.mark.parametrize(
    ("spectrum", "k"),
    [
        ([0.0, 0.0, 4.0, 4.0], 2),  # repeated kept and repeated dropped values
        ([0.0, 0.0, 0.0, 1.0, 9.0], 3),
        ([1.0, 1.0 + 1e-14, 2.0, 3.0], 2),  # a cluster
        ([-3.0, -3.0, 0.0, 0.0, 0.0], 2),  # indefinite
    ],
)
def test_gradient_where_values_repeat(spectrum, k):
    n = len(spectrum)
    S = from_spectrum(spectrum, seed=3).requires_grad_()
    x, c = randn(n, 2, seed=1), randn(n, 2, seed=2)
    (c * filtered(S, k, x)).sum().backward()
    assert S.grad.isfinite().all()
    for seed in range(5):
        E = randn(n, n, seed=10 + seed)
        E = (E + E.mT) / 2
        expected = directional(S.detach(), k, x, c, E)
        assert float((S.grad * E).sum()) == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_plain_eigh_fails_where_this_does_not():
    """The reason for the custom backward pass: this must not pass by accident."""
    plain = torch.diag(torch.tensor([0.0, 0.0, 4.0, 4.0], dtype=F64)).requires_grad_()
    Y = torch.linalg.eigh(plain)[1][:, :2]
    (Y @ (Y.mT @ randn(4, 1))).sum().backward()
    assert not plain.grad.isfinite().all()


def test_no_gap_gives_a_finite_gradient():
    S = from_spectrum([0.0, 1.0, 1.0, 2.0]).requires_grad_()
    filtered(S, 2, randn(4, 1)).sum().backward()
    assert S.grad.isfinite().all()


def test_gradient_of_the_values():
    S = from_spectrum([0.0, 1.0, 2.5, 4.0]).requires_grad_()
    assert gradcheck(lambda S: lowest_eigenspace((S + S.mT) / 2, 2)[0], (S,))


def test_count_of_each_item():
    S = torch.stack([from_spectrum([0.0, 1.0, 2.0, 3.0], seed=s) for s in range(3)]).requires_grad_()
    count = torch.tensor([1, 3, 0])
    _, Y = lowest_eigenspace(S, 3, count)
    for i, c in enumerate(count.tolist()):
        expected = projector(lowest(S[i].detach(), 3)[1][:, :c])
        torch.testing.assert_close(projector(Y[i].detach()), expected, rtol=0, atol=1e-13)

    x = randn(4, 1)

    def loss(S):
        Y = lowest_eigenspace((S + S.mT) / 2, 3, count)[1]
        return Y @ (Y.mT @ x)

    assert gradcheck(loss, (S,))


# orthonormalize -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=["float32", "float64"])
def test_orthonormal_basis_of_the_span(dtype):
    X = (randn(3, 9, 4) * torch.tensor([1.0, 1e-6, 1e6, 1.0])).to(dtype)
    Q = orthonormalize(X)
    torch.testing.assert_close(Q.mT @ Q, torch.eye(4, dtype=dtype).expand(3, 4, 4), rtol=0, atol=rounding(dtype, 9))
    missed = X / X.norm(dim=-2, keepdim=True)
    missed = missed - Q @ (Q.mT @ missed)
    assert float(missed.abs().max()) <= rounding(dtype, 9)


E = torch.eye(4, dtype=F64)
DEPENDENT = {
    "zero first": (torch.stack([0 * E[0], E[0], E[1]], -1), [False, True, True]),
    "zero last": (torch.stack([E[0], E[1], 0 * E[0]], -1), [True, True, False]),
    "repeated": (torch.stack([E[0], E[0], E[1]], -1), [True, False, True]),
    "a sum": (torch.stack([E[0], E[1], E[0] + E[1]], -1), [True, True, False]),
    "all zero": (torch.zeros(4, 3, dtype=F64), [False] * 3),
    "generic, repeated": (randn(4, 1).repeat(1, 3) * torch.tensor([1.0, 2.0, -3.0]), [True, False, False]),
}


@pytest.mark.parametrize("name", list(DEPENDENT))
def test_dependent_columns_become_zero_and_take_no_other_with_them(name):
    X, alive = DEPENDENT[name]
    Q = orthonormalize(X)
    assert (Q.norm(dim=-2) > 0.5).tolist() == alive
    torch.testing.assert_close(Q.mT @ Q, torch.diag(torch.tensor(alive).double()), rtol=0, atol=rounding(F64, 4))
    assert float((X - Q @ (Q.mT @ X)).abs().max()) <= rounding(F64, 4)


def test_more_columns_than_rows():
    X = randn(2, 4).requires_grad_()
    Q = orthonormalize(X)
    assert Q.shape == (2, 4)
    torch.testing.assert_close(projector(Q.detach()), torch.eye(2, dtype=F64), rtol=0, atol=1e-14)
    assert (Q[:, 2:] == 0).all()
    projector(Q).sum().backward()
    assert X.grad.isfinite().all()


def test_a_bad_item_of_a_batch_leaves_the_others():
    X = torch.stack([randn(4, 3), DEPENDENT["repeated"][0], randn(4, 3, seed=1)])
    Q = orthonormalize(X)
    for i in (0, 2):
        torch.testing.assert_close(projector(Q[i]), projector(torch.linalg.qr(X[i]).Q), rtol=0, atol=1e-13)


def test_gradcheck_of_the_projector():
    X = randn(6, 3).requires_grad_()
    assert gradcheck(lambda X: projector(orthonormalize(X)), (X,))
    batch = randn(2, 6, 3).requires_grad_()
    assert gradcheck(lambda X: projector(orthonormalize(X)), (batch,))


def test_gradcheck_beside_a_zero_column():
    """Zero columns stay zero: the others' gradient is that of their own span."""
    X = randn(6, 2).requires_grad_()

    def span(X):
        return projector(orthonormalize(torch.stack([X[:, 0], torch.zeros(6, dtype=F64), X[:, 1]], -1)))

    assert gradcheck(span, (X,))
