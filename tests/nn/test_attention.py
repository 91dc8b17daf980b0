"""Low-pass attention is the exact filter where its basis is complete, knows no padding, and trains from any start."""

import itertools

import pytest
import torch

from krylow import InputError
from krylow.krylov.lanczos import lanczos
from krylow.krylov.ritz import ritz
from krylow.nn import InversePolynomialProbe, LowPassAttention, RootProbe, TokenGraph
from krylow.nn.attention import FILTERS, IN_A_BASIS
from krylow.nn.graph_learning import KINDS
from krylow.nn.token_filters import Band, exact_filter, start_block
from krylow.testing import lowest, projector

F64 = torch.float64
BANDS = {"k": {"k": 3}, "cutoff": {"cutoff": 0.4}}
LOW_PASS = [name for name in FILTERS if name != "kernel"]


def draw(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def attention(filter, embed_dim=8, seed=0, **options):
    torch.manual_seed(seed)
    options = {"m": 6, "block_size": 3, "feature_dim": 3, **options}
    return LowPassAttention(embed_dim, 2, filter=filter, **options).double()


def padding_mask(*sizes, n):
    """True for padding, as nn.MultiheadAttention has it."""
    return torch.arange(n) >= torch.tensor(sizes)[:, None]


class TestExactness:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("band", BANDS)
    @pytest.mark.parametrize("filter", IN_A_BASIS)
    def test_a_complete_basis_is_exact_in_value_and_gradient(self, filter, band, kind):
        options = {"kind": kind, "m": 9, "distance": 3.0, **BANDS[band]}
        whole = attention("exact", **options)
        x = draw(2, 9, 8, seed=1)
        whole(x)  # sets the scale
        ours = attention(filter, **({"init": 0.0} if filter == "unrolled" else {}), **options)
        ours.load_state_dict(whole.state_dict(), strict=False)
        y, reference = ours(x), whole(x)
        torch.testing.assert_close(y, reference, rtol=0, atol=1e-8)
        c = draw(*y.shape, seed=2)
        names = [name for name, _ in whole.named_parameters()]
        for a, b, name in zip(
            torch.autograd.grad((c * y).sum(), [dict(ours.named_parameters())[name] for name in names]),
            torch.autograd.grad((c * reference).sum(), [dict(whole.named_parameters())[name] for name in names]),
            names,
            strict=True,
        ):
            assert b.abs().max() > 1e-6, name
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7 * float(b.abs().max()), msg=name)

    @pytest.mark.parametrize("filter", ["unrolled", "lanczos"])
    def test_so_is_the_gradient_through_the_recurrence(self, filter):
        x = draw(2, 7, 8, seed=1)
        options = {"k": 3, "m": 7, "init": 0.0} if filter == "unrolled" else {"k": 3, "m": 7}
        grads = []
        for net in (attention("exact", k=3), attention(filter, gradient="recurrence", **options)):
            (draw(2, 7, 8, seed=2) * net(x)).sum().backward()
            grads.append(net.graph_learning.features.weight.grad)
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-5, atol=1e-8)


class TestPadding:
    @pytest.mark.parametrize("per_head", [False, True])
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("band", BANDS)
    @pytest.mark.parametrize("filter", FILTERS)
    def test_it_does_not_exist(self, filter, band, kind, per_head):
        net = attention(filter, kind=kind, graph_per_head=per_head, **BANDS[band]).eval()
        sizes, n = (9, 5, 2), 9
        x, padding = draw(3, n, 8, seed=1), padding_mask(*sizes, n=n)
        net(x)
        y = net(torch.where(padding[..., None], 1e3, x), key_padding_mask=padding)
        for i, size in enumerate(sizes):
            torch.testing.assert_close(y[i, :size], net(x[i : i + 1, :size])[0], rtol=0, atol=1e-8)
        torch.testing.assert_close(y[padding], net.out.bias.expand(int(padding.sum()), -1))

    @pytest.mark.parametrize("filter", FILTERS)
    def test_nor_for_the_gradient(self, filter):
        net = attention(filter, k=2, distance=2.0)
        x, padding = draw(2, 9, 8, seed=1), padding_mask(9, 6, n=9)
        net(x)
        c = draw(2, 9, 8, seed=2) * ~padding[..., None]
        x.requires_grad_()
        (c * net(x, key_padding_mask=padding)).sum().backward()
        alone = x.detach()[1:, :6].requires_grad_()
        (c[1:, :6] * net(alone)).sum().backward()
        assert x.grad[1, 6:].abs().max() == 0
        torch.testing.assert_close(x.grad[1, :6], alone.grad[0], rtol=0, atol=1e-7)

    def test_numbers_may_say_it_too(self):
        net, x, padding = attention("lanczos", k=2), draw(2, 9, 8), padding_mask(9, 6, n=9)
        additive = torch.zeros(2, 9, dtype=F64).masked_fill(padding, -torch.inf)
        assert torch.equal(net(x, key_padding_mask=padding), net(x, key_padding_mask=additive))

    @pytest.mark.parametrize("filter", FILTERS)
    def test_a_sequence_of_padding_alone_is_finite(self, filter):
        net, x = attention(filter, k=2), draw(2, 5, 8).requires_grad_()
        y = net(x, key_padding_mask=padding_mask(5, 0, n=5))
        y.square().sum().backward()
        assert torch.isfinite(y).all()
        assert torch.isfinite(x.grad).all()


