"""Multilevel refinement of graphs with a geometry."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import torch
from scipy.spatial import cKDTree

import krylow as kl
from krylow.certificate import Status
from krylow.solvers._cycles import TwoGrid
from krylow.testing import grid
from krylow_lab.large.graphs import make
from soak.case import GRAPHS
from soak.families import reweighted
from soak.unseen import UNSEEN

F64 = torch.float64


def neighbours(n=3000, seed=0, wide=False):
    """Ten nearest neighbours in the plane, as scipy's adjacency; ``wide``: with weights over twelve orders."""
    rng = np.random.default_rng(seed)
    points = rng.random((n, 2)) * [1.0, 1.7]
    _, near = cKDTree(points).query(points, 9)
    rows = np.repeat(np.arange(n), 8)
    weights = 10 ** rng.uniform(-6, 6, rows.size) if wide else np.ones(rows.size)
    W = scipy.sparse.csr_array((weights, (rows, near[:, 1:].ravel())), shape=(n, n))
    return W.maximum(W.T).tocsr()


def truth(L, k):
    """The lowest pairs by scipy's shift-invert Lanczos, to rounding."""
    start = np.random.default_rng(0).standard_normal(L.shape[0])
    return scipy.sparse.linalg.eigsh(L.tocsc(), k + 1, sigma=-0.01, v0=start, ncv=4 * k + 20)


def error(basis, U, k):
    return 1 - np.linalg.norm(U[:, :k].T @ basis.double().numpy()) ** 2 / k


@pytest.mark.parametrize("kind", ["combinatorial", "normalized"])
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_finds_what_was_asked_for(tol, kind):
    L = kl.laplacian(neighbours(), kind)
    lam, U = truth(L.to_scipy(), 12)
    k = int(np.argmax(np.diff(lam[4:12]))) + 5
    found = kl.subspace(L, k, method="multilevel", tol=tol)
    assert found.status == Status.CONVERGED
    assert error(found.basis, U, k) <= tol
    assert found.passes <= 120
    assert float(found.error_bound) <= tol


@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-4, 1e-5])
def test_the_estimate_is_near_the_error(tol):
    L = kl.laplacian(neighbours())
    lam, U = truth(L.to_scipy(), 12)
    k = int(np.argmax(np.diff(lam[4:12]))) + 5
    found = kl.subspace(L, k, method="multilevel", tol=tol)
    assert error(found.basis, U, k) <= float(found.error_bound) <= 10 * error(found.basis, U, k)


def test_components_and_isolated_nodes():
    W = scipy.sparse.block_diag([neighbours(1500, 1), neighbours(1200, 2), scipy.sparse.csr_array((20, 20))]).tocsr()
    L = kl.laplacian(W)
    lam, U = truth(L.to_scipy(), 30)
    assert lam[21] < 1e-12 < lam[22]  # two components and twenty isolated nodes
    k = int(np.argmax(np.diff(lam[22:30]))) + 23
    found = kl.subspace(L, k, method="multilevel", tol=1e-3)
    assert found.status == Status.CONVERGED
    assert error(found.basis, U, k) <= 1e-3


@pytest.mark.parametrize(("tol", "products"), [(1e-3, 300), (1e-8, 600)])
def test_a_gap_that_products_did_not_suffice_to_show_is_not_denied(tol, products):
    L = make("grid", 5000, 0)
    assert kl.subspace(L, 20, method="multilevel", tol=tol).status == Status.CONVERGED
    assert kl.subspace(L, 20, method="multilevel", tol=tol, max_products=products).status == Status.MAX_STEPS


def test_wide_weights_do_no_harm():
    L = kl.laplacian(neighbours(2500, wide=True))
    found = kl.subspace(L, 6, method="multilevel", max_products=20000)
    assert found.basis.isfinite().all()
    torch.testing.assert_close(found.basis.mT @ found.basis, torch.eye(6, dtype=F64), rtol=0, atol=1e-8)


def test_auto_takes_it_for_a_geometry_and_says_so():
    found = kl.subspace(kl.laplacian(neighbours(5000)), 4)
    assert found.method == "multilevel"
    assert "coarser graphs are like it" in found.why


