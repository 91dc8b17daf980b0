"""The layer is kl.filter, and its parameters are the response's: on graphs, on batches of PyG's, in training."""

import pytest
import torch
from torch import nn

import krylow as kl
from krylow import responses as r
from krylow.testing import cycle, grid, random_graph

F64 = torch.float64
RESPONSES = {
    "heat": (r.Heat(0.7), {"log_tau"}),
    "gaussian": (r.Gaussian(2.0, 1.0), {"log_sigma", "mu"}),
    "smooth band": (r.BandPass(1.0, 3.0, width=1.0), {"low", "high", "log_width"}),
    "jump": (r.LowPass(2.0), set()),
    "rational": (r.Rational([1.0, 0.1], [1.0, 0.5]), {"numerator", "denominator"}),
    "wavelets": (r.MexicanHat(3), set()),
    "bank": ([r.Heat(0.3), r.Tikhonov(2.0)], {"parts.0.log_tau", "parts.1.log_a"}),
    "function": (torch.cos, set()),
}


def edges(W):
    index = W.nonzero().T
    return index, W[index[0], index[1]]


def joined(graphs):
    """The batch that PyG makes of graphs."""
    parts = [edges(W) for W in graphs]
    first = [sum(len(W) for W in graphs[:i]) for i in range(len(graphs))]
    batch = torch.repeat_interleave(torch.arange(len(graphs)), torch.tensor([len(W) for W in graphs]))
    index = torch.cat([part[0] + start for part, start in zip(parts, first, strict=True)], 1)
    return index, torch.cat([part[1] for part in parts]), batch


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", list(RESPONSES))
def test_the_layer_is_the_function(name):
    response, parameters = RESPONSES[name]
    layer, W = kl.nn.SpectralFilter(response), random_graph(9, seed=9)
    assert {name for name, _ in layer.named_parameters()} == parameters
    x = randn(9, 2)
    wanted = kl.filter(kl.laplacian(W), x, response)
    torch.testing.assert_close(layer(x, *edges(W)), wanted, rtol=0, atol=1e-5)
    torch.testing.assert_close(layer(x, kl.laplacian(W)), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["heat", "wavelets", "bank"])
def test_a_batch_is_the_loop(name):
    layer = kl.nn.SpectralFilter(RESPONSES[name][0], tol=1e-9)
    graphs = [random_graph(9, seed=9), cycle(5), grid(31, 37), grid(3, 4)]
    for chosen in (graphs, graphs[:2]):
        index, weight, batch = joined(chosen)
        x = randn(len(batch), 2)
        parts = [layer(x[batch == i], *edges(W)) for i, W in enumerate(chosen)]
        torch.testing.assert_close(layer(x, index, weight, batch), torch.cat(parts), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["heat", "gaussian", "smooth band", "rational", "bank"])
def test_gradients_reach_signals_weights_and_parameters(name):
    layer = kl.nn.SpectralFilter(RESPONSES[name][0])
    index, weight, batch = joined([random_graph(9, seed=9), cycle(5)])
    x, weight = randn(len(batch), 2).requires_grad_(), weight.requires_grad_()
    layer(x, index, weight, batch).square().sum().backward()
    for leaf in (x, weight, *layer.parameters()):
        assert bool(leaf.grad.isfinite().all())
        assert float(leaf.grad.abs().sum()) > 0


def test_a_time_is_learned_from_what_it_does():
    W = grid(6, 7)
    L, x = kl.laplacian(W), randn(42, 20)
    wanted = kl.filter(L, x, r.Heat(1.7))
    layer = kl.nn.SpectralFilter(r.Heat(0.2))
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(120):
        optimizer.zero_grad()
        (layer(x, L) - wanted).square().mean().backward()
        optimizer.step()
    assert float(layer.response.tau.detach()) == pytest.approx(1.7, rel=0.02)


def test_a_module_is_a_response_in_a_model():
    net = nn.Sequential(nn.Unflatten(-1, (-1, 1)), nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 2))
    model = nn.ModuleList([kl.nn.SpectralFilter(net, kind="normalized", method="exact"), nn.Linear(2, 1)])
    x = randn(9, 3).float()
    y = model[1](
        model[0](x, *(part if i == 0 else part.float() for i, part in enumerate(edges(random_graph(9, seed=9)))))
    )
    assert y.shape == (9, 3, 1)
    y.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_states_are_kept():
    first, second = (kl.nn.SpectralFilter([r.Heat(tau), r.Gaussian(tau)]) for tau in (0.5, 3.0))
    second.load_state_dict(first.state_dict())
    x, L = randn(12, 1), kl.laplacian(cycle(12))
    torch.testing.assert_close(first(x, L), second(x, L))
    assert "Heat" in repr(second)


def test_in_pyg():
    data = pytest.importorskip("torch_geometric.data")
    W = random_graph(9, seed=9)
    index, _ = edges(W)
    batch = data.Batch.from_data_list([data.Data(x=randn(9, 2).float(), edge_index=index, num_nodes=9)] * 2)
    y = kl.nn.SpectralFilter(r.Heat(1.0))(batch.x, batch.edge_index, batch=batch.batch)
    torch.testing.assert_close(y[:9], y[9:])
