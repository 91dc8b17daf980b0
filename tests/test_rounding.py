"""Bounds are about the graph, in float32 too, and nothing that is lost in rounding is CONVERGED."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch

import krylow as kl
from krylow.testing import laplacian_matrix


def clique(n):
    return sp.csr_array(np.ones((n, n)) - np.eye(n))


def chain(parts, weight=1.0):
    """Join graphs, the last node of each to the first of the next."""
    W = sp.block_diag(parts, format="lil")
    at = 0
    for part in parts[:-1]:
        at += part.shape[0]
        W[at - 1, at] = W[at, at - 1] = weight
    return sp.csr_array(W)


def line(n):
    return sp.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], format="csr")


def regular(n, seed):
    return nx.to_scipy_sparse_array(nx.random_regular_graph(4, n, seed=seed), dtype=float, format="csr")


def looped(W):
    return sp.csr_array(W + sp.diags_array(np.where(np.arange(W.shape[0]) % 5 == 0, 1.0, 0.0)))


def decomposed(W, kind=None):
    return np.linalg.eigh(kl.laplacian(W, kind).to_dense().numpy())


def error(U, found):
    """Return the true error against the eigenvectors U of the float64 Laplacian of the same weights."""
    Q = np.linalg.qr(found.basis.double().numpy())[0]
    return float(np.square(U[:, found.k :].T @ Q).sum()) / found.k


def assert_honest(U, found, rounding=1e-13):
    if found.status == kl.Status.CONVERGED:
        assert error(U, found) <= float(found.error_bound) + rounding


@pytest.mark.parametrize(
    ("W", "ks"),
    [
        (chain([clique(400), line(400), clique(400)]), (2, 5)),
        (chain([clique(500), line(500)]), (1, 2)),
        (chain([looped(regular(600, 1)), looped(regular(600, 2))], 1e-3), (2,)),
    ],
    ids=["barbell", "lollipop", "expanders with loops"],
)
@pytest.mark.parametrize("method", ["auto", "shift_invert", "chebyshev"])
def test_a_bound_in_float32_is_about_the_graph(W, ks, method):
    U = decomposed(W, "normalized")[1]
    for k in ks:
        found = kl.subspace(kl.laplacian(W.astype(np.float32), "normalized"), k, method=method)
        assert found.basis.dtype == torch.float32
        assert_honest(U, found)
        if method == "shift_invert":
            assert found.status == kl.Status.CONVERGED


def test_a_pair_of_frequencies_at_the_cut_is_not_missed():
    """Two copies joined by a light edge: each frequency twice, but for about the edge's weight over the nodes."""
    half = regular(1300, 7)
    W = chain([half, half], 1e-3)
    values, U = decomposed(W)
    ks = [k for k in range(20, 40) if values[k] - values[k - 1] < 1e-5]
    assert ks
    for k in ks:
        found = kl.subspace(kl.laplacian(W), k)
        assert_honest(U, found, 1e-10)
        assert "prove" not in found.why


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("method", ["exact", "shift_invert", "thick_restart"])
def test_a_tolerance_below_the_rounding_of_float32_entries_is_met(method, sparse):
    W = 1.1 * regular(60, 1)  # 1.1 is no float32 number
    L = kl.laplacian((W if sparse else W.toarray()).astype(np.float32))
    found = kl.subspace(L, 5, method=method, tol=1e-8)
    assert found.status == kl.Status.CONVERGED
    assert error(decomposed(W)[1], found) <= float(found.error_bound) <= 1e-8
    finer = kl.subspace(L, 5, method=method, tol=1e-15)
    assert finer.status == kl.Status.MAX_STEPS
    assert "float64" in finer.status.advice


@pytest.mark.parametrize("max_products", [1, 2, 3])
@pytest.mark.parametrize("method", ["exact", "shift_invert", "chebyshev", "lobpcg", "multilevel", "lanczos"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_subspace_has_k_columns_however_few_products_are_allowed(method, max_products, sparse):
    W = line(5) if sparse else line(5).toarray()
    found = kl.subspace(kl.laplacian(W), 4, method=method, max_products=max_products)
    assert found.basis.shape == (5, 4)
    assert_honest(decomposed(sp.csr_array(W))[1], found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["combinatorial", "normalized"])
def test_cliques_joined_below_rounding_give_finite_vectors(kind, dtype):
    rng = np.random.default_rng(0)
    W = chain([clique(5)] * 527, 1e-8).tocoo()
    scale = np.repeat(10 ** rng.uniform(-6, 6, 527), 5)
    W = sp.csr_array((W.data * np.sqrt(scale[W.row] * scale[W.col]), (W.row, W.col)), shape=W.shape)
    for k in (2, 40):
        found = kl.subspace(kl.laplacian(W.astype(dtype), kind), k, method="shift_invert")
        assert found.basis.isfinite().all()
        assert found.ritz_values.isfinite().all()
        assert not bool(found.error_bound.isnan())


def test_a_dense_float32_laplacian_of_whole_numbers_is_not_rounded():
    W = torch.from_numpy(regular(40, 3).toarray())
    low, high = (kl.subspace(laplacian_matrix(W).to(dtype), 3, tol=1e-10) for dtype in (torch.float32, torch.float64))
    assert low.status == high.status == kl.Status.CONVERGED
