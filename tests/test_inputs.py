"""What comes in: graphs and matrices, signals of any kind and dtype, odd options, threads that share a graph."""

from concurrent.futures import ThreadPoolExecutor

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

import krylow as kl
from krylow import InputError, Status
from krylow.certificate import certify
from krylow.nn import UnrolledLanczos
from krylow.operators import DenseOperator, DiagonalOperator, FunctionOperator, SparseOperator

F32, F64 = torch.float32, torch.float64
#: A path of five nodes with one self-loop, one of weight 2 and a node apart.
W = np.diag([1.0, 2.0, 1.0, 0.0], 1) + np.diag([1.0, 2.0, 1.0, 0.0], -1)
LOOPED = W + np.diag([0.0, 3.0, 0.0, 0.0, 0.0])
SIGNED = W * np.where(np.eye(5, k=1) + np.eye(5, k=-1) > 0, [[1, 1, -1, 1, 1]], 1)
SIGNED = np.triu(SIGNED) + np.triu(SIGNED).T


def truth(L):
    """Eigenvalues, ascending, and eigenvectors of a dense matrix."""
    return np.linalg.eigh(np.asarray(L, dtype=float))


def generalized(A):
    return np.diag(A.sum(1)) - A + np.diag(np.diag(A))


def edge_index(A):
    return torch.from_numpy(np.stack(np.nonzero(A)))


def weights(A, dtype=F64):
    return torch.from_numpy(A[np.nonzero(A)]).to(dtype)


GRAPHS = {
    "networkx": networkx.from_numpy_array,
    "PyG": lambda A: Data(edge_index=edge_index(A), edge_weight=weights(A), num_nodes=len(A)),
    "pair": lambda A: (edge_index(A), weights(A)),
}


def same_space(basis, expected):
    basis, expected = np.asarray(basis, dtype=float), np.asarray(expected, dtype=float)
    np.testing.assert_allclose(basis @ basis.T, expected @ expected.T, atol=1e-8)


# Graphs and matrices


@pytest.mark.parametrize("form", GRAPHS)
@pytest.mark.parametrize(("A", "kind"), [(W[:4, :4], "combinatorial"), (LOOPED[:4, :4], "generalized")])
def test_a_graph_gets_its_laplacian_and_why_says_so(form, A, kind):
    graph = GRAPHS[form](A)
    values, vectors = truth(generalized(A))
    found = kl.subspace(graph, 2)
    np.testing.assert_allclose(found.ritz_values, values[:2], atol=1e-12)
    same_space(found.basis, vectors[:, :2])
    assert found.why.startswith(f"the {kind} Laplacian of ")
    assert found.status == Status.CONVERGED
    x = np.arange(4.0)
    np.testing.assert_allclose(kl.lowpass(graph, x, 2), vectors[:, :2] @ (vectors[:, :2].T @ x), atol=1e-12)
    assert certify(graph, found.basis).error_bound <= 1e-3


def test_an_edge_index_gets_its_laplacian():
    cycle = networkx.to_numpy_array(networkx.cycle_graph(8))
    values = truth(generalized(cycle))[0]
    for index in (edge_index(cycle), edge_index(cycle).numpy(), edge_index(cycle).tolist()):
        found = kl.subspace(index, 3)
        assert "combinatorial Laplacian of the graph of an edge_index" in found.why
        np.testing.assert_allclose(found.ritz_values, values[:3], atol=1e-5)


def test_a_list_of_graphs_gets_its_laplacians():
    graphs = [networkx.path_graph(4), networkx.cycle_graph(6)]
    found = kl.subspace(graphs, 1)
    assert "Laplacians of 2 graphs" in found.why
    for i, graph in enumerate(graphs):
        same_space(found.basis[i, : len(graph)], np.full((len(graph), 1), len(graph) ** -0.5))
    with pytest.raises(InputError, match="graphs only, or Laplacians only"):
        kl.subspace([graphs[0], np.eye(3)], 1)


