"""One large graph whose degrees lie far apart, against ARPACK on the inverse and numpy's dense decomposition."""

from functools import cache

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import eigsh
from scipy.spatial import Delaunay

import krylow as kl
from krylow.api import choose
from krylow.certificate import Status
from krylow.linalg.components import null_space
from krylow.metrics import subspace_error
from krylow.solvers._pencil import Pencil, first_frequency, scale
from krylow.solvers.davidson import Davidson, Search
from soak.case import GRAPHS
from soak.families import reweighted

N = 2200
PRECONDITION = Pencil.precondition


def power_law(n=N, m=4, seed=0):
    return sp.csr_array(nx.to_scipy_sparse_array(nx.barabasi_albert_graph(n, m, seed=seed), dtype=float))


def weighted(orders, n=N, seed=0):
    """A random regular graph whose weights lie over this many orders of magnitude."""
    edges = np.array(nx.random_regular_graph(6, n, seed=seed).edges()).T
    weights = 10 ** np.random.default_rng(seed).uniform(-orders / 2, orders / 2, edges.shape[1])
    W = sp.coo_array((weights, edges), shape=(n, n)).tocsr()
    return W + W.T


def truth(L, k, shift=1e-4):
    """The lowest k + 1 eigenpairs by ARPACK on the inverse of a shift, which lies below them if L has negative ones."""
    A = sp.csc_array(L.to_scipy())
    values, vectors = eigsh(A, k + 1, sigma=-shift, tol=1e-13, v0=np.ones(A.shape[0]) + np.arange(A.shape[0]) / 7)
    order = np.argsort(values)
    return values[order], torch.from_numpy(vectors[:, order])


@cache
def power_law_truth():
    return truth(kl.laplacian(power_law()), 40)


def check(found, L, k, tol, shift=1e-4, known=None):
    values, U = known or truth(L, k, shift)
    assert found.status == Status.CONVERGED, found.status
    error = float(subspace_error(found.basis.double(), U[:, :k]))
    assert error <= tol
    assert error <= 10 * float(found.error_bound) + 1e-13  # what is claimed is not far below what is true
    np.testing.assert_allclose(found.ritz_values.double(), values[:k], atol=30 * tol * abs(values[k]), rtol=1e-6)
    return error


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize("k", [1, 9, 40])
def test_a_power_law_is_solved_to_the_error_asked_for(k, tol):
    L = kl.laplacian(power_law())
    check(kl.subspace(L, k, method="davidson", tol=tol), L, k, tol, known=power_law_truth())


def test_the_diagonal_saves_most_passes_where_degrees_lie_far_apart():
    L = kl.laplacian(power_law(6000, 3, seed=1))
    ours = kl.subspace(L, 10, method="davidson")
    plain = kl.subspace(L, 10, method="chebyshev")
    assert ours.status == plain.status == Status.CONVERGED
    assert ours.passes < plain.passes / 2


def test_auto_takes_it_where_degrees_lie_far_apart_and_nowhere_else():
    wide, narrow = power_law(5000, 3), nx.to_scipy_sparse_array(nx.random_regular_graph(8, 5000, seed=0), dtype=float)
    method, why = choose(kl.laplacian(wide), 5)
    assert method == "davidson"
    assert "largest degree" in why
    assert choose(kl.laplacian(narrow), 5)[0] == "chebyshev"


def test_no_certificate_is_computed_again():
    L = kl.laplacian(power_law())
    found = kl.subspace(L, 6, method="davidson")
    products = L.products
    assert found.status == Status.CONVERGED
    assert L.products == products == found.products
    assert not found.certificate.proved


@pytest.mark.parametrize("orders", [4, 8, 12])
def test_weights_over_many_orders_of_magnitude(orders):
    L = kl.laplacian(weighted(orders))
    values, vectors = truth(L, 14, 1e-2 * 10 ** (-orders / 2))
    k = 3 + int(np.argmax(np.diff(np.log(values[2:12]))))  # at a wide gap
    found = kl.subspace(L, k, method="davidson", tol=1e-4)
    assert found.status == Status.CONVERGED
    assert float(subspace_error(found.basis, vectors[:, :k])) <= 1e-4


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 6, 8, 10, 12])
def test_no_frequency_hides_on_a_node_of_small_degree(seed):
    L = kl.laplacian(weighted(4, 3000, seed))
    values, vectors = truth(L, 20)
    k = 11 + int(np.argmax(np.diff(values[10:20])))
    found = kl.subspace(L, k, method="davidson")
    assert found.status == Status.CONVERGED
    assert float(subspace_error(found.basis, vectors[:, :k])) <= 1e-3


