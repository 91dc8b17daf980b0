import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow import large
from krylow.operators.compiled import available
from krylow.refine.chebyshev import filtered_subspace
from krylow.refine.filtered import FilteredBlock
from krylow.start import communities
from krylow.start.communities import community_block

BLOCKS = 12
N = 400 * BLOCKS


def block_model(n=N, seed=0, chain=0, spread=0.0):
    """Blocks of the same size with about 16 neighbours inside and one outside, the last one with a chain hanging off.

    Weights are the geometric means of nodes' strengths, whose logarithms have a standard deviation of ``spread``.
    Returns the Laplacian and the block of each node; the chain counts to the last block.
    """
    rng, size = np.random.default_rng(seed), n // BLOCKS
    i = rng.integers(n, size=8 * n)
    j = i - i % size + rng.integers(size, size=8 * n)
    a, b = rng.integers(n, size=(2, n // 2))
    hang = np.arange(n - 1, n + chain)
    rows, cols = np.r_[i, a, hang[:-1]], np.r_[j, b, hang[1:]]
    W = scipy.sparse.csr_array((np.ones(rows.size), (rows, cols)), shape=(n + chain, n + chain))
    W.setdiag(0)
    strength = scipy.sparse.diags_array(np.random.default_rng(seed).lognormal(0, spread / 2, n + chain))
    W = strength @ (W + W.T) @ strength
    labels = np.minimum(np.arange(n + chain) // size, BLOCKS - 1)
    return kl.laplacian(scipy.sparse.csr_array(W)), torch.from_numpy(labels)


def truth(L, k):
    values, vectors = scipy.sparse.linalg.eigsh(L.to_scipy(), k + 1, which="SA", tol=1e-9, ncv=4 * k)
    order = np.argsort(values)
    return values[order], vectors[:, order[:k]]


def error(U, X):
    Q = np.linalg.qr(np.asarray(X))[0]
    return 1 - np.linalg.norm(U.T @ Q) ** 2 / U.shape[1]


def test_the_first_columns_are_near_the_lowest_frequencies():
    L, labels = block_model()
    values, U = truth(L, BLOCKS)
    X, theta = community_block(L, torch.ones(L.n, dtype=torch.float64), labels, BLOCKS, 32)
    assert X.shape == (N, 32)
    assert theta.shape == (BLOCKS,)
    assert error(U, X[:, :BLOCKS]) < 0.02
    assert (theta.numpy() >= values[:BLOCKS] - 1e-9).all()  # Ritz values of a subspace lie above
    assert torch.linalg.matrix_rank(X) == 32


def test_a_block_needs_room_for_random_columns_and_enough_communities():
    L, labels = block_model()
    ones = torch.ones(L.n, dtype=torch.float64)
    assert community_block(L, ones, labels, BLOCKS, BLOCKS + communities.RANDOM) is not None
    assert community_block(L, ones, labels, BLOCKS, BLOCKS + communities.RANDOM - 1) is None
    assert community_block(L, ones, labels, BLOCKS + 1, 64) is None


def test_small_communities_count_as_one(monkeypatch):
    monkeypatch.setattr(communities, "MOST", BLOCKS + 1)
    L, labels = block_model()
    pieces = labels.clone()
    pieces[::50] = torch.arange(BLOCKS, BLOCKS + pieces[::50].numel())  # each of one node
    _, U = truth(L, BLOCKS)
    X, _ = community_block(L, torch.ones(L.n, dtype=torch.float64), pieces, BLOCKS, 32)
    assert error(U, X[:, :BLOCKS]) < 0.05
    assert len(np.unique(X[:, 1].numpy().round(8))) == BLOCKS + 1


@pytest.mark.parametrize("chain", [0, 12])
def test_what_no_community_shows_is_found(chain):
    """A chain of 12 nodes has a frequency of about (pi / 24)^2, far below those of the blocks."""
    L, labels = block_model(chain=chain)
    k = BLOCKS + (chain > 0)
    values, U = truth(L, k)
    X, near = community_block(L, torch.ones(L.n, dtype=torch.float64), labels, BLOCKS, 32)
    if chain:
        assert error(U, X[:, :BLOCKS]) > 0.5 / k
        near = torch.cat([near, near[-1:]])
    found = filtered_subspace(L, X, k, tol=1e-3, max_products=10**5, near=near)
    assert float(found.evidence.error) <= 1e-3
    assert error(U, found.X[:, :k]) <= 1e-3
    np.testing.assert_allclose(found.theta[:k], values[:k], atol=1e-2)


def test_a_vector_that_communities_hide_is_waited_for(monkeypatch):
    """A weakly tied node has a frequency below the blocks', and wide weights leave much below the filter's interval."""
    L, labels = block_model(seed=2, spread=1.0)
    _, U = truth(L, BLOCKS)

    def found():
        X, near = community_block(L, torch.ones(L.n, dtype=torch.float64), labels, BLOCKS, 32)
        return filtered_subspace(L, X, BLOCKS, tol=1e-3, max_products=10**6, near=near)

    pairs = found()
    assert float(pairs.evidence.error) <= 1e-3
    assert error(U, pairs.X[:, :BLOCKS]) <= 1e-3
    monkeypatch.setattr(FilteredBlock, "unseen", lambda *_: 0.0)
    pairs = found()
    assert float(pairs.evidence.error) <= 1e-3
    assert error(U, pairs.X[:, :BLOCKS]) > 0.9 / BLOCKS  # it is missing


@pytest.mark.skipif(not available(), reason="needs numba (pip install krylow[large])")
@pytest.mark.parametrize("kind", ["combinatorial", "normalized"])
def test_communities_are_found_and_save_passes(monkeypatch, kind):
    L, _ = block_model(24_000)
    order = torch.randperm(L.n, generator=torch.Generator().manual_seed(0)).numpy()
    W = -L.to_scipy()[order][:, order]
    W.setdiag(0)
    L = kl.laplacian(scipy.sparse.csr_array(W), kind)
    found = kl.subspace(L, BLOCKS, tol=1e-3, method="chebyshev")
    monkeypatch.setattr(large, "community_block", lambda *_: None)
    usual = kl.subspace(L, BLOCKS, tol=1e-3, method="chebyshev")
    assert found.passes < usual.passes
    _, U = truth(L, BLOCKS)
    for answer in (found, usual):
        assert answer.status == kl.Status.CONVERGED
        assert error(U, answer.basis) <= 1e-3
