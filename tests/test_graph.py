import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from torch.autograd import gradcheck
from torch_geometric.data import Data

import krylow as kl
from krylow import InputError
from krylow.graph import as_operator
from krylow.operators import DenseOperator, FunctionOperator, SparseOperator
from krylow.testing import HARD_GRAPHS, cycle, laplacian_matrix, path, random_graph, rounding

F32, F64 = torch.float32, torch.float64
W = random_graph(7, 0.4, seed=1)


def edges(W):
    row, col = W.nonzero(as_tuple=True)
    return torch.stack([row, col]), W[row, col]


def as_networkx(W):
    return networkx.from_numpy_array(W.numpy())


def as_pyg(W):
    edge_index, weight = edges(W)
    return Data(edge_index=edge_index, num_nodes=W.shape[0], edge_weight=weight)


FORMS = {
    "numpy": lambda W: W.numpy(),
    "nested list": lambda W: tuple(map(tuple, W.tolist())),
    "torch": lambda W: W,
    "torch COO": lambda W: W.to_sparse_coo(),
    "torch CSR": lambda W: W.to_sparse_csr(),
    "torch CSC": lambda W: W.to_sparse_csc(),
    "scipy csr_array": lambda W: scipy.sparse.csr_array(W.numpy()),
    "scipy csc_matrix": lambda W: scipy.sparse.csc_matrix(W.numpy()),
    "scipy coo": lambda W: scipy.sparse.coo_array(W.numpy()),
    "scipy dia": lambda W: scipy.sparse.dia_array(W.numpy()),
    "networkx": as_networkx,
    "PyG edge_weight": as_pyg,
    "edge_index and weight": edges,
}
GRAPHS = ("networkx", "PyG edge_weight", "edge_index and weight")  # not matrices
SPARSE = [name for name in FORMS if name not in ("numpy", "nested list", "torch")]


def by_definition(W, kind):
    """The three Laplacians entry by entry, from the table in the paper and the module."""
    W = W.numpy()
    D = np.diag(W.sum(1))
    if kind == "combinatorial":
        return D - W
    if kind == "generalized":
        return D - W + np.diag(np.diag(W))
    absolute = np.abs(W).sum(1)
    scale = np.array([a**-0.5 if a > 0 else 0.0 for a in absolute])
    return np.diag(scale) @ (D - W) @ np.diag(scale)


def with_loops(W):
    return W + torch.diag(torch.linspace(0.2, 1.0, W.shape[0], dtype=F64))


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("kind", ["combinatorial", "generalized", "normalized"])
@pytest.mark.parametrize("loops", [False, True], ids=["simple", "self-loops"])
@pytest.mark.parametrize("signed", [False, True], ids=["positive", "signed"])
def test_every_form_gives_every_laplacian(form, kind, loops, signed):
    graph = random_graph(7, 0.4, seed=1, signed=signed)
    graph = with_loops(graph) if loops else graph
    L = kl.laplacian(FORMS[form](graph), kind=kind)
    assert isinstance(L, SparseOperator if form in SPARSE else DenseOperator)
    np.testing.assert_allclose(L.to_dense().numpy(), by_definition(graph, kind), atol=rounding(F64, 7))
    assert L.psd == (not signed)


@pytest.mark.parametrize("form", list(FORMS))
def test_self_loops_make_it_generalized_by_default(form):
    np.testing.assert_allclose(kl.laplacian(FORMS[form](W)).to_dense(), by_definition(W, "combinatorial"), atol=1e-14)
    looped = with_loops(W)
    L = kl.laplacian(FORMS[form](looped)).to_dense()
    np.testing.assert_allclose(L, by_definition(looped, "generalized"), atol=1e-14)
    assert float(torch.linalg.eigvalsh(L)[0]) > 0.1  # a self-loop lifts the constant vector


@pytest.mark.parametrize("spelling", ["normalised", "normalized"])
def test_both_spellings(spelling):
    np.testing.assert_allclose(kl.laplacian(W, spelling).to_dense(), by_definition(W, "normalized"), atol=1e-14)


