"""The k lowest eigenpairs against numpy's full decomposition, on matrices that are easy and hard."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor

from krylow import _native
from krylow.linalg.eigh import partial_eigh
from krylow.testing import (
    HARD_GRAPHS,
    block_diagonal,
    complete,
    from_spectrum,
    grid,
    laplacian_matrix,
    path,
    projector,
    random_graph,
    star,
)

#: Residuals, values and orthonormality hold to this many eps, times the square root of n and the norm of S.
C = 8

DTYPES = (torch.float32, torch.float64)


def block_model(n: int, seed: int = 0) -> Tensor:
    block = torch.arange(n) % 4
    p = torch.where(block[:, None] == block, 0.5, 0.05)
    W = (torch.rand(n, n, generator=torch.Generator().manual_seed(seed)) < p).double().triu(1)
    return laplacian_matrix(W + W.T)


def wilkinson(n: int) -> Tensor:
    """Return a tridiagonal matrix whose eigenvalues agree in pairs to all digits, although no off-diagonal is small."""
    return torch.diag((torch.arange(n) - n // 2).abs().double()) + path(n)


def matrices() -> Iterator[tuple[str, Tensor]]:
    for n in (1, 2, 3, 4, 5, 16, 17, 33, 100):
        yield f"random-{n}", random_graph(n, 0.9, seed=n, signed=True)
        yield f"zero-{n}", torch.zeros(n, n, dtype=torch.float64)
        yield f"identity-{n}", torch.eye(n, dtype=torch.float64)
        yield f"complete-{n}", laplacian_matrix(complete(n))
        yield f"star-{n}", laplacian_matrix(star(n))
        yield f"path-{n}", laplacian_matrix(path(n))
    for name, graph in HARD_GRAPHS.items():
        yield name.replace(" ", "-"), laplacian_matrix(graph())
    for n in (30, 100, 200):
        yield f"block-model-{n}", block_model(n)
    yield "grid-144", laplacian_matrix(grid(12, 12))
    yield "disconnected-equal", laplacian_matrix(block_diagonal(*[complete(5)] * 12))
    yield "disconnected-paths", laplacian_matrix(block_diagonal(*[path(i) for i in range(1, 12)]))
    yield "repeated", from_spectrum([1.0] * 10 + [1.0 + 1e-9] * 10 + [1.0 + 1e-5] * 10 + [3.0] * 20)
    yield "negative", -block_model(50)
    yield "wilkinson", wilkinson(21)
    yield "glued-wilkinson", block_diagonal(*[wilkinson(21)] * 3) + 1e-9 * complete(63)
    yield "large", 1e30 * random_graph(40, 0.9, signed=True)
    yield "small", 1e-30 * random_graph(40, 0.9, signed=True)


CASES = dict(matrices())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_matches_numpy(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    S = CASES[name].to(dtype)
    decomposed = []
    monkeypatch.setattr(torch.linalg, "eigh", lambda A, eigh=torch.linalg.eigh: decomposed.append(A) or eigh(A))
    n = S.shape[-1]
    exact = np.linalg.eigvalsh(S.double().numpy())
    bound = C * torch.finfo(dtype).eps * n**0.5
    norm = np.abs(exact).max()
    for k in sorted({1, min(9, n), max(1, n // 3), n}):
        decomposed.clear()
        values, vectors = partial_eigh(S, k)
        assert not decomposed or k > n // 3  # the kernel's own, where it is meant to be used
        assert values.dtype == vectors.dtype == dtype
        theta, Y = values.double().numpy(), vectors.double().numpy()
        assert np.abs(theta - exact[:k]).max() <= bound * norm
        assert np.linalg.norm(S.double().numpy() @ Y - Y * theta, axis=0).max() <= bound * norm
        assert np.abs(Y.T @ Y - np.eye(k)).max() <= bound
        assert (np.diff(theta) >= 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_subspace_matches_where_the_gap_is_real(dtype: torch.dtype) -> None:
    S = block_model(100, seed=1).to(dtype)
    lam, U = np.linalg.eigh(S.double().numpy())
    bound = C * 100**0.5 * torch.finfo(dtype).eps * lam[-1] / (lam[4] - lam[3])
    expected = projector(torch.from_numpy(U[:, :4]))
    assert (projector(partial_eigh(S, 4)[1].double()) - expected).abs().max() <= bound


def batch_of(count: int, n: int, dtype: torch.dtype) -> Tensor:
    return torch.stack([block_model(n, seed) for seed in range(count)]).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batch_equals_loop(dtype: torch.dtype) -> None:
    S = batch_of(60, 40, dtype).reshape(3, 20, 40, 40)
    values, vectors = partial_eigh(S, 5)
    assert values.shape == (3, 20, 5)
    assert vectors.shape == (3, 20, 40, 5)
    for i in range(3):
        for j in range(20):
            alone = partial_eigh(S[i, j], 5)
            assert torch.equal(alone[0], values[i, j])
            assert torch.equal(alone[1], vectors[i, j])
    across = partial_eigh(S.mT.transpose(0, 1), 5)  # not contiguous
    assert torch.equal(across[0].transpose(0, 1), values)


def test_empty_batch() -> None:
    values, vectors = partial_eigh(torch.zeros(0, 5, 5), 2)
    assert values.shape == (0, 2)
    assert vectors.shape == (0, 5, 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_same_answer_from_several_python_threads(dtype: torch.dtype) -> None:
    S = batch_of(64, 60, dtype)
    expected = partial_eigh(S, 6)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: partial_eigh(S, 6), range(12)))
    for values, vectors in answers:
        assert torch.equal(values, expected[0])
        assert torch.equal(vectors, expected[1])


@pytest.mark.parametrize("threads", [2, 3])
def test_same_answer_for_any_number_of_threads(threads: int) -> None:
    S = batch_of(64, 60, torch.float32)
    expected = partial_eigh(S, 6)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        values, vectors = partial_eigh(S, 6)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(values, expected[0])
    assert torch.equal(vectors, expected[1])


def test_input_is_left_alone() -> None:
    S = batch_of(3, 20, torch.float64)
    copy = S.clone()
    partial_eigh(S, 4)
    assert torch.equal(S, copy)


@pytest.mark.parametrize("k", [0, 21])
def test_impossible_k_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match="expected 1 <= k <= 20"):
        partial_eigh(block_model(20), k)


def test_items_that_do_not_pass_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    S = batch_of(5, 20, torch.float64)
    kernel = _native.lowest

    def fail_two(*args: Tensor) -> None:
        kernel(*args)
        args[3][1:3] = True

    monkeypatch.setattr(_native, "lowest", fail_two)
    values, vectors = partial_eigh(S, 4)
    assert torch.equal(vectors[1:3], torch.linalg.eigh(S[1:3])[1][..., :4])
    assert torch.allclose(values, torch.linalg.eigvalsh(S)[..., :4], atol=1e-12)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_is_treated_as_torch_does(value: float) -> None:
    S = block_model(20)
    S[3, 3] = value
    try:
        expected = torch.linalg.eigh(S)[0][:4]
    except RuntimeError:
        with pytest.raises(RuntimeError):
            partial_eigh(S, 4)
    else:
        assert torch.equal(partial_eigh(S, 4)[0].isfinite(), expected.isfinite())
