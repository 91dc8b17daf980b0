"""Networks that torch has recorded, by `torch.export` or `torch.compile`, compute what they compute eagerly."""

import pytest
import torch

import krylow as kl
from krylow._checks import InputError
from krylow.nn.attention import FILTERS


def attention(**options):
    torch.manual_seed(0)
    return kl.nn.LowPassAttention(8, 2, k=2, m=4, **options).double()


def tokens(batch, seed):
    x = torch.randn(batch, 7, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    x[-1, 4] = x[-1, 2]  # equal tokens are merged
    x[0, 1:] = x[0, :1]
    return x


def gradients(net, x, y):
    y.square().sum().backward()
    found = [x.grad, *(p.grad for p in net.parameters() if p.grad is not None)]
    x.grad = None
    net.zero_grad()
    return found


QUICK = [name for name in FILTERS if name != "chebyshev"]


@pytest.mark.parametrize("filter", [*QUICK, pytest.param("chebyshev", marks=pytest.mark.slow)])
def test_an_exported_attention_is_the_module_on_batches_of_any_size(filter):
    net = attention(filter=filter).eval()
    net(tokens(3, 0))  # sets the graph's scale
    mask, other = torch.zeros(3, 7, dtype=torch.bool), torch.zeros(5, 7, dtype=torch.bool)
    mask[1, 4:], other[2:4, 3:] = True, True
    batch = torch.export.Dim.DYNAMIC
    program = torch.export.export(
        net,
        (tokens(3, 0),),
        {"key_padding_mask": mask},
        dynamic_shapes={"x": {0: batch}, "key_padding_mask": {0: batch}},
    )
    x = tokens(5, 1)
    with torch.no_grad():
        torch.testing.assert_close(
            program.module()(x, key_padding_mask=other), net(x, key_padding_mask=other), rtol=0, atol=1e-10
        )


def test_an_attention_exported_before_its_first_batch_takes_its_scale_there(tmp_path):
    net = attention(filter="kernel").eval()
    torch.export.save(torch.export.export(net, (tokens(2, 0),)), tmp_path / "attention.pt2")
    program = torch.export.load(tmp_path / "attention.pt2").module()
    x, other = tokens(2, 1), tokens(2, 2)
    for batch in (x, other):
        torch.testing.assert_close(program(batch), net(batch))
    fresh = attention(filter="kernel").eval()
    assert not torch.allclose(fresh(other), net(other))  # so the scale of the first batch was kept


@pytest.mark.parametrize("filter", ["unrolled", "block", "exact"])
def test_attention_compiles_without_graph_breaks(filter):
    net, x = attention(filter=filter), tokens(3, 0)[1:].requires_grad_()
    with torch.no_grad():
        net.upsilon1.fill_(0.1) if filter == "unrolled" else None
    eager = net(x)
    wanted = gradients(net, x, eager)
    compiled = torch.compile(net, backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(compiled, eager, rtol=0, atol=1e-10)
    for got, want in zip(gradients(net, x, compiled), wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-10)


def graph(seed=0, batch=2, n=9):
    W = torch.rand(batch, n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    W = (W + W.mT).tril(-1)
    return (kl.laplacian(W + W.mT)).to_dense()


NETWORKS = {
    "unrolled": kl.nn.UnrolledLanczos(2, 5, init=0.1).double(),
    "roots": kl.nn.UnrolledLanczos(2, 4, kl.nn.RootProbe(3), init=0.0, reorthogonalize=True).double(),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_compiles_without_graph_breaks(name):
    net, L, x = NETWORKS[name], graph().requires_grad_(), torch.eye(9, 3, dtype=torch.float64)

    def filtered(matrix):
        sub = net(matrix)
        return sub.project(x), sub.products

    y, products = filtered(L)
    found, counted = torch.compile(filtered, backend="eager", fullgraph=True)(L)
    assert counted == products
    torch.testing.assert_close(found, y, rtol=0, atol=1e-10)
    wanted, got = (torch.autograd.grad(out.square().sum(), L)[0] for out in (y, found))
    torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kept", [{"k": 2}, {"cutoff": 4.0}], ids=["k", "cutoff"])
def test_the_dense_path_of_lowpass_compiles_without_graph_breaks(kept):
    layer, L = kl.nn.LowPass(**kept), graph().requires_grad_()
    x = torch.randn(2, 9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y, found = layer(x, L), torch.compile(layer, backend="eager", fullgraph=True)(x, L)
    torch.testing.assert_close(found, y, rtol=0, atol=1e-10)
    wanted, got = (torch.autograd.grad(out.square().sum(), (x, L)) for out in (y, found))
    torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-10)


def test_a_layer_compiles_beside_an_operator_made_before():
    layer, L, x = kl.nn.LowPass(2), kl.laplacian(torch.ones(5, 5) - torch.eye(5)), torch.randn(5, 2)
    compiled = torch.compile(lambda signal: layer(signal, L), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), layer(x, L))


@pytest.mark.slow
def test_attention_compiles_to_machine_code():
    net, x = attention(), tokens(3, 0)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(net, fullgraph=True)(x), net(x), rtol=0, atol=1e-10)


def test_no_draw_is_recorded():
    with pytest.raises(InputError, match="leave it out"):
        torch.export.export(attention(filter="lanczos"), (tokens(2, 0),), {"generator": torch.Generator()})


def test_parameters_under_the_name_of_earlier_versions_are_loaded():
    net = torch.nn.Sequential(attention())
    old = {key.replace("graph_learning.", "graph."): value + 1 for key, value in net.state_dict().items()}
    assert "0.graph.R" in old
    net.load_state_dict(old)
    torch.testing.assert_close(net[0].graph_learning.R, old["0.graph.R"])