@pytest.mark.parametrize("form", ["torch", "scipy csr_array"])
def test_normalized_spectrum_with_isolated_nodes(form):
    graph = torch.block_diag(cycle(5), torch.zeros(2, 2, dtype=F64))
    L = kl.laplacian(FORMS[form](graph), "normalized").to_dense()
    expected = np.sort(np.concatenate([1 - np.cos(2 * np.pi * np.arange(5) / 5), [0, 0]]))
    np.testing.assert_allclose(np.linalg.eigvalsh(L), expected, atol=rounding(F64, 7))


def test_known_spectrum_of_a_path():
    L = kl.laplacian(path(9))
    np.testing.assert_allclose(
        np.linalg.eigvalsh(L.to_dense()), 2 - 2 * np.cos(np.pi * np.arange(9) / 9), atol=rounding(F64, 9, 4)
    )


@pytest.mark.parametrize("name", list(HARD_GRAPHS))
def test_rows_of_the_combinatorial_laplacian_sum_to_zero(name):
    W = HARD_GRAPHS[name]()
    n, size = W.shape[0], float(W.abs().sum(-1).max())
    for form in ("torch", "scipy csr_array"):
        L = kl.laplacian(FORMS[form](W), "combinatorial")
        rows = L @ torch.ones(n, dtype=F64)
        assert float(rows.abs().max()) <= rounding(F64, n, size)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.uint8, torch.bool, torch.float32, torch.float64])
def test_torch_dtypes(dtype):
    expected = by_definition(cycle(6), "combinatorial")
    for form in (lambda W: W, lambda W: W.to_sparse_coo()):
        L = kl.laplacian(form(cycle(6).to(dtype)))
        assert L.dtype == (dtype if dtype.is_floating_point else torch.get_default_dtype())
        np.testing.assert_array_equal(L.to_dense().numpy(), expected)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint32", "bool", "float32", "float64", ">f8"])
def test_numpy_dtypes(dtype):
    expected = by_definition(cycle(6), "combinatorial")
    for form in (np.asarray, scipy.sparse.csr_array):
        if dtype == ">f8" and form is not np.asarray:
            continue  # scipy has no such sparse matrix
        L = kl.laplacian(form(cycle(6).numpy().astype(dtype)))
        assert L.dtype == (F32 if dtype == "float32" else F64)
        np.testing.assert_array_equal(L.to_dense().numpy(), expected)


def test_the_input_is_not_changed():
    numpy_W, torch_W, sparse_W = W.numpy().copy(), W.clone(), scipy.sparse.csr_array(W.numpy())
    for graph in (numpy_W, torch_W, sparse_W):
        L = kl.laplacian(graph)
        L.to_dense().zero_()
    np.testing.assert_array_equal(numpy_W, W.numpy())
    np.testing.assert_array_equal(torch_W, W)
    np.testing.assert_array_equal(sparse_W.toarray(), W.numpy())


def test_edge_index_alone_has_unit_weights():
    edge_index, _ = edges(cycle(6))
    for form in (edge_index, edge_index.numpy(), edge_index.int()):
        np.testing.assert_array_equal(kl.laplacian(form).to_dense(), laplacian_matrix(cycle(6)))
    padded = kl.laplacian(edge_index, num_nodes=8).to_dense()
    assert padded.shape == (8, 8)
    assert (padded[6:] == 0).all()


def test_two_columns_are_an_edge_index_where_num_nodes_says_so():
    one_edge = torch.tensor([[1, 2], [2, 1]])
    expected = laplacian_matrix(torch.block_diag(torch.zeros(1, 1), torch.tensor([[0.0, 1], [1, 0]])))
    np.testing.assert_array_equal(kl.laplacian(one_edge, num_nodes=3).to_dense(), expected)
    np.testing.assert_array_equal(kl.laplacian(one_edge.numpy(), num_nodes=3).to_dense(), expected)


