"""AddLowFrequencyPE beside the transform it stands in for, on graphs where the answer is known or unique."""

import importlib
import itertools
import os
import pickle
import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import AddLaplacianEigenvectorPE, Compose, ToUndirected
from torch_geometric.utils import dense_to_sparse, get_laplacian, to_dense_adj

from krylow import InputError
from krylow.data.tudataset import VARIABLE
from krylow.integrations import _union
from krylow.integrations.pyg import AddLowFrequencyPE
from krylow.testing import block_diagonal, complete, cycle, path, projector, random_graph

NAME = "laplacian_eigenvector_pe"


def data_of(W, *, weighted=True, dtype=torch.float32):
    index, weight = dense_to_sparse(W)
    return Data(edge_index=index, edge_weight=weight.to(dtype) if weighted else None, num_nodes=len(W))


def peer_laplacian(data):
    """PyG's own normalised Laplacian, dense, in float64."""
    weight = None if data.edge_weight is None else data.edge_weight.double()
    index, values = get_laplacian(data.edge_index, weight, "sym", torch.float64, data.num_nodes)
    return to_dense_adj(index, edge_attr=values, max_num_nodes=data.num_nodes)[0]


def unique_ks(data, largest, least=1e-3):
    """Every k at which span(u_2 .. u_{k+1}) is unique: one zero frequency, and a gap after the (k+1)-st."""
    lam = torch.linalg.eigvalsh(peer_laplacian(data))
    gaps = lam.diff()
    if gaps[0] <= least:
        return []
    return [k for k in range(1, min(largest, len(lam) - 1) + 1) if k == len(lam) - 1 or gaps[k] > least]


def assert_same_span(ours, theirs, tol):
    assert ours.shape == theirs.shape
    assert torch.allclose(projector(ours.double()), projector(theirs.double()), atol=tol)


SINGLE_GRAPHS = {
    "weighted": data_of(random_graph(30, seed=1)),
    "weighted float64": data_of(random_graph(30, seed=1), dtype=torch.float64),
    "unweighted": data_of((random_graph(40, 0.1, seed=2) > 0).double(), weighted=False),
    "beyond PyG's dense limit": data_of(random_graph(130, 0.05, seed=3)),
    "path": data_of(path(12), weighted=False),
    "isolated nodes": data_of(block_diagonal(random_graph(20, seed=4), torch.zeros(3, 3)), weighted=False),
    "self-loops": data_of(random_graph(25, seed=5) + torch.diag(torch.arange(25) % 3).double()),
    "parallel edges": Data(edge_index=torch.tensor([[0, 1, 0, 1, 1, 2, 2, 3], [1, 0, 1, 0, 2, 1, 3, 2]]), num_nodes=4),
    "edge_attr is not a weight": Data(
        edge_index=dense_to_sparse(path(6))[0], edge_attr=torch.arange(10.0)[:, None] + 1, num_nodes=6
    ),
}


@pytest.mark.parametrize("name", SINGLE_GRAPHS)
@pytest.mark.parametrize("is_undirected", [True, False])
def test_the_subspaces_are_those_of_pyg_at_real_gaps(name, is_undirected):
    data = SINGLE_GRAPHS[name]
    ks = unique_ks(data, 10)
    assert ks, "a case without a real gap tests nothing"
    for k in ks:
        theirs = AddLaplacianEigenvectorPE(k=k, is_undirected=is_undirected)(data)[NAME]
        ours = AddLowFrequencyPE(k=k, is_undirected=is_undirected)(data)[NAME]
        assert ours.dtype == theirs.dtype
        # eig, which PyG takes unless is_undirected, orthonormalises nothing: span it first
        theirs = torch.linalg.qr(theirs.double()).Q
        assert_same_span(ours, theirs, 2e-3 if ours.dtype == torch.float32 else 1e-9)


def test_a_large_graph_stays_sparse_and_gives_the_same_subspace():
    data = data_of(random_graph(720, 0.01, seed=6), dtype=torch.float64)
    k = unique_ks(data, 10)[-1]
    dense = torch.linalg.eigh(peer_laplacian(data))[1][:, 1 : k + 1]
    for method in ("auto", "thick_restart", "chebyshev"):
        assert_same_span(AddLowFrequencyPE(k, method=method, tol=1e-10)(data)[NAME], dense, 1e-4)


def test_a_large_graph_warns_where_it_does_not_converge():
    with pytest.warns(UserWarning, match="inaccurate"):
        AddLowFrequencyPE(5, method="lanczos", tol=1e-12)(data_of(path(720), weighted=False))