def test_float32_and_a_gradient_is_recorded():
    W = neighbours(2600)
    found = kl.subspace(kl.laplacian(W.astype(np.float32)), 4, method="multilevel")
    assert found.basis.dtype == torch.float32
    coo = W.tocoo()
    edges = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    w = torch.ones(edges.shape[1], dtype=F64, requires_grad=True)
    assert kl.subspace(kl.laplacian((edges, w)), 4, method="multilevel").basis.requires_grad


def test_copies_of_a_graph():
    """Each frequency six times: all copies are found, and a cut between copies is said to be none."""
    W = scipy.sparse.csr_array(scipy.sparse.block_diag([neighbours(600, 3)] * 6))
    L = kl.laplacian(W)
    lam, U = np.linalg.eigh(kl.laplacian(neighbours(600, 3)).to_dense().numpy())
    assert lam[3] - lam[2] > 0.05 * lam[3]
    whole = kl.subspace(L, 18, method="multilevel")
    assert whole.status == Status.CONVERGED
    basis = np.kron(np.eye(6), U[:, :3])
    assert 1 - np.linalg.norm(basis.T @ whole.basis.numpy()) ** 2 / 18 <= 1e-3
    part = kl.subspace(L, 15, method="multilevel")
    assert part.status == Status.NO_GAP
    assert int(part.certificate.well_defined) == 12
    assert part.passes <= 2000


def star(copies, a, b):
    """Grids that are joined at a hub by one of their corners, the hub last."""
    paths = [scipy.sparse.diags_array([np.ones(side - 1)] * 2, offsets=[-1, 1]) for side in (a, b)]
    arm = scipy.sparse.kron(paths[0], scipy.sparse.eye_array(b)) + scipy.sparse.kron(
        scipy.sparse.eye_array(a), paths[1]
    )
    W = scipy.sparse.lil_array(scipy.sparse.block_diag([arm] * copies + [scipy.sparse.csr_array((1, 1))]))
    W[-1, np.arange(copies) * a * b] = 1.0
    return scipy.sparse.csr_array(W.maximum(W.T)), arm


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_copies_of_a_frequency_are_all_found(tol):
    """A recurrence of few starts finds few of them, and the gap behind those looks like any other."""
    copies, n = 8, 30 * 33
    W, arm = star(copies, 30, 33)
    L = scipy.sparse.diags_array(arm.sum(axis=1)).toarray() - arm.toarray()
    L[0, 0] += 1.0  # vectors that vanish at the hub: those of one arm, in any proportion of sum zero
    v = np.linalg.eigh(L)[1][:, 0]
    proportion = np.linalg.qr(np.c_[np.ones(copies), np.eye(copies)[:, 1:]])[0][:, 1:]
    U = np.c_[np.ones(copies * n + 1), np.r_[np.kron(proportion, v[:, None]), np.zeros((1, copies - 1))]]
    U /= np.linalg.norm(U, axis=0)
    sub = kl.subspace(kl.laplacian(W), copies, tol=tol, method="multilevel")
    assert sub.status is Status.CONVERGED
    assert error(sub.basis, U, copies) <= tol


def test_no_gap_is_said_inside_copies_of_a_frequency():
    W, _ = star(8, 30, 33)
    assert kl.subspace(kl.laplacian(W), 5, method="multilevel").status is Status.NO_GAP
    assert kl.subspace(kl.laplacian(W), 13, method="multilevel").status is Status.NO_GAP


def test_copies_that_are_coarsened_in_another_order_are_not_missed():
    """Seven squares in a row, each frequency about seven times or fourteen: k lies inside such a group."""
    rng, side = np.random.default_rng(0), 40
    path = scipy.sparse.diags_array([np.ones(side - 1)] * 2, offsets=[-1, 1])
    square = scipy.sparse.csr_array(scipy.sparse.kronsum(path, path))
    W = scipy.sparse.lil_array(scipy.sparse.block_diag([square] * 7))
    for copy in range(6):
        i, j = side**2 * copy + rng.integers(side**2), side**2 * (copy + 1) + rng.integers(side**2)
        W[i, j] = W[j, i] = 1.0
    order = rng.permutation(W.shape[0])
    L = kl.laplacian(scipy.sparse.csr_array(W)[order][:, order])
    values, U = scipy.sparse.linalg.eigsh(L.to_scipy(), 42, sigma=-1e-6, v0=rng.random(L.n), ncv=126, tol=1e-12)
    U = U[:, np.argsort(values)]
    for k in range(33, 40):
        found = kl.subspace(L, k, method="multilevel")
        assert found.status == Status.NO_GAP or error(found.basis, U, k) <= 1e-3


