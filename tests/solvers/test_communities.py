import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.profile import GraphProfile
from krylow.solvers import Problem, chebyshev
from krylow.solvers._block import Block
from krylow.solvers._communities import community_block
from krylow.solvers._estimate import Estimate
from krylow.solvers.chebyshev import filtered_subspace

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


def shuffled(L, kind="combinatorial"):
    """The Laplacian of the same graph with its nodes in a random order."""
    order = np.random.default_rng(0).permutation(L.n)
    W = -L.to_scipy()[order][:, order]
    W.setdiag(0)
    return kl.laplacian(scipy.sparse.csr_array(W), kind)


def truth(L, k):
    values, vectors = scipy.sparse.linalg.eigsh(L.to_scipy(), k + 1, which="SA", tol=1e-9, ncv=4 * k)
    order = np.argsort(values)
    return vectors[:, order[:k]]


def ones(L):
    return torch.ones(L.n, dtype=torch.float64)


def error(U, X):
    Q = np.linalg.qr(np.asarray(X))[0]
    return 1 - np.linalg.norm(U.T @ Q) ** 2 / U.shape[1]


def test_the_first_columns_are_near_the_lowest_frequencies():
    L, labels = block_model()
    U = truth(L, BLOCKS)
    X = community_block(L, ones(L), labels, BLOCKS, 32)
    assert X.shape == (N, 32)
    assert error(U, X[:, :BLOCKS]) < 0.02
    assert torch.linalg.matrix_rank(X) == 32


def test_a_block_needs_room_for_random_columns_and_enough_communities():
    L, labels = block_model()
    assert community_block(L, ones(L), labels, BLOCKS, BLOCKS + 8) is not None
    assert community_block(L, ones(L), labels, BLOCKS, BLOCKS + 7) is None
    assert community_block(L, ones(L), labels, BLOCKS + 1, 64) is None
    assert community_block(L, ones(L), labels, BLOCKS - 1, 64) is None  # one more has a frequency as low


def test_small_communities_count_as_one():
    L, labels = block_model()
    pieces = labels.clone()
    pieces[::15] = torch.arange(BLOCKS, BLOCKS + pieces[::15].numel())  # each of one node
    U = truth(L, BLOCKS)
    X = community_block(L, ones(L), pieces, BLOCKS, 32)
    assert error(U, X[:, :BLOCKS]) < 0.05
    assert 240 < len(np.unique(X[:, :BLOCKS].numpy(), axis=0)) <= 256  # of 332


def planted(L, labels, tol=1e-3):
    X = community_block(L, ones(L), labels, BLOCKS, 32)
    return filtered_subspace(
        problem := Problem(L, BLOCKS, GraphProfile(L), tol), X, 10**6, problem.watch(), structured=True
    )


def test_a_block_model_is_solved_from_there():
    L, labels = block_model()
    pairs = planted(L, labels)
    assert float(pairs.evidence.error) <= 1e-3
    assert error(truth(L, BLOCKS), pairs.X[:, :BLOCKS]) <= 1e-3


#: Graphs with a vector that no community shows: a chain of 12 nodes has a frequency of about (pi / 24)^2, far below the
#: blocks'; a weakly tied node has a low one, and wide weights leave much else below the filter's interval.
HIDING = {"chain": {"chain": 12}, "weights": {"seed": 2, "spread": 1.0}}


@pytest.mark.parametrize("kind", HIDING)
def test_a_start_that_hides_something_is_given_up(kind):
    L, labels = block_model(**HIDING[kind])
    assert planted(L, labels) is None


@pytest.mark.parametrize("kind", HIDING)
def test_it_is_solved_without(kind):
    L = shuffled(block_model(24_000, **HIDING[kind])[0])
    found = kl.subspace(L, BLOCKS, tol=1e-3, method="chebyshev")
    assert found.status == kl.Status.CONVERGED
    assert error(truth(L, BLOCKS), found.basis) <= 1e-3


@pytest.mark.parametrize("kind", ["combinatorial", "normalized"])
def test_communities_are_found_and_save_passes(monkeypatch, kind):
    L = shuffled(block_model(24_000)[0], kind)
    found = kl.subspace(L, BLOCKS, tol=1e-3, method="chebyshev")
    monkeypatch.setattr(chebyshev, "community_block", lambda *_: None)
    usual = kl.subspace(L, BLOCKS, tol=1e-3, method="chebyshev")
    assert found.passes < usual.passes
    U = truth(L, BLOCKS)
    for answer in (found, usual):
        assert answer.status == kl.Status.CONVERGED
        assert error(U, answer.basis) <= 1e-3


def test_nothing_is_believed_while_something_may_be_hidden(monkeypatch):
    monkeypatch.setattr(Estimate, "missing", lambda *_: 1.1)
    assert planted(*block_model()) is None


def test_once_the_wanted_vectors_are_found_guards_alone_look_for_hidden_ones(monkeypatch):
    """A graph of far more nodes hides a vector for longer: two sweeps of the whole block here, then guards alone."""
    missing = Estimate.missing
    calls = []

    def counted(name):
        run = getattr(Block, name)
        return lambda block, k, p: (calls.append((name, p.degree)), run(block, k, p))[1]

    monkeypatch.setattr(Estimate, "missing", lambda estimate, k: 1e8 * missing(estimate, k))
    for name in ("sweep", "probe"):
        monkeypatch.setattr(Block, name, counted(name))
    L, labels = block_model()
    pairs = planted(L, labels, tol=1e-4)
    names = [name for name, _ in calls]
    assert names[:2] == ["sweep", "sweep"]
    assert set(names[2:]) == {"probe"}
    assert calls[1][1] < calls[2][1]  # the wanted ones need fewer degrees than the hidden ones
    assert error(truth(L, BLOCKS), pairs.X[:, :BLOCKS]) <= 1e-3
