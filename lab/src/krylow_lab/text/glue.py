"""GLUE's pairs of sentences, MRPC and QNLI: from a local folder, or downloaded and checked by their sha256.

Looked for in ``$KRYLOW_DATA/MRPC`` and ``$KRYLOW_DATA/QNLI`` (see :mod:`krylow.data.tudataset`), as the files GLUE
itself ships: ``train.tsv`` and ``dev.tsv``, without quoting. The test splits have no public labels and are not read.
What is downloaded goes to the cache in the same form. Where the official training file of QNLI is missing,
``train_rebuilt.tsv`` may replace it, and :attr:`TextPairs.source`, which is shown with every number, says so.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import urllib.request
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from krylow import _checks
from krylow._checks import InputError
from krylow.data.tudataset import VARIABLE, DataNotFoundError, cache_folder, data_folder
from krylow.io.atomic import write_whole
from krylow.io.files import decode, read_bytes

SPLITS = ("train", "dev")


@dataclass(frozen=True)
class TextPairs:
    """Labelled pairs of sentences."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    labels: tuple[int, ...]  # 1 for a paraphrase (MRPC) or an answered question (QNLI, "entailment"), 0 for none
    source: str  # what was read, in words, shown with every number made from it

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, which: Sequence[int]) -> TextPairs:
        """Return some of the pairs, by their numbers."""
        first, second = (tuple(part[i] for i in which) for part in (self.first, self.second))
        return TextPairs(first, second, tuple(self.labels[i] for i in which), self.source)


@dataclass(frozen=True)
class _Layout:
    """How a data set's files are written, and what a whole copy holds."""

    folder: str
    columns: tuple[str, str, str]  # first sentence, second sentence, label
    labels: dict[str, int]
    files: dict[str, tuple[str, ...]]  # split -> names that are looked for, best first
    rows: dict[str, int]


_LAYOUTS = {
    "mrpc": _Layout(
        "MRPC",
        ("#1 String", "#2 String", "Quality"),
        {"1": 1, "0": 0},
        {"train": ("train.tsv",), "dev": ("dev.tsv",)},
        {"train.tsv": 3668, "dev.tsv": 408},
    ),
    "qnli": _Layout(
        "QNLI",
        ("question", "sentence", "label"),
        {"entailment": 1, "not_entailment": 0},
        {"train": ("train.tsv", "train_rebuilt.tsv"), "dev": ("dev.tsv",)},
        {"train.tsv": 104743, "train_rebuilt.tsv": 25548, "dev.tsv": 5463},
    ),
}
NAMES = tuple(_LAYOUTS)


def glue(name: str, split: str, *, download: bool = True) -> TextPairs:
    """Return the labelled pairs of "train" or "dev" of "mrpc" or "qnli", fetched where they are not local."""
    layout = _LAYOUTS[_checks.choice(name, NAMES, "name")]
    path = find_glue(name, split)
    if path is not None:
        return _read(path, layout)
    if not download:
        raise _missing(layout, split, "downloading was not allowed")
    return _fetch(name, split, layout)


def find_glue(name: str, split: str) -> Path | None:
    """Return the local file of a split, or None."""
    layout = _LAYOUTS[_checks.choice(name, NAMES, "name")]
    roots = [root for root in (data_folder(), cache_folder()) if root is not None]
    for file in layout.files[_checks.choice(split, SPLITS, "split")]:
        for root in roots:
            path = root / layout.folder / file
            if path.is_file():
                return path
    return None