@pytest.mark.parametrize(("orders", "seed"), [(4, 103), (6, 101), (6, 205), (6, 215)])
def test_no_frequency_hides_among_heavy_nodes(orders, seed):
    """Nodes of heavy edges that little else holds: the diagonal puts them in the middle of a crowd."""
    upper = sp.triu(power_law(2500, 3, seed), format="coo")
    upper.data = 10 ** np.random.default_rng(seed).uniform(-orders / 2, orders / 2, upper.nnz)
    L = kl.laplacian(sp.csr_array(upper + upper.T))
    values, vectors = truth(L, 24, 1e-2 * 10 ** (-orders / 2))
    k = 8 + int(np.argmax(np.diff(np.log(values[7:22]))))
    found = kl.subspace(L, k, method="davidson")
    assert found.status == Status.CONVERGED
    assert float(subspace_error(found.basis, vectors[:, :k])) <= 1e-3


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_frequencies_far_below_the_shift_are_not_covered_by_those_near_it(seed):
    """Communities have frequencies of 1 to 2 here and light nodes of 6, near which the shift is.

    Corrections take nearly all of the error near the shift and an eighth of it far below: what is left is there.
    """
    rng, n, count, k = np.random.default_rng(seed), 2400, 12, 30
    strength = rng.pareto(2.5, n) + 0.3
    share, start = strength / strength.sum(), np.arange(n) // (n // count) * (n // count)
    rows = rng.choice(n, 10 * n, p=share)
    inside = start[rows] + rng.integers(n // count, size=rows.size)
    ends = np.r_[rows, rng.choice(n, n, p=share)], np.r_[inside, rng.choice(n, n, p=share)]
    W = sp.csr_array((np.ones(ends[0].size), ends), shape=(n, n))
    L = kl.laplacian(W + W.T)
    found = kl.subspace(L, k, method="davidson")
    _, U = truth(L, k)
    assert found.status == Status.CONVERGED
    assert float(subspace_error(found.basis, U[:, :k])) <= float(found.error_bound)


@pytest.mark.parametrize("kind", ["normalized", "signed", "generalized"])
def test_other_laplacians(kind):
    W = power_law(seed=3)
    if kind == "signed":
        upper = sp.triu(W, format="coo")
        upper.data[np.random.default_rng(0).random(upper.nnz) < 0.2] *= -1
        W = sp.csr_array(upper + upper.T)
    if kind == "generalized":
        W = sp.csr_array(W + sp.diags_array(np.random.default_rng(0).random(N)))
    L = kl.laplacian(W, kind="combinatorial" if kind == "signed" else kind)
    shift = 20.0 if kind == "signed" else 1e-4
    check(kl.subspace(L, 8, method="davidson", tol=1e-4), L, 8, 1e-4, shift)


def test_isolated_nodes_and_components():
    """Null vectors, of which an isolated node has a zero on the diagonal, are read off; the others are iterated for."""
    W = sp.block_diag([power_law(1500, 4, seed=1), power_law(1100, 3, seed=2), sp.csr_array((3, 3))], format="csr")
    L = kl.laplacian(W)
    found = kl.subspace(L, 11, method="davidson", tol=1e-5)
    assert int((found.ritz_values.abs() < 1e-9).sum()) == 5
    check(found, L, 11, 1e-5)


def test_a_graph_of_k_components_needs_no_iteration():
    L = kl.laplacian(sp.block_diag([power_law(900, 3, seed=s) for s in range(3)], format="csr"))
    found = kl.subspace(L, 3, method="davidson")
    assert found.status == Status.CONVERGED
    assert found.passes == 0


def test_repeated_frequencies_are_all_found_and_a_cut_between_them_is_named():
    half = power_law(1400, 3, seed=5)
    W = sp.block_diag([half, half], format="csr")  # every frequency twice
    L = kl.laplacian(W)
    found = kl.subspace(L, 8, method="davidson", tol=1e-5)
    check(found, L, 8, 1e-5)
    cut = kl.subspace(L, 7, method="davidson", tol=1e-5)
    assert cut.status == Status.NO_GAP
    assert int(cut.certificate.well_defined) == 6


@pytest.mark.parametrize(
    "graph", [nx.star_graph(3000), nx.complete_multipartite_graph(*[100] * 22)], ids=["star", "parts"]
)
def test_a_cut_inside_a_frequency_of_nearly_all_vectors_is_named(graph):
    """All nodes but a few are alike: rounding shows gaps in products with a hub, and lies along the null vector."""
    L = kl.laplacian(sp.csr_array(nx.to_scipy_sparse_array(graph, dtype=float)))
    found = kl.subspace(L, 2, method="davidson")
    assert found.status == Status.NO_GAP
    assert int(found.certificate.well_defined) == 1
    second = found.basis[:, 1:].double()
    assert float(torch.linalg.vector_norm(L @ second - found.ritz_values[1] * second)) < 1e-2 * float(
        found.ritz_values[1]
    )


def test_float32_input():
    W = power_law()
    L = kl.laplacian(W.astype(np.float32))
    found = kl.subspace(L, 9, method="davidson")
    assert found.basis.dtype == torch.float32
    check(found, kl.laplacian(W), 9, 1e-3)


def test_the_same_seed_gives_the_same_answer():
    L = kl.laplacian(power_law())
    first, second, other = (kl.subspace(L, 5, method="davidson", seed=s) for s in (4, 4, 5))
    assert torch.equal(first.basis, second.basis)
    assert not torch.equal(first.basis, other.basis)


def test_products_are_bounded_and_the_answer_then_claims_nothing():
    L = kl.laplacian(power_law())
    found = kl.subspace(L, 9, method="davidson", tol=1e-6, max_products=600)
    assert found.status == Status.MAX_STEPS
    assert found.products <= 1500  # a sweep that has begun is finished, and the first frequency is looked for before
    assert found.basis.isfinite().all()


@pytest.mark.parametrize("seed", range(3))
def test_rounding_of_a_search_in_single_precision_is_not_the_last_word(seed):
    assert kl.subspace(kl.laplacian(power_law()), 9, method="davidson", tol=1e-8, seed=seed).status == Status.CONVERGED


def test_progress_and_interruption():
    L = kl.laplacian(power_law())
    seen = []
    found = kl.subspace(L, 9, method="davidson", tol=1e-8, callback=seen.append)
    assert found.status == Status.CONVERGED
    assert seen[-1].passes <= found.passes
    assert seen[-1].bound <= 1e-8 < seen[0].bound

    def stop(progress):
        raise KeyboardInterrupt

    stopped = kl.subspace(L, 9, method="davidson", tol=1e-8, callback=stop)
    assert stopped.status == Status.INTERRUPTED
    torch.testing.assert_close(stopped.basis.mT @ stopped.basis, torch.eye(9, dtype=torch.float64))


def test_gradient_flows_to_the_weights():
    W = power_law().tocoo()
    weights = torch.from_numpy(W.data).requires_grad_()
    A = torch.sparse_coo_tensor(np.stack([W.row, W.col]), weights, W.shape)
    found = kl.subspace(kl.laplacian(A), 5, method="davidson", tol=1e-8)
    found.project(torch.ones(N, 1, dtype=torch.float64) * torch.arange(N)[:, None]).square().sum().backward()
    assert weights.grad.isfinite().all()
    assert float(weights.grad.abs().max()) > 0


def test_the_first_frequency_is_found_from_above():
    L = kl.laplacian(power_law())
    first = first_frequency(L, null_space(L), torch.Generator().manual_seed(0))
    value = truth(L, 1)[0][1]
    assert value * (1 - 1e-9) <= first <= 1.2 * value


def test_the_scaled_matrix_has_a_short_spectrum_with_the_shift_at_zero():
    L = kl.laplacian(power_law(600))
    values, U = truth(L, 3)
    pencil = scale(L, float(values[2]))
    y = pencil.from_graph_(U[:, 2:3].clone())
    assert float((pencil.operator @ y).norm() / y.norm()) < 1e-6
    spectrum = np.linalg.eigvalsh(pencil.operator.to_dense().numpy())
    assert (spectrum < -1e-8).sum() == 2  # as many as frequencies below the shift
    assert spectrum[-1] <= pencil.top < 5 < 0.1 * float(L.gershgorin()[1])


def test_light_nodes_are_not_far_below_zero():
    """A filter's degree is bounded by what grows the most."""
    L = kl.laplacian(weighted(4, 600))
    shift = 2 * float(L.diagonal().min())
    spectrum = np.linalg.eigvalsh(scale(L, shift).operator.to_dense().numpy())
    assert (spectrum < 0).sum() == (np.linalg.eigvalsh(L.to_dense().numpy()) < shift).sum() > 1
    assert -0.2 < spectrum[0] < 0 < 1 < spectrum[-1]


def test_a_pencil_in_another_dtype_has_the_same_entries():
    L = kl.laplacian(power_law(600))
    single, double = (scale(L, 0.5, dtype) for dtype in (torch.float32, None))
    assert single.operator.dtype == single.root.dtype == torch.float32
    assert double.operator.dtype == torch.float64
    torch.testing.assert_close(single.operator.values, double.operator.values.float())


def test_solving_through_the_diagonal():
    L = kl.laplacian(power_law(600))
    values = truth(L, 1)[0]
    pencil = scale(L, 0.5 * float(values[1]))
    dense = np.linalg.eigh(pencil.operator.to_dense().numpy())
    deep = torch.from_numpy(dense[1][:, :1].copy())
    b = torch.randn(600, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = pencil.precondition(pencil.to_graph_(b.clone()), 60, float(dense[0][1]), deep)
    pencil.to_graph_(x)
    left = pencil.to_graph_(b.clone()) - pencil.operator @ pencil.from_graph_(x)
    left = left - deep @ (deep.mT @ left)
    assert float(left.norm() / b.norm()) < 1e-6


def test_a_shift_beyond_guards_is_lowered():
    """Corrections then see what is outside the block from further away."""
    L, k = kl.laplacian(power_law(600)), 8
    values = truth(L, 16)[0]
    X = torch.randn(600, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    search = Search(Davidson(), L, X, k, null_space(L), 10**6, None)
    search._filter(float(values[k + 3]))
    search.pencil = scale(L, float(values[k + 3]))
    low = float(np.linalg.eigvalsh(search.pencil.operator.to_dense().numpy())[15])
    search.interval = *search.interval[:2], low
    shift = float(values[k - 1] + 0.3 * (values[k] - values[k - 1]))
    search._lower(shift)
    spectrum = np.linalg.eigvalsh(search.pencil.operator.to_dense().numpy())
    assert search.pencil.shift == shift
    assert (spectrum < 0).sum() == k
    assert 1.2 * low < search.interval[2] <= 1.1 * spectrum[15]


@pytest.mark.parametrize("k", [27, 35])
def test_degrees_about_the_shift_of_a_signed_graph(k):
    """Some degrees are zero and less: another shift there makes other vectors of those far below 0."""
    upper = sp.triu(power_law(4988, 4, seed=2), format="coo")
    upper.data[np.random.default_rng(2).random(upper.nnz) < 0.05] *= -1
    L = kl.laplacian(sp.csr_array(upper + upper.T))
    assert float(L.diagonal().min()) < 0
    found, other = kl.subspace(L, k, method="davidson"), kl.subspace(L, k, tol=1e-8)  # ARPACK's inverse is dense here
    assert (found.status, other.status) == (Status.CONVERGED, Status.CONVERGED)
    assert other.method == "chebyshev"
    assert float(subspace_error(found.basis, other.basis)) <= 1e-3


def test_a_correction_that_overflows_leaves_the_block_as_it_was(monkeypatch):
    L, k = kl.laplacian(power_law()), 6
    monkeypatch.setattr(Search, "_lower", lambda self, shift: None)
    monkeypatch.setattr(Search, "_step_degree", lambda self, tol: 10_000)  # far beyond what vectors below 0 allow

    def undeflated(self, R, degree, low, deep):
        return PRECONDITION(self, R, degree, 20 * low, deep[:, :0])

    monkeypatch.setattr(Pencil, "precondition", undeflated)
    found = kl.subspace(L, k, method="davidson")
    assert found.status == Status.MAX_STEPS
    torch.testing.assert_close(found.basis.mT @ found.basis, torch.eye(k, dtype=found.basis.dtype))


def chain_of_cliques(sizes, weight):
    """Cliques of these sizes in a row, each joined to the next by one light edge."""
    W = sp.lil_array(sp.block_diag([np.ones((size, size)) - np.eye(size) for size in sizes]))
    ends = np.cumsum(sizes)[:-1]
    W[ends - 1, ends] = W[ends, ends - 1] = weight
    return sp.csr_array(W)


@pytest.mark.parametrize("k", [2, 9, 30])
def test_frequencies_far_below_the_degrees_are_not_claimed_too_early(k):
    sizes = np.random.default_rng(1).integers(3, 60, 70)
    L = kl.laplacian(chain_of_cliques(sizes, 0.05))
    found = kl.subspace(L, k, method="davidson", max_products=40_000)
    _, U = truth(L, k, 1e-7)
    error = float(subspace_error(found.basis, U[:, :k]))
    assert found.status != Status.CONVERGED or error <= float(found.error_bound) <= 1e-3


def test_guards_that_are_still_off_hide_no_gap():
    L = kl.laplacian(weighted(4, seed=4))
    check(kl.subspace(L, 2, method="davidson"), L, 2, 1e-3)


def contrast(kind, n=2300, seed=0):
    """Edges heavy or light by their nodes: on sites drawn at random, or inside groups of them."""
    rng = np.random.default_rng(seed)
    edges = np.array(nx.gnm_random_graph(n, 5 * n, seed=seed).edges()).T
    if kind == "sites":
        site = rng.random(n) < 0.5
        heavy = site[edges].all(0)
    else:
        group = rng.integers(0, 30, n)
        heavy = group[edges[0]] == group[edges[1]]
    W = sp.csr_array((np.where(heavy, 1e3, 1e-2), edges), shape=(n, n))
    W = sp.csr_array(W + W.T)
    _, label = sp.csgraph.connected_components(W)
    kept = np.flatnonzero(label == np.bincount(label).argmax())
    return W[kept][:, kept]


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize("kind", ["sites", "groups"])
@pytest.mark.parametrize("seed", [0, 1])
def test_weights_of_two_sizes(kind, tol, seed):
    L = kl.laplacian(contrast(kind, seed=seed))
    values, U = truth(L, 24, 1e-4)
    k = 2 + int(np.argmax(np.diff(values[1:24]) / values[2:24]))
    found = kl.subspace(L, k, method="davidson", tol=tol)
    error = float(subspace_error(found.basis, U[:, :k]))
    assert error <= 10 * tol
    assert found.status != Status.CONVERGED or error <= 10 * float(found.error_bound)


@pytest.mark.parametrize(("k", "seed"), [(23, 0), (24, 0), (25, 1), (28, 0), (29, 0)])
def test_weights_over_fourteen_orders_are_never_a_wrong_answer(k, seed):
    """Paths of heavy edges are soft: a graph of few clusters has its lowest vectors in another order."""
    rng = np.random.default_rng(seed)
    points = Delaunay(rng.random((4000, 2)))
    edges = np.unique(np.sort(points.simplices[:, [[0, 1], [1, 2], [0, 2]]].reshape(-1, 2)), axis=0).T
    W = sp.csr_array((10 ** rng.uniform(-14, 0, edges.shape[1]), edges), shape=(4000, 4000))
    L = kl.laplacian(W + W.T)
    exact = kl.subspace(L, k, method="shift_invert", tol=1e-8)
    assert exact.certificate.proved
    found = kl.subspace(L, k, method="davidson")
    assert found.status != Status.CONVERGED or float(subspace_error(found.basis, exact.basis)) <= 1e-3


def test_weights_over_twelve_orders_hide_no_vector():
    """Many wanted vectors of a graph of few nodes: the clusters that would suffice are more than there are nodes."""
    rng = np.random.default_rng(0)
    W = sp.csr_array(sp.triu(power_law(m=3)))
    W.data = 10 ** rng.uniform(-12, 0, W.nnz)
    L = kl.laplacian(W + W.T)
    U = np.linalg.eigh(L.to_scipy().toarray())[1]
    for k in (20, 50):
        found = kl.subspace(L, k, method="davidson", max_products=600 * (k + 8))
        error = float(subspace_error(found.basis, torch.from_numpy(U[:, :k].copy())))
        assert found.status != Status.CONVERGED or error <= 1e-2


def test_a_dense_graph_of_some_hundred_nodes_is_searched_and_a_function_is_refused():
    W = np.triu(np.random.default_rng(0).random((500, 500)) < 0.02, 1).astype(float)
    L = kl.laplacian(W + W.T)
    sub, exact = kl.subspace(L, 12, method="davidson"), kl.subspace(L, 12, method="exact")
    assert float(kl.metrics.subspace_error(sub.basis, exact.basis)) <= max(1e-3, float(sub.error_bound))
    with pytest.raises(kl.InputError, match="its entries must be known"):
        kl.subspace(kl.operators.FunctionOperator(lambda X: L @ X, 500, dtype=L.dtype), 12, method="davidson")


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize("n", [2200, 6000])
def test_two_weakly_joined_parts_have_a_gap_behind_the_second_frequency(n, tol):
    """Clusters of heavy edges lower the second frequency far below the filter's, which need not begin again."""
    rng = np.random.default_rng(0)
    L = kl.laplacian(reweighted(GRAPHS["two expanders"](n, rng), "Pareto", rng))
    found = kl.subspace(L, 2, method="davidson", tol=tol)
    assert found.status == Status.CONVERGED
    exact = kl.subspace(L, 2, method="chebyshev", tol=1e-8)
    assert exact.status == Status.CONVERGED
    assert float(subspace_error(found.basis, exact.basis)) <= tol