@pytest.mark.parametrize("attr_name", ["pe", None])
@pytest.mark.parametrize(
    "x", [None, torch.arange(4.0), torch.arange(8.0).reshape(4, 2).double(), torch.ones(4, 1).long()]
)
def test_attributes_are_written_as_pyg_writes_them(attr_name, x):
    data = data_of(path(4), weighted=False)
    if x is not None:
        data.x = x
    theirs = AddLaplacianEigenvectorPE(2, attr_name, is_undirected=True)(data)
    ours = AddLowFrequencyPE(2, attr_name, True)(data)
    key = attr_name or "x"
    assert ours.keys() == theirs.keys()
    assert ours[key].shape == theirs[key].shape
    assert ours[key].dtype == theirs[key].dtype
    if x is not None and attr_name is None:
        assert torch.equal(ours.x[:, :-2], theirs.x[:, :-2])
        assert data.x is x  # the input is left alone
    assert "pe" not in data


def test_random_signs_follow_torchs_generator_as_pygs_do():
    data = data_of(random_graph(20, seed=7))
    base = AddLowFrequencyPE(4, sign="largest")(data)[NAME]
    flips = []
    for seed in range(6):
        torch.manual_seed(seed)
        expected = -1 + 2 * torch.randint(0, 2, (4,))
        torch.manual_seed(seed)
        ours = AddLowFrequencyPE(4)(data)[NAME]
        assert torch.equal(ours, base * expected)
        flips.append(tuple(expected.tolist()))
    assert len(set(flips)) > 1


def test_equal_seeds_give_equal_signs_whatever_the_global_generator_does():
    graphs = [data_of(random_graph(n, seed=n)) for n in (12, 9, 12, 30, 10, 25)]

    def run(seed):
        transform = AddLowFrequencyPE(3, seed=seed)
        torch.randn(5)
        return [transform(g)[NAME] for g in graphs]

    first = run(3)
    assert all(torch.equal(a, b) for a, b in zip(first, run(3), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first, run(4), strict=True))


def test_the_sign_convention_makes_a_largest_entry_positive_and_does_not_follow_the_solver():
    for data in SINGLE_GRAPHS.values():
        k = unique_ks(data, 5)[0]
        pe = AddLowFrequencyPE(k, sign="largest")(data)[NAME]
        assert (pe.amax(0) >= 0.99 * pe.abs().amax(0)).all()
    # An antisymmetric vector has two largest entries: rounding must not choose between them.
    pe = AddLowFrequencyPE(1, sign="largest").batched([data_of(path(n), weighted=False) for n in range(8, 40)])
    assert all(item[NAME][0, 0] > 0 for item in pe)


def test_the_diagonal_sees_neither_sign_nor_basis_and_moves_with_the_nodes():
    W = cycle(9)  # frequencies in pairs: the vectors of a pair are arbitrary, their span is not
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    transform = AddLowFrequencyPE(4, "pe", output="diagonal")
    assert transform(data_of(W)).pe.shape == (9, 1)
    assert torch.allclose(transform(data_of(W)).pe, torch.full((9, 1), 4 / 9), atol=1e-5)
    W = random_graph(20, seed=8)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    assert unique_ks(data_of(W), 4)[-1] == 4
    pe = transform(data_of(W)).pe
    assert pe.std() > 0.01
    assert torch.allclose(transform(data_of(W[order][:, order])).pe, pe[order], atol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_small_graphs_get_zero_columns_where_pyg_fails(n):
    data = data_of(complete(n), weighted=False)
    k = 4
    if n <= k and n > 1:
        with pytest.raises(RuntimeError):
            AddLaplacianEigenvectorPE(k, is_undirected=True)(data)
    pe = AddLowFrequencyPE(k)(data)[NAME]
    assert pe.shape == (n, k)
    found = min(k, n - 1)
    assert torch.allclose(pe[:, :found].mT @ pe[:, :found], torch.eye(found), atol=1e-5)
    assert torch.allclose(pe.sum(0), torch.zeros(k), atol=1e-5)  # orthogonal to the trivial vector
    assert (pe[:, found:] == 0).all()


def test_graphs_of_every_size_collate():
    graphs = AddLowFrequencyPE(5, "pe").batched([data_of(path(n), weighted=False) for n in range(1, 12)])
    assert Batch.from_data_list(graphs).pe.shape == (66, 5)


def test_a_graph_without_nodes_or_without_edges():
    empty = Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=0)
    assert AddLowFrequencyPE(2)(empty)[NAME].shape == (0, 2)
    bare = Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=5)
    pe = AddLowFrequencyPE(2)(bare)[NAME]
    assert torch.allclose(pe.mT @ pe, torch.eye(2), atol=1e-6)