def _read(path: Path, layout: _Layout) -> TextPairs:
    """Read a file, quoting off (a quotation mark is a letter there) and a byte order mark skipped."""
    first, second, labels = [], [], []
    lines = csv.DictReader(
        io.StringIO(decode(read_bytes(path), str(path)), newline=""), delimiter="\t", quoting=csv.QUOTE_NONE
    )
    try:
        if not set(layout.columns) <= set(lines.fieldnames or ()):
            raise InputError(f"{path} must have the columns {layout.columns}, got {lines.fieldnames}.")
        for number, line in enumerate(lines, 2):
            a, b, label = (line[column] for column in layout.columns)
            if None in (a, b) or label not in layout.labels:
                raise InputError(
                    f"{path}, line {number}: the label must be one of {list(layout.labels)}, got {label!r}: "
                    "the copy is damaged."
                )
            first.append(a)
            second.append(b)
            labels.append(layout.labels[label])
    except csv.Error as error:
        raise InputError(f"{path} must hold lines of text: {error}.") from None
    expected = layout.rows[path.name]
    if len(labels) != expected:
        raise InputError(f"{path} must have {expected} rows, got {len(labels)}: fetch a whole copy.")
    return TextPairs(tuple(first), tuple(second), tuple(labels), _source(layout, path.name))


def _source(layout: _Layout, file: str) -> str:
    what = "rebuilt train" if file == "train_rebuilt.tsv" else f"official {file.removesuffix('.tsv')}"
    return f"{layout.folder} {what}, {layout.rows[file]:,} rows"


#: What is downloaded, and the sha256 of each file: GLUE's own copies.
_GLUE, _SENTEVAL = "https://dl.fbaipublicfiles.com/glue/data/", "https://dl.fbaipublicfiles.com/senteval/senteval_data/"
DOWNLOADS = {
    "mrpc_dev_ids.tsv": (_GLUE, "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7"),
    "msr_paraphrase_train.txt": (_SENTEVAL, "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89"),
    "QNLIv2.zip": (_GLUE, "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5"),
}


def _fetch(name: str, split: str, layout: _Layout) -> TextPairs:
    """Download a data set into the cache, and read the split from there."""
    try:
        files = _mrpc() if name == "mrpc" else _qnli()
    except (OSError, zipfile.BadZipFile) as error:  # whatever the network or the server did, the way out is the same
        raise _missing(layout, split, f"the download failed ({type(error).__name__}: {error})") from error
    folder = cache_folder() / layout.folder
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        write_whole(folder / file, content)
    return _read(folder / layout.files[split][0], layout)


def _mrpc() -> dict[str, bytes]:
    """Return the training and the development file, divided as GLUE divides Microsoft's training file."""
    dev = {tuple(line.split("\t")) for line in _download("mrpc_dev_ids.tsv").decode().splitlines()}
    header, *rows = _download("msr_paraphrase_train.txt").decode("utf-8-sig").strip().splitlines()
    parts = {"train.tsv": [header], "dev.tsv": [header]}
    for row in rows:
        parts["dev.tsv" if tuple(row.split("\t")[1:3]) in dev else "train.tsv"].append(row)
    return {file: "".join(f"{line}\n" for line in lines).encode() for file, lines in parts.items()}


def _qnli() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(_download("QNLIv2.zip"))) as archive:
        return {file: archive.read(f"QNLI/{file}") for file in ("train.tsv", "dev.tsv")}


def _download(file: str) -> bytes:
    """Return a file from its address, if it is the one whose sha256 is known."""
    address, expected = DOWNLOADS[file]
    with urllib.request.urlopen(address + file, timeout=60) as answer:
        content: bytes = answer.read(1 << 26)
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise OSError(f"{file} must have the sha256 {expected}, got {found}")
    return content


def _missing(layout: _Layout, split: str, why: str) -> DataNotFoundError:
    root = data_folder()
    place = f"${VARIABLE}{os.sep}{layout.folder}" if root is None else str(root / layout.folder)
    now = "not set" if root is None else "set"
    return DataNotFoundError(
        f"GLUE's {layout.folder} ({split}) was not found, and {why}. Expected {' or '.join(layout.files[split])} in "
        f"{place} ({VARIABLE} is {now}) or in {cache_folder() / layout.folder}. On a machine with a network it is "
        f"fetched; elsewhere put GLUE's own {layout.folder} folder, with train.tsv and dev.tsv, into a folder of data "
        f"sets and set {VARIABLE} to that."
    )
