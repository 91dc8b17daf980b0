"""The pair task: reproducible, balanced, and decided by the comparison of the two parts alone."""

import pytest
import torch

from krylow import InputError
from krylow_lab.text.pairs import PADDING, SEPARATOR, START, WORDS, token_pairs


def parts(pairs, i):
    """The words of both parts, read back from one line of tokens."""
    line = pairs.tokens[i][~pairs.padding[i]].tolist()
    middle = line.index(SEPARATOR)
    assert line[0] == START
    assert line[-1] == SEPARATOR
    return line[1:middle], line[middle + 1 : -1]


def test_pairs_that_belong_together_share_all_but_the_changed_words():
    pairs = token_pairs(200, words=40, lengths=(4, 9), changed=0.3)
    reordered = 0
    for i in range(200):
        first, second = parts(pairs, i)
        assert len(first) == len(second) == len(set(first)) == len(set(second))
        assert min(first + second) >= WORDS
        assert max(first + second) < pairs.vocab_size
        if pairs.labels[i]:
            assert len(set(first) & set(second)) == len(first) - int(0.3 * len(first))
            reordered += first != second
    assert reordered > 90


def test_the_second_part_is_in_an_order_of_its_own():
    pairs = token_pairs(100, lengths=(6, 6), changed=0)
    together = [parts(pairs, i) for i in range(1, 100, 2)]
    assert all(sorted(first) == sorted(second) for first, second in together)
    assert sum(first[0] == second[0] for first, second in together) < 25  # 50 / 6 by chance


def test_labels_are_balanced_and_overlap_decides():
    pairs = token_pairs(400)
    assert int(pairs.labels.sum()) == 200
    share = [len(set(a) & set(b)) / len(a) for a, b in (parts(pairs, i) for i in range(400))]
    guess = torch.tensor([s > 0.5 for s in share]).long()
    assert (guess == pairs.labels).double().mean() > 0.99


def test_neither_part_alone_tells_the_label():
    pairs = token_pairs(4000, words=30, lengths=(5, 5))
    counts = torch.zeros(2, 2, pairs.vocab_size)  # part, label, word
    for i in range(4000):
        for part, words in enumerate(parts(pairs, i)):
            counts[part, pairs.labels[i], torch.tensor(words)] += 1
    frequency = counts[:, :, WORDS:] / 2000  # each of mean 1/6, standard deviation .0083
    assert (frequency - 1 / 6).abs().max() < 5 * 0.0083


def test_the_same_seed_gives_the_same_pairs_and_another_does_not():
    a, b = token_pairs(8), token_pairs(8, generator=torch.Generator().manual_seed(0))
    c = token_pairs(8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(a.tokens, b.tokens)
    assert not torch.equal(a.tokens, c.tokens)


def test_segments_and_padding_follow_the_tokens():
    pairs = token_pairs(20, lengths=(3, 6))
    assert torch.equal(pairs.padding, pairs.tokens == PADDING)
    before = (pairs.tokens == SEPARATOR).cumsum(-1) - (pairs.tokens == SEPARATOR).long()
    assert torch.equal(pairs.segments, ((before == 1) & ~pairs.padding).long())


def test_batches_hold_every_pair_once_and_no_column_of_padding():
    pairs = token_pairs(21, lengths=(3, 9))
    batches = list(pairs.batches(5, generator=torch.Generator().manual_seed(0)))
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 1]
    assert all(not batch.padding[:, -1].all() for batch in batches)
    lines = sorted(tuple(line[line != PADDING].tolist()) for batch in batches for line in batch.tokens)
    assert lines == sorted(tuple(line[line != PADDING].tolist()) for line in pairs.tokens)
    assert lines != [tuple(line[line != PADDING].tolist()) for batch in batches for line in batch.tokens]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": 20}, "words must be at least 25"),
        ({"lengths": (6, 5)}, "must be at least 6"),
        ({"changed": 1.0}, "below 1"),
        ({"num_pairs": 0}, "at least 1"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        token_pairs(**options)
