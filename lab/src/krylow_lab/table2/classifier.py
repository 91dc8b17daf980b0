"""A classifier of token pairs, and what is put in the place of low-pass attention in it: the controls."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from krylow import InputError, _checks
from krylow.nn import TransformerBlock

POOLS = ("mean", "first")


class SelfAttention(nn.Module):
    """``nn.MultiheadAttention`` called as the low-pass one is.

    Parameters
    ----------
    embed_dim, num_heads
        As there.
    identity
        Whether the projections of queries and keys start as the identity, so that equal tokens attend to each other
        from the first step. With ``graph_features`` as queries and keys it is the control for a token graph.

    Shapes
    ------
    ``(batch, n, embed_dim)`` in and out.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, identity: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
        if identity:
            with torch.no_grad():
                self.attention.in_proj_weight[: 2 * embed_dim].copy_(torch.eye(embed_dim).repeat(2, 1))

    def forward(
        self, x: Tensor, *, key_padding_mask: Tensor | None = None, graph_features: Tensor | None = None
    ) -> Tensor:
        """Return the attended tokens; queries and keys come from ``graph_features``, where given."""
        q = x if graph_features is None else graph_features
        y: Tensor = self.attention(q, q, x, key_padding_mask=key_padding_mask, need_weights=False)[0]
        return y


class NoMixing(nn.Module):
    """The control without a graph: values and output projection, token by token, ``(*batch, n, embed_dim)``."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.value = nn.Linear(embed_dim, embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(
        self, x: Tensor, *, key_padding_mask: Tensor | None = None, graph_features: Tensor | None = None
    ) -> Tensor:
        """Return the projected tokens."""
        y: Tensor = self.out(self.value(x))
        return y


class PairEmbedding(nn.Module):
    """Learned embeddings of token, position and segment, added and normalised.

    Parameters
    ----------
    vocab_size
        Tokens, padding included.
    embed_dim
        Width.
    max_tokens
        Longest sequence.
    segments
        Parts of a sequence: 2 for pairs.
    dropout
        After the layer norm.
    """

    def __init__(
        self, vocab_size: int, embed_dim: int, *, max_tokens: int, segments: int = 2, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.max_tokens = _checks.count(max_tokens, "max_tokens")
        self.token = nn.Embedding(vocab_size, embed_dim)
        self.position = nn.Embedding(max_tokens, embed_dim)
        self.segment = nn.Embedding(segments, embed_dim)
        self.norm = nn.LayerNorm(embed_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embedded tokens and the embedding of the tokens alone, both ``(batch, n, embed_dim)``."""
        n = tokens.shape[-1]
        if n > self.max_tokens:
            raise InputError(f"a sequence must have at most {self.max_tokens} tokens, got {n}: cut it, or raise it.")
        alone = self.token(tokens)
        position = self.position(torch.arange(n, device=tokens.device))
        return self.dropout(self.norm(alone + position + self.segment(segments))), alone


class PairClassifier(nn.Module):
    """Embeddings, transformer blocks, pooling, a linear classifier.

    Parameters
    ----------
    vocab_size
        Tokens, padding included.
    mixings
        One mixing module a block.
    embed_dim, ffn_dim
        Widths; ``ffn_dim`` None: four times the former.
    max_tokens
        Longest sequence.
    num_classes
        Columns of the output.
    dropout
        In embeddings and blocks.
    token_graph
        Whether graphs are learned from the token embeddings alone, so that equal tokens of the two parts are at
        distance 0, or from what enters the block.
    pool
        "mean" over the real tokens, or the "first" token.

    Shapes
    ------
    ``tokens``, ``segments``, ``padding`` ``(batch, n)`` to logits ``(batch, num_classes)``.

    Examples
    --------
    >>> model = PairClassifier(30, [NoMixing(8)], embed_dim=8, max_tokens=6)
    >>> tokens = torch.tensor([[1, 5, 2, 5, 2, 0]])
    >>> model(tokens, (tokens == 2).cumsum(-1).clamp(max=1), tokens == 0).shape
    torch.Size([1, 2])
    """

    def __init__(
        self,
        vocab_size: int,
        mixings: Sequence[nn.Module],
        *,
        embed_dim: int = 128,
        ffn_dim: int | None = None,
        max_tokens: int = 64,
        num_classes: int = 2,
        dropout: float = 0.1,
        token_graph: bool = True,
        pool: str = "mean",
    ) -> None:
        super().__init__()
        if not mixings:
            raise InputError("there must be at least one block, got no mixing module.")
        self.token_graph = token_graph
        self.pool = _checks.choice(pool, POOLS, "pool")
        self.embedding = PairEmbedding(vocab_size, embed_dim, max_tokens=max_tokens, dropout=dropout)
        ffn_dim = 4 * embed_dim if ffn_dim is None else ffn_dim
        self.blocks = nn.ModuleList(TransformerBlock(mix, embed_dim, ffn_dim, dropout=dropout) for mix in mixings)
        self.classify = nn.Linear(embed_dim, num_classes)

    def forward(self, tokens: Tensor, segments: Tensor, padding: Tensor) -> Tensor:
        """Return the logits; ``padding`` is True where there is no token."""
        x, alone = self.embedding(tokens, segments)
        features = alone if self.token_graph else None
        for block in self.blocks:
            x = block(x, key_padding_mask=padding, graph_features=features)
        if self.pool == "first":
            pooled = x[:, 0]
        else:
            real = (~padding).to(x.dtype)[..., None]
            pooled = (x * real).sum(1) / real.sum(1).clamp(min=1)
        y: Tensor = self.classify(pooled)
        return y


def parameter_count(module: nn.Module) -> int:
    """Return the number of trained numbers.

    >>> parameter_count(nn.Linear(3, 2))
    8
    """
    return sum(p.numel() for p in module.parameters() if p.requires_grad)
