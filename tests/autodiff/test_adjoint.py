"""The gradient on one large sparse graph: against that of an eigendecomposition, and what it costs."""

from functools import cache

import numpy as np
import pytest
import torch
from scipy.fft import dctn, idctn
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.spatial import cKDTree

import krylow as kl


def knn(n=2100):
    at = np.random.default_rng(1).random((n, 2)) * [1.31, 1.0]
    rows, columns = np.repeat(np.arange(n), 6), cKDTree(at).query(at, 7)[1][:, 1:].ravel()
    return n, rows, columns


def tree(n=2100):
    child = np.arange(1, n)
    parent = np.maximum(0, child - np.random.default_rng(2).geometric(0.05, n - 1))
    return n, child, parent


def blocks(n=2100):
    rng = np.random.default_rng(3)
    inside = rng.integers(n // 4, size=(2, 6 * n)) + rng.integers(4, size=6 * n) * (n // 4)
    return n, *np.concatenate([inside, rng.integers(n, size=(2, n // 4))], 1)


def hubs(n=2100):
    rng = np.random.default_rng(4)
    child = np.repeat(np.arange(5, n), 5)
    return n, child, (child * rng.random(child.size) ** 3).astype(int)


#: Graphs of more than 2048 nodes, beyond which a solver estimates its own error, and the least k.
GRAPHS = {"multilevel": (knn, 9), "shift_invert": (tree, 6), "chebyshev": (blocks, 4), "davidson": (hubs, 6)}


def ends(make):
    """The ends of the edges, once each."""
    n, rows, columns = make()
    pairs = {(min(i, j), max(i, j)) for i, j in zip(rows.tolist(), columns.tolist(), strict=True) if i != j}
    return n, torch.tensor(sorted(pairs)).mT


def laplacian(n, pairs, w):
    A = coo_array((w, pairs), shape=(n, n))
    A = csr_array(A + A.T)
    return diags_array(A.sum(0)) - A


@cache
def case(method):
    """Nodes, edges, weights, k at the widest gap, two signals and the exact gradient of c^T U U^T x for the weights."""
    make, near = GRAPHS[method]
    n, pairs = ends(make)
    rng = np.random.default_rng(0)
    w = rng.uniform(0.5, 1.5, pairs.shape[1])
    x, c = rng.standard_normal((2, n, 1))
    lam, V = np.linalg.eigh(laplacian(n, pairs, w).toarray())
    k = near + int(np.argmax(lam[near : near + 5] / lam[near - 1 : near + 4]))
    U, rest = V[:, :k], V[:, k:]
    mixed = rest.T @ (c @ (x.T @ U) + x @ (c.T @ U)) / (lam[:k] - lam[k:, None])
    i, j = pairs.numpy()
    W = rest @ mixed
    return n, pairs, w, k, x, c, ((W[i] - W[j]) * (U[i] - U[j])).sum(1)


def library(n, pairs, w, k, x, c, **options):
    weights = torch.from_numpy(w).requires_grad_()
    both = torch.cat([pairs, pairs.flip(0)], 1)
    L = kl.laplacian((both, torch.cat([weights, weights])), num_nodes=n)
    found = kl.subspace(L, k, **options)
    forward = L.products
    (torch.from_numpy(c) * found.project(torch.from_numpy(x))).sum().backward()
    return weights.grad.numpy(), forward, L.products - forward


@pytest.mark.parametrize("method", GRAPHS)
@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_it_is_that_of_the_exact_projector(method, tol):
    *problem, exact = case(method)
    gradient = library(*problem, method=method, tol=tol)[0]
    assert np.linalg.norm(gradient - exact) <= 3 * tol**0.5 * np.linalg.norm(exact)


@pytest.mark.parametrize("method", ["multilevel", "chebyshev", "davidson"])
def test_it_takes_a_few_times_the_products(method):
    *problem, _ = case(method)
    _, forward, backward = library(*problem, method=method)
    assert 0 < backward <= 5 * forward


def test_functions_of_the_span_that_are_constant():
    n, pairs, w, k, *_, exact = case("multilevel")
    weights = torch.from_numpy(w).requires_grad_()
    L = kl.laplacian((torch.cat([pairs, pairs.flip(0)], 1), torch.cat([weights, weights])), num_nodes=n)
    U = kl.subspace(L, k).basis
    (0.0 * U.sum()).backward(retain_graph=True)
    assert not weights.grad.any()
    (U.mT @ U).diagonal().sum().backward()  # its dimension
    assert float(weights.grad.norm()) <= 1e-4 * np.linalg.norm(exact)


def test_at_a_cutoff():
    n, pairs, w, k, x, c, exact = case("multilevel")
    lam = kl.subspace(laplacian(n, pairs, w), k + 1).ritz_values
    weights = torch.from_numpy(w).requires_grad_()
    L = kl.laplacian((torch.cat([pairs, pairs.flip(0)], 1), torch.cat([weights, weights])), num_nodes=n)
    y = kl.lowpass(L, torch.from_numpy(x), cutoff=float(lam[-2:].mean()), method="multilevel", tol=1e-8)
    (torch.from_numpy(c) * y).sum().backward()
    assert np.linalg.norm(weights.grad.numpy() - exact) <= 1e-3 * np.linalg.norm(exact)


def test_in_three_dimensions():
    """A box, whose eigenvectors are cosines; its coarse graphs are too large for a factor."""
    sides = 24, 29, 35
    places = np.arange(np.prod(sides)).reshape(sides)
    pairs = [[places.take(np.arange(n - 1) + by, axis).ravel() for by in (0, 1)] for axis, n in enumerate(sides)]
    i, j = np.concatenate(pairs, 1)
    lam = sum(np.ix_(*(2 - 2 * np.cos(np.pi * np.arange(n) / n) for n in sides))).ravel()
    k = 3
    kept, rest = np.split(np.argsort(lam), [k])
    x, c = np.random.default_rng(5).standard_normal((2, lam.size, 1))

    def cosines(coefficients, transform):
        return transform(coefficients.T.reshape(-1, *sides), axes=(1, 2, 3), norm="ortho").reshape(-1, lam.size).T

    U = cosines(np.eye(lam.size, k)[np.argsort(np.argsort(lam))], idctn)
    bar = cosines(c @ (x.T @ U) + x @ (c.T @ U), dctn)
    bar[kept] = 0
    bar[rest] /= lam[kept] - lam[rest, None]
    W = cosines(bar, idctn)
    exact = ((W[i] - W[j]) * (U[i] - U[j])).sum(1)
    for tol in (1e-3, 1e-6):
        gradient = library(lam.size, torch.from_numpy(np.stack([i, j])), np.ones(i.size), k, x, c, tol=tol)[0]
        assert np.linalg.norm(gradient - exact) <= 3 * tol**0.5 * np.linalg.norm(exact)