def test_parts_without_a_connection_are_coarsened_unlike_each_other():
    """Coarse eigenvalues are not in the order of the fine ones, and nothing corrects a missing one."""
    rng = np.random.default_rng(7)
    parts = [rng.random((300, 2)) for _ in range(12)]
    near = [cKDTree(points).query(points, 7)[1] for points in parts]
    rows = [np.stack([np.repeat(part[:, 0], 6), part[:, 1:].ravel()]) + 300 * i for i, part in enumerate(near)]
    ends = np.concatenate(rows, axis=1)
    W = scipy.sparse.csr_array((np.ones(ends.shape[1]), tuple(ends)), shape=(3600, 3600))
    L = kl.laplacian(W.maximum(W.T).tocsr())
    _, U = np.linalg.eigh(L.to_scipy().toarray())
    for k in (14, 18, 21, 25):  # 21 within the accuracy of the estimate: a missing vector would be an error of 1 / k
        found = kl.subspace(L, k, method="multilevel")
        assert found.status == Status.NO_GAP or error(found.basis, U, k) <= (4e-3 if k == 21 else 1e-3)
        found = kl.subspace(L, k, method="multilevel", tol=1e-6)
        assert found.status == Status.NO_GAP or error(found.basis, U, k) <= 1e-6


def test_cycles_that_do_not_converge_with_one_guard_are_tried_with_more(monkeypatch):
    widths, run = [], TwoGrid.run

    def tried(cycles):
        widths.append(cycles.block.X.shape[1])
        return None if len(widths) == 1 else run(cycles)

    monkeypatch.setattr(TwoGrid, "run", tried)
    L = make("grid", 6000, 0)
    found = kl.subspace(L, 7, method="multilevel", tol=1e-6)
    assert widths == [8, 16]
    assert found.status is Status.CONVERGED
    widths.clear()
    found = kl.subspace(L, 11, method="multilevel", tol=1e-3)  # five guards: sweeps go on
    assert widths == [16]
    assert "then Chebyshev sweeps" in found.why


