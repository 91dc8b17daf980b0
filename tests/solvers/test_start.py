"""A warm start saves products and is never believed where it lacks a frequency."""

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.certificate import Status
from krylow.metrics import subspace_error
from krylow.testing import grid, laplacian_matrix, lowest, random_graph

ITERATIVE = ["lobpcg", "thick_restart"]


@pytest.mark.parametrize("method", ["lobpcg", "thick_restart"])
def test_it_saves_products(method):
    L = laplacian_matrix(grid(30, 21))
    cold = kl.subspace(L, 6, method=method)
    warm = kl.subspace(L, 6, method=method, start=cold)
    assert warm.products < cold.products
    assert warm.status == Status.CONVERGED


@pytest.mark.parametrize("method", ITERATIVE)
@pytest.mark.parametrize("columns", [slice(1, 6), slice(5, 10), slice(-5, None)])
def test_a_start_without_wanted_vectors(method, columns):
    L = laplacian_matrix(random_graph(600, 0.02, seed=2))
    U = lowest(L, 600)[1]
    found = kl.subspace(L, 5, method=method, start=U[:, columns], tol=1e-4)
    assert found.status == Status.CONVERGED
    assert float(subspace_error(found.basis, U[:, :5])) <= 1e-4


@pytest.mark.parametrize("method", ITERATIVE)
def test_few_dependent_or_zero_columns(method):
    L = laplacian_matrix(random_graph(80, 0.1, seed=0))
    ones = torch.ones(80, 1, dtype=L.dtype)
    for start in (ones, ones.expand(80, 7), torch.zeros(80, 3), ones.numpy()):
        found = kl.subspace(L, 3, method=method, start=start)
        assert float(subspace_error(found.basis, lowest(L, 3)[1])) <= 1e-3


def test_a_start_of_another_shape_is_refused():
    L = laplacian_matrix(random_graph(10, seed=0))
    for start in (torch.ones(9, 2), torch.ones(10), torch.ones(2, 10, 2), torch.ones(10, 0)):
        with pytest.raises(kl.InputError, match=r"start must be a Subspace or a real block"):
            kl.subspace(L, 2, method="lobpcg", start=start)
    with pytest.raises(kl.InputError, match="start must be finite"):
        kl.subspace(L, 2, method="lobpcg", start=torch.full((10, 2), torch.nan))


@pytest.mark.parametrize("method", ITERATIVE)
def test_a_start_above_the_cut_of_a_large_graph(method):
    """An invariant subspace of higher frequencies is not taken for the lowest one where no proof says so."""
    sizes = [60] * 40
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), sizes)
    W = rng.random((2400, 2400)) < np.where(labels[:, None] == labels, 0.3, 0.002)
    W = np.tril(W, -1)
    lam, U = np.linalg.eigh(np.diag((W + W.T).sum(0)) - 1.0 * (W + W.T))
    k = 5 + int(np.argmax(np.diff(lam[4:14]) / lam[5:14]))
    L = kl.laplacian(scipy.sparse.csr_array(1.0 * (W + W.T)))
    found = kl.subspace(L, k, method=method, start=U[:, k : 2 * k], tol=1e-2)
    error = float(subspace_error(found.basis, torch.from_numpy(U[:, :k].copy())))
    assert found.status != Status.CONVERGED or error <= 1e-2


REFINED = ["chebyshev", "davidson", "lobpcg", "thick_restart"]


@pytest.mark.parametrize("W", [grid(30, 21), random_graph(700, 0.02, seed=3)], ids=["grid", "random"])
@pytest.mark.parametrize("method", REFINED)
def test_an_earlier_answer_of_a_graph_of_which_one_edge_in_a_hundred_has_changed(method, W):
    generator = torch.Generator().manual_seed(1)
    changed = torch.where(torch.rand(W.shape, generator=generator).tril(-1) > 0.99, 1.5, 1.0).tril(-1)
    lam = torch.linalg.eigvalsh(laplacian_matrix(W))
    k = 4 + int((lam[4:12] / lam[3:11]).argmax())
    now = W * (changed + changed.mT)
    earlier = kl.subspace(laplacian_matrix(W), k, method=method)
    cold, warm = (kl.subspace(laplacian_matrix(now), k, method=method, start=start) for start in (None, earlier))
    assert warm.products <= cold.products / 3
    assert warm.status == Status.CONVERGED
    assert float(subspace_error(warm.basis, lowest(laplacian_matrix(now), k)[1])) <= 1e-3


@pytest.mark.parametrize("prove", [False, True])
@pytest.mark.parametrize("method", REFINED)
def test_a_vector_that_a_change_has_put_below_the_cut(method, prove):
    """A part of the graph is nearly cut off: its indicator is a new lowest vector, orthogonal to the earlier answer."""
    W = random_graph(500, 0.03, seed=5)
    earlier = kl.subspace(laplacian_matrix(W), 4, method=method)
    now = W.clone()
    now[:40, 40:] *= 1e-3
    now[40:, :40] *= 1e-3
    found = kl.subspace(laplacian_matrix(now), 4, method=method, start=earlier, prove=prove)
    exact = lowest(laplacian_matrix(now), 4)[1]
    assert found.status != Status.CONVERGED or float(subspace_error(found.basis, exact)) <= 1e-3
    assert float(subspace_error(found.basis, exact[:, :2])) <= 1e-2  # a vector that is missed would be half of it


