"""One graph on 1 to 4 ranks is one graph: the projector is that of one machine."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components

import krylow as kl

TOL = 1e-3
RANKS = [1, 2, 3, 4]


def communities(n=3000, seed=0):
    """A block model of four blocks, randomly numbered."""
    rng = np.random.default_rng(seed)
    block, size = rng.integers(0, 4, n), 12 * n
    i, j = rng.integers(0, n, (2, size))
    keep = (i != j) & ((block[i] == block[j]) | (rng.random(size) < 0.05))
    W = sp.coo_array((np.ones(keep.sum()), (i[keep], j[keep])), shape=(n, n)).tocsr()
    return sp.csr_array(W + W.T)


def neighbours(n=4000, seed=0):
    """A k-NN graph of random points, randomly numbered."""
    from scipy.spatial import cKDTree

    points = np.random.default_rng(seed).random((n, 2))
    near = cKDTree(points).query(points, 9)[1][:, 1:]
    W = sp.csr_array((np.ones(8 * n), (np.repeat(np.arange(n), 8), near.ravel())), shape=(n, n))
    return sp.csr_array(W.maximum(W.T))


def disconnected():
    """Two graphs, which have isolated nodes, and three more of these, randomly numbered."""
    W = sp.block_diag([communities(2400, 1), communities(1300, 2), sp.csr_array((3, 3))]).tocsr()
    order = np.random.default_rng(3).permutation(W.shape[0])
    return sp.csr_array(W[order][:, order])


def signed():
    """A block model with every tenth edge negative."""
    W = sp.triu(communities(seed=4), 1).tocsr()
    W.data = W.data * np.where(np.random.default_rng(0).random(W.nnz) < 0.1, -1.0, 1.0)
    return sp.csr_array(W + W.T)


def looped():
    """A block model with self-loops."""
    W = communities(seed=6)
    return sp.csr_array(W + sp.diags_array(np.where(np.arange(W.shape[0]) % 7 == 0, 2.0, 0.0)))


CASES = {
    "communities": (communities(), {"k": 4}),
    "given partition": (communities(), {"k": 4, "partition": False}),
    "empty": (communities(), {"k": 4, "layout": "empty"}),
    "empty stay": (communities(), {"k": 4, "layout": "empty", "partition": False}),
    "single": (communities(), {"k": 4, "layout": "single"}),
    "single stay": (communities(), {"k": 4, "layout": "single", "partition": False}),
    "disconnected": (disconnected(), {"k": 12}),
    "signed": (signed(), {"k": 4}),
    "normalized": (looped(), {"k": 4, "kind": "normalized"}),
    "generalized": (looped(), {"k": 4, "kind": "generalized"}),
    "exact": (communities(seed=7), {"k": 4, "tol": 1e-7}),
    "small": (neighbours(300), {"k": 5, "tol": 1e-6}),
    "geometric": (neighbours(6000), {"k": 6}),
    "counted": (neighbours(6000), {"k": 6, "prove": True}),
    "double": (sp.csr_array(sp.block_diag([neighbours(3000)] * 2)), {"k": 3, "prove": True}),
    "baseline": (neighbours(6000), {"k": 6, "method": "slepc", "tol": 1e-2}),
    "coarse graph shared": (neighbours(6000), {"k": 6, "replicated": 300}),
    "pair": (sp.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]])), {"k": 1}),
    "pieces": (sp.csr_array(sp.block_diag([communities(1500, s) for s in range(3)])), {"k": 3}),
}


@pytest.fixture(scope="module")
def answers(launch, programs, tmp_path_factory):
    """Return what the ranks find for a case."""
    folder = tmp_path_factory.mktemp("cases")
    for name, (W, _) in CASES.items():
        sp.save_npz(folder / f"{name}.npz", W)
    (folder / "asked.json").write_text(json.dumps({name: asked for name, (_, asked) in CASES.items()}))

    def answer(ranks, name):
        where = folder / f"ranks{ranks}"
        if not where.exists():
            done = launch(ranks, programs / "solve.py", folder)
            assert done.returncode == 0, done.stderr[-4000:]
        found = json.loads((where / f"{name}.json").read_text())
        return found | dict(np.load(where / f"{name}.npz"))

    return answer


@pytest.fixture(scope="module")
def truth():
    """Return one machine's answer, of a much smaller error."""
    known = {}

    def of(name):
        W, asked = CASES[name]
        if name not in known:
            L = kl.laplacian(W, asked.get("kind"))
            known[name] = kl.subspace(L, asked["k"], tol=min(1e-9, 1e-2 * asked.get("tol", TOL)))
            assert known[name].status == kl.Status.CONVERGED
        return known[name].basis

    return of


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", [name for name in CASES if name not in ("pieces", "double")])
def test_projector_is_that_of_one_machine(answers, truth, ranks, name):
    W, asked = CASES[name]
    found, U = answers(ranks, name), truth(name)
    basis, tol = found["basis"], asked.get("tol", TOL)
    assert found["status"] == "CONVERGED" or name == "baseline"  # whose residuals bound its error badly
    error = float(kl.metrics.subspace_error(torch.from_numpy(basis), U))
    assert error <= tol
    np.testing.assert_allclose(basis.T @ basis, np.eye(asked["k"]), atol=1e-9)
    x = np.random.default_rng(5).standard_normal((W.shape[0], 2))
    np.testing.assert_allclose(found["filtered"], basis @ (basis.T @ x), atol=1e-9)


@pytest.mark.parametrize("ranks", RANKS)
def test_graphs_with_a_geometry_are_solved_by_coarser_ones(answers, ranks):
    found = answers(ranks, "geometric")
    assert found["method"] == "multilevel"
    assert "two-grid cycles" in found["why"]
    assert answers(ranks, "communities")["method"] == "chebyshev"


@pytest.mark.parametrize("ranks", RANKS)
def test_count_of_eigenvalues_below_the_cut(answers, ranks):
    found = answers(ranks, "counted")
    assert found["kind"] == "checked"
    assert "inertia counts 6 eigenvalues" in found["why"]
    assert answers(ranks, "geometric")["kind"] == "estimated"


@pytest.mark.parametrize("ranks", RANKS)
def test_no_count_inside_a_double_eigenvalue_is_believed(answers, ranks):
    found = answers(ranks, "double")
    assert found["kind"] == "estimated"
    assert found["status"] != "CONVERGED"


@pytest.mark.parametrize("ranks", RANKS)
def test_null_space_of_a_disconnected_graph(answers, ranks):
    theta = np.array(answers(ranks, "disconnected")["theta"])
    pieces = connected_components(CASES["disconnected"][0])[0]
    assert 5 <= pieces < theta.size
    np.testing.assert_allclose(theta[:pieces], 0, atol=1e-9)
    assert theta[pieces] > 1e-3


@pytest.mark.parametrize("ranks", RANKS)
def test_no_more_vectors_than_components_takes_no_product(answers, ranks):
    found = answers(ranks, "pieces")
    assert found["products"] == 0
    L = kl.laplacian(CASES["pieces"][0])
    assert float((L @ torch.from_numpy(found["basis"])).abs().max()) < 1e-10