def test_parallel_edges_add_up():
    edge_index = torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0]])
    L = kl.laplacian((edge_index, torch.tensor([1.0, 1.0, 2.0, 2.0], dtype=F64)))
    np.testing.assert_array_equal(L.to_dense(), [[3, -3], [-3, 3]])


def test_parallel_edges_add_up_before_their_size_is_taken():
    edge_index = torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0]])
    L = kl.laplacian((edge_index, torch.tensor([3.0, 3.0, -2.0, -2.0], dtype=F64)), "normalized")
    np.testing.assert_allclose(L.to_dense(), [[1, -1], [-1, 1]])
    assert L.psd


def test_pyg_without_weights_and_with_isolated_nodes():
    data = Data(edge_index=edges(path(4))[0], num_nodes=6)
    assert kl.laplacian(data).to_dense().shape == (6, 6)
    np.testing.assert_array_equal(kl.laplacian(data).to_dense()[:4, :4], laplacian_matrix(path(4)))


def test_networkx_weights_and_order():
    graph = networkx.Graph()
    graph.add_nodes_from(["c", "a", "b"])
    graph.add_edge("a", "b", weight=2.5)
    np.testing.assert_array_equal(kl.laplacian(graph).to_dense(), [[0, 0, 0], [0, 2.5, -2.5], [0, -2.5, 2.5]])


def test_batches():
    batch = torch.stack([random_graph(5, seed=s) for s in range(6)]).reshape(2, 3, 5, 5)
    L = kl.laplacian(batch)
    assert L.batch_shape == (2, 3)
    torch.testing.assert_close(L.to_dense(), laplacian_matrix(batch))
    torch.testing.assert_close(kl.laplacian(batch.numpy()).to_dense(), laplacian_matrix(batch))


@pytest.mark.parametrize("form", ["numpy", "torch", "scipy csr_array", "networkx", "PyG edge_weight"])
@pytest.mark.parametrize("kind", ["combinatorial", "normalized"])
def test_list_of_graphs_is_a_masked_batch(form, kind):
    graphs = [random_graph(n, seed=n) for n in (3, 6, 1, 5)]
    L = kl.laplacian([FORMS[form](W) for W in graphs], kind)
    assert L.shape == (4, 6, 6)
    assert L.sizes.tolist() == [3, 6, 1, 5]
    for i, W in enumerate(graphs):
        n = W.shape[0]
        np.testing.assert_allclose(L.to_dense()[i, :n, :n], by_definition(W, kind), atol=1e-14)
        assert (L.to_dense()[i, n:] == 0).all()
        assert (L.to_dense()[i, :, n:] == 0).all()
        assert L.mask[i].tolist() == [True] * n + [False] * (6 - n)


def test_list_of_mixed_forms_and_equal_sizes_has_no_mask():
    graphs = [W.numpy(), scipy.sparse.csr_array(W.numpy()), W]
    L = kl.laplacian(graphs)
    assert L.mask is None
    for item in L.to_dense():
        torch.testing.assert_close(item, laplacian_matrix(W))


@pytest.mark.parametrize("kind", ["combinatorial", "generalized", "normalized"])
@pytest.mark.parametrize("form", ["dense", "coo", "edges"])
def test_gradcheck_with_respect_to_weights(kind, form):
    row, col = torch.tril(W, -1).nonzero(as_tuple=True)
    index = torch.stack([torch.cat([row, col]), torch.cat([col, row])])

    def matrix(w):
        both = torch.cat([w, w])
        if form == "dense":
            graph = torch.zeros(7, 7, dtype=F64).index_put(tuple(index), both)
        elif form == "coo":
            graph = torch.sparse_coo_tensor(index, both, (7, 7))
        else:
            graph = (index, both)
        return kl.laplacian(graph, kind, **({"num_nodes": 7} if form == "edges" else {})).to_dense()

    assert gradcheck(matrix, (W[row, col].clone().requires_grad_(),))


