"""Random-walk and magnetic Laplacians: against dense eigendecompositions of their own, in their own geometry."""

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow import InputError
from krylow.testing import random_graph

F64 = torch.float64


def directed(n, seed=0, density=0.3):
    rng = np.random.default_rng(seed)
    W = (rng.random((n, n)) < density) * rng.integers(1, 4, (n, n)) / 4
    np.fill_diagonal(W, 0)
    return W


def by_definition(W, q=0.25):
    S, turn = (W + W.T) / 2, 2 * np.pi * q * (W - W.T)
    return np.diag(S.sum(1)) - S * np.exp(1j * turn)


def walk(W):
    d = W.sum(1)
    return np.eye(len(W)) - W / d[:, None]


@pytest.mark.parametrize("form", [torch.tensor, scipy.sparse.csr_array, lambda W: networkx.from_numpy_array(W)])
def test_the_random_walk_laplacian_is_the_definition(form):
    W = random_graph(15, seed=1).numpy()
    L = kl.laplacian(form(W), "random_walk")
    assert np.allclose(L.to_dense(), walk(W))
    assert np.allclose(L.to_scipy().toarray(), walk(W))
    x = np.random.default_rng(0).standard_normal((15, 3))
    assert np.allclose(L @ x, walk(W) @ x)
    assert np.allclose(L @ x[:, 0], walk(W) @ x[:, 0])
    assert np.allclose(L.diagonal(), np.diag(walk(W)))


@pytest.mark.parametrize("method", ["auto", "exact", "lanczos", "thick_restart", "lobpcg", "chebyshev"])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_random_walk_subspace_is_that_of_right_eigenvectors(method, sparse):
    W = random_graph(40, seed=2).numpy()
    L = kl.laplacian(scipy.sparse.csr_array(W) if sparse else W, "random_walk")
    sub = kl.subspace(L, 4, method=method, m=40 if method == "lanczos" else None, tol=1e-16)
    values, vectors = np.linalg.eig(walk(W))
    order = np.argsort(values.real)[:4]
    values, vectors = values[order].real, vectors[:, order].real
    D = np.diag(W.sum(1))
    assert np.allclose(sub.ritz_values, values, atol=1e-6)
    assert np.allclose(sub.basis.T.numpy() @ D @ sub.basis.numpy(), np.eye(4), atol=1e-6)
    dual = np.linalg.inv(vectors.T @ D @ vectors) @ vectors.T @ D  # right eigenvectors, and left ones
    x = np.random.default_rng(1).standard_normal((40, 2))
    expected = vectors @ dual @ x
    assert np.allclose(sub.project(x), expected, atol=1e-5)
    assert np.allclose(sub.basis.numpy() @ sub.gft(x), expected, atol=1e-5)
    assert np.allclose(sub.inverse_gft(sub.gft(x[:, 0])), expected[:, 0], atol=1e-5)
    assert np.allclose(
        kl.lowpass(L, x, 4, method=method, m=40 if method == "lanczos" else None, tol=1e-16), expected, atol=1e-5
    )
    assert sub.error_bound <= 1e-8
    assert sub.project(np.ones(40)) == pytest.approx(np.ones(40))  # constants are the lowest frequency


def test_random_walks_on_isolated_nodes_batches_and_lists():
    W = torch.zeros(5, 5, dtype=F64)
    W[0, 1] = W[1, 0] = 2.0
    expected = torch.zeros(5, 5, dtype=F64)
    expected[:2, :2] = torch.tensor([[1, -1], [-1, 1]])
    torch.testing.assert_close(kl.laplacian(W, "random_walk").to_dense(), expected)
    graphs = [random_graph(8, seed=1), random_graph(5, seed=2)]
    L = kl.laplacian(graphs, "random_walk")
    sub = kl.subspace(L, 2)
    for i, graph in enumerate(graphs):
        assert np.allclose(L[i].to_dense(), walk(graph.numpy()))
        x = torch.arange(len(graph), dtype=F64)
        alone = kl.lowpass(kl.laplacian(graph, "random_walk"), x, 2)
        padded = torch.nn.functional.pad(x, (0, 8 - len(graph)))[None, :, None].expand(2, 8, 1)
        torch.testing.assert_close(sub.project(padded)[i, : len(graph), 0], alone)


def test_gradients_reach_the_weights_of_a_random_walk():
    W = random_graph(8, seed=4).requires_grad_()
    x = torch.arange(8, dtype=F64)

    def filtered(W):
        return kl.lowpass(kl.laplacian((W + W.mT) / 2, "random_walk"), x, 3)

    assert torch.autograd.gradcheck(filtered, (W,), atol=1e-6)


