import pytest
import torch

from krylow._checks import InputError
from krylow_lab.text.glue import TextPairs
from krylow_lab.text.pairs import PADDING, SEPARATOR, START
from krylow_lab.text.tokens import cached_wordpiece, encode_pairs, glove_embedding, has_glove, train_wordpiece

pytest.importorskip("tokenizers")
SENTENCES = ["The graph is smooth .", "A smooth graph , a low frequency ."]
PAIRS = TextPairs(("The smooth graph", "a . a . a . a ."), ("low", "the , the , the , the ,"), (1, 0), "two pairs")


def test_a_vocabulary_is_kept_and_found_again(tmp_path):
    path = tmp_path / "run" / "tokenizer.json"
    first = cached_wordpiece(path, SENTENCES, 200)
    again = cached_wordpiece(path, ["something else entirely"], 200)  # found, not learned
    assert first.get_vocab() == again.get_vocab() == train_wordpiece(SENTENCES, 200).get_vocab()
    assert "smooth" in first.get_vocab()
    path.write_text("{}")
    with pytest.raises(InputError, match="remove it and run again"):
        cached_wordpiece(path, SENTENCES)


def test_pairs_are_written_as_start_parts_and_separators():
    tokenizer = train_wordpiece(SENTENCES, 200)
    pairs = encode_pairs(tokenizer, PAIRS, 64)
    line = pairs.tokens[0][~pairs.padding[0]].tolist()
    assert (line[0], line[-1], line.count(SEPARATOR)) == (START, SEPARATOR, 2)
    cut = line.index(SEPARATOR)
    assert tokenizer.decode(line[1:cut]) == "the smooth graph"
    assert tokenizer.decode(line[cut + 1 : -1]) == "low"
    assert pairs.segments[0, : len(line)].tolist() == [0] * (cut + 1) + [1] * (len(line) - cut - 1)
    assert bool((pairs.tokens[pairs.padding] == PADDING).all())
    assert pairs.labels.tolist() == [1, 0]
    assert pairs.vocab_size == tokenizer.get_vocab_size()


@pytest.mark.parametrize("size", [5, 8, 11])
def test_long_pairs_are_cut_in_their_longer_part(size):
    pairs = encode_pairs(train_wordpiece(SENTENCES, 200), PAIRS, size)
    lengths = (~pairs.padding).sum(-1)
    assert lengths.tolist() == [min(size, 7), size]
    assert int(pairs.segments[0].sum()) == 2  # "low" and its separator, however short the room
    assert abs(2 * int(pairs.segments[1].sum()) - 1 - (size - 1)) <= 2  # two long parts share it


@pytest.mark.skipif(not has_glove(), reason="the package of GloVe's vectors is not installed")
def test_word_vectors_keep_their_angles_and_the_size_of_the_other_rows():
    tokenizer = train_wordpiece(["king queen cabbage xqzzt"] * 3, 200)
    rows = glove_embedding(tokenizer, 64, generator=torch.Generator().manual_seed(0))
    assert rows.shape == (tokenizer.get_vocab_size(), 64)
    king, queen, cabbage = (rows[tokenizer.token_to_id(word)] for word in ("king", "queen", "cabbage"))
    alike = torch.nn.functional.cosine_similarity
    assert alike(king, queen, dim=0) > alike(king, cabbage, dim=0)
    assert 0.8 < float(rows.square().mean()) < 1.2
    with pytest.raises(InputError, match="at least 50"):
        glove_embedding(tokenizer, 32, generator=torch.Generator().manual_seed(0))
