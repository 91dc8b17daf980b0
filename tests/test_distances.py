"""Resistances by series and parallel wires, by the pseudo-inverse, by Foster's theorem; gradients by gradcheck."""

import numpy as np
import pytest
import torch

import krylow as kl
from krylow import distances
from krylow.testing import block_diagonal, complete, cycle, grid, path, random_graph


def all_pairs(n):
    return torch.tensor([(i, j) for i in range(n) for j in range(i, n)])


def by_pseudo_inverse(L, pairs):
    inverse = torch.linalg.pinv(L, hermitian=True)
    i, j = pairs.T
    return inverse[i, i] + inverse[j, j] - 2 * inverse[i, j]


def test_wires_in_series_and_side_by_side():
    r = kl.effective_resistance(kl.laplacian(path(5)), all_pairs(5))
    torch.testing.assert_close(r, (all_pairs(5)[:, 1] - all_pairs(5)[:, 0]).double())
    r = kl.effective_resistance(kl.laplacian(cycle(6)), [[0, 2], [0, 3]])
    assert r == pytest.approx([8 / 6, 9 / 6])
    assert kl.effective_resistance(kl.laplacian(complete(5)), np.array([[1, 4]])) == pytest.approx([2 / 5])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("iterate", [False, True])
def test_the_values_are_those_of_the_pseudo_inverse(monkeypatch, sparse, iterate):
    if iterate:
        monkeypatch.setattr(distances, "SETTINGS", distances.SolveSettings(light_fill=0.0, widest=7))
    W = random_graph(15, seed=3)
    L = kl.laplacian(W.to_sparse() if sparse else W)
    expected = by_pseudo_inverse(L.to_dense(), all_pairs(15))
    torch.testing.assert_close(kl.effective_resistance(L, all_pairs(15)), expected)  # one solve a node
    torch.testing.assert_close(kl.effective_resistance(L, all_pairs(15)[3:6]), expected[3:6])  # one a pair


def test_fosters_theorem_on_a_grid():
    W = grid(20, 20)
    edges = W.triu().nonzero()
    r = kl.effective_resistance(kl.laplacian(W.to_sparse()), edges)
    assert float((W[edges[:, 0], edges[:, 1]] * r).sum()) == pytest.approx(399)


def test_between_components_it_is_infinite_and_within_each_their_own():
    W = block_diagonal(path(3), cycle(4), torch.zeros(1, 1, dtype=torch.float64))
    L = kl.laplacian(W)
    r = kl.effective_resistance(L, [[0, 2], [3, 5], [0, 3], [7, 0], [7, 7]])
    assert r == pytest.approx([2, 1, np.inf, np.inf, 0])


def test_self_loops_are_wires_to_the_ground():
    W = block_diagonal(path(2), path(2))
    W[0, 0] = W[2, 2] = 1.0
    L = kl.laplacian(W)
    pairs = torch.tensor([[0, 1], [1, 3], [0, 2]])
    r = kl.effective_resistance(L, pairs)
    torch.testing.assert_close(r, by_pseudo_inverse(L.to_dense(), pairs))
    far = kl.effective_resistance(kl.laplacian(block_diagonal(W, path(2))), torch.tensor([[1, 3], [4, 5], [0, 4]]))
    torch.testing.assert_close(far, torch.tensor([r[1].item(), 1.0, torch.inf]).double())


def test_the_sketch_has_the_error_that_was_asked_for():
    W = grid(20, 20)
    L = kl.laplacian(W.to_sparse())
    edges = W.triu().nonzero()
    exact = kl.effective_resistance(L, edges)
    sketched = kl.effective_resistance(L, edges, error=0.1, seed=1)
    error = (sketched / exact - 1).square().mean().sqrt()
    assert 0.05 < float(error) < 0.15
    assert torch.equal(sketched, kl.effective_resistance(L, edges, error=0.1, seed=1))
    grounded = W.clone()
    grounded[0, 0] = 1.0
    few = kl.effective_resistance(kl.laplacian(grounded.to_sparse()), edges, error=0.1)
    exact = by_pseudo_inverse(kl.laplacian(grounded).to_dense(), edges)
    assert 0.05 < float((few / exact - 1).square().mean().sqrt()) < 0.15


def test_the_gradient_is_that_of_the_pseudo_inverse():
    W = random_graph(7, seed=0)
    index = W.triu().nonzero().T
    both = torch.cat([index, index.flip(0)], 1)
    weights = W[index[0], index[1]].clone().requires_grad_()
    pairs = torch.tensor([[0, 6], [1, 2]])

    def resistance(w):
        return kl.effective_resistance(kl.laplacian((both, torch.cat([w, w])), num_nodes=7), pairs)

    assert torch.autograd.gradcheck(resistance, weights)