@pytest.mark.parametrize(
    "form", [torch.tensor, scipy.sparse.csr_array, "networkx", "edge_index", "igraph", "rustworkx"]
)
def test_the_magnetic_laplacian_is_the_definition(form):
    W = directed(15, seed=1)
    graph = W if not callable(form) else form(W)
    if form == "networkx":
        graph = networkx.from_numpy_array(W, create_using=networkx.DiGraph)
    elif form == "edge_index":
        graph = (torch.tensor(np.argwhere(W).T.copy()), torch.tensor(W[W != 0]))
    elif form == "igraph":
        graph = pytest.importorskip("igraph").Graph.Weighted_Adjacency(W, mode="directed")
    elif form == "rustworkx":
        graph = pytest.importorskip("rustworkx").PyDiGraph.from_adjacency_matrix(W)
    L = kl.laplacian(graph, "magnetic")
    H = by_definition(W)
    assert np.allclose(L.to_dense(), H)
    assert np.allclose(L.to_scipy().toarray(), H)
    assert np.allclose(L.diagonal(), np.diag(H))
    assert np.allclose(np.linalg.eigvalsh(L.core.to_dense()), np.repeat(np.linalg.eigvalsh(H), 2))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((15, 2)) + 1j * rng.standard_normal((15, 2))
    assert np.allclose(L @ x, H @ x)
    assert L.products == 2
    assert np.allclose(L @ x.real[:, 0], H @ x.real[:, 0])
    assert np.linalg.eigvalsh(H)[0] > -1e-12


@pytest.mark.parametrize("method", ["auto", "exact", "lanczos", "thick_restart", "lobpcg", "chebyshev"])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_magnetic_subspace_is_that_of_the_complex_eigenvectors(method, sparse):
    W = directed(60, seed=3)
    L = kl.laplacian(scipy.sparse.csr_array(W) if sparse else W, "magnetic", charge=0.2)
    values, vectors = np.linalg.eigh(by_definition(W, 0.2))
    P = vectors[:, :5] @ vectors[:, :5].conj().T
    options = {"method": method, "m": 60 if method == "lanczos" else None, "tol": 1e-14}
    sub = kl.subspace(L, 5, **options)
    B = sub.basis.numpy()
    assert B.shape == (60, 5)
    assert np.allclose(B.conj().T @ B, np.eye(5))
    assert np.allclose(B @ B.conj().T, P, atol=1e-5)
    assert np.allclose(sub.ritz_values, values[:5], atol=1e-8)
    assert sub.status.name == "CONVERGED"
    assert sub.error_bound <= 1e-8
    x = np.random.default_rng(1).standard_normal((60, 2))
    for signal in (x, x * (1 + 2j), x[:, 0]):
        assert np.allclose(sub.project(signal), P @ signal, atol=1e-5)
        assert np.allclose(sub.inverse_gft(sub.gft(signal)), P @ signal, atol=1e-5)
        assert np.allclose(kl.lowpass(L, signal, 5, **options), P @ signal, atol=1e-5)


def test_a_large_magnetic_laplacian_without_a_decomposition():
    graph = networkx.gnp_random_graph(3000, 0.004, seed=1, directed=True)
    L = kl.laplacian(graph, "magnetic")
    sub = kl.subspace(L, 4)
    assert (sub.method, sub.status.name) == ("chebyshev", "CONVERGED")
    assert "too large to decompose" in sub.why
    values = scipy.sparse.linalg.eigsh(L.to_scipy(), 4, sigma=-0.01, return_eigenvectors=False)
    assert np.allclose(np.sort(values), sub.ritz_values, rtol=1e-3)


def test_a_magnetic_cutoff_keeps_what_is_below_it():
    W = directed(40, seed=5)
    L = kl.laplacian(W, "magnetic")
    values, vectors = np.linalg.eigh(by_definition(W))
    sub = kl.subspace(L, cutoff=(values[6] + values[7]) / 2)
    assert (sub.k, int(sub.kept)) == (7, 7)
    assert np.allclose(sub.basis @ sub.basis.mH, vectors[:, :7] @ vectors[:, :7].conj().T)
    nothing = kl.subspace(L, cutoff=values[0] / 2)
    assert int(nothing.kept) == 0
    assert np.allclose(nothing.project(np.ones(40)), 0)


def test_special_charges():
    """Without a charge directions are forgotten; of an undirected graph every charge gives the combinatorial one."""
    W = directed(12)
    assert np.allclose(kl.laplacian(W, "magnetic", charge=0).to_dense(), kl.laplacian((W + W.T) / 2).to_dense())
    S = random_graph(12, seed=1)
    assert np.allclose(kl.laplacian(S, "magnetic").to_dense(), kl.laplacian(S).to_dense())
    cycle = np.roll(np.eye(4), 1, axis=1)  # four quarter turns make a whole one: the lowest frequency is zero
    assert abs(kl.subspace(kl.laplacian(cycle, "magnetic"), 1).ritz_values[0]) < 1e-12
    assert kl.subspace(kl.laplacian(cycle[:3, :3] + np.eye(3)[[2, 0, 1]].T, "magnetic"), 1).ritz_values[0] > 0.1


