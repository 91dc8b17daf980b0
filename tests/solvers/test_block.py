"""Filtered blocks of one large graph: what they find, and how well they know their own error."""

from functools import cache

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.certificate import Status
from krylow.linalg.components import null_space
from krylow.linalg.row_blocks import gram
from krylow.operators import DenseOperator, SparseOperator
from krylow.profile import GraphProfile
from krylow.solvers import Problem
from krylow.solvers._block import Block
from krylow.solvers._estimate import mixed
from krylow.solvers._filter import Filter, spectrum_top
from krylow.solvers.chebyshev import filtered_subspace
from krylow.testing import from_spectrum, laplacian_matrix, random_graph

F64 = torch.float64


def blocks(n=2400, parts=6, seed=0):
    """A sparse stochastic block model as scipy's adjacency, with a wide gap after ``parts`` frequencies."""
    rng = np.random.default_rng(seed)
    part = rng.integers(parts, size=n)
    i = rng.integers(n, size=60 * n)
    j = rng.integers(n, size=60 * n)
    keep = (part[i] == part[j]) | (rng.random(60 * n) < 0.03)
    W = scipy.sparse.csr_array((np.ones(keep.sum()), (i[keep], j[keep])), shape=(n, n))
    W = W.maximum(W.T)
    W.setdiag(0)
    W.eliminate_zeros()
    return W


@cache
def truth(k):
    """The lowest pairs of ``blocks()`` by scipy's shift-invert Lanczos, to rounding."""
    L = scipy.sparse.csgraph.laplacian(blocks()).tocsc()
    lam, U = scipy.sparse.linalg.eigsh(L, k + 1, sigma=-0.01, v0=np.ones(L.shape[0]) + np.arange(L.shape[0]) % 7)
    return lam, U


def error(basis, U, k):
    return 1 - np.linalg.norm(U[:, :k].T @ basis.double().numpy()) ** 2 / k


def test_a_sweep_measures_what_leaks():
    lam = torch.cat([torch.linspace(0, 0.1, 4, dtype=F64), torch.linspace(1, 8, 196, dtype=F64)])
    L = from_spectrum(lam)
    U = torch.linalg.eigh(L)[1]
    noise = torch.randn(200, 6, dtype=F64, generator=torch.Generator().manual_seed(0))
    block = Block(DenseOperator(L), U[:, :6] + 1e-3 * noise, 8.0)
    for _ in range(2):
        block.sweep(4, Filter(3, 1.0, 8.0, 0.0))
        leaks = 1 - (U[:, :4].mT @ block.X[:, :4]).square().sum() / 4
        assert float(leaks) <= float(block.estimate.outside[:4].square().mean()) <= 1e3 * float(leaks) + 1e-12


def test_a_filter_stays_in_range_where_the_lowest_frequency_is_overrated():
    path = scipy.sparse.diags_array([np.ones(2999), np.ones(2999)], offsets=[-1, 1]).tocsr()
    L = kl.laplacian(path.astype(np.float32))
    X = torch.randn(3000, 6, generator=torch.Generator().manual_seed(0))
    block = Block(L, X, 4.0)
    block.sweep(3, Filter(200, 1.5, 4.0, 1.4))  # at the frequency 0 this polynomial would be beyond what float32 holds
    assert block.X.isfinite().all()
    assert block.estimate.theta.isfinite().all()
    assert (gram(block.X, block.X) - torch.eye(6)).abs().max() < 1e-5


@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-6, 1e-10])
def test_large_graph_is_solved_to_what_was_asked_for(tol):
    W = blocks()
    lam, U = truth(6)
    found = kl.subspace(kl.laplacian(W), 6, method="chebyshev", tol=tol)
    assert found.status == Status.CONVERGED
    assert error(found.basis, U, 6) <= tol
    assert found.basis.dtype == F64
    torch.testing.assert_close(found.basis.mT @ found.basis, torch.eye(6, dtype=F64), rtol=0, atol=1e-10)
    before = found.operator.products
    assert float(found.error_bound) <= tol
    assert found.operator.products == before  # what the iteration knows is not computed again
    assert not found.certificate.proved
    np.testing.assert_allclose(found.ritz_values, lam[:6], atol=30 * tol)


