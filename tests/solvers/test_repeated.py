"""Repeated eigenvalues: bases stay orthonormal, and no subspace that is wrong or not unique is CONVERGED."""

from itertools import combinations

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import aslinearoperator

import krylow as kl
from krylow.testing import cycle, laplacian_matrix, lowest, random_graph
from soak.unseen import UNSEEN

F32, F64 = torch.float32, torch.float64


def kneser(n, r):
    subsets = [set(c) for c in combinations(range(n), r)]
    return torch.tensor([[float(not a & b) for b in subsets] for a in subsets], dtype=F64)


@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("k", [12, 13, 14, 15])
def test_few_distinct_eigenvalues_keep_the_basis_orthonormal(k, dtype):
    L = laplacian_matrix(kneser(7, 3))  # 0, 2 of multiplicity 14, 5 and 7
    eps = torch.finfo(dtype).eps
    for seed in range(6):
        found = kl.subspace(L.to(dtype), k, method="thick_restart", seed=seed)
        V = found.basis
        torch.testing.assert_close(V.mT @ V, torch.eye(k, dtype=dtype), rtol=0, atol=100 * eps)
        assert float(found.ritz_values.min()) >= -100 * eps * 8
        if k == 15:
            U = lowest(L, k)[1]
            assert found.status == kl.Status.CONVERGED
            torch.testing.assert_close((V @ V.mT).double(), U @ U.mT, rtol=0, atol=1000 * eps)


@pytest.mark.parametrize("n", [20, 100, 200])
@pytest.mark.parametrize("seed", range(3))
def test_two_equal_components_of_a_function_have_no_single_lowest_vector(n, seed):
    L = laplacian_matrix(torch.block_diag(cycle(n), cycle(n))).numpy()
    found = kl.subspace(aslinearoperator(L), 1, seed=seed)
    assert found.status != kl.Status.CONVERGED
    both = kl.subspace(aslinearoperator(L), 2, seed=seed)
    assert both.status == kl.Status.CONVERGED
    assert float(np.square(L @ both.basis.numpy()).sum()) <= 1e-6 * L[0, 0]


@pytest.mark.parametrize("method", ["thick_restart", "chebyshev", "lobpcg", "lanczos"])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_functions_of_a_few_nodes_are_judged_by_all_their_eigenvalues(method, k):
    for W in (cycle(6), torch.block_diag(cycle(3), cycle(3)), torch.ones(6, 6, dtype=F64) - torch.eye(6, dtype=F64)):
        L = laplacian_matrix(W)
        lam, U = lowest(L, 6)
        for seed in range(4):
            found = kl.subspace(aslinearoperator(L.numpy()), k, method=method, seed=seed)
            if float(lam[k] - lam[k - 1]) < 1e-9:
                assert found.status != kl.Status.CONVERGED
            elif found.status == kl.Status.CONVERGED:
                left = U[:, :k] - found.basis @ (found.basis.mT @ U[:, :k])
                assert float(left.square().sum()) / k <= float(found.error_bound) + 1e-12


def test_a_second_copy_below_the_cut_is_not_missed():
    """A Moebius ladder: pairs of frequencies, far below the others, of which one Krylov sequence holds one each."""
    n, k = 3198, 3
    i = np.arange(n)
    edges = sp.coo_array((np.ones(3 * n), (np.r_[i, i, i], np.r_[(i + 1) % n, (i - 1) % n, (i + n // 2) % n])), (n, n))
    L = sp.csr_array(sp.diags_array(np.full(n, 3.0)) - edges)
    angle = 2 * np.pi * i / n
    U = np.stack([np.full(n, 0.5**0.5), np.cos(2 * angle), np.sin(2 * angle)], axis=1) * (2 / n) ** 0.5
    found = kl.subspace(L, k, method="thick_restart", max_products=4000)
    left = U - found.basis.numpy() @ (found.basis.numpy().T @ U)
    assert found.status != kl.Status.CONVERGED or np.square(left).sum() / k <= float(found.error_bound) + 1e-12


@pytest.mark.parametrize("seed", range(2))
def test_six_copies_below_the_cut_come_from_outside_what_was_found(seed):
    """The graph of Hanoi's towers: guard vectors that come back from the old space say nothing of missed copies."""
    L = kl.laplacian(UNSEEN["Hanoi"](2187, np.random.default_rng(0)))
    U = torch.from_numpy(scipy.linalg.eigh(L.to_dense().numpy(), subset_by_index=[0, 14])[1])
    found = kl.subspace(L, 15, method="thick_restart", tol=1e-2, seed=seed, max_products=4500)
    left = U - found.basis @ (found.basis.mT @ U)
    assert found.status == kl.Status.CONVERGED
    assert float(left.square().sum()) / 15 <= 1e-2


@pytest.mark.parametrize("weight", [1e-12, 1e-8, 1.0, 1e8])
def test_lobpcg_does_not_depend_on_the_scale_of_the_weights(weight):
    L = laplacian_matrix(random_graph(100, 0.1, seed=1))
    plain = kl.subspace(L, 5, method="lobpcg", seed=0)
    found = kl.subspace(weight * L, 5, method="lobpcg", seed=0)
    assert plain.status == found.status == kl.Status.CONVERGED
    assert found.products <= 1.2 * plain.products


def test_the_certificate_judges_the_basis_that_is_returned():
    from dataclasses import replace

    found = kl.subspace(laplacian_matrix(random_graph(40, seed=0)), 4)
    assert found.status == kl.Status.CONVERGED
    skewed = found.basis.clone()
    skewed[:, 1] += 0.3 * skewed[:, 0]  # the same span
    bent = replace(found, basis=skewed)
    U = found.basis
    left = U - skewed @ (skewed.mT @ U)
    assert bent.status != kl.Status.CONVERGED
    assert float(bent.error_bound) >= float(left.square().sum()) / 4


@pytest.mark.parametrize("method", ["chebyshev", "shift_invert", "lobpcg", "thick_restart", "davidson"])
@pytest.mark.parametrize("n", [300, 1200])
def test_bases_inside_a_large_eigenspace_beside_nodes_alone_are_orthonormal_to_rounding(method, n):
    """LAPACK's own vectors of many equal values, and its sums over a null vector, are off by hundreds of eps."""
    W = torch.zeros(n + 2, n + 2, dtype=F64)
    W[:n, :n] = 1 - torch.eye(n, dtype=F64)
    found = kl.subspace(kl.laplacian(W, "normalized"), 50, method=method, tol=1e-7)
    assert found.status != kl.Status.CONVERGED  # there is no gap behind the 50th
    V = found.basis.numpy().astype(np.longdouble)
    assert np.linalg.norm((V.T @ V - np.eye(50)).astype(float), 2) <= 20 * torch.finfo(F64).eps
