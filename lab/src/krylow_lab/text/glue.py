"""GLUE's pairs of sentences, MRPC and QNLI: from a local folder, or through the ``datasets`` package.

Looked for in ``$KRYLOW_DATA/MRPC`` and ``$KRYLOW_DATA/QNLI`` (see :mod:`krylow.data.tudataset`), as the files GLUE
itself ships: ``train.tsv`` and ``dev.tsv``, without quoting. The test splits have no public labels and are not read.
Where the official training file of QNLI is missing, ``train_rebuilt.tsv`` may replace it, and :attr:`TextPairs.source`,
which is shown with every number, says so.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from krylow import _checks
from krylow._checks import InputError
from krylow.data.tudataset import VARIABLE, DataNotFoundError, cache_folder, data_folder
from krylow_lab._extras import install_line

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
    with open(path, encoding="utf-8-sig", newline="") as file:
        lines = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
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
    expected = layout.rows[path.name]
    if len(labels) != expected:
        raise InputError(f"{path} must have {expected} rows, got {len(labels)}: fetch a whole copy.")
    return TextPairs(tuple(first), tuple(second), tuple(labels), _source(layout, path.name))


def _source(layout: _Layout, file: str) -> str:
    what = "rebuilt train" if file == "train_rebuilt.tsv" else f"official {file.removesuffix('.tsv')}"
    return f"{layout.folder} {what}, {layout.rows[file]:,} rows"


def _fetch(name: str, split: str, layout: _Layout) -> TextPairs:
    """Load a split through the ``datasets`` package, which keeps it in a cache of its own."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise _missing(layout, split, f"fetching it needs datasets: {install_line()}") from error
    try:
        table = load_dataset("nyu-mll/glue", name, split={"train": "train", "dev": "validation"}[split])
    except Exception as error:  # whatever the network or the server did, the way out is the same
        raise _missing(layout, split, f"the download failed ({type(error).__name__})") from error
    sentences = ("sentence1", "sentence2") if name == "mrpc" else ("question", "sentence")
    first, second = (tuple(table[column]) for column in sentences)
    # There "equivalent" is 1, but "entailment" is 0.
    labels = tuple(int(label) if name == "mrpc" else 1 - int(label) for label in table["label"])
    return TextPairs(first, second, labels, _source(layout, layout.files[split][0]))


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
