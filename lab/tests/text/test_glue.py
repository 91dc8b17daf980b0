import hashlib
import io
import zipfile

import pytest

from krylow._checks import InputError
from krylow.data import DataNotFoundError, cache_folder
from krylow_lab.text import glue as module
from krylow_lab.text.glue import find_glue, glue

MRPC = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("KRYLOW_DATA", str(data))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return data


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


def test_missing_files_are_named_with_their_folder(folder):
    assert find_glue("mrpc", "train") is None
    with pytest.raises(DataNotFoundError, match=r"train.tsv or train_rebuilt.tsv in .*QNLI \(KRYLOW_DATA is set\)"):
        glue("qnli", "train", download=False)


def serve(monkeypatch, files, sums=None):
    """Put files in place of what is on the network, with the sums of others if given."""
    for name in files:
        digest = hashlib.sha256((sums or files)[name]).hexdigest()
        monkeypatch.setitem(module.DOWNLOADS, name, ("https://example.org/", digest))
    monkeypatch.setattr(
        module.urllib.request, "urlopen", lambda url, timeout: io.BytesIO(files[url.rpartition("/")[2]])
    )


MICROSOFT = "\ufeff" + "\n".join(
    "\t".join(line) for line in (MRPC, ["1", "1", "2", 'a "', "b"], ["0", "3", "4", "c", "d"])
)


def test_mrpc_is_divided_as_glue_divides_it(folder, monkeypatch):
    for name in ("train.tsv", "dev.tsv"):
        monkeypatch.setitem(module._LAYOUTS["mrpc"].rows, name, 1)
    serve(monkeypatch, {"mrpc_dev_ids.tsv": b"3\t4\n", "msr_paraphrase_train.txt": MICROSOFT.encode()})
    assert glue("mrpc", "train").first == ('a "',)
    assert glue("mrpc", "dev").labels == (0,)
    monkeypatch.setattr(module.urllib.request, "urlopen", None)
    assert glue("mrpc", "dev").second == ("d",)  # from the cache


def test_the_labels_of_qnli_come_from_the_archive(folder, small, monkeypatch):
    text = "index\tquestion\tsentence\tlabel\n0\twho?\tme\tentailment\n1\twhy?\tso\tnot_entailment\n"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("QNLI/train.tsv", "QNLI/dev.tsv"):
            file.writestr(name, text)
    serve(monkeypatch, {"QNLIv2.zip": archive.getvalue()})
    assert glue("qnli", "dev").labels == (1, 0)


def test_a_download_with_another_sum_is_refused_and_leaves_nothing(folder, monkeypatch):
    serve(monkeypatch, {"QNLIv2.zip": b"something else"}, {"QNLIv2.zip": b"what was meant"})
    with pytest.raises(DataNotFoundError, match=r"QNLIv2\.zip must have the sha256"):
        glue("qnli", "dev")
    assert not cache_folder().exists()


def test_a_failed_download_says_where_to_put_the_files(folder, monkeypatch):
    def fail(url, timeout):
        raise ConnectionError("no network")

    monkeypatch.setattr(module.urllib.request, "urlopen", fail)
    with pytest.raises(DataNotFoundError, match=r"the download failed \(ConnectionError.*dev.tsv in .*MRPC"):
        glue("mrpc", "dev")


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


@pytest.mark.data
def test_the_real_mrpc_is_made_of_microsofts_files(tmp_path, monkeypatch):
    source = find_glue("mrpc", "train")
    if source is None or not (source.parent / "msr_paraphrase_train.txt").is_file():
        pytest.skip("KRYLOW_DATA does not name a folder with Microsoft's files in MRPC")
    own = {"mrpc_dev_ids.tsv": "dev_ids.tsv", "msr_paraphrase_train.txt": "msr_paraphrase_train.txt"}
    files = {name: (source.parent / file).read_bytes() for name, file in own.items()}
    monkeypatch.setattr(
        module.urllib.request, "urlopen", lambda url, timeout: io.BytesIO(files[url.rpartition("/")[2]])
    )
    assert module._mrpc()["train.tsv"] == source.read_bytes()
