"""A synthetic task on pairs of token sequences: whether one is a shuffled, partly changed copy of the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError

#: Tokens with a meaning of their own; words follow.
PADDING, START, SEPARATOR, WORDS = 0, 1, 2, 3


@dataclass(frozen=True)
class Pairs:
    """Pairs of sequences, each written as ``start, first part, separator, second part, separator, padding``.

    Attributes
    ----------
    tokens, segments
        ``(pairs, n)`` integers; segments are 0 up to the first separator and 1 after it.
    padding
        ``(pairs, n)`` booleans, True where there is no token.
    labels
        ``(pairs,)`` integers, 1 where the parts belong together.
    vocab_size
        Number of tokens, the special ones included.
    """

    tokens: Tensor
    segments: Tensor
    padding: Tensor
    labels: Tensor
    vocab_size: int

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, which: slice | Tensor) -> Pairs:
        """Return some of the pairs."""
        tokens, segments, padding, labels = (t[which] for t in (self.tokens, self.segments, self.padding, self.labels))
        return Pairs(tokens, segments, padding, labels, self.vocab_size)

    def batches(self, size: int, *, generator: torch.Generator | None = None) -> Iterator[Pairs]:
        """Yield batches of at most ``size`` pairs without columns of padding only, shuffled where given a generator."""
        count = len(self)
        order = torch.arange(count) if generator is None else torch.randperm(count, generator=generator)
        for some in order.split(size):
            batch = self[some]
            n = int((~batch.padding).sum(-1).max())
            yield Pairs(
                batch.tokens[:, :n], batch.segments[:, :n], batch.padding[:, :n], batch.labels, batch.vocab_size
            )


def token_pairs(
    num_pairs: int = 512,
    *,
    words: int = 64,
    lengths: tuple[int, int] = (6, 12),
    changed: float = 0.25,
    generator: torch.Generator | None = None,
) -> Pairs:
    """Draw pairs of sequences, every other one of which belongs together.

    The first part is a draw of different words. In a pair that belongs together (label 1) the second part is the first
    one in another order, with a share of its words replaced by words of neither; in one that does not (label 0) it is
    made in the same way from a fresh draw of words. So each part alone has the same distribution under both labels:
    only a comparison of the two parts distinguishes them.

    ``words`` is the size of the vocabulary without special tokens, more than twice the longest part; ``lengths`` the
    least and most words in a part; ``changed`` the share of replaced words, rounded down. Without a generator the seed
    is 0.

    >>> pairs = token_pairs(2, words=12, lengths=(3, 3), changed=0)
    >>> pairs.tokens
    tensor([[ 1,  6,  5,  4,  2, 13,  9,  3,  2],
            [ 1,  4, 14,  3,  2,  3,  4, 14,  2]])
    >>> pairs.labels
    tensor([0, 1])
    """
    num_pairs = _checks.count(num_pairs, "num_pairs")
    low, high = _checks.count(lengths[0], "lengths[0]"), _checks.count(lengths[1], "lengths[1]", lengths[0])
    words = _checks.count(words, "words", 2 * high + 1, hint=" (more than twice the longest part)")
    if not 0 <= changed < 1:
        raise InputError(f"changed must be at least 0 and below 1, got {changed!r}.")
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    tokens = torch.full((num_pairs, 2 * high + 3), PADDING)
    segments = torch.zeros_like(tokens)
    labels = torch.arange(num_pairs) % 2
    for i in range(num_pairs):
        length = int(torch.randint(low, high + 1, (), generator=generator))
        first = torch.randperm(words, generator=generator)
        source = first if labels[i] else torch.randperm(words, generator=generator)
        second = source[:length].clone()
        swaps = int(changed * length)
        second[:swaps] = source[length : length + swaps]  # of a random order: words that are new to the source
        second = second[torch.randperm(length, generator=generator)]
        line = [torch.tensor([START]), first[:length] + WORDS, torch.tensor([SEPARATOR])]
        line += [second + WORDS, torch.tensor([SEPARATOR])]
        tokens[i, : 2 * length + 3] = torch.cat(line)
        segments[i, length + 2 : 2 * length + 3] = 1
    return Pairs(tokens, segments, tokens == PADDING, labels, words + WORDS)