def test_a_list_of_laplacians_is_one_batch():
    dense = [generalized(networkx.to_numpy_array(networkx.path_graph(n))) for n in (4, 6)]
    operators = [kl.laplacian(networkx.path_graph(n)) for n in (4, 6)]
    for batch in (dense, [scipy.sparse.csr_array(L) for L in dense], operators):
        found = kl.subspace(batch, 2)
        for i, L in enumerate(dense):
            np.testing.assert_allclose(found.ritz_values[i], truth(L)[0][:2], atol=1e-12)


def test_a_network_gets_the_laplacian_of_a_graph():
    graph = networkx.cycle_graph(6)
    net = UnrolledLanczos(2, 4)
    assert "Laplacian of a networkx Graph" in net(graph).why
    torch.testing.assert_close(net(graph).basis, net(kl.laplacian(graph)).basis)


FORMS = {
    "numpy": lambda A: A,
    "torch": torch.from_numpy,
    "scipy": scipy.sparse.csr_array,
    "COO": lambda A: torch.from_numpy(A).to_sparse(),
    "batch": lambda A: np.stack([np.eye(len(A)), A]),
    "list": lambda A: [np.eye(3), A],
}
NORMALIZED = np.array([[0.5, 0.5], [0.5, 0.5]])  # of GCN: self-loops and edges over the degrees
ADJACENCIES = {
    "looped": LOOPED,
    "signed": SIGNED,
    "signed and looped": SIGNED + np.diag([0, 1.0, 0, 0, 0]),
    "balanced signs": np.kron([[1.0, -1.0], [-1.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]),
    "renormalised": NORMALIZED,
    "all ones": np.ones((4, 4)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ADJACENCIES)
def test_a_matrix_that_is_no_laplacian_is_refused(case, form):
    matrix = FORMS[form](ADJACENCIES[case])
    with pytest.raises(InputError, match=r"must be a Laplacian, got .*krylow\.laplacian\(W\)"):
        kl.subspace(matrix, 1)
    with pytest.raises(InputError, match=r"must be a Laplacian"):
        kl.lowpass(matrix, np.ones(5), 1)


@pytest.mark.parametrize("kind", ["combinatorial", "generalized", "normalized"])
@pytest.mark.parametrize("A", [W, LOOPED, SIGNED, np.zeros((5, 5)), W * 1e-200, W * 1e200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_laplacian_is_taken_as_a_matrix(kind, A, dtype):
    if dtype == np.float32 and A.max() not in (0, 1, 2, 3):
        A = W * (1e-20 if A.max() < 1 else 1e20)
    L = kl.laplacian(A.astype(dtype), kind).to_dense().numpy()
    values = truth(L)[0]
    for matrix in (L, torch.from_numpy(L), scipy.sparse.csr_array(L), np.stack([L, L])):
        found = kl.subspace(matrix, 2, method="exact").ritz_values
        np.testing.assert_allclose(found.reshape(-1, 2)[0], values[:2], atol=1e-5 * max(abs(values).max(), 1e-300))


@pytest.mark.parametrize(
    "graph", [networkx.barbell_graph(40, 5), networkx.star_graph(200), networkx.grid_2d_graph(9, 9)]
)
@pytest.mark.parametrize("kind", ["combinatorial", "normalized"])
def test_laplacians_that_were_rounded_in_a_file_are_taken(graph, kind):
    L = np.round(kl.laplacian(graph, kind).to_dense().numpy(), 6)
    assert kl.subspace(L, 1, method="exact").k == 1
    assert kl.subspace(scipy.sparse.csr_array(L), 1, method="exact").k == 1


def test_a_matrix_that_is_meant_as_it_is_is_an_operator():
    values = truth(LOOPED)[0]
    for L in (
        DenseOperator(LOOPED),
        DenseOperator(LOOPED.tolist()),
        SparseOperator.from_matrix(scipy.sparse.coo_array(LOOPED)),
        SparseOperator.from_matrix(torch.from_numpy(LOOPED).to_sparse()),
    ):
        np.testing.assert_allclose(kl.subspace(L, 2).ritz_values, values[:2], atol=1e-12)


def test_rows_of_numbers_are_a_matrix():
    rows = [[0, 1, 0], [1, 0, 2], [0, 2, 0]]
    np.testing.assert_array_equal(kl.laplacian(rows).to_dense(), generalized(np.array(rows, dtype=float)))


# Weights of a graph


def test_edge_attr_is_not_a_weight_unless_it_is_named():
    index = edge_index(W)
    bonds = torch.from_numpy(W[np.nonzero(W)]).long()[:, None]
    data = Data(edge_index=index, edge_attr=bonds, num_nodes=5)
    np.testing.assert_array_equal(kl.laplacian(data).to_dense(), generalized((W > 0) * 1.0))
    np.testing.assert_array_equal(kl.laplacian(data, weight="edge_attr").to_dense(), generalized(W))
    np.testing.assert_array_equal(kl.laplacian([data, data], weight="edge_attr").to_dense()[1], generalized(W))
    with pytest.raises(InputError, match="'length', which the graph has not"):
        kl.laplacian(data, weight="length")
    with pytest.raises(InputError, match=r"must be \(6,\), got shape \(6, 2\)"):
        kl.laplacian(Data(edge_index=index, edge_attr=torch.ones(6, 2), num_nodes=5), weight="edge_attr")


def test_the_weight_of_a_networkx_graph_can_be_named():
    graph = networkx.Graph()
    graph.add_edge(0, 1, length=2.0)
    assert kl.laplacian(graph).to_dense()[0, 0] == 1
    assert kl.laplacian(graph, weight="length").to_dense()[0, 0] == 2
    with pytest.raises(InputError, match="which no edge has"):
        kl.laplacian(graph, weight="size")
    with pytest.raises(InputError, match="weight names an attribute"):
        kl.laplacian(W, weight="size")


# The ends of the range

EXTREMES = {
    "dense": lambda A: A,
    "scipy": scipy.sparse.csr_array,
    "networkx": networkx.from_numpy_array,
    "edges": lambda A: (edge_index(A), weights(A)),
    "edges with a gradient": lambda A: (edge_index(A), weights(A).requires_grad_()),
    "list": lambda A: [A, A],
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", EXTREMES)
def test_degrees_that_overflow_are_refused(form):
    big = 1e308 * (W > 0)
    with pytest.raises(InputError, match="divide W by its largest weight"):
        kl.laplacian(EXTREMES[form](big))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", EXTREMES)
@pytest.mark.parametrize("unit", [1e308, 5e-324, 1e-310])
def test_a_normalised_laplacian_has_no_unit(form, unit):
    A = (W[:4, :4] > 0) * 1.0
    expected = kl.laplacian(A, "normalized").to_dense()
    L = kl.laplacian(EXTREMES[form](unit * A), "normalized")
    torch.testing.assert_close(L.to_dense().detach().reshape(-1, 4, 4)[0], expected, rtol=1e-12, atol=0)


def test_a_normalised_laplacian_has_no_unit_in_float32():
    A = torch.from_numpy((W > 0) * 1.0).float()
    expected = kl.laplacian(A, "normalized").to_dense()
    for unit in (3e38, 1e-45):
        torch.testing.assert_close(kl.laplacian(unit * A, "normalized").to_dense(), expected)
        torch.testing.assert_close(kl.laplacian((unit * A).to_sparse(), "normalized").to_dense(), expected)


# Signals

PATH = kl.laplacian(networkx.to_numpy_array(networkx.path_graph(3)))
MEAN = [2.0, 2.0, 2.0]  # of 1, 2, 3, which the lowest frequency keeps
METHODS = ("auto", "lanczos", "thick_restart", "lobpcg", "shift_invert", "lanczos_signal")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_signals_of_every_kind_and_dtype(method, dtype):
    L = PATH.to(dtype)
    for x in ([1.0, 2.0, 3.0], [1, 2, 3], (1, 2, 3), np.array([1, 2, 3])):
        y = kl.lowpass(L, x, 1, method=method)
        assert isinstance(y, np.ndarray)
        assert y.dtype == torch.empty(0, dtype=dtype).numpy().dtype
        np.testing.assert_allclose(y, MEAN, rtol=1e-5)
    for kind in (np.float16, np.float32, np.float64, ">f8", np.longdouble):
        y = kl.lowpass(L, np.array([1, 2, 3], dtype=kind), 1, method=method)
        assert y.dtype == np.dtype(kind)
        np.testing.assert_allclose(y.astype(float), MEAN, rtol=1e-3)
    for kind in (torch.float16, torch.bfloat16, F32, F64):
        y = kl.lowpass(L, torch.tensor([1, 2, 3], dtype=kind), 1, method=method)
        assert y.dtype == kind
        np.testing.assert_allclose(y.double(), MEAN, rtol=1e-2)
    assert kl.lowpass(L, torch.tensor([1, 2, 3]), 1, method=method).dtype == dtype


def test_numpy_on_a_graph_of_torch():
    y = kl.lowpass(edge_index(networkx.to_numpy_array(networkx.path_graph(3))), np.array([1.0, 2, 3]), 1)
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, MEAN, rtol=1e-5)


def test_a_signal_of_another_dtype_keeps_its_gradient():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    kl.lowpass(PATH, x, 1)[0].backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 1 / 3))


@pytest.mark.parametrize("x", [None, "a", {}, ["a", "b", "c"], [[1], [2, 3], [4]], [1, 2, None], np.array(["a"])])
def test_signals_that_are_no_numbers(x):
    with pytest.raises(InputError, match="the signal must be numbers"):
        kl.lowpass(PATH, x, 1)
    with pytest.raises(InputError, match="a block must be numbers"):
        PATH @ x


def test_a_signal_beyond_the_graphs_range():
    with pytest.raises(InputError, match="within the range"):
        kl.lowpass(PATH.float(), np.full(3, 1e300), 1)


@pytest.mark.parametrize("cutoff", [np.float32(0.5), np.float64(0.5), torch.tensor(0.5), np.array(0.5)])
def test_cutoffs_of_every_kind(cutoff):
    np.testing.assert_allclose(kl.lowpass(PATH, [1, 2, 3], cutoff=cutoff), MEAN)


@pytest.mark.parametrize("cutoff", [True, "a", [0.5], float("nan"), 10**400, 1j])
def test_cutoffs_that_are_no_numbers(cutoff):
    with pytest.raises(InputError, match="cutoff must be a number"):
        kl.lowpass(PATH, [1, 2, 3], cutoff=cutoff)


def test_projections_are_of_the_signals_kind():
    sub = kl.subspace(PATH, 1)
    np.testing.assert_allclose(sub.project([1, 2, 3]), MEAN)
    assert sub.project(np.ones(3, dtype=np.float32)).dtype == np.float32
    assert sub.project(torch.ones(3)).dtype == F32


def operators():
    dense = generalized(networkx.to_numpy_array(networkx.path_graph(3)))
    return {
        "dense": DenseOperator(dense),
        "sparse": SparseOperator.from_matrix(scipy.sparse.csr_array(dense)),
        "function": FunctionOperator(lambda X: torch.from_numpy(dense).to(X.dtype) @ X, 3, dtype=F64),
        "diagonal": DiagonalOperator(torch.tensor([0.0, 1.0, 3.0], dtype=F64)),
    }


@pytest.mark.parametrize("name", ["dense", "sparse", "function", "diagonal"])
def test_products_with_arrays_and_lists(name):
    L = operators()[name]
    expected = L.to_dense().numpy() @ [1, 2, 4]
    for x in ([1, 2, 4], np.array([1, 2, 4]), np.array([1, 2, 4.0])):
        np.testing.assert_allclose(L @ x, expected)
    y = L @ np.array([[1], [2], [4]], dtype=np.float32)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y[:, 0], expected)
    assert (L @ torch.ones(3)).dtype == F32
    with pytest.raises(InputError, match="must be real"):
        L @ np.array([1j, 2, 3])


@pytest.mark.parametrize("name", ["dense", "sparse", "function", "diagonal"])
def test_operators_are_converted(name):
    L = operators()[name]
    for single in (L.to(F32), L.float(), L.to("cpu", F32), L.to(dtype=F32), L.to(torch.device("cpu"), dtype=F32)):
        assert type(single) is type(L)
        assert single.dtype == F32
        np.testing.assert_allclose(single.to_dense(), L.to_dense(), rtol=1e-6)
        np.testing.assert_allclose(single.double().to_dense(), L.to_dense(), rtol=1e-6)
    assert L.to(F64) is L
    assert L.to("cpu") is L
    with pytest.raises(InputError, match=r"torch.float32 or torch.float64, got torch.float16"):
        L.to(torch.float16)
    with pytest.raises(InputError, match=r"takes a torch\.dtype and a device"):
        L.to(3)
    with pytest.raises(InputError, match="only a batch"):
        L[0]


def test_conversion_keeps_the_gradient():
    A = torch.from_numpy(W).requires_grad_()
    kl.laplacian(A).to(F32).to_dense().sum().backward()
    assert A.grad is not None


def test_a_batch_can_be_indexed():
    graphs = [networkx.path_graph(3), networkx.cycle_graph(5), networkx.star_graph(3)]
    dense = [kl.laplacian(graph).to_dense() for graph in graphs]
    batch = kl.laplacian(graphs)
    for i in (0, 1, 2, -1):
        assert batch[i].batch_shape == ()
        torch.testing.assert_close(batch[i].to_dense(), dense[i])
    assert [one.n for one in batch] == [3, 5, 4]
    for part in (batch[1:], batch[[1, 2]], batch[torch.tensor([False, True, True])]):
        assert part.sizes.tolist() == [5, 4]
        torch.testing.assert_close(part[0].to_dense(), dense[1])
    with pytest.raises(IndexError):
        batch[3]
    with pytest.raises(InputError, match="at least one graph"):
        batch[3:]
    spectra = DiagonalOperator(torch.tensor([[0.0, 1.0], [0.0, 2.0]]))
    torch.testing.assert_close(spectra[1].to_dense(), torch.diag(torch.tensor([0.0, 2.0])))


@pytest.mark.parametrize("method", ["auto", "lanczos_signal", "thick_restart"])
def test_a_list_of_signals_for_a_list_of_graphs(method):
    graphs = [networkx.path_graph(3), networkx.cycle_graph(5)]
    signals = [np.array([1, 2, 3], dtype=np.float32), torch.arange(10.0).reshape(5, 2)]
    for batch in (graphs, kl.laplacian(graphs)):
        first, second = kl.lowpass(batch, signals, 1, method=method)
        assert isinstance(first, np.ndarray)
        assert first.dtype == np.float32
        np.testing.assert_allclose(first, MEAN, rtol=1e-5)
        torch.testing.assert_close(second, torch.tensor([[4.0, 5.0]]).expand(5, 2))
    with pytest.raises(InputError, match="one a graph, 2, got 1"):
        kl.lowpass(graphs, signals[:1], 1, method=method)
    with pytest.raises(InputError, match=r"one row per node, \(5, c\), got shape \(4,\)"):
        kl.lowpass(graphs, [signals[0], np.ones(4)], 1, method=method)


# Options

SEVEN = kl.laplacian(networkx.path_graph(7))


def test_numbers_of_any_type_are_counts():
    expected = kl.subspace(SEVEN, 2).basis
    for k in (2.0, np.float32(2), np.uint8(2), torch.tensor(2), np.array(2)):
        torch.testing.assert_close(kl.subspace(SEVEN, k).basis, expected)
    graph = kl.laplacian(networkx.random_regular_graph(3, 150, seed=0))
    for method in ("exact", "thick_restart", "lanczos"):
        found = kl.subspace(graph, np.uint8(149), method=method)  # 149 + 149 is 42 in uint8
        assert found.basis.shape == (150, 149)
        assert found.status == Status.CONVERGED


@pytest.mark.parametrize("k", [np.True_, True, torch.tensor(True), 2.5, "2", [2], float("nan"), float("inf"), 2j])
def test_what_is_no_count(k):
    for option in ("k", "m", "max_products"):
        with pytest.raises(InputError, match=f"{option} must be an integer"):
            kl.subspace(SEVEN, **({"k": 2} | {option: k}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1.5}, "seed must be an integer"),
        ({"seed": 2**64}, "seed must be between"),
        ({"generator": 3}, "generator must be a torch.Generator"),
        ({"callback": 3}, "callback must be a function"),
        ({"weights": torch.nn.Linear(2, 2)}, "weights must be a network .*got Linear"),
        ({"weights": 3}, "weights must be a network .*got int"),
        ({"method": 3}, "method must be one of"),
        ({"method": ["exact"]}, "method must be one of"),
        ({"tol": True}, "tol must be a positive number"),
        ({"tol": "a"}, "tol must be a positive number"),
    ],
)
def test_odd_options(options, message):
    with pytest.raises(InputError, match=message):
        kl.subspace(SEVEN, 2, **options)
    with pytest.raises(InputError, match=message):
        kl.lowpass(SEVEN, np.ones(7), 2, **options)


