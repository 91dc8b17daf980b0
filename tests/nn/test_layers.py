"""The layers are the functions: on one graph, on batches of PyG's, beside a Laplacian; gradients to weights."""

import pytest
import torch

import krylow as kl
from krylow.testing import cycle, grid, random_graph


def edges(W):
    edge_index = W.nonzero().T
    return edge_index, W[edge_index[0], edge_index[1]]


def joined(graphs):
    """The batch that PyG makes of graphs."""
    parts = [edges(W) for W in graphs]
    first = [sum(len(W) for W in graphs[:i]) for i in range(len(graphs))]
    batch = torch.repeat_interleave(torch.arange(len(graphs)), torch.tensor([len(W) for W in graphs]))
    index = torch.cat([part[0] + start for part, start in zip(parts, first, strict=True)], 1)
    return index, torch.cat([part[1] for part in parts]), batch


@pytest.fixture
def graphs():
    return [random_graph(n, seed=n) for n in (9, 5, 12)]


def test_one_graph_is_lowpass(graphs):
    W = graphs[0]
    x = torch.randn(len(W), 3, dtype=W.dtype, generator=torch.Generator().manual_seed(0))
    layer = kl.nn.LowPass(3)
    expected = kl.lowpass(kl.laplacian(W), x, 3)
    torch.testing.assert_close(layer(x, *edges(W)), expected)
    torch.testing.assert_close(layer(x, kl.laplacian(W)), expected)
    normalized = kl.nn.LowPass(cutoff=0.7, kind="normalized")(x, *edges(W))
    torch.testing.assert_close(normalized, kl.lowpass(kl.laplacian(W, "normalized"), x, cutoff=0.7))


def test_a_batch_is_a_loop_even_where_a_graph_has_fewer_nodes_than_k(graphs):
    index, weight, batch = joined(graphs)
    x = torch.randn(len(batch), 2, dtype=weight.dtype, generator=torch.Generator().manual_seed(0))
    for layer in (kl.nn.LowPass(3), kl.nn.LowPass(6), kl.nn.LowPass(cutoff=2.0)):
        parts = [layer(x[batch == i], *edges(W)) for i, W in enumerate(graphs)]
        torch.testing.assert_close(layer(x, index, weight, batch), torch.cat(parts))


def test_large_graphs_of_a_batch_are_filtered_one_by_one():
    graphs = [grid(31, 37), cycle(10)]
    index, weight, batch = joined(graphs)
    x = torch.randn(len(batch), 1, dtype=weight.dtype, generator=torch.Generator().manual_seed(0))
    y = kl.nn.LowPass(3)(x, index, weight, batch)
    torch.testing.assert_close(y[-10:], kl.nn.LowPass(3)(x[-10:], *edges(graphs[1])))
    exact = kl.lowpass(kl.laplacian(graphs[0]), x[:-10], 3, method="exact")
    torch.testing.assert_close(y[:-10], exact, atol=0.05, rtol=0)


def test_gradients_reach_signals_and_weights(graphs):
    index, weight, batch = joined(graphs)
    x = torch.randn(len(batch), 2, dtype=weight.dtype, generator=torch.Generator().manual_seed(0), requires_grad=True)
    half = index[0] < index[1]
    order = {tuple(edge): i for i, edge in enumerate(index[:, half].T.tolist())}
    which = torch.tensor([order[min(a, b), max(a, b)] for a, b in index.T.tolist()])

    def filtered(x, w):
        return kl.nn.LowPass(3)(x, index, w[which], batch)

    assert torch.autograd.gradcheck(filtered, (x, weight[half].clone().requires_grad_()))


def test_what_is_refused(graphs):
    index, weight, batch = joined(graphs)
    x = torch.ones(len(batch), 1, dtype=weight.dtype)
    with pytest.raises(kl.InputError, match="between two graphs"):
        kl.nn.LowPass(2)(x, torch.tensor([[0, 10], [10, 0]]), None, batch)
    with pytest.raises(kl.InputError, match="belong to an edge_index"):
        kl.nn.LowPass(2)(x, kl.laplacian(graphs[0]), weight)
    with pytest.raises(kl.InputError, match="ascending"):
        kl.nn.LowPass(2)(x, index, weight, batch.flip(0))
    with pytest.raises(kl.InputError, match="symmetric"):
        kl.nn.LowPass(2)(x, index[:, :1], None, batch)


def test_the_inverse_gft_of_the_gft_is_the_projection(graphs):
    sub = kl.subspace(kl.laplacian(graphs), 3)
    x = torch.randn(3, 12, 2, dtype=sub.basis.dtype)
    torch.testing.assert_close(sub.inverse_gft(sub.gft(x)), sub.project(x))
    one = kl.subspace(kl.laplacian(graphs[0]), 3)
    assert one.inverse_gft([1.0, 0.0, 0.0]).shape == (9,)
    with pytest.raises(kl.InputError, match="one row per coefficient"):
        one.inverse_gft(torch.ones(9))
