import builtins

import pytest

from krylow._checks import InputError
from krylow.data import DataNotFoundError
from krylow_lab.text import glue as module
from krylow_lab.text.glue import find_glue, glue

MRPC = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KRYLOW_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def small(monkeypatch):
    """Let whole copies have two rows."""
    for layout in module._LAYOUTS.values():
        for name in layout.rows:
            monkeypatch.setitem(layout.rows, name, 2)


def put(path, lines, mark=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(mark + "\n".join("\t".join(line) for line in lines) + "\n", encoding="utf-8")


def test_quotation_marks_are_letters_and_a_byte_order_mark_is_none(folder, small):
    lines = [["1", "1", "2", 'He said " yes .', "Yes"], ["0", "3", "4", "a", '" b " c']]
    put(folder / "MRPC" / "dev.tsv", [MRPC, *lines], mark="\ufeff")
    pairs = glue("mrpc", "dev")
    assert pairs.first == ('He said " yes .', "a")
    assert pairs.second == ("Yes", '" b " c')
    assert pairs.labels == (1, 0)
    assert pairs.take([1]).labels == (0,)


def test_entailment_is_the_positive_answer_and_a_rebuilt_split_says_so(folder, small):
    lines = [["0", "who?", "me", "entailment"], ["1", "when?", "here", "not_entailment"]]
    put(folder / "QNLI" / "train_rebuilt.tsv", [["index", "question", "sentence", "label"], *lines])
    pairs = glue("qnli", "train")
    assert pairs.labels == (1, 0)
    assert "rebuilt train" in pairs.source
    put(folder / "QNLI" / "train.tsv", [["index", "question", "sentence", "label"], *lines])
    assert "official train" in glue("qnli", "train").source  # the official one first


def test_damaged_copies_are_refused(folder, small):
    path = folder / "MRPC" / "train.tsv"
    put(path, [MRPC, ["1", "1", "2", "a", "b"]])
    with pytest.raises(InputError, match="must have 2 rows, got 1"):
        glue("mrpc", "train")
    put(path, [MRPC, ["1", "1", "2", "a", "b"], ["yes", "1", "2", "a", "b"]])
    with pytest.raises(InputError, match=r"line 3: the label must be one of .* got 'yes'"):
        glue("mrpc", "train")
    put(path, [MRPC, ["1", "1", "2", "a"], ["1", "1", "2", "a", "b"]])
    with pytest.raises(InputError, match="line 2"):
        glue("mrpc", "train")
    put(path, [["a", "b"], ["1", "1"]])
    with pytest.raises(InputError, match="must have the columns"):
        glue("mrpc", "train")


def test_missing_files_are_named_with_their_folder(folder, monkeypatch):
    assert find_glue("mrpc", "train") is None
    with pytest.raises(DataNotFoundError, match=r"train.tsv or train_rebuilt.tsv in .*QNLI \(KRYLOW_DATA is set\)"):
        glue("qnli", "train", download=False)
    real = builtins.__import__

    def offline(name, *args, **kwargs):
        if name == "datasets":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", offline)
    with pytest.raises(DataNotFoundError, match=r"pip install '\./lab'"):
        glue("mrpc", "dev")


def test_a_failed_download_says_where_to_put_the_files(folder, monkeypatch):
    datasets = pytest.importorskip("datasets")

    def fail(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(DataNotFoundError, match=r"the download failed \(ConnectionError\).*dev.tsv in .*MRPC"):
        glue("mrpc", "dev")


def test_what_is_fetched_has_the_same_labels(folder, monkeypatch):
    datasets = pytest.importorskip("datasets")
    table = {"question": ["who?"], "sentence": ["me"], "label": [0]}  # there 0 is entailment
    monkeypatch.setattr(datasets, "load_dataset", lambda path, name, split: table if split == "validation" else None)
    assert glue("qnli", "dev").labels == (1,)


def test_names_and_splits_are_checked(folder):
    with pytest.raises(InputError, match="name must be one of 'mrpc', 'qnli'"):
        glue("sst2", "dev")
    with pytest.raises(InputError, match="split must be one of"):
        glue("mrpc", "test")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "split", "rows", "positive"),
    [("mrpc", "train", 3668, 2474), ("mrpc", "dev", 408, 279), ("qnli", "dev", 5463, 2702)],
)
def test_the_real_splits_have_all_their_rows(name, split, rows, positive):
    if find_glue(name, split) is None:
        pytest.skip(f"KRYLOW_DATA does not name a folder with {name.upper()}/{split}.tsv")
    pairs = glue(name, split)
    assert len(pairs) == rows
    assert sum(pairs.labels) == positive
    # Counted without this reader: one line a row and a header, none of them joined by a quotation mark.
    text = find_glue(name, split).read_bytes().decode("utf-8-sig")
    assert len(text.rstrip("\n").split("\n")) == rows + 1


@pytest.mark.data
def test_no_question_of_qnlis_dev_is_in_the_rebuilt_train():
    path = find_glue("qnli", "train")
    if path is None or path.name != "train_rebuilt.tsv":
        pytest.skip("KRYLOW_DATA does not name a folder with QNLI/train_rebuilt.tsv and without the official one")
    train, dev = glue("qnli", "train"), glue("qnli", "dev")
    assert len(train) == 25548
    assert sum(train.labels) == 12988
    assert not set(train.first) & set(dev.first)
    assert train.source == "QNLI rebuilt train, 25,548 rows"
