"""Signals as files: arrays, or tables of a row a node, perhaps with names of the columns and of the nodes."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from krylow._checks import InputError
from krylow.io.columns import NODE_COLUMNS
from krylow.io.files import Limit, archive_size, attempt, decode, limit_of, load, read_bytes, size_of, suffix, write
from krylow.io.text import content, fields, is_number, malformed, separator

#: The separator that each kind of table is written with.
TABLES = {".csv": ",", ".tsv": "\t", ".txt": " "}
SIGNALS = (".npy", ".npz", *TABLES)
#: Names of the array that is read from an ``.npz`` of several.
ARRAY_NAMES = ("signals", "x")


@dataclass(frozen=True)
class Table:
    """Signals, and what a file calls them.

    Attributes
    ----------
    values
        ``(n,)``, ``(n, c)`` or ``(*batch, n, c)``, float32 or float64; ``(n, c)`` from text.
    columns
        ``(c,)`` names of the signals, where the file has them.
    nodes
        ``(n,)`` names of the nodes, where the file has them.
    node_column
        What the column of those names is called.
    array
        Name of the array in an ``.npz``.
    """

    values: np.ndarray
    columns: list[str] | None = None
    nodes: list[str] | None = None
    node_column: str = "node"
    array: str = "signals"


def read_signals(path: str | os.PathLike[str], *, max_size: int | str | None = None) -> Table:
    """Read signals: an array ``(n,)``, ``(n, c)`` or ``(*batch, n, c)``, or a table of a row a node.

    A table may have a first line of column names, and a first column that names the nodes (called node, id, name,
    label or index, or not made of numbers). An ``.npz`` must hold one array, or one that is called signals or x.

    Parameters
    ----------
    path
        ``.npy``, ``.npz``, or a table: ``.csv``, ``.tsv``, ``.txt``, which may be gzipped.
    max_size
        The most bytes of memory that reading may take, as a number or as text such as "4G". None: 64 MiB, or ten times
        the file, which may unpack to 20 times its size.

    Returns
    -------
    Table
        float32 or float64; whole numbers become float64.
    """
    path = Path(path)
    kind = suffix(path, SIGNALS, "signals")
    what, most = path.name, size_of(max_size)
    data = read_bytes(path, most)
    if kind in TABLES:
        text = decode(data, what)
        del data  # the text is as large
        return parse_table(text, limit_of(what, len(text), most))
    if kind == ".npz":
        archive_size(data, what, most)
    name, values = "signals", attempt(lambda: load(data), data, what, "an array as numpy.save makes it")
    if kind == ".npz":
        if not isinstance(values, np.lib.npyio.NpzFile):
            raise InputError(f"{what} must be an .npz file as numpy.savez makes it.")
        archive, names = values, values.files
        found = names if len(names) == 1 else [name for name in ARRAY_NAMES if name in names]
        if not found:
            raise InputError(
                f"{what} must hold one array, or one that is called {' or '.join(ARRAY_NAMES)}, "
                f"got {', '.join(names) or 'none'}."
            )
        name = found[0]
        values = attempt(lambda: archive[name], data, what, "whole arrays of numbers")
    if not isinstance(values, np.ndarray):
        raise InputError(f"{what} must hold one array, got an .npz file: call it so.")
    if values.dtype.kind not in "fiub":
        raise InputError(f"{what} must hold real numbers, got {values.dtype}.")
    single = values.dtype.kind == "f" and values.dtype.itemsize == 4
    return Table(values.astype(np.float32 if single else np.float64), array=name)


def parse_table(text: str, limit: Limit) -> Table:
    """Read the text of a table of numbers; see :func:`read_signals` for what it may look like."""
    what, lines = limit.what, list(islice(content(text), 2))
    if not lines:
        raise InputError(f"{what} must hold a row of numbers for each node, got an empty file.")
    mark = separator(lines[0])
    first = fields(lines[0], mark, what)
    if not first:
        raise InputError(f"{what} must hold a row of numbers for each node, got a first line {lines[0][:60]!r}.")
    header = all(part and not is_number(part) for part in first[1:] or first)
    body = lines[1:] if header else lines
    if not body:
        raise InputError(f"{what} must hold a row of numbers for each node, got one line: {lines[0][:60]!r}.")
    start = fields(body[0], mark, what)
    named = len(start) > 1 and (not is_number(start[0]) or (header and first[0].lower() in NODE_COLUMNS))
    used = range(int(named), len(start))
    rows: Iterable[str] = islice(content(text), int(header), None)
    nodes: list[str] | None = None
    if named:
        nodes = []
        rows = _noting(rows, mark, nodes, limit)
    try:
        values = np.loadtxt(rows, delimiter=mark, comments=None, quotechar='"', usecols=used, ndmin=2)
    except InputError:
        raise
    except ValueError:
        raise malformed(text, mark, len(start), "a row of numbers", what, numbers=used) from None
    if header and len(first) != len(start):
        raise InputError(f"{what} must name every column, got {len(first)} names for {len(start)} columns.")
    columns = first[int(named) :] if header else None
    return Table(values, columns, nodes, first[0] if header and named else "node")


def _noting(rows: Iterable[str], mark: str | None, nodes: list[str], limit: Limit) -> Iterator[str]:
    """Yield the rows as they are, and append the name at the beginning of each to ``nodes``."""
    name_bytes = 80  # of a name as an object of its own
    for row in rows:
        nodes.append(fields(row, mark, limit.what)[0])
        if len(nodes) % 10_000 == 0:
            limit.check(name_bytes * len(nodes), f"{len(nodes)} names or more in lines that short")
        yield row


def format_table(table: Table, mark: str) -> str:
    """Return the text of a table with the separator ``mark``, of numbers that are read back to the same bits."""
    values = table.values
    if values.ndim > 2:
        raise InputError(f"a table has a row for each node, got shape {values.shape}: write it as .npy or .npz.")
    values = values[:, None] if values.ndim == 1 else values
    rows = (values if values.dtype == np.float64 else values.astype(str)).tolist()
    if table.nodes is not None:
        rows = [[node, *row] for node, row in zip(table.nodes, rows, strict=True)]
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=mark, lineterminator="\n")
    if table.columns is not None:
        writer.writerow([*([table.node_column] if table.nodes is not None else []), *table.columns])
    writer.writerows(rows)
    return buffer.getvalue()


def write_signals(path: str | os.PathLike[str], table: Table) -> Path:
    """Write signals whole or not at all: as ``.npy``, ``.npz``, or a table, which takes at most two dimensions."""
    kind = suffix(Path(path), SIGNALS, "signals")
    if kind in TABLES:
        return write(path, format_table(table, TABLES[kind]).encode())
    if kind == ".npz":
        return _write_npz(path, {table.array: table.values})
    buffer = io.BytesIO()
    np.save(buffer, table.values)
    return write(path, buffer.getvalue())


def write_subspace(
    path: str | os.PathLike[str], basis: np.ndarray, ritz_values: np.ndarray, nodes: np.ndarray | None = None
) -> Path:
    """Write a basis ``(n, k)`` in the form that the suffix says, whole or not at all.

    An ``.npz`` has the arrays basis, ritz_values ``(k,)`` and, where the nodes have names, nodes ``(n,)``; a ``.npy``
    or a table the basis alone, in a table after the names of the nodes.
    """
    if suffix(Path(path), SIGNALS, "a basis") != ".npz":
        return write_signals(path, basis_table(basis, nodes))
    return _write_npz(path, {"basis": basis, "ritz_values": ritz_values} | ({} if nodes is None else {"nodes": nodes}))


def _write_npz(path: str | os.PathLike[str], arrays: dict[str, Any]) -> Path:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return write(path, buffer.getvalue())


def basis_table(basis: np.ndarray, nodes: np.ndarray | None = None) -> Table:
    """Return a basis ``(n, k)`` as a table with columns u1 to uk, after the names of the nodes where there are any."""
    names = None if nodes is None else [str(node) for node in nodes.tolist()]
    return Table(basis, columns=[f"u{i}" for i in range(1, basis.shape[1] + 1)], nodes=names)
