"""The tasks: token pairs to fit, to choose and to report on, for each data set and seed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from krylow._checks import InputError
from krylow.training import generator
from krylow_lab.table2.plan import MAX_TOKENS, VALIDATION
from krylow_lab.text.glue import NAMES, glue
from krylow_lab.text.pairs import Pairs, token_pairs
from krylow_lab.text.tokens import cached_wordpiece, encode_pairs

#: Pairs of the synthetic task, to train and to report on.
SYNTHETIC_SIZES = (3072, 1024)


@dataclass(frozen=True)
class Corpus:
    """A data set as tokens, before it is split by a seed."""

    train: Pairs
    dev: Pairs  # reported on, never chosen on
    max_tokens: int
    source: str  # what was read, in words
    tokenizer: Path | None  # the vocabulary's file; None for the synthetic task

    def split(self, seed: int) -> tuple[Pairs, Pairs]:
        """Return what a seed fits on and what it chooses on, both parts of the training split."""
        order = torch.randperm(len(self.train), generator=generator(seed, "split"))
        held = round(VALIDATION * len(order))
        return self.train[order[held:]], self.train[order[:held]]


@functools.lru_cache(maxsize=4)
def _load(name: str, folder: Path, options: tuple[tuple[str, Any], ...]) -> Corpus:
    asked = dict(options)
    if name == "synthetic":
        return _synthetic(**asked)
    if name not in NAMES:
        raise InputError(f"data must be one of {', '.join(map(repr, (*NAMES, 'synthetic')))}, got {name!r}.")
    limit = asked.pop("limit", None)
    if asked:
        raise InputError(f"{name} has no options but 'limit', got {sorted(asked)}.")
    train, dev = glue(name, "train"), glue(name, "dev")
    source = f"{train.source}; {dev.source}"
    # From the training split alone, whatever part of it a seed fits on: no label is looked at.
    path = folder / f"tokenizer-{name}.json"
    tokenizer = cached_wordpiece(path, [*train.first, *train.second])
    if limit:
        train, dev = train.take(range(limit)), dev.take(range(min(limit, len(dev))))
        source = f"the first {len(train)} and {len(dev)} rows of {source}"
    fitted, reported = (encode_pairs(tokenizer, part, MAX_TOKENS) for part in (train, dev))
    return Corpus(fitted, reported, MAX_TOKENS, source, path)


def load_corpus(data: dict[str, Any], folder: str | Path) -> Corpus:
    """Return the corpus of a cell's ``data``; a vocabulary is kept in the run's folder.

    That is ``{"name": ...}`` with options: ``limit`` (rows of each split) for "mrpc" and "qnli"; ``lengths``,
    ``changed`` and ``words`` for "synthetic".
    """
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items() if key != "name"}
    return _load(data["name"], Path(folder), tuple(sorted(options.items())))


def _synthetic(lengths: tuple[int, int] = (6, 12), changed: float = 0.25, words: int = 64) -> Corpus:
    train, dev = (
        token_pairs(count, words=words, lengths=lengths, changed=changed, generator=generator(0, split))
        for split, count in zip(("train", "dev"), SYNTHETIC_SIZES, strict=True)
    )
    source = f"synthetic pairs of {lengths[0]} to {lengths[1]} of {words} words, {changed:.0%} of a copy's changed"
    sizes = f"{len(train):,} to train, {len(dev):,} to report on"
    return Corpus(train, dev, 2 * lengths[1] + 3, f"{source}; {sizes}", None)