def few_tokens(n, different, seed=1):
    """A batch of two sequences of n tokens, of which so many are different."""
    return draw(2, different, 8, seed=seed)[:, torch.arange(n) % different]


def projected(points, values, k, m, gamma1, gamma2):
    """The paper's filter by dense matrices: m steps on L, the lowest eigenvectors of T_m, the projector on them."""
    L = TokenGraph(points, None, "normalized").laplacian().to_dense()
    z = start_block(TokenGraph(points[None], None, "normalized"), 1)[0, :, 0]
    v, before, beta = z / z.norm(), torch.zeros_like(z), 0.0
    T, V = torch.zeros(m, m, dtype=F64), torch.zeros(len(z), m, dtype=F64)
    for j in range(m):
        V[:, j] = v
        alpha = v @ (L @ v)
        T[j, j] = gamma1[j] * alpha
        r = L @ v - gamma1[j] * alpha * v - gamma2[j] * beta * before
        before, beta = v, r.norm()
        v = r / beta
        if j + 1 < m:
            T[j + 1, j], T[j, j + 1] = beta, gamma2[j + 1] * beta
    theta, Y = torch.linalg.eig(T)  # real, by the paper's Lemma 1
    U = V @ Y.real[:, theta.real.argsort()[:k]]
    return U @ torch.linalg.lstsq(U, values).solution


class TestLiteral:
    @pytest.mark.parametrize(("n", "different"), [(5, 5), (12, 3)])
    def test_the_gammas_act_on_few_tokens(self, n, different):
        x = few_tokens(n, different)
        moved = {}
        for literal in (False, True):
            net = attention("unrolled", k=2, m=8, literal=literal)
            before = net(x)
            with torch.no_grad():
                net.upsilon1.fill_(0.3)
                net.upsilon2.fill_(0.3)
            moved[literal] = float((net(x) - before).detach().abs().max())
        assert moved[False] < 1e-9
        assert moved[True] > 1e-2

    @pytest.mark.parametrize(("n", "different", "m"), [(5, 5, 5), (12, 3, 8), (14, 14, 6)])
    def test_it_is_the_papers_recurrence(self, n, different, m):
        net = attention("unrolled", k=2, m=m, literal=True, init=0.3, bias=False)
        with torch.no_grad():
            net.upsilon1.copy_(0.3 + 0.1 * draw(m, seed=3))
            for weight in (net.value.weight, net.out.weight):
                weight.copy_(torch.eye(8))
        x = few_tokens(n, different)
        y, points = net(x).detach(), net.graph_learning(x).points.detach()
        for i in range(2):
            truth = projected(points[i], x[i], 2, m, *(g.detach() for g in vars(net.relaxation).values()))
            torch.testing.assert_close(y[i], truth, rtol=0, atol=1e-7)

    @pytest.mark.parametrize("band", BANDS)
    @pytest.mark.parametrize(("n", "different", "m"), [(5, 5, 8), (30, 9, 20), (30, 30, 12)])
    def test_with_neutral_gammas_it_is_classical_lanczos_of_m_steps(self, n, different, m, band):
        x = few_tokens(n, different)
        nets = [attention(name, m=m, literal=True, **BANDS[band]) for name in ("lanczos", "unrolled")]
        with torch.no_grad():
            nets[1].upsilon1.zero_(), nets[1].upsilon2.zero_()
        torch.testing.assert_close(nets[1](x), nets[0](x), rtol=0, atol=1e-9)
        graph, v = nets[0].graph_learning(x), nets[0].value(x)
        theta, U, _ = ritz(lanczos(graph.laplacian(), start_block(graph, 1), m, reorthogonalize=True), min(m, n))
        kept = theta <= 0.4 if band == "cutoff" else torch.arange(min(m, n)).expand_as(theta) < 3
        U = U * kept[:, None, :]
        torch.testing.assert_close(nets[0](x), nets[0].out(U @ (U.mT @ v)), rtol=0, atol=1e-8)

    @pytest.mark.parametrize("gradient", ["basis", "recurrence"])
    @pytest.mark.parametrize("band", BANDS)
    def test_padding_does_not_exist_and_gradients_are_finite(self, band, gradient):
        net = attention("unrolled", m=8, literal=True, init=0.1, gradient=gradient, **BANDS[band])
        x, padding = few_tokens(12, 4).requires_grad_(), padding_mask(12, 7, n=12)
        y = net(x, key_padding_mask=padding)
        torch.testing.assert_close(y[1, :7], net(x[1:, :7])[0], rtol=0, atol=1e-8)
        y.square().sum().backward()
        for name, parameter in [*net.named_parameters(), ("tokens", x)]:
            assert parameter.grad.isfinite().all(), name
        assert net.upsilon1.grad.abs().max() > 0
        assert x.grad[1, 7:].abs().max() == 0

    def test_other_filters_have_none(self):
        with pytest.raises(InputError, match="literal=True is for 'unrolled' and 'lanczos', got filter='block'"):
            attention("block", literal=True)


