"""Sparse matrices in PETSc's binary form, read by rows: any number of processes read one file, each its own part.

The file is a header of four integers (a mark, rows, columns, entries), the number of entries of each row, the columns
row by row, and the values, all big-endian; integers of 32 bits, as PETSc has them unless it is built otherwise.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from krylow._checks import InputError
from krylow.io.atomic import whole_file

MARK = 1211216
INTEGER, NUMBER = np.dtype(">i4"), np.dtype(">f8")
#: Integers that are read at a time where only their sum counts.
PIECE = 1 << 22
_HEAD = 4 * INTEGER.itemsize


@dataclass(frozen=True)
class Header:
    """What a file says of itself, and what tells it from another one."""

    rows: int
    entries: int
    check: int  #: of its first and last bytes

    @property
    def size(self) -> int:
        """The bytes that the file must have."""
        return _HEAD + INTEGER.itemsize * (self.rows + self.entries) + NUMBER.itemsize * self.entries


def header(path: str | os.PathLike[str]) -> Header:
    """Return a file's header; refuse what is no symmetric matrix of PETSc's, or a part of one."""
    name, size = Path(path).name, os.path.getsize(path)
    with open(path, "rb") as file:
        start = file.read(_HEAD)
        sample = start + file.read(1 << 20)
        file.seek(max(0, size - (1 << 20)))
        check = zlib.crc32(file.read(), zlib.crc32(sample))
    if len(start) < _HEAD or int(np.frombuffer(start, INTEGER)[0]) != MARK:
        raise InputError(f"{name} must be a matrix in PETSc's binary form: krylow shard writes one from edges.")
    _, rows, columns, entries = (int(part) for part in np.frombuffer(start, INTEGER))
    if rows != columns or entries < 0:
        raise InputError(f"{name} must hold a square sparse matrix, got {rows} rows and {columns} columns.")
    found = Header(rows, entries, check)
    if size != found.size:
        raise InputError(
            f"{name} is truncated or damaged: {rows} rows and {entries} entries take {found.size} bytes, it has "
            f"{size}: write it again."
        )
    return found


def write_matrix(path: str | os.PathLike[str], W: Any) -> Path:
    """Write a symmetric scipy matrix in compressed rows, which memory holds, to a file."""
    head = np.array([MARK, *W.shape, W.nnz], dtype=INTEGER)
    parts = head, np.diff(W.indptr).astype(INTEGER), W.indices.astype(INTEGER), W.data.astype(NUMBER)
    with whole_file(path) as file:
        file.writelines(part.tobytes() for part in parts)
    return Path(path)


def read_rows(path: str | os.PathLike[str], part: int, parts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return row pointers, columns and values of one of ``parts`` parts of the rows with about as many entries each."""
    head = header(path)
    with open(path, "rb") as file:
        starts = _starts(file, head, [head.entries * p // parts for p in range(1, parts)])
        (first, before), (last, after) = [(0, 0), *starts, (head.rows, head.entries)][part : part + 2]
        file.seek(_HEAD + INTEGER.itemsize * first)
        counts = _native_order(np.fromfile(file, INTEGER, last - first))
        file.seek(_HEAD + INTEGER.itemsize * (head.rows + before))
        columns = _native_order(np.fromfile(file, INTEGER, after - before))
        file.seek(_HEAD + INTEGER.itemsize * (head.rows + head.entries) + NUMBER.itemsize * before)
        values = _native_order(np.fromfile(file, NUMBER, after - before))
    crow = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    if crow[-1] != after - before or bool((counts < 0).any()):
        raise InputError(f"{Path(path).name} is damaged: its rows do not have the entries that it says.")
    return crow, columns, values


def _native_order(x: np.ndarray) -> np.ndarray:
    """Return numbers as this machine holds them, in the same memory."""
    return x if x.dtype.isnative else x.byteswap(inplace=True).view(x.dtype.newbyteorder("="))


def _starts(file: object, head: Header, ends: list[int]) -> list[tuple[int, int]]:
    """Return the first row from which on there are at least so many entries before, and their number, for each end."""
    found: list[tuple[int, int]] = []
    before, row = 0, 0
    for counts in _counts(file, head.rows):
        sums = before + np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        while len(found) < len(ends) and ends[len(found)] < sums[-1]:
            place = int(np.searchsorted(sums, ends[len(found)]))
            found.append((row + place, int(sums[place])))
        before, row = int(sums[-1]), row + counts.size
    return found + [(head.rows, before)] * (len(ends) - len(found))


def _counts(file: object, rows: int) -> Iterator[np.ndarray]:
    file.seek(_HEAD)  # type: ignore[attr-defined]
    for first in range(0, rows, PIECE):
        yield np.fromfile(file, INTEGER, min(PIECE, rows - first))  # type: ignore[call-overload]