def test_a_loose_answer_costs_less():
    L = kl.laplacian(blocks())
    loose, tight = (kl.subspace(L, 6, method="chebyshev", tol=tol) for tol in (1e-2, 1e-8))
    assert loose.passes < tight.passes


def test_no_gap_of_a_large_graph_is_said_with_the_last_gap():
    side = 50
    path = scipy.sparse.diags_array([np.ones(side - 1), np.ones(side - 1)], offsets=[-1, 1])
    eye = scipy.sparse.eye_array(side)
    W = (scipy.sparse.kron(path, eye) + scipy.sparse.kron(eye, path)).tocsr()
    for method in ("chebyshev", "multilevel"):
        found = kl.subspace(kl.laplacian(W), 5, method=method)  # frequencies 5 and 6 of a square are equal
        assert found.status == Status.NO_GAP, method
        assert int(found.certificate.well_defined) == 4
        assert float(found.error_bound) == float("inf")


def test_null_space_of_many_components_needs_no_iteration():
    W = scipy.sparse.block_diag([np.ones((3, 3)) - np.eye(3)] * 900).tocsr()
    for method in ("chebyshev", "multilevel"):
        found = kl.subspace(kl.laplacian(W), 5, method=method)
        assert found.products == 0
        assert found.status == Status.NO_GAP
        assert float(found.ritz_values.abs().max()) == 0
        assert float((kl.laplacian(W) @ found.basis).abs().max()) <= 1e-12


def test_interruption_of_a_large_run():
    calls = []

    def stop(progress):
        calls.append(progress)
        if len(calls) == 2:
            raise KeyboardInterrupt

    found = kl.subspace(kl.laplacian(blocks()), 6, method="chebyshev", tol=1e-12, callback=stop)
    assert found.status == Status.INTERRUPTED
    assert found.basis.shape == (2400, 6)
    assert found.basis.isfinite().all()


def test_what_l_makes_of_a_block():
    L = laplacian_matrix(random_graph(40, 0.2, seed=5))
    A = DenseOperator(L)
    X = torch.linalg.qr(torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).Q
    for dtype, tol, atol in ((torch.float64, 1e-6, 1e-12), (torch.float32, 1e-3, 1e-4)):
        block = Block(DenseOperator(L.to(dtype)), X.to(dtype), 40.0)
        made = block.image(A, tol)
        H = X.mT @ L @ X
        torch.testing.assert_close(made.H, H, atol=atol, rtol=0)
        torch.testing.assert_close(made.LX.double(), L @ X, atol=atol, rtol=0)
        assert bool(((made.H - H).abs() <= 2 * made.rounding).all())


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 7, 8])
def test_a_filtered_block_is_the_polynomial_of_it(degree):
    L = laplacian_matrix(random_graph(60, seed=3)).double()
    high = 2 * float(L.diagonal().max())
    X = torch.randn(60, 4, dtype=F64, generator=torch.Generator().manual_seed(1))
    block = Block(DenseOperator(L), X.clone(), high, orthonormal=True)
    block.filter(Filter(1, high / 4, high, 0.0))  # so that all buffers have changed places
    X = block.X.clone()
    G, S = block.filter(Filter(degree, high / 4, high, 0.0))
    low = high / 4
    lam, V = torch.linalg.eigh(L)
    p = np.polynomial.chebyshev.Chebyshev([0] * degree + [1])
    p = torch.from_numpy(p((2 * lam.numpy() - high - low) / (high - low)) / p((-high - low) / (high - low)))
    expected = V @ (p[:, None] * (V.mT @ X))
    torch.testing.assert_close(block.X, expected)
    torch.testing.assert_close(G, X.mT @ expected)
    torch.testing.assert_close(S, expected.mT @ expected)
    torch.testing.assert_close(block.image(DenseOperator(L), 1e-6).LX, L @ block.X)


@pytest.mark.parametrize("degree", [5, 6])
def test_a_filtered_block_is_orthogonal_to_known_null_vectors(degree):
    """Rounding along null vectors is amplified the most, and is no part of what a block finds."""
    L = kl.laplacian(blocks())
    null = null_space(L)
    X = torch.randn(L.n, 3, dtype=F64, generator=torch.Generator().manual_seed(2))
    block = Block(L, X, 200.0, null=null)
    U, start = null.basis(), block.X.clone()
    block.X += 1e-4 * U
    products, _ = block.filter(Filter(degree, 50.0, 200.0, 30.0))
    assert float((U.mT @ block.X).abs().max()) < 1e-12
    torch.testing.assert_close(products, start.mT @ block.X, rtol=0, atol=5e-9)


