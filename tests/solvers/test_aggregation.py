"""Aggregates and the graphs between them."""

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.solvers._aggregation import aggregate
from krylow.testing import block_diagonal, grid, path


def sparse(W):
    return kl.laplacian(scipy.sparse.csr_array(W.numpy()))


def prolongation(level, n):
    P = np.zeros((n, level.coarse.n))
    P[np.arange(n), level.labels.numpy()] = level.weights.numpy()
    return P


@pytest.mark.parametrize(
    "W", [grid(12, 9), block_diagonal(path(7), grid(4, 4), torch.zeros(3, 3, dtype=torch.float64))]
)
def test_the_coarse_operator_is_galerkins(W):
    L = sparse(W)
    vector = torch.linspace(1, 2, L.n, dtype=torch.float64)
    level = aggregate(L, vector)
    P = prolongation(level, L.n)
    np.testing.assert_allclose(P.T @ P, np.eye(level.coarse.n), atol=1e-14)
    np.testing.assert_allclose(level.coarse.to_dense(), P.T @ L.to_dense().numpy() @ P, atol=1e-12)
    np.testing.assert_allclose(P @ level.vector.numpy(), vector)
    X = torch.randn(L.n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(level.restrict(X), P.T @ X.numpy())
    np.testing.assert_allclose(level.prolong(level.restrict(X)), P @ P.T @ X.numpy())
    subtracted = level.subtract_(X.clone(), level.restrict(X))
    np.testing.assert_allclose(subtracted, X.numpy() - P @ P.T @ X.numpy(), atol=1e-14)


def test_an_expanded_null_vector_is_like_any_other():
    L = sparse(grid(12, 9))
    one = torch.ones(1, dtype=torch.float64)
    level, other = (aggregate(L, vector) for vector in (one.expand(L.n), one.repeat(L.n)))
    X = torch.randn(L.n, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(level.coarse.to_dense(), other.coarse.to_dense())
    assert torch.equal(level.restrict(X), other.restrict(X))
    assert torch.equal(level.subtract_(X.clone(), level.restrict(X)), other.subtract_(X.clone(), other.restrict(X)))


def test_aggregates_are_connected_and_fewer():
    W = grid(30, 30)
    level = aggregate(sparse(W), torch.ones(900, dtype=torch.float64))
    assert level.coarse.n <= 300
    same = level.labels[:, None] == level.labels
    inside = scipy.sparse.csr_array((W * same).numpy())
    assert scipy.sparse.csgraph.connected_components(inside)[0] == level.coarse.n


def test_strong_edges_are_inside():
    W = path(40)
    for i in range(0, 39, 2):
        W[i, i + 1] = W[i + 1, i] = 1e6
    level = aggregate(sparse(W), torch.ones(40, dtype=torch.float64))
    assert (level.labels[0::2] == level.labels[1::2]).all()


def test_a_node_that_hangs_by_a_weak_edge_stays_by_itself():
    """Joined to its neighbour it would be lost: the vector that it alone carries has the frequency of its edge."""
    W = grid(6, 6)
    W = torch.nn.functional.pad(W, (0, 1, 0, 1))
    W[36, 14] = W[14, 36] = 1e-6
    level = aggregate(sparse(W), torch.ones(37, dtype=torch.float64))
    assert int((level.labels == level.labels[36]).sum()) == 1


def test_the_spectrum_of_the_coarse_graph_is_bounded_by_that_of_the_fine_one():
    W = grid(12, 9)
    W[5, 6] = W[6, 5] = -1.0  # a signed graph: its entries alone do not tell that nothing lies below zero
    L = sparse(W)
    level = aggregate(L, torch.ones(L.n, dtype=torch.float64))
    low, high = level.coarse.gershgorin()
    assert low >= L.gershgorin()[0]
    assert high <= L.gershgorin()[1]
    values = torch.linalg.eigvalsh(level.coarse.to_dense())
    assert low <= values[0]
    assert values[-1] <= high


def test_nodes_that_are_tied_too_weakly_for_the_smoother_stay_by_themselves():
    W = grid(8, 8)
    W[20] *= 0.01
    W[:, 20] *= 0.01
    L, ones = sparse(W), torch.ones(64, dtype=torch.float64)
    level = aggregate(L, ones, 0.2)
    assert int((level.labels == level.labels[20]).sum()) == 1
    assert level.singletons >= 1 / 64
    assert int(level.labels.max()) == level.coarse.n - 1  # none is empty
    assert float(level.coarse.diagonal().min()) > 0
    none = aggregate(L, ones, 1e9)
    assert (none.coarse.n, none.singletons) == (64, 1.0)


def test_a_vector_that_is_not_constant_on_aggregates_has_a_high_frequency():
    W = grid(9, 9) * torch.where(torch.rand(81, 81, generator=torch.Generator().manual_seed(1)) < 0.3, 1e-3, 1.0)
    W = torch.minimum(W, W.mT)
    L, bound = sparse(W), 0.5
    level = aggregate(L, torch.ones(81, dtype=torch.float64), bound)
    P = torch.from_numpy(prolongation(level, 81))
    outside = torch.eye(81).double() - P @ P.mT
    values = torch.linalg.eigvalsh(outside @ L.to_dense() @ outside + 100 * P @ P.mT)
    assert float(values[0]) >= bound / 4


def test_two_steps_in_one():
    L = sparse(grid(20, 15))
    vector = torch.linspace(1, 2, L.n, dtype=torch.float64)
    first = aggregate(L, vector)
    second = aggregate(first.coarse, first.vector)
    both = first.then(second)
    P = prolongation(both, L.n)
    np.testing.assert_allclose(P, prolongation(first, L.n) @ prolongation(second, first.coarse.n))
    np.testing.assert_allclose(both.coarse.to_dense(), P.T @ L.to_dense().numpy() @ P, atol=1e-12)
    np.testing.assert_allclose(P @ both.vector.numpy(), vector)