def test_gradient_of_the_normalized_laplacian_with_an_isolated_node_is_finite():
    graph = torch.block_diag(cycle(4), torch.zeros(1, 1, dtype=F64)).requires_grad_()
    kl.laplacian(graph, "normalized").to_dense().square().sum().backward()
    assert graph.grad.isfinite().all()


# as_operator ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [n for n in FORMS if n.split()[0] not in ("PyG", "networkx", "edge_index")])
def test_plain_matrices_are_taken_as_they_are(form):
    L = laplacian_matrix(W)
    np.testing.assert_allclose(as_operator(FORMS[form](L)).to_dense(), L)


def test_an_operator_stays_itself():
    L = kl.laplacian(W)
    assert as_operator(L) is L


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_linear_operator(dtype):
    matrix = laplacian_matrix(cycle(6)).numpy().astype(dtype)
    L = as_operator(aslinearoperator(matrix))
    assert isinstance(L, FunctionOperator)
    assert L.dtype == (F32 if dtype == "float32" else F64)
    np.testing.assert_array_equal(L.to_dense().numpy(), matrix)


# Bad input ------------------------------------------------------------------------------------------------------

NAN, INF = W.clone(), W.clone()
NAN[0, 1] = NAN[1, 0] = float("nan")
INF[0, 1] = INF[1, 0] = float("inf")
ASYMMETRIC = W.clone()
ASYMMETRIC[0, 1] += 1