def test_what_is_refused():
    with pytest.raises(kl.InputError, match="combinatorial"):
        kl.effective_resistance(kl.laplacian(path(4).to_sparse(), "normalized"), [[0, 1]])
    with pytest.raises(kl.InputError, match="combinatorial"):
        kl.effective_resistance(kl.laplacian(path(4), "normalized"), [[0, 1]])
    with pytest.raises(kl.InputError, match="non-negative"):
        kl.effective_resistance(kl.laplacian(-path(4)), [[0, 1]])
    for pairs in ([[0, 4]], [0, 1], [[0.5, 1.0]], [[0, 1, 2], [1, 2, 3]]):
        with pytest.raises(kl.InputError, match="pairs must"):
            kl.effective_resistance(kl.laplacian(path(4)), pairs)


def diffused(L, pairs, t):
    K = torch.matrix_exp(-t * L)
    i, j = pairs.T
    return torch.linalg.vector_norm(K[:, i] - K[:, j], dim=0)


@pytest.mark.parametrize("kind", ["combinatorial", "normalized"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("t", [0.01, 1.0, 30.0])
def test_diffusion_distances_are_those_of_the_matrix_exponential(kind, sparse, t):
    W = random_graph(25, seed=4)
    L = kl.laplacian(W.to_sparse() if sparse else W, kind)
    pairs = all_pairs(25)
    expected = diffused(L.to_dense(), pairs, t)
    torch.testing.assert_close(kl.diffusion_distance(L, pairs, t), expected, atol=1e-7, rtol=0)  # by nodes
    torch.testing.assert_close(kl.diffusion_distance(L, pairs[3:6], t), expected[3:6], atol=1e-7, rtol=0)  # by pairs


def test_diffusion_of_a_large_graph_and_of_parts():
    W = grid(70, 60)
    L = kl.laplacian(W.to_sparse())
    pairs = np.array([[0, 1], [0, 4199], [7, 7], [100, 2000]])
    values, vectors = torch.linalg.eigh(L.to_dense())
    i, j = pairs.T
    expected = ((vectors[i] - vectors[j]) * torch.exp(-3 * values)).norm(dim=-1)
    found = kl.diffusion_distance(L, pairs, 3.0)
    assert isinstance(found, np.ndarray)
    assert np.allclose(found, expected, atol=1e-7)
    single = kl.diffusion_distance(L.float(), torch.tensor(pairs), 3.0)
    assert single.dtype == torch.float32
    assert np.allclose(single, expected, atol=1e-4)
    apart = kl.laplacian(block_diagonal(path(4), cycle(5)))  # heat never leaves its part
    far = kl.diffusion_distance(apart, [[0, 4]], 1000.0)
    assert far == pytest.approx([(1 / 4 + 1 / 5) ** 0.5])


def test_diffusion_of_a_random_walk_is_that_of_coifman_and_lafon():
    W = random_graph(12, seed=6)
    L, d = kl.laplacian(W, "random_walk"), W.sum(-1)
    walks = torch.matrix_exp(-0.7 * L.to_dense())  # a row is the distribution of a walk
    i, j = all_pairs(12).T
    expected = ((walks[i] - walks[j]).square() / d).sum(-1).sqrt()
    torch.testing.assert_close(kl.diffusion_distance(L, all_pairs(12), 0.7), expected)


def test_gradients_of_diffusion_distances():
    W = random_graph(7, seed=2).requires_grad_()
    pairs = torch.tensor([[0, 3], [1, 2], [4, 6]])

    def distance(W):
        return kl.diffusion_distance(kl.laplacian((W + W.mT) / 2, "combinatorial"), pairs, 0.5)

    assert torch.autograd.gradcheck(distance, (W,), atol=1e-6)


def test_what_has_no_diffusion_distance():
    L = kl.laplacian(path(4))
    for bad, message in (([[0, 4]], "nodes 0 to 3"), ([0, 1], r"\(p, 2\)")):
        with pytest.raises(kl.InputError, match=message):
            kl.diffusion_distance(L, bad, 1.0)
    with pytest.raises(kl.InputError, match="t must be a positive number"):
        kl.diffusion_distance(L, [[0, 1]], 0.0)
    with pytest.raises(kl.InputError, match="got a magnetic one"):
        kl.diffusion_distance(kl.laplacian(path(4), "magnetic"), [[0, 1]], 1.0)