def test_an_earlier_answer_of_a_large_graph_is_refined_where_it_is_proved():
    L = kl.laplacian(scipy.sparse.csr_array(grid(70, 40).numpy()))
    earlier = kl.subspace(L, 6, method="chebyshev")
    cold, warm = (kl.subspace(L, 6, method="chebyshev", start=start, prove=True) for start in (None, earlier))
    assert warm.products <= cold.products / 3
    assert warm.certificate.proved
    assert warm.status == Status.CONVERGED


def weighted_grid(seed: int, rows: int = 53, columns: int = 40) -> scipy.sparse.csr_array:
    """Return the upper half of a grid's adjacency of more nodes than are proved, with random weights."""
    W = scipy.sparse.triu(scipy.sparse.csr_array(grid(rows, columns).numpy()), format="csr")
    W.data = np.random.default_rng(seed).uniform(0.5, 2.0, W.nnz)
    return W


def changed(W: scipy.sparse.csr_array, seed: int) -> scipy.sparse.csr_array:
    """Return W with new weights of one edge in a hundred."""
    rng, now = np.random.default_rng(seed), W.copy()
    now.data = np.where(rng.random(W.nnz) < 0.01, rng.uniform(0.3, 3.0, W.nnz), W.data)
    return now


def nearly_cut(W: scipy.sparse.csr_array, nodes: int, factor: float) -> scipy.sparse.csr_array:
    """Return W with the edges between the first nodes and all others so many times lighter."""
    now = W.tocoo()
    now.data = np.where((now.row < nodes) != (now.col < nodes), factor * now.data, now.data)
    return now.tocsr()


def both_halves(W: scipy.sparse.csr_array) -> kl.operators.Operator:
    return kl.laplacian(scipy.sparse.csr_array(W + W.T))


def exact_pairs(L: kl.operators.Operator, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    found = kl.subspace(L, k, method="shift_invert", tol=1e-12)
    assert found.certificate.proved
    return found.ritz_values, found.basis


def answer(L: kl.operators.Operator, pairs: tuple[torch.Tensor, torch.Tensor], columns: list[int]) -> kl.Subspace:
    """Return these eigenvectors as an earlier answer, followed by the last of them."""
    theta, U = pairs
    *kept, following = columns
    return kl.Subspace(U[:, kept].clone(), theta[kept], L, following=theta[following])


@pytest.mark.parametrize("method", ["chebyshev", "davidson"])
def test_a_sequence_of_large_graphs_takes_a_third_of_the_products(method):
    W, k = weighted_grid(0), 11  # behind which there is a wide gap
    before, cold, warm = kl.subspace(both_halves(W), k, method=method), 0, 0
    for step in range(3):
        W = changed(W, step)
        L = both_halves(W)
        cold += kl.subspace(L, k, method=method).products
        before = kl.subspace(L, k, method=method, start=before)
        warm += before.products
        assert before.status == Status.CONVERGED
        assert not before.certificate.proved
        assert float(subspace_error(before.basis, exact_pairs(L, k)[1])) <= 1e-3
    assert warm <= cold / 3


@pytest.mark.parametrize(("method", "seed"), [*zip(REFINED, range(4), strict=True), ("chebyshev", 4)])
def test_misleading_starts_of_a_large_graph(method, seed):
    """One wanted vector is missing, all are too high, of another graph, or a nearly cut part has put one below."""
    k, W = 4 + seed, weighted_grid(seed)
    L, other = both_halves(W), both_halves(weighted_grid(seed + 100))
    pairs, others = exact_pairs(L, 2 * k + 1), exact_pairs(other, k + 1)
    every = list(range(2 * k + 1))
    starts = [answer(L, pairs, every[:j] + every[j + 1 : k + 2]) for j in range(k)]
    starts += [answer(L, pairs, every[k:]), answer(other, others, every[: k + 1])]
    far = answer(L, pairs, every[: k + 1])
    cases = [(L, pairs[1], start) for start in starts]
    for factor in (0.3, 0.03, 0.003):
        now = both_halves(nearly_cut(changed(W, seed), 40 * (3 + seed), factor))
        U = exact_pairs(now, k)[1]
        cases += [(now, U, far), (now, U, kl.Subspace(far.basis, far.ritz_values, L, following=2 * far.following))]
    for graph, U, start in cases:
        found = kl.subspace(graph, k, method=method, start=start)
        assert found.status != Status.CONVERGED or float(subspace_error(found.basis, U[:, :k])) <= 1e-3


def test_a_start_behind_which_no_gap_shows_costs_little_more_than_none():
    """Inside a cluster of frequencies the start alone would take more products than a block with guard vectors."""
    n, k = 2400, 10
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), n // 20)
    W = np.tril(rng.random((n, n)) < np.where(labels[:, None] == labels, 0.2, 0.002), -1)
    W = scipy.sparse.csr_array(1.0 * W)
    earlier = kl.subspace(both_halves(W), k, method="chebyshev", tol=1e-2)
    L = both_halves(changed(W, 1))
    cold, warm = (kl.subspace(L, k, method="chebyshev", tol=1e-2, start=start) for start in (None, earlier))
    assert warm.products <= 1.5 * cold.products


def test_a_start_says_so_and_keeps_what_a_random_one_took():
    W = weighted_grid(1)
    first = kl.subspace(both_halves(W), 4, method="davidson")
    same = kl.subspace(both_halves(W), 4, method="davidson", start=first)
    again = kl.subspace(both_halves(changed(W, 3)), 4, method="davidson", start=same)
    for found in (same, again):
        assert "from the earlier answer" in found.why
        assert found.products < first.products
        assert found.status == Status.CONVERGED
