"""Signals as tables of text: a row for each node, perhaps with names of the columns and of the nodes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from krylow._checks import InputError
from krylow.data.edge_lists import BATCH, content, fields, is_number, malformed, separator
from krylow.data.limits import Limit

#: Bytes that a name takes as an object of its own.
NAME_BYTES = 80
#: What the column that names the nodes may be called; the last is how pandas writes an index without a name.
NODE_COLUMNS = ("node", "nodes", "id", "name", "label", "index", "")


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

    def with_values(self, values: np.ndarray) -> Table:
        """Return other values under the same names."""
        return replace(self, values=values)


def parse_table(text: str, what: str, limit: Limit | None = None) -> Table:
    """Read a table of numbers; see :func:`krylow.data.files.read_signals` for what it may look like.

    Parameters
    ----------
    text
        The whole file.
    what
        How messages call the file.
    limit
        The most memory that it may take. None: any.
    """
    lines = list(islice(content(text), 2))
    if not lines:
        raise InputError(f"{what} must hold a row of numbers for each node, got an empty file.")
    mark = separator(lines[0])
    first = fields(lines[0], mark, what)
    header = all(part and not is_number(part) for part in first[1:] or first)
    body = lines[1:] if header else lines
    if not body:
        raise InputError(f"{what} must hold a row of numbers for each node, got one line: {lines[0][:60]!r}.")
    start = fields(body[0], mark, what)
    named = len(start) > 1 and (not is_number(start[0]) or (header and first[0].lower() in NODE_COLUMNS))
    used = range(int(named), len(start))
    rows = islice(content(text), int(header), None)
    nodes: list[str] | None = [] if named else None
    try:
        values = np.loadtxt(
            rows if nodes is None else _noting(rows, mark, what, nodes, limit),
            delimiter=mark,
            comments=None,
            quotechar='"',
            usecols=used,
            ndmin=2,
        )
    except InputError:
        raise
    except ValueError:
        raise malformed(text, mark, len(start), "a row of numbers", what, numbers=used) from None
    if header and len(first) != len(start):
        raise InputError(f"{what} must name every column, got {len(first)} names for {len(start)} columns.")
    columns = first[int(named) :] if header else None
    return Table(values, columns, nodes, first[0] if header and named else "node")


def _noting(rows: Iterable[str], mark: str | None, what: str, nodes: list[str], limit: Limit | None) -> Iterator[str]:
    """Give the rows as they are, and write down the name that each begins with."""
    for row in rows:
        nodes.append(fields(row, mark, what)[0])
        if limit is not None and len(nodes) % BATCH == 0:
            limit.check(NAME_BYTES * len(nodes), f"{len(nodes)} names or more in lines that short")
        yield row


def format_table(table: Table, mark: str) -> str:
    """Return the text of a table; every number is written such that reading gives the same bits.

    Parameters
    ----------
    table
        With values of one or two dimensions.
    mark
        The separator.
    """
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
