"""The lowest frequencies of a coarse graph."""

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.graph import as_operator
from krylow.linalg.fill import estimate_fill
from krylow.solvers._aggregation import aggregate
from krylow.solvers._coarse import SETTINGS, CoarseGraph, CoarsestSettings, coarse_count, solve_coarsest
from krylow.solvers._filter import Filter
from krylow.testing import grid, path
from krylow_lab.large.graphs import make


def sparse(W):
    return kl.laplacian(scipy.sparse.csr_array(W.numpy()))


@pytest.mark.parametrize("n", [(6, 5), (31, 40)])  # decomposed, factorised
def test_lowest_frequencies(n):
    L = sparse(grid(*n))
    found = solve_coarsest(CoarseGraph(L), 5, 8, 1e-10)
    values, vectors = torch.linalg.eigh(L.to_dense())
    torch.testing.assert_close(found.theta[:5], values[:5], atol=1e-9, rtol=1e-6)
    overlap = torch.linalg.matrix_norm(vectors[:, :5].mT @ found.V[:, :5]) ** 2
    assert float(5 - overlap) <= 1e-8
    torch.testing.assert_close(found.V.mT @ found.V, torch.eye(8).double(), atol=1e-9, rtol=0)


def test_repeated_frequencies_are_found():
    L = sparse(grid(24, 24))  # frequencies of a square come in pairs
    found = solve_coarsest(CoarseGraph(L), 6, 8, 1e-10)
    torch.testing.assert_close(found.theta[:6], torch.linalg.eigvalsh(L.to_dense())[:6], atol=1e-9, rtol=1e-6)


def test_more_copies_of_a_frequency_than_starts_are_found():
    arm = grid(12, 11)
    n = arm.shape[0]
    W = torch.zeros(8 * n + 1, 8 * n + 1, dtype=torch.float64)
    for i in range(8):  # eight arms of a star: frequencies come seven at a time
        W[i * n : (i + 1) * n, i * n : (i + 1) * n] = arm
        W[-1, i * n] = W[i * n, -1] = 1.0
    L = sparse(W)
    values = torch.linalg.eigvalsh(L.to_dense())
    assert SETTINGS.starts < 7
    found = solve_coarsest(CoarseGraph(L), 8, 11, 1e-10)
    torch.testing.assert_close(found.theta[:8], values[:8], atol=1e-9, rtol=1e-6)
    torch.testing.assert_close(found.V.mT @ found.V, torch.eye(11).double(), atol=1e-9, rtol=0)


def test_the_inverse_is_that_of_the_shifted_graph():
    L = sparse(grid(31, 40))
    found = solve_coarsest(CoarseGraph(L), 5, 8, 1e-6)
    Y = torch.randn(L.n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    shift = SETTINGS.shift * float(L.gershgorin()[1])
    X = found.inverse(Y)
    torch.testing.assert_close(L @ X + shift * X, Y, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("settings", [CoarsestSettings(factorised=1000), CoarsestSettings(fill=1.0)])
def test_what_is_too_large_is_left_to_coarser_graphs(settings):
    L = sparse(grid(31, 40))
    assert solve_coarsest(CoarseGraph(L, settings), 5, 8, 1e-6) is None


@pytest.mark.parametrize("settings", [SETTINGS, CoarsestSettings(factorised=100)])
def test_a_coarse_graph_counts_the_frequencies_up_to_a_cutoff(settings):
    """By about a tenth, whether the first coarse graph can be factorised or a coarser one."""
    L = sparse(grid(61, 43))
    lam = torch.linalg.eigvalsh(L.to_dense())
    smoother = Filter(8, 8 / 30, 8.0, 0.0)
    level = aggregate(L, torch.ones(L.n, dtype=torch.float64), smoother.low / 2)
    for k in (5, 20):
        cutoff = float(lam[k - 1] + lam[k]) / 2
        counted = coarse_count(L, level, CoarseGraph(level.coarse, settings), cutoff, smoother)
        assert abs(counted - k) <= max(1, k // 5)


def test_signed_graphs_are_shifted_above_zero():
    W = path(600)
    W[3, 4] = W[4, 3] = -0.5
    W[3, 5] = W[5, 3] = 1.0
    L = sparse(W)
    found = solve_coarsest(CoarseGraph(L), 3, 6, 1e-10)
    np.testing.assert_allclose(found.theta[:3], torch.linalg.eigvalsh(L.to_dense())[:3], atol=1e-7)


def test_a_few_hundred_nodes_are_factorised_however_much_that_fills():
    """Solves with the factor are what a finer graph's answer is corrected by."""
    L = as_operator(make("sbm20", 700, 0))
    assert SETTINGS.decomposed < L.n <= SETTINGS.any_fill
    assert estimate_fill(L).entries > SETTINGS.fill * L.n
    found = solve_coarsest(CoarseGraph(L), 20, 24, 1e-10)
    torch.testing.assert_close(found.theta[:20], torch.linalg.eigvalsh(L.to_dense())[:20], atol=1e-9, rtol=1e-6)
    y = torch.randn(L.n, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(L @ found.inverse(y - y.mean()), y - y.mean(), atol=1e-3, rtol=0)