@pytest.mark.parametrize("method", ["chebyshev", "multilevel", "davidson"])
@pytest.mark.parametrize(("product", "tol"), [(5, 1e-13), (30, 1e-13), (5, 1e-3), (12, 1e-3)])
def test_interruption_in_the_middle_of_a_filter(method, product, tol, monkeypatch):
    """What the filter has made of the block until then is the answer: no worse than what it began with."""
    W, three_term, calls = blocks(), SparseOperator.three_term, []

    def stop(self, *given, **options):
        calls.append(0)
        if self.n == W.shape[0] and len(calls) == product:
            raise KeyboardInterrupt
        return three_term(self, *given, **options)

    monkeypatch.setattr(SparseOperator, "three_term", stop)
    found = kl.subspace(kl.laplacian(W), 4, method=method, tol=tol)
    assert found.status == Status.INTERRUPTED
    torch.testing.assert_close(found.basis.mT @ found.basis, torch.eye(4, dtype=F64), rtol=0, atol=1e-8)
    assert float(found.ritz_values.max()) < 0.9 * float(kl.laplacian(W).diagonal().mean())  # a random vector's


def test_a_frequency_in_doubt_is_still_no_lower_than_those_before_it():
    theta, doubt = torch.tensor([0.0, 1.0, 2.0]).double(), torch.tensor([0.0, 0.1, 5.0]).double()
    mixing = mixed(torch.ones(3, 3).double(), theta, doubt)
    torch.testing.assert_close(mixing[0], torch.tensor([0.0, 1 / 0.9, 1 / 0.9]).double())
    assert float(mixing[1, 2]) > 1e100  # here nothing tells them apart
    assert float(mixing[2].abs().max()) == 0


def test_guards_in_the_same_cluster_do_not_hide_that_nothing_leaks():
    """The 7th of 15 close frequencies: guards grow as it does but have settled, so that others are outside."""
    cluster, others = torch.linspace(0.08, 0.084, 15, dtype=F64), torch.linspace(0.4, 1.8, 200, dtype=F64)
    L = from_spectrum(torch.cat([cluster, others]))
    U = torch.linalg.eigh(L).eigenvectors[:, :15]
    X = torch.randn(215, 16, dtype=F64, generator=torch.Generator().manual_seed(0))
    block = Block(DenseOperator(L), X, 1.8)
    for _ in range(3):
        block.sweep(7, Filter(8, 0.39, 1.8, 0.08))
    leaks = block.X[:, :7] - U @ (U.mT @ block.X[:, :7])  # of the cluster, which alone is told apart by this filter
    true = float(leaks.square().sum() / 7)
    assert true < 1e-8
    assert true / 10 < block.estimate.error(7) < 1e-6


@pytest.mark.parametrize("again", [True, False])
def test_known_null_vectors_stay_out_of_the_block_until_the_end(again):
    W = scipy.sparse.block_diag([blocks(1500, 3, seed=1), blocks(900, 2, seed=2)], format="csr")
    L = kl.laplacian(W)
    null = null_space(L)
    assert null.count == 2
    assert null.lowest
    U = null.basis()
    X = torch.randn(L.n, 8, generator=torch.Generator().manual_seed(0))
    block = Block(L.float(), X, spectrum_top(L), null=null)
    # Rounding along the null vectors grows by ten orders of magnitude.
    block.sweep(3, Filter(40, block.high / 4, block.high, 1.0))
    assert float((U.mT @ block.X.double()).abs().max()) < 1e-5
    block.rayleigh_ritz(L.double(), 1e-6 if again else 1e-3)
    theta, basis, residuals = block.finish(L.double(), 3, again=again)
    assert basis.shape == (L.n, 5)
    torch.testing.assert_close(basis[:, :2], U, rtol=0, atol=0)
    torch.testing.assert_close(basis.mT @ basis, torch.eye(5, dtype=F64), rtol=0, atol=1e-12)
    rounding = 1e-9 if again else 1e-6 * block.high  # the last product was of vectors in float32
    torch.testing.assert_close(theta, (basis * (L @ basis)).sum(0), rtol=0, atol=rounding)
    torch.testing.assert_close(residuals, (L @ basis - theta * basis).norm(dim=0), rtol=1e-6, atol=rounding)