@pytest.mark.parametrize("kind", [3, b"normalized", ["normalized"], {}])
def test_odd_kinds(kind):
    with pytest.raises(InputError, match="kind must be one of"):
        kl.laplacian(W, kind)


def test_tolerances_of_any_type():
    for tol in (np.float32(1e-3), torch.tensor(1e-3), 1):
        assert kl.subspace(SEVEN, 2, tol=tol).status == Status.CONVERGED


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("m", [10**6, 10**18, np.uint8(200)])
@pytest.mark.parametrize(
    "method", ["lanczos", "unrolled", "thick_restart", "chebyshev", "multilevel", "lobpcg", "shift_invert"]
)
def test_more_steps_than_nodes(method, m, dense):
    L = DenseOperator(SEVEN.to_dense()) if dense else SEVEN
    vectors = truth(SEVEN.to_dense())[1][:, :2]
    found = kl.subspace(L, 2, method=method, m=m)
    if method != "unrolled":
        assert found.status == Status.CONVERGED
        np.testing.assert_allclose(found.basis @ found.basis.mT, vectors @ vectors.T, atol=0.05)
    assert found.basis.isfinite().all()


@pytest.mark.parametrize("m", [10**18, 10**30])
def test_more_steps_than_nodes_on_a_signal(m):
    vectors = truth(SEVEN.to_dense())[1][:, :2]
    x = np.arange(7.0)
    y = kl.lowpass(SEVEN, x, 2, method="lanczos_signal", m=m)
    np.testing.assert_allclose(y, vectors @ (vectors.T @ x), atol=1e-8)
    with pytest.raises(InputError, match="the degree of the polynomial"):
        kl.lowpass(SEVEN, x, 2, method="polynomial", m=m)