def test_of_several_components_the_trivial_vector_is_left_out():
    W = block_diagonal(random_graph(9, seed=1), random_graph(7, seed=2), random_graph(5, seed=3))
    data = data_of(W, dtype=torch.float64)
    lam, U = torch.linalg.eigh(peer_laplacian(data))
    assert lam[2] < 1e-12 < 1e-2 < lam[3]
    t = W.sum(-1).sqrt()
    t = t / t.norm()
    pe = AddLowFrequencyPE(2)(data)[NAME]
    assert torch.allclose(projector(pe), projector(U[:, :3]) - torch.outer(t, t), atol=1e-10)
    # as many components as vectors asked for, and more
    for k in (1, 2, 3, 6):
        pe = AddLowFrequencyPE(k)(data)[NAME]
        assert torch.allclose(pe.mT @ pe, torch.eye(k, dtype=pe.dtype), atol=1e-10)
        assert float((t @ pe).abs().max()) < 1e-10


def test_negative_weights_are_treated_as_pyg_treats_them_or_refused():
    W = random_graph(16, seed=9)
    W[0, 1] = W[1, 0] = -0.3
    data = data_of(W, dtype=torch.float64)
    k = unique_ks(data, 6)[-1]
    theirs = AddLaplacianEigenvectorPE(k, is_undirected=True)(data)[NAME]
    mixed = AddLowFrequencyPE(k).batched([data, SINGLE_GRAPHS["weighted float64"], data])
    assert_same_span(mixed[2][NAME], theirs, 1e-9)
    W[0, 1] = W[1, 0] = -100.0
    with pytest.raises(InputError, match="sum to at least 0"):
        AddLowFrequencyPE(k)(data_of(W))


@pytest.mark.parametrize("is_undirected", [True, False])
def test_directed_graphs_are_refused_with_what_to_do(is_undirected):
    one_way = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)  # node 2 has no edge out
    with pytest.raises(InputError, match="ToUndirected"):
        AddLowFrequencyPE(1, is_undirected=is_undirected)(one_way)
    circle = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)  # as many edges in as out
    with pytest.raises(InputError, match="ToUndirected"):
        AddLowFrequencyPE(1)(circle)
    fixed = Compose([ToUndirected(), AddLowFrequencyPE(1, "pe")])(one_way)
    assert fixed.pe.shape == (3, 1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Data(x=torch.ones(3, 1)), "edge_index"),
        (Data(edge_index=torch.tensor([[0, 5], [5, 0]]), num_nodes=3), "set num_nodes"),
        (Data(edge_index=torch.tensor([[0, 1], [1, 0]]), edge_weight=torch.ones(3), num_nodes=2), "edge_weight"),
        (
            Data(edge_index=torch.tensor([[0, 1], [1, 0]]), edge_weight=torch.tensor([torch.nan] * 2), num_nodes=2),
            "finite",
        ),
    ],
)
def test_bad_graphs_are_refused_in_words(data, words):
    with pytest.raises(InputError, match=words):
        AddLowFrequencyPE(1)(data)


@pytest.mark.parametrize(
    "arguments",
    [
        {"k": 0},
        {"k": 2.5},
        {"k": 2, "sign": "plus"},
        {"k": 2, "output": "rows"},
        {"k": 2, "method": "magic"},
        {"k": 2, "tol": 0},
    ],
)
def test_bad_arguments_are_refused_when_given(arguments):
    with pytest.raises(InputError, match=next(reversed(arguments))):
        AddLowFrequencyPE(**arguments)


def mixed_graphs():
    sizes = (5, 31, 30, 8, 33, 120, 5, 3, 32, 118, 1, 2, 36, 35, 14, 15, 16, 50, 52, 61)
    graphs = [data_of(random_graph(n, 0.3, seed=n + i)) for i, n in enumerate(sizes)]
    graphs[3] = data_of(random_graph(8, seed=3), dtype=torch.float64)
    graphs[4] = data_of((random_graph(33, 0.2, seed=4) > 0).double(), weighted=False)
    graphs[8] = data_of(block_diagonal(random_graph(20, seed=1), random_graph(12, seed=2)))
    return graphs