@pytest.mark.parametrize(("seed", "k"), [(0, 6), (1, 4), (2, 6), (3, 15)])
def test_errors_are_not_underrated_where_there_are_self_loops(seed, k):
    """Aggregates overrate differences over edges, and not self-loops, which are a good part of a frequency."""
    rng, n = np.random.default_rng(seed), 5000
    loops = np.zeros(n)
    loops[rng.integers(n, size=n // 20)] = 3 * rng.random(n // 20)
    L = kl.laplacian(neighbours(n, seed) + scipy.sparse.diags_array(loops), "generalized")
    _, U = truth(L.to_scipy(), k)
    for tol in (1e-3, 1e-6):
        found = kl.subspace(L, k, method="multilevel", tol=tol)
        assert found.status == Status.CONVERGED
        assert error(found.basis, U, k) <= float(found.error_bound)


def test_why_says_what_was_done():
    few = kl.subspace(kl.laplacian(neighbours(300)), 4, method="multilevel")
    assert "coarsest level, which is decomposed" in few.why
    assert few.certificate.proved
    batch = kl.subspace(kl.laplacian(torch.ones(2, 500, 500) - torch.eye(500)), 1, method="multilevel")
    assert "graphs of a batch are decomposed" in batch.why
    assert "all are decomposed" in kl.subspace(kl.laplacian(neighbours(500)), 200, method="multilevel").why
    assert "Chebyshev sweeps alone" in kl.subspace(kl.laplacian(neighbours(420)), 20, method="multilevel").why
    assert "two-grid cycles of 8 vectors" in kl.subspace(kl.laplacian(neighbours(2000)), 4, method="multilevel").why


@pytest.mark.parametrize("n", [700, 1500, 2500])
def test_it_is_the_same_algorithm_at_every_size(n):
    """Two-grid cycles on either side of the size up to which certificates are proved."""
    L = make("grid", n, 0)
    _, U = truth(L, 4)
    found = kl.subspace(L, 4, method="multilevel", tol=1e-6)
    assert found.products > 0
    assert "two-grid cycles" in found.why
    assert error(found.basis, U, 4) <= 1e-6


def test_its_settings_are_those_of_the_method():
    L = kl.laplacian(neighbours())
    lam, U = truth(L.to_scipy(), 12)
    k = int(np.argmax(np.diff(lam[4:12]))) + 5
    for settings in ({"degree": 3}, {"block": k + 1}, {"cycles": 1}):
        solver = kl.solvers.Multilevel(**settings)
        found = kl.subspace(L, k, method=solver)
        assert found.status == Status.CONVERGED
        assert error(found.basis, U, k) <= 1e-3
    assert "1 two-grid cycles" in found.why


def test_float32_does_not_hide_frequencies_far_below_the_degrees():
    """A barbell's cliques add equal numbers, whose rounding is no random walk."""
    clique, bar = np.ones((754, 754)) - np.eye(754), scipy.sparse.diags_array([np.ones(755)] * 2, offsets=[-1, 1])
    W = scipy.sparse.lil_array(scipy.sparse.block_diag([clique, bar, clique]))
    for a, b in ((753, 754), (1509, 1510)):
        W[a, b] = W[b, a] = 1.0
    order = np.random.default_rng(0).permutation(W.shape[0])
    L = kl.laplacian(scipy.sparse.csr_array(W)[order][:, order])
    exact = kl.subspace(L, 4, method="exact")
    for k in (2, 3, 4):
        found = kl.subspace(L, k, method="multilevel", tol=1e-2)
        error = float(kl.metrics.subspace_error(found.basis, exact.basis[:, :k]))
        assert found.status.name != "CONVERGED" or error <= 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_frequencies_that_self_loops_confine_are_not_overlooked(seed):
    """Between nodes with loops of different weights lie low frequencies that aggregates smear."""
    rng, W = np.random.default_rng(seed), scipy.sparse.csr_array(grid(2, 1100).numpy())
    n, k = W.shape[0], 10
    loops = (rng.random(n) < 0.3) * rng.uniform(0.1, 2, n)
    L = kl.laplacian(W + scipy.sparse.diags_array(loops))
    U = torch.from_numpy(scipy.linalg.eigh(L.to_dense().numpy(), subset_by_index=[0, k - 1])[1])
    found = kl.subspace(L, k, method="multilevel", tol=1e-2)
    assert found.status == kl.Status.CONVERGED
    assert float(kl.metrics.subspace_error(found.basis, U)) <= 1e-2
    same = kl.laplacian(W + 3.0 * scipy.sparse.eye_array(n))  # the same loop everywhere moves all frequencies alone
    assert "two-grid" in kl.subspace(same, 4, method="multilevel").why


def test_cycles_that_lose_rank_at_once_leave_sweeps_a_beginning():
    """Hubs, clustering and a geometry at once: the first cycle finds dependent vectors, and has measured nothing."""
    L = kl.laplacian(UNSEEN["hyperbolic"](2600, np.random.default_rng(0)), "normalized")
    found = kl.subspace(L, 2, method="multilevel")
    assert "Chebyshev sweeps" in found.why
    exact = kl.subspace(L, 2, method="exact")
    assert found.status == Status.CONVERGED
    assert error(found.basis, exact.basis.numpy(), 2) <= 1e-3


@pytest.mark.parametrize(("seed", "k", "tol"), [(2, 11, 1e-3), (2, 16, 1e-3), (4, 21, 1e-4), (5, 16, 1e-4)])
def test_graphs_without_a_geometry_are_swept_and_their_errors_bounded(seed, k, tol):
    """Two expanders: cycles said less than their error, and sweeps after them lacked an eigenvector."""
    rng = np.random.default_rng(seed)
    W = reweighted(GRAPHS["two expanders"](2100, rng), "Pareto", rng)
    L = kl.laplacian(W, "normalized")
    found = kl.subspace(L, k, method="multilevel", tol=tol)
    assert found.status == Status.CONVERGED
    U = scipy.linalg.eigh(L.to_dense().numpy(), subset_by_index=[0, k - 1])[1]
    assert error(found.basis, U, k) <= float(found.error_bound)