def test_too_few_products_for_a_basis():
    for L in (SEVEN, DenseOperator(SEVEN.to_dense())):
        with pytest.raises(InputError, match=r"max_products of .*must be at least 3"):
            kl.subspace(L, 3, method="thick_restart", max_products=1)
        assert kl.subspace(L, 3, method="thick_restart", max_products=3).basis.shape == (7, 3)
        assert kl.subspace(L, 3, method="thick_restart", max_products=10**30).status == Status.CONVERGED


# Threads


@pytest.mark.parametrize("method", ["thick_restart", "lanczos", "lobpcg", "unrolled"])
def test_a_solve_counts_its_own_products(method):
    L = kl.laplacian(scipy.sparse.csr_array(networkx.to_numpy_array(networkx.grid_2d_graph(15, 15))))
    alone = kl.subspace(L, 4, method=method)
    before = L.products, L.passes
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: kl.subspace(L, 4, method=method), range(12)))
    assert {(sub.products, sub.passes) for sub in found} == {(alone.products, alone.passes)}
    assert (L.products - before[0], L.passes - before[1]) == (12 * alone.products, 12 * alone.passes)


def test_a_network_counts_its_own_products():
    L = kl.laplacian(scipy.sparse.csr_array(networkx.to_numpy_array(networkx.grid_2d_graph(15, 15))))
    net = UnrolledLanczos(4, 12).double()
    with torch.no_grad(), ThreadPoolExecutor(6) as pool:
        alone = net(L).products
        assert {sub.products for sub in pool.map(lambda _: net(L), range(12))} == {alone}
    assert L.products == 13 * alone


def test_a_solve_inside_a_solve_counts_in_both():
    L, inner = kl.laplacian(networkx.path_graph(40)), []
    outer = kl.subspace(
        L,
        3,
        method="thick_restart",
        tol=1e-8,
        callback=lambda _: inner.append(kl.subspace(L, 2, method="lanczos", m=9)),
    )
    assert all(sub.products == 9 for sub in inner)
    assert L.products == outer.products