@pytest.mark.parametrize("tol", [1e-3, 1e-7])
def test_null_vectors_of_few_components_are_part_of_the_answer(tol):
    parts = [blocks(1000, 3, seed=1), blocks(700, 2, seed=2), blocks(500, 2, seed=3)]
    L = scipy.sparse.csgraph.laplacian(scipy.sparse.block_diag(parts, format="csr")).tocsr()
    lam, U = np.linalg.eigh(L.toarray())
    sub = kl.subspace(L, 7, tol=tol, method="chebyshev", seed=0)
    assert sub.status is Status.CONVERGED
    assert error(sub.basis, U, 7) <= tol
    np.testing.assert_allclose(sub.ritz_values, lam[:7], atol=1e-3 if tol > 1e-6 else 1e-6)
    np.testing.assert_allclose(sub.basis.mT @ sub.basis, np.eye(7), atol=1e-12)


def test_a_block_as_wide_as_the_graph_leaves_room_for_null_vectors():
    L = kl.laplacian(blocks(300, 3))
    X = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
    problem = Problem(L, 3, GraphProfile(L), null=null_space(L))
    found = filtered_subspace(problem, X, 10**6, problem.watch())
    U = np.linalg.eigh(L.to_scipy().toarray())[1]
    assert error(found.X[:, :3], U, 3) <= 1e-3


def hiding_block(hidden):
    """A block that knows six vectors of low frequency to a part in a thousand: all there are, or all but one."""
    generator = torch.Generator().manual_seed(0)
    low = torch.linspace(0, 0.3, 6 + hidden, dtype=F64)
    L = from_spectrum(torch.cat([low, torch.linspace(4, 16, 600 - low.numel(), dtype=F64)]))
    U = torch.linalg.eigh(L)[1]
    known = U[:, [0, 1, 2, 4, 5, 6] if hidden else range(6)]
    others = torch.randn(600, 10, dtype=F64, generator=generator)
    X = torch.cat([known + 1e-3 * torch.randn(600, 6, dtype=F64, generator=generator), others], dim=1)
    block = Block(DenseOperator(L), X, 16.0, undetected=600.0)
    return block, U


@pytest.mark.parametrize("hidden", [False, True])
def test_a_probe_of_the_guards_shows_what_is_hidden(hidden):
    block, U = hiding_block(hidden)
    block.sweep(6, Filter(3, 7.0, 16.0, 0.0))  # of much beside the six
    kept = block.X[:, :6].clone()
    assert block.estimate.missing(6) > 1
    assert float(block.estimate.theta[6]) > 0.6
    block.probe(6, Filter(9, 4.0, 16.0, 0.0))
    assert block.estimate.sweeps == 2
    torch.testing.assert_close(block.X[:, :6], kept, rtol=0, atol=0)
    torch.testing.assert_close(block.X.mT @ block.X, torch.eye(16, dtype=F64), rtol=0, atol=1e-8)
    if hidden:
        assert float(block.estimate.theta[6]) == pytest.approx(0.15, abs=0.01)
    else:
        assert block.estimate.missing(6) <= 1
        assert float(block.estimate.theta[6]) > 3
        leaks = (1 - (U[:, :6].mT @ kept).square().sum(0)).clamp(min=0).sqrt()
        assert bool((leaks <= 1.1 * block.estimate.outside[:6]).all())
        assert bool((block.estimate.outside[:6] <= 5 * leaks).all())


def test_a_probe_is_as_good_as_a_sweep_of_the_guards():
    block, _ = hiding_block(False)
    other, _ = hiding_block(False)
    for each in (block, other):
        each.sweep(6, Filter(4, 4.0, 16.0, 0.0))
    block.probe(6, Filter(5, 4.0, 16.0, 0.0))
    other.sweep(6, Filter(5, 4.0, 16.0, 0.0))  # the first six grow as their frequencies say
    assert block.estimate.undetected == pytest.approx(other.estimate.undetected, rel=0.05)
    torch.testing.assert_close(block.estimate.theta[6:], other.estimate.theta[6:], rtol=0.02, atol=0)
    products = block.L.products
    assert products == 4 * 16 + 5 * 10
