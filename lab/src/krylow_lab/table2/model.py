"""From a setting to an untrained model; rows of one seed start alike in everything that they share."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from krylow.nn import TransformerBlock
from krylow.nn.attention import LowPassAttention
from krylow.nn.probes import InversePolynomialProbe
from krylow.training import generator
from krylow_lab.table2.classifier import NoMixing, PairClassifier, SelfAttention
from krylow_lab.table2.corpus import Corpus
from krylow_lab.table2.plan import BLOCK
from krylow_lab.text.tokens import cached_wordpiece, glove_embedding


def build(setting: dict[str, Any], corpus: Corpus, seed: int) -> PairClassifier:
    """Return the untrained model of a setting."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_number(seed, "mixing"))
        mixing = _mixing(setting)
        torch.manual_seed(_number(seed, "model"))  # anew: the rest does not depend on what the mixing drew
        model = PairClassifier(
            corpus.train.vocab_size,
            [mixing],
            embed_dim=setting["embed_dim"],
            ffn_dim=setting["ffn_dim"],
            max_tokens=corpus.max_tokens,
            dropout=0.0,
            token_graph=setting["token_graph"],
        )
    if setting["embeddings"] == "vectors":
        assert corpus.tokenizer is not None
        rows = glove_embedding(
            cached_wordpiece(corpus.tokenizer, []), setting["embed_dim"], generator=generator(seed, "vectors")
        )
        with torch.no_grad():
            model.embedding.token.weight.copy_(rows)
    model.embedding.dropout = ByteDropout(setting["dropout"])  # type: ignore[assignment]
    for block in model.blocks:
        block.dropout = ByteDropout(setting["dropout"])
    if setting.get("noise"):
        model.embedding.token.register_forward_hook(_Noise(setting["noise"]))
    return model


def _mixing(setting: dict[str, Any]) -> nn.Module:
    row, width = setting["row"], setting["embed_dim"]
    if row == "none":
        return NoMixing(width)
    if row in ("attention", "identity"):
        return SelfAttention(width, setting["heads"], identity=row == "identity")
    names = ("k", "cutoff", "m", "kind", "distance", "feature_dim", "merge_equal", "literal")
    options = {name: setting[name] for name in names if name in setting}
    if row == "block":
        options["block_size"] = BLOCK
    if row == "probe":
        options["probe"] = InversePolynomialProbe(degree=7, power=3, cg_steps=10)
    return LowPassAttention(width, setting["heads"], filter="unrolled" if row == "probe" else row, **options)


def mixing_of(model: PairClassifier) -> nn.Module:
    """Return the mixing of the only block."""
    block = model.blocks[0]
    assert isinstance(block, TransformerBlock)
    return block.mixing


def delicate(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the parameters whose gradients are clipped separately, gammas and a probe's, and the others."""
    parts: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
    for name, parameter in model.named_parameters():
        parts[not ("upsilon" in name or "probe" in name)].append(parameter)
    return parts


class ByteDropout(nn.Module):
    """Dropout that draws a byte a number, eight at a time: several times as fast as ``nn.Dropout`` on a processor.

    The rate is rounded to 1/256. Draws come from torch's global generator.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.drop = round(256 * rate)

    def forward(self, x: Tensor) -> Tensor:
        """Return x with a part of its entries at 0 and the others scaled up, in training."""
        if not self.training or self.drop == 0:
            return x
        words = torch.empty(math.ceil(x.numel() / 8), dtype=torch.int64).random_(-(2**63), None)
        keep = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self.drop
        return x * (keep.to(x.dtype) * (256 / (256 - self.drop)))


class _Noise:
    """A hook that adds Gaussian noise to every token's embedding, each occurrence its own, in training and after."""

    def __init__(self, size: float) -> None:
        self.size = size

    def __call__(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        if module.training:
            return output + self.size * torch.randn_like(output)
        # The same noise at every evaluation, and for every row.
        source = torch.Generator().manual_seed(int(inputs[0].sum()))
        return output + self.size * torch.randn(output.shape, generator=source)


def _number(seed: int, purpose: str) -> int:
    return int(torch.randint(2**62, (), generator=generator(seed, purpose)))
