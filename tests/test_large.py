"""What the methods do on one large graph beside naming their parts; the contract suite has the rest."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.certificate import Status
from krylow.profile import GraphProfile
from krylow.solvers._filter import block_width
from krylow_lab.large.graphs import make


def shuffled_grid(side=60, seed=0):
    line = scipy.sparse.diags_array([np.ones(side - 1)] * 2, offsets=[-1, 1], shape=(side, side))
    eye = scipy.sparse.eye_array(side + 7)
    other = scipy.sparse.diags_array([np.ones(side + 6)] * 2, offsets=[-1, 1], shape=(side + 7, side + 7))
    W = scipy.sparse.csr_array(scipy.sparse.kron(line, eye) + scipy.sparse.kron(scipy.sparse.eye_array(side), other))
    order = np.random.default_rng(seed).permutation(W.shape[0])
    return W[order][:, order]


def test_widths():
    assert block_width(11, 10**6) == 32  # whole lines of a cache, with at least six guards
    assert block_width(11, 10**6, guards=3) == 16
    assert block_width(11, 10**6, line=8) == 24
    assert block_width(50, 10**6) == 64
    assert block_width(11, 13) == 13


MEASURED = """
import sys, torch, krylow as kl
from krylow_lab.large.graphs import make
from krylow_lab.large.worker import peak, reset_peak

torch.set_num_threads(1)
family, k, tol = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
L = make(family, 100_000, 0)
kl.subspace(L, k, tol=tol)  # what is loaded, compiled or kept for all searches does not count
before = reset_peak()
found = kl.subspace(L, k, tol=tol)
print(peak() - before, found.status.name)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's high-water mark")
@pytest.mark.parametrize(
    ("family", "k", "tol", "peer"), [("knn3d", 7, 1e-3, 81), ("smallworld", 8, 1e-6, 32), ("road", 8, 1e-3, 50)]
)
def test_memory_is_at_most_twice_the_best_peers(family, k, tol, peer):
    """Whose MiB are the benchmark's."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, "-c", MEASURED, family, str(k), str(tol)]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **threads}, check=True)
    taken, status = ran.stdout.split()
    assert status == "CONVERGED"
    assert float(taken) <= 2 * peer


@pytest.mark.parametrize("method", ["chebyshev", "multilevel", "davidson"])
def test_a_block_without_a_guard_is_refused(method):
    with pytest.raises(kl.InputError, match="more than k = 5, got 5"):
        kl.subspace(kl.laplacian(shuffled_grid()), 5, method=method, m=5)


@pytest.mark.parametrize("method", ["chebyshev", "multilevel", "davidson", "shift_invert"])
def test_the_order_of_the_nodes_does_not_matter(method):
    W = shuffled_grid()
    order = np.random.default_rng(1).permutation(W.shape[0])
    first, second = (kl.subspace(kl.laplacian(A), 4, method=method, tol=1e-6) for A in (W, W[order][:, order]))
    np.testing.assert_allclose(first.ritz_values, second.ritz_values, rtol=1e-4, atol=1e-9)
    overlap = np.linalg.norm(first.basis.numpy()[order].T @ second.basis.numpy()) ** 2
    assert 1 - overlap / 4 <= 4e-6


@pytest.mark.parametrize(("family", "k"), [("grid", 5), ("sbm20", 20), ("powerlaw", 5), ("road", 5)])
def test_weights_beyond_what_float32_holds(family, k):
    L = make(family, 5000, 0)
    truth = kl.subspace(L, k, tol=1e-6).basis
    for scale in (1e40, 1e-45):
        found = kl.subspace(L * scale, k, tol=1e-3)
        assert found.status is Status.CONVERGED
        assert float(kl.metrics.subspace_error(found.basis, truth)) <= 1e-3


@pytest.mark.parametrize("method", ["chebyshev", "multilevel"])
def test_a_graph_whose_whole_spectrum_is_below_zero(method):
    """All weights negative: L is minus a Laplacian, and its lowest frequencies are that one's highest."""
    W = -scipy.sparse.csr_array(make("smallworld", 3000, 0))
    W.setdiag(0)
    L = kl.laplacian(-W)
    lam, U = torch.linalg.eigh(L.to_dense())
    k = 3 + int((lam[3:12] - lam[2:11]).argmax())  # at the widest gap
    found = kl.subspace(L, k, tol=1e-3, method=method)
    assert float(lam[-1]) < 1e-9
    assert found.status == Status.CONVERGED
    torch.testing.assert_close(found.ritz_values, lam[:k], rtol=1e-3, atol=0)
    assert float(kl.metrics.subspace_error(found.basis, U[:, :k])) <= 1e-3


def test_fewer_guards_are_corrected_where_weights_are_alike():
    W = shuffled_grid()
    scale = scipy.sparse.diags_array(np.where(np.arange(W.shape[0]) % 2, 1.0, 1e-3))
    alike, apart = kl.laplacian(W), kl.laplacian(scale @ W @ scale)
    assert GraphProfile(alike).contrast < 1.1 < 20 < GraphProfile(apart).contrast
    for L, width in ((alike, 16), (apart, 24)):
        assert f"a block of {width} vectors" in kl.subspace(L, 12, method="davidson", max_products=1000).why


@pytest.mark.parametrize(("k", "status"), [(4, Status.NO_GAP), (5, Status.CONVERGED)])
def test_null_vectors_are_proved_by_components(k, status):
    W = scipy.sparse.block_diag([scipy.sparse.csr_array(np.ones((200, 200)) - np.eye(200))] * 5, format="csr")
    found = kl.subspace(kl.laplacian(W), k, method="shift_invert")
    assert found.status is status
    assert found.certificate.proved
    assert found.passes == 0
    assert float(found.certificate.floor) == 0
