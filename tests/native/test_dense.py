"""Kernels of small dense matrices: eigenpairs, the relaxed recurrence and its adjoint, Gram-Schmidt."""

import numpy as np
import pytest
import torch

from krylow import _native


def symmetric(batch, n, dtype, seed=0):
    S = np.random.default_rng(seed).standard_normal((batch, n, n))
    return np.ascontiguousarray((S + S.transpose(0, 2, 1)) / 2, dtype=dtype)


def lowest(S, k, threads=1):
    batch, n, _ = S.shape
    values, vectors, failed = np.empty((batch, k), S.dtype), np.empty((batch, n, k), S.dtype), np.zeros(batch, bool)
    start = np.random.default_rng(0).uniform(-1.0, 1.0, (n, -(-k // 4) * 4))
    _native.lowest(S, values, vectors, failed, start, float(np.finfo(S.dtype).eps), threads)
    return values, vectors, failed


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n", "k"), [(1, 1), (2, 1), (3, 2), (5, 4), (16, 5), (17, 3), (33, 8), (64, 13), (100, 17), (200, 6)]
)
def test_residuals_and_orthogonality_are_those_of_rounding(level, n, k, dtype):
    S = symmetric(5, n, dtype)
    values, vectors, failed = lowest(S, k)
    assert not failed.any()
    noise = 40 * np.finfo(dtype).eps * n**0.5 * np.abs(S).sum(-1).max()
    expected = np.linalg.eigvalsh(S.astype(float))[:, :k]
    np.testing.assert_allclose(values, expected, rtol=0, atol=noise)
    np.testing.assert_allclose(S @ vectors, vectors * values[:, None], rtol=0, atol=noise)
    gram = vectors.transpose(0, 2, 1) @ vectors
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(k), gram.shape), rtol=0, atol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_repeated_values_and_zero_matrices(level, dtype):
    n = 24
    complete = n * np.eye(n) - np.ones((n, n))
    S = np.stack([complete, np.zeros((n, n)), np.kron(np.eye(4), complete[:6, :6]), 1e-12 * complete]).astype(dtype)
    values, vectors, failed = lowest(S, 6)
    assert not failed.any()
    noise = 1000 * np.finfo(dtype).eps
    np.testing.assert_allclose(values, np.linalg.eigvalsh(S.astype(float))[:, :6], rtol=0, atol=noise)
    gram = vectors.transpose(0, 2, 1) @ vectors
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(6), gram.shape), rtol=0, atol=100 * np.finfo(dtype).eps)


def test_items_that_are_not_finite_fail_alone_and_threads_change_nothing():
    S = symmetric(70, 30, float)
    S[3, 4, 4], S[40, 1, 2] = np.nan, np.inf
    one, two = lowest(S, 4), lowest(S, 4, 3)
    assert one[2].nonzero()[0].tolist() == [3, 40]
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a[~one[2]], b[~one[2]])


class Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, start, gamma1, gamma2, sizes):
        batch, s, _ = A.shape
        m = gamma1.numel()
        limits = A.new_tensor([1e-8, 1e8, 0.0]).repeat(batch, 1)
        steps = torch.zeros(batch, dtype=torch.long)
        out = [A.new_zeros(batch, m, s), A.new_zeros(batch, m), A.new_zeros(batch, m), steps]
        _native.relaxed_forward(*(t.detach().numpy() for t in (A, start, gamma1, gamma2, sizes, limits, *out)))
        ctx.save_for_backward(A, gamma1, gamma2, *out)
        ctx.mark_non_differentiable(out[3])
        return tuple(out)

    @staticmethod
    def backward(ctx, C_bar, alpha_bar, beta_bar, _):
        A, gamma1, gamma2, C, *_rest = saved = ctx.saved_tensors
        found = [torch.zeros_like(t) for t in (A, C[:, 0], gamma1, gamma2)]
        work = [C_bar.clone().contiguous(), alpha_bar.contiguous(), beta_bar.contiguous()]
        _native.relaxed_backward(*(t.detach().numpy() for t in (*saved, *work, *found)))
        return *found, None


@pytest.mark.parametrize(("m", "s"), [(1, 3), (4, 5), (6, 9)])
def test_the_adjoint_is_the_derivative(level, m, s):
    generator = torch.Generator().manual_seed(0)
    A = torch.from_numpy(symmetric(3, s, float))
    start = torch.randn(3, s, generator=generator, dtype=A.dtype)
    start /= start.norm(dim=-1, keepdim=True)
    gamma1, gamma2 = 1 + 0.1 * torch.rand(2, m, generator=generator, dtype=A.dtype)
    sizes = torch.tensor([s, min(2, s), 0])
    inputs = tuple(t.clone().requires_grad_() for t in (A, start, gamma1, gamma2))
    symmetrised = lambda A, *rest: Recurrence.apply((A + A.mT) / 2, *rest, sizes)[:3]  # noqa: E731
    assert torch.autograd.gradcheck(symmetrised, inputs)


def test_the_recurrence_is_lanczos_where_nothing_is_relaxed(level):
    s, m = 9, 6
    A, ones = torch.from_numpy(symmetric(2, s, float)), torch.ones(m, dtype=torch.float64)
    start = torch.eye(s, dtype=torch.float64)[:1].repeat(2, 1)
    C, alpha, beta, steps = Recurrence.apply(A, start, ones, ones, torch.tensor([s, s]))
    assert steps.tolist() == [m, m]
    T = torch.diag_embed(alpha) + torch.diag_embed(beta[:, :-1], 1) + torch.diag_embed(beta[:, :-1], -1)
    torch.testing.assert_close(C @ A @ C.mT, T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("k", "n"), [(1, 1), (3, 7), (7, 50), (5, 300)])
def test_gram_schmidt(level, k, n, dtype):
    X = np.random.default_rng(0).standard_normal((4, k, n)).astype(dtype)
    X[1, -1] = X[1, 0] if k > 1 else 0
    Q, R, alive = np.empty_like(X), np.zeros((4, k, k), dtype), np.ones((4, k), bool)
    _native.gram_schmidt(X, Q, R, alive, 1e-3)
    assert alive.sum() == 4 * k - 1
    assert not Q[1, -1].any()
    np.testing.assert_allclose(R.transpose(0, 2, 1) @ Q, X, rtol=0, atol=1e-3 * (k == 1) + 100 * np.finfo(dtype).eps)
    gram = Q @ Q.transpose(0, 2, 1)
    np.testing.assert_allclose(gram, np.eye(k) * alive[:, None], rtol=0, atol=50 * np.finfo(dtype).eps)
