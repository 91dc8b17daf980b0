"""The block computes the paper's equations, and one batch is learned by heart with every mixing, from any start."""

import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from krylow import InputError
from krylow.nn import LowPassAttention, TransformerBlock
from krylow_lab.table2.classifier import NoMixing, PairClassifier, SelfAttention, parameter_count
from krylow_lab.text.pairs import token_pairs

EMBED = 16
EXAMPLE = Path(__file__).parents[3] / "examples" / "attention.py"
FILTERS = {
    "unrolled": {"k": 4, "m": 10},
    "unrolled, cutoff": {"cutoff": 0.5, "m": 10},
    "unrolled, recurrence": {"k": 4, "m": 8, "gradient": "recurrence"},
    "lanczos": {"filter": "lanczos", "k": 4, "m": 10},
    "block": {"filter": "block", "k": 4, "m": 16},
    "chebyshev": {"filter": "chebyshev", "cutoff": 0.5, "m": 8},
    "exact": {"filter": "exact", "k": 4},
    "kernel": {"filter": "kernel"},
}


def mixing(name, **options):
    torch.manual_seed(0)  # whatever ran before
    return LowPassAttention(EMBED, 2, **{**FILTERS[name], **options})


def overfit(mix, *, most=200, token_graph=True, seed=0):
    """Return the accuracy on one batch after at most so many steps of Adam."""
    torch.manual_seed(seed)
    batch = token_pairs(16, words=20, lengths=(3, 5), generator=torch.Generator().manual_seed(1))
    model = PairClassifier(
        batch.vocab_size, [mix], embed_dim=EMBED, ffn_dim=32, max_tokens=16, dropout=0.0, token_graph=token_graph
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(most):
        logits = model(batch.tokens, batch.segments, batch.padding)
        if bool((logits.argmax(-1) == batch.labels).all()):
            return 1.0
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, batch.labels).backward()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
        for gammas in (True, False):  # apart, as the attention's docstring says
            nn.utils.clip_grad_norm_([p for n, p in model.named_parameters() if ("upsilon" in n) == gammas], 1.0)
        optimizer.step()
    return float((logits.argmax(-1) == batch.labels).double().mean())


class TestOverfit:
    @pytest.mark.parametrize("name", FILTERS)
    def test_one_batch_is_learned_by_heart(self, name):
        assert overfit(mixing(name)) == 1.0

    @pytest.mark.parametrize("name", ["unrolled", "unrolled, cutoff", "block", "exact"])
    @pytest.mark.parametrize("kind", ["combinatorial", "normalized"])
    @pytest.mark.parametrize("distance", [1e-3, 1e3])
    def test_from_a_complete_graph_and_from_isolated_tokens(self, name, kind, distance):
        assert overfit(mixing(name, kind=kind, distance=distance)) == 1.0

    def test_without_steps_it_is_not(self):
        assert overfit(mixing("unrolled"), most=1) < 1.0

    def test_the_gammas_and_the_graph_move(self):
        mix = mixing("unrolled")
        before = [
            p.detach().clone()
            for p in (mix.upsilon1, mix.upsilon2, mix.graph_learning.R, mix.graph_learning.features.weight)
        ]
        overfit(mix)
        after = (mix.upsilon1, mix.upsilon2, mix.graph_learning.R, mix.graph_learning.features.weight)
        assert all((a - b).abs().max() > 1e-4 for a, b in zip(after, before, strict=True))


class TestExample:
    def test_comparing_the_parts_is_learned_through_the_filter(self):
        example = runpy.run_path(str(EXAMPLE))
        pairs = [
            token_pairs(count, words=30, lengths=(4, 7), generator=torch.Generator().manual_seed(seed))
            for seed, count in enumerate((1024, 256))
        ]
        mixings = example["mixings"]()
        train = example["train"]
        assert train(mixings["low-pass, block"], *pairs) > 0.9
        assert train(mixings["no mixing"], *pairs) < 0.6


class TestBlock:
    def test_it_is_the_two_equations(self):
        torch.manual_seed(0)
        block = TransformerBlock(NoMixing(EMBED), EMBED, 32).eval()
        x = torch.randn(2, 5, EMBED)
        mixed = block.norm1(x + block.mixing(x))
        torch.testing.assert_close(block(x), block.norm2(mixed + block.ffn(mixed)))

    def test_self_attention_is_torch_s(self):
        torch.manual_seed(0)
        ours, x = SelfAttention(EMBED, 2), torch.randn(2, 5, EMBED)
        padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        theirs = ours.attention(x, x, x, key_padding_mask=padding)[0]
        torch.testing.assert_close(ours(x, key_padding_mask=padding), theirs)

    def test_identity_queries_and_keys_attend_to_equal_tokens(self):
        torch.manual_seed(0)
        mix = SelfAttention(EMBED, 1, identity=True)
        q = 4 * nn.functional.normalize(torch.randn(1, 6, EMBED), dim=-1)
        q[0, 5] = q[0, 0]
        weights = mix.attention(q, q, torch.randn(1, 6, EMBED))[1][0]
        assert weights[0].topk(2).indices.sort().values.tolist() == [0, 5]
        assert parameter_count(mix) == parameter_count(SelfAttention(EMBED, 1))


class TestClassifier:
    @pytest.mark.parametrize("pool", ["mean", "first"])
    @pytest.mark.parametrize("mix", ["unrolled", "self-attention", "none"])
    def test_padding_does_not_exist(self, mix, pool):
        torch.manual_seed(0)
        module = {
            "unrolled": lambda: mixing("unrolled"),
            "self-attention": lambda: SelfAttention(EMBED, 2),
            "none": lambda: NoMixing(EMBED),
        }[mix]()
        pairs = token_pairs(4, lengths=(3, 6))
        model = PairClassifier(pairs.vocab_size, [module], embed_dim=EMBED, pool=pool).eval().double()
        whole = model(pairs.tokens, pairs.segments, pairs.padding)
        assert pairs.padding.any()
        for i in range(4):
            n = int((~pairs.padding[i]).sum())
            one = model(*(t[i : i + 1, :n] for t in (pairs.tokens, pairs.segments, pairs.padding)))
            torch.testing.assert_close(one[0], whole[i], rtol=0, atol=1e-8)

    def test_a_token_graph_does_not_see_positions(self):
        torch.manual_seed(0)
        seen = []
        mix = mixing("exact")
        mix.graph_learning.register_forward_hook(lambda module, inputs, output: seen.append(output.weights().detach()))
        tokens = torch.tensor([[1, 7, 2, 8, 7, 2]])
        segments = torch.tensor([[0, 0, 0, 1, 1, 1]])
        for token_graph in (True, False):
            model = PairClassifier(10, [mix], embed_dim=EMBED, token_graph=token_graph).eval()
            model(tokens, segments, tokens == 0)
        assert seen[0][0, 1, 4] == pytest.approx(1.0)  # the same word in both parts
        assert seen[1][0, 1, 4] < 0.999

    def test_too_long_a_sequence_is_refused(self):
        model = PairClassifier(10, [NoMixing(EMBED)], embed_dim=EMBED, max_tokens=4)
        tokens = torch.ones(1, 5, dtype=torch.long)
        with pytest.raises(InputError, match="at most 4 tokens, got 5"):
            model(tokens, 0 * tokens, tokens == 0)
