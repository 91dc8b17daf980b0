"""Inner products and rotations of tall blocks, beside those made at once."""

import signal

import pytest
import torch

from krylow.linalg import row_blocks
from krylow.linalg.row_blocks import (
    exact_gram,
    exact_product_,
    gram,
    grams,
    image_gram,
    lengths,
    orthonormalize_,
    recombine_,
    residual_gram,
    rotate_,
    subtract_,
)

F64 = torch.float64


def test_gram_is_summed_in_double():
    X = torch.randn(20000, 3, generator=torch.Generator().manual_seed(0))
    assert gram(X, X).dtype == F64
    torch.testing.assert_close(gram(X, X), X.double().mT @ X.double(), rtol=1e-6, atol=1e-2)


def test_orthonormalize_keeps_the_span_of_leading_columns():
    X = torch.randn(500, 6, dtype=F64, generator=torch.Generator().manual_seed(0))
    X[:, 3:] += 1e4 * X[:, :3]  # guards that are mostly the wanted vectors
    Q = orthonormalize_(X.clone())
    torch.testing.assert_close(Q.mT @ Q, torch.eye(6, dtype=F64), rtol=0, atol=1e-10)
    outside = X[:, :3] - Q[:, :3] @ (Q[:, :3].mT @ X[:, :3])
    assert float(outside.norm()) <= 1e-9


@pytest.mark.parametrize("zero", [1.0, 0.0, 1e-40])
def test_orthonormalize_survives_dependent_columns(zero):
    X = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    X[:, 3] = X[:, 0] - X[:, 1]
    X[:, 2] = zero
    Q = orthonormalize_(X)
    assert Q.isfinite().all()
    torch.testing.assert_close(Q.mT @ Q, torch.eye(4), rtol=0, atol=1e-4)


def test_rotate_in_place():
    X = torch.randn(9000, 3, dtype=F64, generator=torch.Generator().manual_seed(0))
    C = torch.randn(3, 3, dtype=F64, generator=torch.Generator().manual_seed(1))
    expected = X @ C
    assert rotate_(X, C) is X
    torch.testing.assert_close(X, expected)


def test_inner_products_by_blocks_of_rows():
    generator = torch.Generator().manual_seed(0)
    X, Y, C = (torch.randn(*shape, generator=generator) for shape in ((5000, 3), (5000, 2), (3, 2)))
    X, Y, C = X.double(), Y.double(), C.double()
    rest = Y - X @ C
    torch.testing.assert_close(residual_gram(X, Y, C), rest.mT @ rest)
    both = grams((X, X), (X, Y))
    torch.testing.assert_close(both[0], X.mT @ X)
    torch.testing.assert_close(both[1], X.mT @ Y)