# what comes: (input, what must hold, what came, what to do)
BAD = {
    "not square": (torch.ones(3, 4), "must be square", r"got shape \(3, 4\)", ""),
    "not square numpy": (np.ones((3, 4)), "must be square", r"got shape \(3, 4\)", ""),
    "two rows of floats": (np.ones((2, 3)), "must be square", r"got shape \(2, 3\)", ""),
    "not square scipy": (scipy.sparse.csr_array(np.ones((3, 4))), "must be square", r"got shape \(3, 4\)", ""),
    "not square sparse": (torch.ones(3, 4).to_sparse_coo(), "must be square", r"got shape \(3, 4\)", ""),
    "vector": (torch.ones(3), "must be square", r"got shape \(3,\)", ""),
    "number": (3.0, "must be square", r"got shape \(\)", ""),
    "no nodes": (torch.ones(0, 0), "at least one node", r"got shape \(0, 0\)", ""),
    "no nodes scipy": (scipy.sparse.csr_array((0, 0)), "at least one node", r"got shape \(0, 0\)", ""),
    "empty batch": (torch.ones(0, 4, 4), "empty batch", r"shape \(0, 4, 4\)", "pass at least one graph"),
    "empty list": ([], "at least one graph", "got an empty list", ""),
    "asymmetric": (ASYMMETRIC, "must be symmetric", "differ by up to 1", r"pass \(W \+ W\.T\) / 2"),
    "asymmetric numpy": (ASYMMETRIC.numpy(), "must be symmetric", "differ by up to 1", r"pass \(W \+ W\.T\) / 2"),
    "asymmetric scipy": (scipy.sparse.csr_array(ASYMMETRIC.numpy()), "must be symmetric", "up to 1", "both directions"),
    "asymmetric COO": (ASYMMETRIC.to_sparse_coo(), "must be symmetric", "differ by up to 1", "both directions"),
    "asymmetric edges": (edges(ASYMMETRIC), "must be symmetric", "differ by up to 1", "both directions of every edge"),
    "one direction": (torch.tensor([[0, 1, 2], [1, 2, 3]]), "must be symmetric", "up to 1", "both directions"),
    "asymmetric in a list": ([W, ASYMMETRIC], "must be symmetric", "differ by up to 1", "pass"),
    "NaN": (NAN, "must be finite", "got 2 NaN", "drop or replace"),
    "NaN numpy": (NAN.numpy(), "must be finite", "got 2 NaN", "drop or replace"),
    "NaN scipy": (scipy.sparse.csr_array(NAN.numpy()), "must be finite", "got 2 NaN", "drop or replace"),
    "infinite": (INF, "must be finite", "got 2 NaN or infinite", "drop or replace"),
    "infinite edges": (edges(INF), "must be finite", "got 2 NaN or infinite", "drop or replace"),
    "infinite in a list": ([W, INF], "must be finite", "got 2 NaN or infinite", "drop or replace"),
    "complex": (W.to(torch.complex128), "must be real", "got torch.complex128", "real part"),
    "complex numpy": (W.numpy().astype(complex), "must be real", "got torch.complex128", "real part"),
    "complex scipy": (scipy.sparse.csr_array(W.numpy().astype(complex)), "must be real", "complex128", "real part"),
    "complex sparse": (W.to(torch.complex128).to_sparse_coo(), "must be real", "complex128", "real part"),
    "float16": (W.half(), "float32 or float64", "got torch.float16", r"\.float\(\) or \.double\(\)"),
    "bfloat16": (W.bfloat16(), "float32 or float64", "got torch.bfloat16", r"\.float\(\)"),
    "float16 numpy": (W.numpy().astype(np.float16), "float32 or float64", "float16", r"convert"),
    "long double": (W.numpy().astype(np.longdouble), "float32 or float64", "longdouble|float128", "convert"),
    "objects": (np.array([[None, 1], [1, None]]), "matrix of numbers", "dtype object", ""),
    "words": ("graph", "matrix of numbers", "got an object", ""),
    "None": (None, "matrix of numbers", "got an object", ""),
    "directed": (networkx.DiGraph([(0, 1)]), "must be undirected", "got a directed", r"to_undirected\(\)"),
    "laplacian": (laplacian_matrix(W), "must be an adjacency", "that is a Laplacian already", r"subspace\(\)"),
    "sparse laplacian": (scipy.sparse.csr_array(laplacian_matrix(W).numpy()), "must be an adjacency", "already", ""),
    "operator": (DenseOperator(W), "must be an adjacency", "got an operator", "already"),
    "float edges": (torch.rand(2, 2, 3).unbind()[0], "must be square", "got", ""),
    "float edge_index": ((torch.ones(2, 3), torch.ones(3)), "must be integer", "got torch.float32", ""),
    "negative nodes": ((torch.tensor([[0, -1], [-1, 0]]), None), "must hold nodes", "got -1 to 0", ""),
    "weights that do not fit": ((edges(W)[0], torch.ones(3)), r"edge_weight must be \(\d+,\)", r"got shape \(3,\)", ""),
    "complex weights": ((edges(W)[0], edges(W)[1] + 0j), "edge_weight must be real", "complex128", "real part"),
    "batches in a list": ([torch.ones(2, 3, 3)], "single graphs", r"got one of shape \(2, 3, 3\)", ""),
    "mixed dtypes in a list": ([W, W.float()], "one dtype", "torch.float32, torch.float64", ""),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_says_what_must_hold_what_came_and_what_to_do(case):
    graph, *parts = BAD[case]
    for part in filter(None, parts):
        with pytest.raises(InputError, match=part):
            kl.laplacian(graph)


def test_bad_kind():
    with pytest.raises(InputError, match=r"kind must be one of 'combinatorial'.*got 'random walk'"):
        kl.laplacian(W, "random walk")


def test_too_few_nodes():
    with pytest.raises(InputError, match=r"must hold nodes 0 to 1, got 0 to 3.*num_nodes"):
        kl.laplacian(torch.tensor([[0, 3, 1], [3, 0, 1]]), num_nodes=2)


def test_rounding_is_no_asymmetry():
    noisy = W.float().double()
    noisy[0, 1] *= 1 + 1e-15
    kl.laplacian(noisy)
    kl.laplacian(scipy.sparse.csr_array(noisy.numpy()))


@pytest.mark.parametrize("form", [n for n in FORMS if n not in ("nested list", *GRAPHS)])
def test_an_adjacency_is_refused_as_a_laplacian(form):
    with pytest.raises(InputError, match=r"must be a Laplacian, got .*adjacency\. Pass krylow\.laplacian\(W\)"):
        as_operator(FORMS[form](W))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (ASYMMETRIC, "L must be symmetric"),
        (NAN, "L must be finite"),
        (torch.ones(3, 4), "L must be square"),
        (scipy.sparse.csr_array(np.ones((3, 4))), "L must be square"),
        (W + 0j, "L must be real"),
        (W.half(), "L must be float32 or float64"),
        (aslinearoperator(np.ones((3, 4))), "L must be square"),
        (aslinearoperator(np.eye(3) + 0j), "L must be real"),
        (LinearOperator((3, 3), matvec=lambda x: x, dtype=np.complex64), "L must be real"),
    ],
)
def test_bad_matrices(matrix, message):
    with pytest.raises(InputError, match=message):
        as_operator(matrix)