@pytest.mark.parametrize("output", ["vectors", "diagonal"])
def test_a_batched_data_set_is_the_loop_over_it(output):
    graphs = mixed_graphs()
    together = AddLowFrequencyPE(4, seed=0, output=output).batched(iter(graphs))
    one_by_one = AddLowFrequencyPE(4, seed=0, output=output)
    assert len(together) == len(graphs)
    for data, both in zip(graphs, together, strict=True):
        alone = one_by_one(data)
        assert both[NAME].dtype == alone[NAME].dtype
        gaps = torch.linalg.eigvalsh(peer_laplacian(data)).diff()[:5]
        assert (gaps[1:] > 1e-3).all() or len(gaps) < 4  # so that single vectors can be compared, signs included
        assert torch.allclose(both[NAME], alone[NAME], atol=2e-3 if alone[NAME].dtype == torch.float32 else 1e-8)
        assert NAME not in data
        assert both[NAME].untyped_storage().nbytes() == both[NAME].nbytes  # no view of the batch


SMALL_GRAPHS = {
    **{name: data for name, data in SINGLE_GRAPHS.items() if data.num_nodes < 100},
    "two components": data_of(block_diagonal(random_graph(9, seed=1), random_graph(14, seed=2)), dtype=torch.float64),
    "no edges": Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=3),
    "learned weights": Data(
        edge_index=dense_to_sparse(path(7))[0], edge_weight=torch.ones(12, requires_grad=True), num_nodes=7
    ),
}


@pytest.mark.parametrize("output", ["vectors", "diagonal"])
@pytest.mark.parametrize("name", SMALL_GRAPHS)
def test_one_small_graph_is_encoded_as_in_a_batch(name, output):
    data = SMALL_GRAPHS[name]
    gaps = torch.linalg.eigvalsh(peer_laplacian(data)).diff()
    k = next(k for k in range(5, 0, -1) if k >= len(gaps) or gaps[k] > 1e-3)  # where the span is unique
    transform = AddLowFrequencyPE(k, sign="largest", output=output)
    alone, (together, _) = transform(data)[NAME], (item[NAME] for item in transform.batched([data, data]))
    assert alone.dtype == together.dtype
    assert not alone.requires_grad
    if output == "vectors":
        alone, together = (projector(pe.double()) for pe in (alone, together))
    assert torch.allclose(alone, together, atol=1e-4)


def test_graphs_of_nearly_one_size_share_a_batch_and_memory_is_bounded():
    sizes = sorted([30, 31, 33, 36, 37, 60, 60, 701, 900])
    groups = list(_union.groups(sizes, 5))
    assert [sizes[a:b] for a, b in groups] == [[30, 31, 33, 36], [37], [60, 60], [701], [900]]
    assert [(a, b) for a, b in _union.groups([3, 3, 4, 5, 6, 6], 6)] == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert [b - a for a, b in _union.groups([700] * 80, 5)] == [34, 34, 12]  # 128 MiB in float64
    assert list(_union.groups([], 5)) == []


def test_it_is_a_transform_like_any_other():
    transform = pickle.loads(pickle.dumps(AddLowFrequencyPE(2, "pe", seed=1)))
    graphs = [transform(data_of(path(n), weighted=False)) for n in (4, 5)]
    assert next(iter(DataLoader(graphs, batch_size=2))).pe.shape == (9, 2)
    assert repr(transform) == "AddLowFrequencyPE(k=2, sign='random', output='vectors')"


def test_without_pyg_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    monkeypatch.delitem(sys.modules, "krylow.integrations.pyg")
    with pytest.raises(ImportError, match=r"pip install '\.\[pyg\]'"):
        importlib.import_module("krylow.integrations.pyg")


@pytest.mark.data
@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set")
def test_on_proteins_the_subspaces_are_those_of_pyg():
    from krylow.data import tudataset

    graphs = tudataset("PROTEINS", download=False)
    data = [Data(edge_index=torch.from_numpy(np.stack(W.nonzero())).long(), num_nodes=W.shape[0]) for W in graphs]
    k, compared = 3, 0
    peer = AddLaplacianEigenvectorPE(k, is_undirected=True)
    for item in itertools.islice(AddLowFrequencyPE(k, "pe").batched(data), 0, None, 5):
        if k in unique_ks(item, k, least=1e-2):
            assert_same_span(item.pe, peer(item)[NAME], 2e-3)
            compared += 1
    assert compared > 100