def test_a_block_is_turned_and_made_orthonormal_at_once():
    """What was rotated and then made orthonormal, from known inner products or, where these are lost, from new ones."""
    generator = torch.Generator().manual_seed(4)
    X = torch.randn(5000, 6, dtype=F64, generator=generator)
    Q = torch.linalg.qr(torch.randn(6, 6, dtype=F64, generator=generator)).Q
    for scale in (1.0, 1e-9):
        Y = X @ torch.diag(torch.tensor([1, 1, 1, 1, 1, scale], dtype=F64))
        expected = orthonormalize_(Y @ Q)
        found = orthonormalize_(Y.clone(), Q.mT @ (Y.mT @ Y) @ Q, Q)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_lengths():
    X = torch.randn(5000, 3, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(lengths(X), torch.linalg.vector_norm(X.double(), dim=0))
    assert lengths(X).dtype == F64


@pytest.fixture(params=["numpy", "torch", "threads"])
def by(request, monkeypatch):
    """Each way through the rows: numpy's products, torch's, as on another device, and shared among threads."""
    if request.param == "torch":
        monkeypatch.setattr(row_blocks, "_array", lambda X: X)
    if request.param == "threads":
        monkeypatch.setattr(row_blocks, "PIECE", 1)
        monkeypatch.setattr(row_blocks, "thread_count", lambda: 3)


@pytest.mark.parametrize("by", ["numpy", "threads"], indirect=True)
def test_an_image_is_written_by_rows_and_its_products_are_exact(by):
    generator = torch.Generator().manual_seed(1)
    X, Y = torch.randn(7000, 5, generator=generator), torch.randn(7000, 5, dtype=F64, generator=generator)

    def image(i, j, buffer):
        buffer[:] = Y[i:j].numpy()

    written = torch.empty_like(X)
    torch.testing.assert_close(image_gram(image, X, written), X.double().mT @ Y, rtol=1e-13, atol=1e-11)
    torch.testing.assert_close(written, Y.float(), rtol=0, atol=0)


def test_all_ways_through_the_rows_agree(by):
    generator = torch.Generator().manual_seed(0)
    X, Y = (torch.randn(7000, 5, generator=generator) for _ in range(2))
    C = torch.randn(5, 3, dtype=F64, generator=generator)
    x, y = X.double(), Y.double()
    torch.testing.assert_close(exact_gram(X), x.mT @ x, rtol=1e-13, atol=1e-11)
    torch.testing.assert_close(gram(X, Y), x.mT @ y, rtol=1e-6, atol=2e-3)
    torch.testing.assert_close(gram(X, y), x.mT @ y, rtol=1e-13, atol=1e-11)
    rest = y[:, :3] - x @ C.float().double()
    torch.testing.assert_close(residual_gram(X, Y[:, :3], C), rest.mT @ rest, rtol=1e-5, atol=2e-2)
    torch.testing.assert_close(lengths(X), torch.linalg.vector_norm(x, dim=0), rtol=1e-6, atol=0)
    wide = torch.zeros(7000, 3, dtype=F64)
    assert exact_product_(X, C[:, :2], wide[:, 1:]).data_ptr() == wide[:, 1:].data_ptr()
    torch.testing.assert_close(wide[:, 1:], x @ C[:, :2], rtol=1e-14, atol=1e-14)
    assert not wide[:, 0].any()
    both = torch.cat([x, y], dim=1) @ torch.cat([C, 2 * C])
    first, second = x.clone(), torch.zeros(7000, 4, dtype=F64)
    turn = torch.randn(10, 7, dtype=F64, generator=generator)
    recombine_([first, y], turn, [first, second[:, 1:3]])
    torch.testing.assert_close(
        torch.cat([first, second[:, 1:3]], dim=1), torch.cat([x, y], dim=1) @ turn, rtol=1e-12, atol=1e-12
    )
    assert not second[:, [0, 3]].any()
    subtract_(both, [x, y], [C, 2 * C])
    torch.testing.assert_close(both, torch.zeros_like(both), rtol=0, atol=1e-13)
    torch.testing.assert_close(rotate_(x.clone(), C @ C.mT), x @ (C @ C.mT), rtol=1e-13, atol=1e-13)


def test_ctrl_c_leaves_no_block_half_replaced(monkeypatch):
    """Between two blocks of rows it waits for the last one, and comes through then."""
    monkeypatch.setattr(row_blocks, "PIECE", 1)
    X = torch.randn(7000, 4, dtype=F64, generator=torch.Generator().manual_seed(0))
    C = torch.randn(4, 4, dtype=F64, generator=torch.Generator().manual_seed(1))
    product, expected, calls = row_blocks._product, X @ C, []

    def interrupted(*given):
        calls.append(given)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return product(*given)

    monkeypatch.setattr(row_blocks, "_product", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rotate_(X, C)
    assert len(calls) > 2
    torch.testing.assert_close(X, expected, rtol=1e-12, atol=1e-12)
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        recombine_([X], C, [X])
    torch.testing.assert_close(X, expected @ C, rtol=1e-12, atol=1e-12)