def test_the_zero_matrix_is_a_laplacian_and_an_adjacency():
    zero = torch.zeros(3, 3)
    assert (as_operator(zero).to_dense() == 0).all()
    assert (kl.laplacian(zero).to_dense() == 0).all()


@pytest.mark.parametrize("sparse", [True, False])
def test_a_normalized_laplacian_is_symmetric_to_the_last_bit(sparse):
    W = random_graph(40, 0.3, seed=7) * 0.1
    L = kl.laplacian(scipy.sparse.csr_array(W.numpy()) if sparse else W, "normalized").to_dense()
    assert torch.equal(L, L.mT)


def test_a_scipy_matrix_is_neither_copied_nor_changed():
    W = scipy.sparse.csr_array(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]]))
    L = scipy.sparse.csr_array(scipy.sparse.diags_array(W.sum(axis=1)) - W)
    A = as_operator(L)
    assert A.values.data_ptr() == L.data.ctypes.data
    twice = scipy.sparse.csr_array((np.r_[L.data, L.data[:1]], np.r_[L.indices, 0], np.r_[0, 2, 5, 8]), shape=(3, 3))
    twice.indices[-1], before = 2, twice.data.copy()
    as_operator(twice)
    np.testing.assert_array_equal(twice.data, before)
    fixed = L.copy()
    fixed.data.flags.writeable = False
    assert as_operator(fixed).values.data_ptr() != fixed.data.ctypes.data


def test_room_that_a_scipy_matrix_does_not_use_is_not_read():
    W = scipy.sparse.csr_array(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]]))
    L = scipy.sparse.csr_array(scipy.sparse.diags_array(W.sum(axis=1)) - W)
    longer = L.copy()
    longer.data, longer.indices = np.r_[L.data, np.nan, 5.0], np.r_[L.indices, 1, 2].astype(L.indices.dtype)
    A = as_operator(longer)
    assert A.values.numel() == A.col.numel() == L.nnz
    np.testing.assert_array_equal(A.to_dense(), L.toarray())


@pytest.mark.parametrize("form", ["rows", "edges"])
@pytest.mark.parametrize("kind", ["combinatorial", "normalized"])
def test_a_heavy_loop_leaves_the_sum_of_light_edges(kind, form):
    """The diagonal is that of the edges alone: taken from a degree with the loop, nothing of it would be left."""
    W = np.array([[1e12, 1e-6, 0.0], [1e-6, 0.0, 3.0], [0.0, 3.0, 0.0]])
    size = W.sum(1)
    off = W - np.diag(np.diag(W))
    expected = np.diag(off.sum(1)) - off
    if kind == "normalized":
        expected = expected / np.sqrt(size[:, None] * size)
    row, col = np.nonzero(W)
    edges = (torch.from_numpy(np.stack([row, col])), torch.from_numpy(W[row, col]))
    given = scipy.sparse.csr_array(W) if form == "rows" else edges
    np.testing.assert_allclose(kl.laplacian(given, kind).to_dense(), expected, rtol=1e-14, atol=0)