class TestModule:
    @pytest.mark.parametrize("filter", FILTERS)
    def test_evaluation_is_deterministic_whatever_the_batch(self, filter):
        net, x = attention(filter, k=3).eval(), draw(3, 9, 8)
        y = net(x)
        torch.rand(1)
        assert torch.equal(net(x), y)
        torch.testing.assert_close(net(x[1:2]), y[1:2], rtol=0, atol=1e-8)
        torch.testing.assert_close(net(x[1]), y[1], rtol=0, atol=1e-8)

    def test_a_generator_draws_a_fresh_start(self):
        net, x = attention("lanczos", k=2, m=3), draw(2, 9, 8)
        first, again = (net(x, generator=torch.Generator().manual_seed(3)) for _ in range(2))
        assert torch.equal(first, again)
        assert not torch.allclose(first, net(x))

    @pytest.mark.parametrize("filter", LOW_PASS)
    def test_float32_follows_float64(self, filter):
        net, x = attention(filter, k=3, distance=0.5), draw(2, 9, 8)
        y = net(x)
        single = net.float()(x.float())
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), y.detach(), rtol=0, atol=2e-3)

    def test_tokens_may_come_first(self):
        net, x = attention("lanczos", k=2), draw(2, 9, 8)
        y = net(x)
        net.batch_first = False
        torch.testing.assert_close(net(x.transpose(0, 1)), y.transpose(0, 1))

    def test_the_graph_comes_from_its_own_features_where_given(self):
        net, x, features = attention("exact", k=2), draw(2, 9, 8), draw(2, 9, 8, seed=1)
        U = lowest(net.graph_learning(features).laplacian().to_dense(), 2)[1]
        y = net(x, graph_features=features)
        torch.testing.assert_close(y, net.out(projector(U) @ net.value(x)))

    def test_heads_with_graphs_of_their_own_filter_their_own_values(self):
        net, x = attention("exact", k=2, graph_per_head=True), draw(2, 9, 8)
        y = net(x)
        graph = net.graph_learning(x)
        parts = []
        for head in range(2):
            one = TokenGraph(graph.points[:, head], None, graph.kind)
            parts.append(exact_filter(one, net.value(x)[..., 4 * head : 4 * head + 4], Band(k=2)))
        torch.testing.assert_close(y, net.out(torch.cat(parts, -1)))
        assert (parts[0] - exact_filter(one, net.value(x)[..., :4], Band(k=2))).abs().max() > 1e-3

    def test_chebyshev_approaches_the_exact_filter(self):
        x = draw(2, 20, 8, seed=1)
        errors = []
        for m in (8, 64):
            net = attention("chebyshev", cutoff=0.5, m=m, distance=4.0)
            exact = attention("exact", cutoff=0.5, distance=4.0)
            errors.append(float(((net(x) - exact(x)).norm() / exact(x).norm()).detach()))
        assert errors[1] < 0.7 * errors[0]
        assert errors[1] < 0.3

    @pytest.mark.parametrize("band", BANDS)
    @pytest.mark.parametrize("gradient", ["basis", "recurrence"])
    def test_a_probe_learns(self, gradient, band):
        net = attention("unrolled", m=4, probe=InversePolynomialProbe(2, 2, 4), gradient=gradient, **BANDS[band])
        net(draw(2, 15, 8)).square().sum().backward()
        assert net.probe.b.grad.abs().max() > 0

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"num_heads": 3}, "must divide"),
            ({"embed_dim": 10**30}, "embed_dim must be between 1 and"),
            ({"k": 2, "cutoff": 0.5}, "either k or cutoff"),
            ({"k": 30}, "number of basis vectors"),
            ({"filter": "fourier"}, "must be one of"),
            ({"filter": "exact", "gradient": "recurrence"}, "is for 'unrolled' and 'lanczos'"),
            ({"filter": "lanczos", "probe": InversePolynomialProbe()}, "starts the filter 'unrolled'"),
        ],
    )
    def test_bad_options_are_refused(self, options, message):
        with pytest.raises(InputError, match=message):
            LowPassAttention(**{"embed_dim": 8, "num_heads": 2, **options})

    def test_autocast_does_not_reach_it(self):
        net, x = attention("unrolled", k=2).float(), draw(2, 9, 8, dtype=torch.float32)
        y = net(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(net(x), y)

    def test_bad_input_is_refused(self):
        net = attention("lanczos", k=2)
        with pytest.raises(InputError, match="must be float32 or float64"):
            net(draw(2, 9, 8).bfloat16())
        with pytest.raises(InputError, match=r"\(batch, n, 8\)"):
            net(draw(2, 9, 7))
        with pytest.raises(InputError, match="tokens' shape"):
            net(draw(2, 9, 8), graph_features=draw(2, 8, 8))
        with pytest.raises(InputError, match="key_padding_mask must be"):
            net(draw(2, 9, 8), key_padding_mask=torch.zeros(9, 2, dtype=torch.bool))


def backward(net, x, **options):
    """The answer to x, and every gradient of a linear function of it by name."""
    net.zero_grad()
    x = x.clone().requires_grad_()
    y = net(x, **options)
    (draw(*y.shape, seed=7).to(y) * y).sum().backward()
    gradients = {name: p.grad for name, p in [*net.named_parameters(), ("tokens", x)] if p.grad is not None}
    return y.detach(), gradients


def assert_finite(y, gradients):
    for name, values in {"answer": y, **gradients}.items():
        assert values.isfinite().all(), name


@pytest.mark.parametrize("filter", FILTERS)
class TestHardTokens:
    def single(self, filter, **options):
        return attention(filter, **{"k": 2, **options}).float()

    @pytest.mark.parametrize("bad", [torch.nan, torch.inf])
    def test_what_is_not_a_number_is_refused(self, filter, bad):
        x = draw(2, 9, 8, dtype=torch.float32)
        features = x.clone()
        features[0, 3, 1] = bad
        with pytest.raises(InputError, match="tokens must be finite, got 1 NaN or infinite"):
            self.single(filter)(features)
        with pytest.raises(InputError, match="tokens of a graph must be finite"):
            self.single(filter)(x, graph_features=features)

    @pytest.mark.parametrize("bad", [torch.nan, torch.inf])
    def test_nothing_at_padding_reaches_a_token_or_a_parameter(self, filter, bad):
        x, padding = draw(2, 9, 8, dtype=torch.float32), padding_mask(9, 6, n=9)
        truth = backward(self.single(filter), x.masked_fill(padding[..., None], 0), key_padding_mask=padding)
        found = backward(self.single(filter), x.masked_fill(padding[..., None], bad), key_padding_mask=padding)
        torch.testing.assert_close(found, truth, rtol=0, atol=0)
        assert_finite(*found)

    @pytest.mark.parametrize("other", [torch.int64, torch.bool, torch.float16, torch.complex64, F64])
    def test_another_dtype_is_refused_in_words(self, filter, other):
        x = draw(2, 9, 8, dtype=torch.float32)
        with pytest.raises(InputError, match=f"tokens must .*, got {other}"):
            self.single(filter)(x.to(other))
        with pytest.raises(InputError, match=f"graph_features must .*, got {other}"):
            self.single(filter)(x, graph_features=x.to(other))

    @pytest.mark.parametrize("size", [2.0**-100, 2.0**66])
    def test_the_first_tokens_may_have_any_size(self, filter, size):
        x = draw(2, 9, 8, dtype=torch.float32)
        y, _ = backward(self.single(filter, bias=False), x)
        scaled, gradients = backward(self.single(filter, bias=False), size * x)
        torch.testing.assert_close(scaled / size, y, rtol=0, atol=1e-5 * float(y.abs().max()))
        assert_finite(scaled, gradients)

    @pytest.mark.parametrize("tokens", ["all", "one", "equal"])
    def test_tokens_may_outgrow_the_first_ones(self, filter, tokens):
        net, x = self.single(filter), draw(2, 9, 8, dtype=torch.float32)
        net(x)
        if tokens == "equal":
            x[:, 1] = x[:, 0]
        x[:, : 1 if tokens == "one" else 9] *= 1e20
        assert_finite(*backward(net, x))

    def test_tokens_whose_gradients_would_overflow_are_refused(self, filter):
        with pytest.raises(InputError, match=r"tokens must be at most 1.3e\+23, got .*: divide them"):
            self.single(filter)(1e37 * draw(2, 9, 8, dtype=torch.float32))

    def test_halves_under_autocast(self, filter):
        x = draw(2, 9, 8, dtype=torch.float32).bfloat16()
        truth = self.single(filter)(x.float())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y, gradients = backward(self.single(filter), x)
            learned = self.single(filter)(x, graph_features=x)
        assert torch.equal(y, truth)
        assert torch.equal(learned, truth)
        assert gradients["tokens"].dtype == torch.bfloat16
        assert_finite(y, gradients)

    def test_parameters_that_have_diverged_are_named(self, filter):
        net, x = self.single(filter), draw(2, 9, 8, dtype=torch.float32)
        names = dict.fromkeys(("graph_learning.R", "graph_learning.features.weight"), "parameters have diverged")
        if filter == "unrolled":
            names["upsilon1"] = "the learned upsilon must be finite"
        for name, message in names.items():
            with torch.no_grad():
                net.get_parameter(name)[0] = torch.nan
            with pytest.raises(InputError, match=message):
                net(x)
            with torch.no_grad():
                net.get_parameter(name)[0] = 1


STARTS = {
    "near-complete": lambda x: (x, {"distance": 1e-4}),
    "isolated": lambda x: (x, {"distance": 1e4}),
    "identical": lambda x: (torch.ones_like(x), {}),
    "two kinds": lambda x: (torch.ones_like(x) * (-1.0) ** torch.arange(x.shape[1])[:, None], {}),
    "fewer tokens than m": lambda x: (x[:, :3], {}),
    "one token": lambda x: (x[:, :1], {}),
}

VARIANTS = {
    "recurrence": lambda: {"gradient": "recurrence"},
    "probe": lambda: {"probe": InversePolynomialProbe(3, 2, 4)},
    "probe, recurrence": lambda: {"probe": InversePolynomialProbe(3, 2, 4), "gradient": "recurrence"},
    "root probe": lambda: {"probe": RootProbe(3)},
    "graph per head": lambda: {"graph_per_head": True},
}


class TestAnyStart:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("start", STARTS)
    @pytest.mark.parametrize("band", BANDS)
    @pytest.mark.parametrize("filter", FILTERS)
    def test_every_gradient_is_finite(self, filter, band, start, kind):
        x, options = STARTS[start](draw(4, 12, 8, dtype=torch.float32))
        net = attention(filter, m=8, kind=kind, **options, **BANDS[band]).float()
        y = net(x)
        assert torch.isfinite(y).all()
        (draw(*y.shape, seed=2, dtype=torch.float32) * y).sum().backward()
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None, name
            assert torch.isfinite(parameter.grad).all(), name
        assert net.value.weight.grad.abs().max() > 0

    @pytest.mark.parametrize("start", STARTS)
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_so_it_is_with_probes_heads_and_tapes(self, variant, start):
        for kind, band in itertools.product(KINDS, BANDS.values()):
            x, options = STARTS[start](draw(4, 12, 8, dtype=torch.float32))
            net = attention("unrolled", m=8, kind=kind, **options, **band, **VARIANTS[variant]()).float()
            (draw(*x.shape, seed=2, dtype=torch.float32) * net(x)).sum().backward()
            for name, parameter in net.named_parameters():
                assert parameter.grad is not None, name
                assert torch.isfinite(parameter.grad).all(), (name, kind, band)
