"""From edges larger than memory to a file that ranks read by rows.

Edges are read piece by piece and put, in both directions, into buckets of neighbouring rows on the disk. Each bucket is
then sorted by itself, so that memory holds one piece or one bucket, whatever the graph's size.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from krylow._checks import InputError
from krylow.io.atomic import whole_file
from krylow.io.petsc import INTEGER, MARK, NUMBER

#: Rows of a bucket, bytes of text and rows of a table that are read at a time.
BUCKET, TEXT, TABLE = 1 << 18, 1 << 24, 1 << 20
_EDGE = np.dtype([("row", "<u4"), ("col", "<u4"), ("weight", "<f8")])
_MOST = 2**31 - 1
_TABLES, _TEXTS = (".parquet", ".pq"), (".csv", ".tsv", ".txt", ".edges", ".mtx")


def shard(
    edges: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    num_nodes: int | None = None,
    add_up: bool = False,
) -> tuple[int, int]:
    """Write the adjacency of a graph for :func:`krylow.distributed.load`; return its nodes and entries.

    Parameters
    ----------
    edges
        A table of Parquet (its first two columns, or src and dst, and the third or weight), numbers in text (.csv,
        .tsv, .txt: two ends and perhaps a weight a line), or a Matrix Market file. Nodes are whole numbers from 0, of
        Matrix Market from 1. An edge may be listed once or in both directions.
    out
        The file, which appears whole or not at all.
    num_nodes
        Where the last nodes have no edge.
    add_up
        Add up the weights of an edge that is listed several times, which else must be equal.

    Raises
    ------
    InputError
        Where a line is none of an edge, weights of one edge differ, or the graph is too large for the form.
    """
    source, target = Path(edges), Path(out)
    work = Path(tempfile.mkdtemp(prefix=".krylow-shard-", dir=target.parent))
    try:
        n, buckets = _spread(source, work, num_nodes)
        parts = [work / name for name in ("counts", "columns", "values")]
        entries = _sorted_rows(work, buckets, n, parts, add_up, source.name)
        if entries > _MOST:
            raise InputError(f"{source.name} must have fewer than 2^31 entries for this form, got {entries}.")
        head = np.array([MARK, n, n, entries], dtype=INTEGER).tobytes()
        with whole_file(target) as file:
            file.writelines(_content(head, parts))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return n, entries


def _content(head: bytes, parts: list[Path]) -> Iterator[bytes]:
    yield head
    for part in parts:
        with open(part, "rb") as file:
            while piece := file.read(TEXT):
                yield piece


def _spread(source: Path, work: Path, num_nodes: int | None) -> tuple[int, list[int]]:
    """Write the edges in both directions to files of buckets; return the number of nodes and the buckets."""
    n, buckets = num_nodes or _size(source), set()
    for row, col, weight, mirrored in _pieces(source):
        low, high = (int(f(np.concatenate([row, col]), initial=0)) for f in (np.min, np.max))
        if low < 0 or high >= _MOST:
            raise InputError(f"{source.name}: nodes must be whole numbers from 0 to 2^31 - 2, got {low} to {high}.")
        if not np.isfinite(weight).all():
            raise InputError(f"{source.name}: weights must be finite, got NaN or infinity.")
        if num_nodes is not None and row.size and high >= num_nodes:
            raise InputError(f"{source.name}: nodes must be below --nodes {num_nodes}, got {high}.")
        n = max(n, high + 1) if row.size else n
        loops = row == col
        both = np.empty(row.size if mirrored else 2 * row.size - int(loops.sum()), _EDGE)
        for name, one, other in (("row", row, col), ("col", col, row), ("weight", weight, weight)):
            both[name] = one if mirrored else np.concatenate([one, other[~loops]])
        bucket = both["row"] // BUCKET
        order = np.argsort(bucket, kind="stable")
        names, firsts = np.unique(bucket[order], return_index=True)
        for name, part in zip(names.tolist(), np.split(both[order], firsts[1:]), strict=True):
            with open(work / f"bucket{name}", "ab") as file:
                part.tofile(file)
            buckets.add(name)
    return n, sorted(buckets)


def _sorted_rows(work: Path, buckets: list[int], n: int, parts: list[Path], add_up: bool, name: str) -> int:
    """Write the numbers of entries, the columns and the values, sorted by rows; return how many entries there are."""
    total, present = 0, set(buckets)
    with open(parts[0], "wb") as counts, open(parts[1], "wb") as columns, open(parts[2], "wb") as values:
        for bucket in range(-(-n // BUCKET)):
            first, rows = bucket * BUCKET, min(BUCKET, n - bucket * BUCKET)
            found = np.empty(0, _EDGE)
            if bucket in present:
                found = np.fromfile(work / f"bucket{bucket}", _EDGE)
                (work / f"bucket{bucket}").unlink()
            row, col, weight = _merged(found, add_up, name)
            np.bincount(row - first, minlength=rows).astype(INTEGER).tofile(counts)
            col.astype(INTEGER).tofile(columns)
            weight.astype(NUMBER).tofile(values)
            total += row.size
    return total


def _merged(found: np.ndarray, add_up: bool, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the entries in the order of rows and columns, each once."""
    place = found["row"].astype(np.uint64) << np.uint64(32) | found["col"]
    order = np.argsort(place, kind="stable")
    place, weight = place[order], found["weight"][order]
    new = np.concatenate([[True], place[1:] != place[:-1]])[: place.size]
    firsts = np.flatnonzero(new)
    if add_up and firsts.size:
        weight = np.add.reduceat(weight, firsts)
    elif firsts.size < place.size:
        same = weight == weight[firsts][np.cumsum(new) - 1]
        if not same.all():
            i, j = divmod(int(place[np.argmin(same)]), 2**32)
            raise InputError(f"{name}: edge {i}, {j} is listed with several weights: pass --add-up to add them up.")
        weight = weight[firsts]
    place = place[firsts]
    return (place >> np.uint64(32)).astype(np.int64), (place & np.uint64(2**32 - 1)).astype(np.int64), weight