def test_gradients_reach_the_weights_of_a_magnetic_laplacian():
    W = torch.tensor(directed(7, seed=2, density=0.6))
    x = torch.arange(7, dtype=F64)
    rows, cols = W.nonzero().T

    def dense(W):
        return kl.lowpass(kl.laplacian(W, "magnetic"), x, 3)

    def sparse(values):
        return kl.lowpass(kl.laplacian((torch.stack([rows, cols]), values), "magnetic"), x, 3)

    assert torch.autograd.gradcheck(dense, (W.requires_grad_(),), atol=1e-6)
    assert torch.autograd.gradcheck(sparse, (W.detach()[rows, cols].requires_grad_(),), atol=1e-6)


@pytest.mark.parametrize("kind", ["random_walk", "magnetic"])
def test_any_response_and_banks(kind):
    W = random_graph(20, seed=7).numpy() if kind == "random_walk" else directed(20, seed=7)
    L = kl.laplacian(W, kind)
    M = walk(W) if kind == "random_walk" else by_definition(W)
    values, vectors = np.linalg.eig(M)
    heat = (vectors * np.exp(-2 * values)) @ np.linalg.inv(vectors)
    x = np.random.default_rng(0).standard_normal((20, 3))
    y = kl.filter(L, x, kl.responses.Heat(2.0))
    assert np.allclose(y, heat @ x, atol=1e-6)
    assert np.allclose(kl.filter(L, x[:, 0], kl.responses.Heat(2.0)), heat @ x[:, 0], atol=1e-6)
    bank = kl.filter(L, x, [kl.responses.Heat(2.0), kl.responses.Heat(1e-9)])
    assert np.allclose(bank[..., 0], heat @ x, atol=1e-6)
    assert np.allclose(bank[..., 1], x, atol=1e-6)
    alone = kl.filter(L, x[:, 0], [kl.responses.Heat(2.0), kl.responses.Heat(1e-9)])
    assert np.allclose(alone, np.stack([heat @ x[:, 0], x[:, 0]], -1), atol=1e-6)


def test_warm_starts_cost_what_they_do_on_the_core():
    L = kl.laplacian(networkx.random_geometric_graph(300, 0.12, seed=1), "random_walk")
    first = kl.subspace(L, 5, method="thick_restart", tol=1e-8)
    again = kl.subspace(L, 5, method="thick_restart", tol=1e-8, start=first)
    block = kl.subspace(L, 5, method="thick_restart", tol=1e-8, start=first.basis)
    core = kl.subspace(L.core, 5, method="thick_restart", tol=1e-8, start=first.core.basis)
    assert again.products == core.products < first.products
    assert block.products <= core.products + 1


def test_proofs_and_pictures():
    W = random_graph(30, seed=1)
    for kind in ("random_walk", "magnetic"):
        sub = kl.subspace(kl.laplacian(W, kind), 3, prove=True)
        assert sub.certificate.proved
        assert "CONVERGED (proved)" in str(sub)
        assert "complex" in sub._repr_html_() or kind == "random_walk"
    with pytest.raises(InputError, match="complex basis"):
        sub.plot()
    with pytest.raises(InputError, match="another method than lanczos"):
        kl.subspace(kl.laplacian(W, "magnetic"), 3, method="lanczos", prove=True)


def test_what_needs_a_symmetric_matrix_says_so():
    walk, turn = (kl.laplacian(random_graph(9, seed=1), kind) for kind in ("random_walk", "magnetic"))
    for L, name in ((walk, "random-walk"), (turn, "magnetic")):
        for refused in (kl.fiedler, lambda L: kl.effective_resistance(L, [[0, 1]]), lambda L: kl.partition(L, 2)):
            with pytest.raises(InputError, match=f"a real symmetric Laplacian, got a {name} one"):
                refused(L)
    for method in ("multilevel", "davidson", "shift_invert", "unrolled", "polynomial"):
        with pytest.raises(InputError, match="a magnetic Laplacian takes exact, lanczos"):
            kl.lowpass(turn, torch.ones(9, dtype=F64), 2, method=method)
    with pytest.raises(InputError, match="charge must be between 0 and 0"):
        kl.laplacian(directed(5), "magnetic", charge=0.7)
    with pytest.raises(InputError, match="charge is for kind='magnetic'"):
        kl.laplacian(random_graph(5), charge=0.1)
    with pytest.raises(InputError, match="must be symmetric"):
        kl.laplacian(directed(5), "random_walk")
