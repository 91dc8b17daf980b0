"""The rows without a network: always the more frequent answer, and logistic regression on counts of shared tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from krylow_lab.table2.corpus import Corpus
from krylow_lab.table2.train import scores
from krylow_lab.text.pairs import WORDS, Pairs


def counted(row: str, corpus: Corpus, seed: int) -> dict[str, Any]:
    """Return what "majority" or "overlap" answers on dev after seeing what a seed fits on, scored."""
    fit, validation = corpus.split(seed)
    answer = _majority if row == "majority" else _overlap
    found = answer(fit, corpus.dev)
    right = (answer(fit, validation) == validation.labels).double().mean()
    return {
        **scores(found, corpus.dev.labels),
        "validation": float(right),
        "dev_predictions": "".join(map(str, found.tolist())),
        "parameters": 0 if row == "majority" else overlap_counts(corpus.dev[:1]).shape[1] + 1,
    }


def _majority(fit: Pairs, asked: Pairs) -> Tensor:
    frequent = int(fit.labels.double().mean() >= 0.5)
    return torch.full((len(asked),), frequent)


def _overlap(fit: Pairs, asked: Pairs) -> Tensor:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(overlap_counts(fit).numpy(), fit.labels.numpy())
    return torch.from_numpy(model.predict(overlap_counts(asked).numpy()))


def overlap_counts(pairs: Pairs) -> Tensor:
    """Return five numbers a pair, ``(pairs, 5)``.

    Different tokens of the first part, of the second, of both, and the last as a share of each. Special tokens do not
    count.

    Three words and two, of which one is shared:

    >>> tokens = torch.tensor([[1, 5, 6, 7, 2, 7, 9, 2]])
    >>> segments = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1]])
    >>> overlap_counts(Pairs(tokens, segments, tokens == 0, torch.tensor([1]), 10))
    tensor([[3.0000, 2.0000, 1.0000, 0.3333, 0.5000]])
    """
    lines = []
    for tokens, segments in zip(pairs.tokens, pairs.segments, strict=True):
        word = tokens >= WORDS
        first = set(tokens[word & (segments == 0)].tolist())
        second = set(tokens[word & (segments == 1)].tolist())
        both = len(first & second)
        lines.append([len(first), len(second), both, both / max(len(first), 1), both / max(len(second), 1)])
    return torch.tensor(lines)