def _pieces(source: Path) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, bool]]:
    """Yield first nodes, second nodes, weights, and whether both directions of each edge are there."""
    kind = source.suffix.lower()
    if kind in _TABLES:
        yield from _of_table(source)
    elif kind in _TEXTS:
        yield from _of_text(source)
    else:
        raise InputError(f"edges must be {', '.join((*_TABLES, *_TEXTS))}, got {source.name}.")


def _of_table(source: Path) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, bool]]:
    from krylow.io.networks import library

    # Read as it is needed: by default all that has been read of the columns is kept.
    table = library("pyarrow.parquet", source.name).ParquetFile(source, pre_buffer=False, buffer_size=TABLE)
    names = table.schema_arrow.names
    ends = ["src", "dst"] if {"src", "dst"} <= set(names) else names[:2]
    weights = ["weight"] if "weight" in names else names[2:3] if ends == names[:2] else []
    if len(ends) < 2:
        raise InputError(f"{source.name} must have two columns of nodes, got {len(names)}.")
    for batch in table.iter_batches(TABLE, columns=[*ends, *weights]):
        row, col = (batch.column(name).to_numpy(zero_copy_only=False) for name in ends)
        if not all(np.issubdtype(part.dtype, np.integer) for part in (row, col)):
            raise InputError(f"{source.name}: nodes must be whole numbers, got {row.dtype} and {col.dtype}.")
        weight = batch.column(weights[0]).to_numpy(zero_copy_only=False) if weights else np.ones(row.size)
        yield row.astype(np.int64), col.astype(np.int64), weight.astype(np.float64), False


def _of_text(source: Path) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, bool]]:
    matrix = source.suffix.lower() == ".mtx"
    with open(source, "rb") as file:
        banner = file.readline().lower() if matrix else b""
        if matrix and not banner.startswith(b"%%matrixmarket matrix coordinate"):
            raise InputError(f"{source.name} must be a Matrix Market file of coordinates.")
        place = file.tell()
        while (line := file.readline()) and (line.lstrip()[:1] in (b"#", b"%", b"") or not _numbers(line).size):
            place = file.tell()
        if matrix:  # rows, columns, entries
            place = file.tell()
            line = file.readline()
        width = _numbers(line).size
        if line and width not in (2, 3):
            raise InputError(f"{source.name}: a line must have two nodes and perhaps a weight, got {line!r}.")
        file.seek(place)
        while piece := file.read(TEXT):
            piece += file.readline()
            numbers = _numbers(piece)
            if numbers.size != width * sum(bool(part.strip()) for part in piece.splitlines()):
                raise InputError(f"{source.name}: every line must have {width} numbers, nodes being whole ones.")
            ends = numbers.reshape(-1, width)[:, :2]
            if bool((ends != np.floor(ends)).any()):
                raise InputError(f"{source.name}: nodes must be whole numbers.")
            row, col = ends.astype(np.int64).T - (1 if matrix else 0)
            weight = numbers.reshape(-1, width)[:, 2] if width == 3 else np.ones(row.size)
            yield row, col, weight, b"general" in banner


def _size(source: Path) -> int:
    """Return the number of nodes that a Matrix Market file states, 0 for other files."""
    if source.suffix.lower() != ".mtx":
        return 0
    with open(source, "rb") as file:
        line = next((line for line in file if line.strip() and not line.startswith(b"%")), b"")
    size = _numbers(line)
    if size.size != 3 or size[0] != size[1]:
        raise InputError(f"{source.name} must hold a square matrix of coordinates, got the size {line!r}.")
    return int(size[0])


def _numbers(text: bytes) -> np.ndarray:
    """Return the numbers of text in which blanks or commas separate them; none where a word is no number."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # so numpy said it before it was an error
            return np.fromstring(text.replace(b",", b" "), dtype=np.float64, sep=" ")
    except (ValueError, DeprecationWarning):
        return np.zeros(0)
