"""Edge lists as text: two nodes a line, and perhaps a weight. Edges are undirected.

A first line of column names is recognised; nodes are whole numbers or names. Numbers are parsed by numpy's compiled
reader some lines at a time, within the limit of memory; pandas is not part of the core install.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
import scipy.sparse

from krylow._checks import InputError
from krylow.io.files import Limit
from krylow.io.matrices import finite
from krylow.io.text import content, fields, is_number, malformed, separator, shown

#: Lines that are parsed together: as objects of their own they take many times the file.
BATCH = 1 << 15
#: Bytes that an edge takes until it is in the adjacency, and a name until it is a row.
EDGE_BYTES, NAME_BYTES = 64, 192
#: Column names that tell a header from an edge between two named nodes.
HEADERS = (
    ("source", "target"),
    ("from", "to"),
    ("src", "dst"),
    ("node1", "node2"),
    ("node_1", "node_2"),
    ("u", "v"),
    ("i", "j"),
    ("row", "col"),
    ("head", "tail"),
)


@dataclass(frozen=True)
class Edges:
    """The lines of an edge list, in the order of the file.

    Attributes
    ----------
    ends
        ``(2, e)``: whole numbers, or positions in ``names``.
    weights
        ``(e,)``; ones where the file gives none.
    names
        The nodes' names in the order in which they first appear. None: the ends are whole numbers themselves.
    """

    ends: np.ndarray
    weights: np.ndarray
    names: list[str] | None = None


def parse_edge_list(text: str, limit: Limit) -> Edges:
    """Read the text of an edge list: every line, repeated ones too; see :func:`adjacency`."""
    what, lines = limit.what, list(islice(content(text), 2))
    if not lines:
        raise InputError(f"{what} must hold an edge a line, got an empty file.")
    mark = separator(lines[0])
    columns = len(fields(lines[0], mark, what))
    if columns not in (2, 3):
        raise InputError(
            f"{what} must hold two nodes and perhaps a weight a line, separated by commas, tabs or spaces, "
            f"got {columns} column{'s' if columns != 1 else ''}: {shown(lines[0])}."
        )
    header = _is_header(lines, mark, what)
    if header and len(lines) == 1:
        raise InputError(f"{what} must hold an edge a line, got a line of column names alone.")
    for kind in (np.int64, np.float64):
        edges = _numbered(text, header, mark, columns, np.dtype(kind), limit)
        if edges is not None:
            return edges
    return _named(text, header, mark, columns, limit)


def adjacency(ends: np.ndarray, weights: np.ndarray, n: int, what: str, *, add_up: bool = False) -> Any:
    """Return the symmetric adjacency of undirected edges.

    ``a b`` and ``b a`` are one edge. An edge that is named several times with one weight, as where both directions are
    listed, counts once; with different weights it is refused, unless they are to be added up.

    Parameters
    ----------
    ends, weights
        ``(2, e)`` rows of the nodes, and ``(e,)``.
    n, what
        Number of nodes, and how messages call the graph.
    add_up
        Whether repeated edges add up, each direction by itself counted, rather than count once.

    Returns
    -------
    csr_array
        ``(n, n)``, float64.
    """
    finite(weights, what)
    place = np.minimum(*ends).astype(np.int64) * n
    place += np.maximum(*ends)
    del ends
    place, first, inverse = np.unique(place, return_index=True, return_inverse=True)
    if add_up:
        weight = np.bincount(inverse, weights, minlength=place.size)
        if not np.isfinite(weight).all():
            raise InputError(
                f"{what} must have weights with finite sums, got an edge whose weights add up to infinity."
            )
    else:
        weight = weights[first]
        other = np.flatnonzero(weight[inverse] != weights)
        if other.size:
            line = other[0]
            raise InputError(
                f"{what} must give an edge one weight, got {weight[inverse[line]]:g} and {weights[line]:g} for the "
                f"same two nodes ({other.size} such lines): correct them, or add repeated edges up (add_up, --add-up)."
            )
    low, high = place // n, place % n
    loop = low == high
    row, col = np.concatenate([low, high[~loop]]), np.concatenate([high, low[~loop]])
    return scipy.sparse.csr_array((np.concatenate([weight, weight[~loop]]), (row, col)), shape=(n, n))


def rows_of_numbers(numbers: np.ndarray, num_nodes: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return which row each numbered node is, and the number of each row.

    Where the number of nodes is known, the numbers count from 0, or from 1 if the largest is that number, and nodes
    without an edge are isolated. Else, and where neither fits, the nodes are those that have an edge, in ascending
    order.
    """
    lowest, highest = int(numbers.min()), int(numbers.max())
    if num_nodes is not None and lowest >= 0 and highest < num_nodes:
        return numbers, np.arange(num_nodes)
    if num_nodes is not None and lowest >= 1 and highest == num_nodes:
        return numbers - 1, np.arange(1, num_nodes + 1)
    if lowest >= 0 and highest < 8 * numbers.size:  # no sorting
        there = np.zeros(highest + 1, dtype=bool)
        there[numbers] = True
        return (np.cumsum(there) - 1).astype(numbers.dtype)[numbers], np.flatnonzero(there)
    found, rows = np.unique(numbers, return_inverse=True)
    return rows.reshape(numbers.shape), found


def _is_header(lines: list[str], mark: str | None, what: str) -> bool:
    """Tell a line of column names from an edge."""
    first = fields(lines[0], mark, what)
    if any(map(is_number, first)) or not all(first):
        return False
    if len(first) == 3 or tuple(name.lower() for name in first) in HEADERS:
        return True
    second = fields(lines[1], mark, what) if len(lines) > 1 else []
    return len(second) == 2 and all(map(is_number, second))


def _tables(text: str, header: bool, mark: str | None, columns: int, ends: np.dtype) -> Iterator[np.ndarray | None]:
    """Read columns u, v and perhaps w, some lines at a time; None, and no more, where they are no such numbers."""
    kinds = [("u", ends), ("v", ends), ("w", np.dtype(np.float64))][:columns]
    lines = islice(content(text), int(header), None)
    while batch := list(islice(lines, BATCH)):
        table = _table(batch, mark, kinds)
        yield table
        if table is None:
            return


def _table(lines: list[str], mark: str | None, kinds: list[tuple[str, np.dtype]]) -> np.ndarray | None:
    """Read columns by numpy's compiled reader, or return None where they are no such numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy only warns where it reads 1.5 as the whole number 1
        try:
            return np.loadtxt(lines, dtype=kinds, delimiter=mark, comments=None, quotechar='"', ndmin=1)
        except (ValueError, Warning):
            return None


def _numbered(text: str, header: bool, mark: str | None, columns: int, kind: np.dtype, limit: Limit) -> Edges | None:
    """Read an edge list whose nodes are whole numbers, or return None where they are not."""
    ends, weights, size = [], [], 0
    for table in _tables(text, header, mark, columns, kind):
        if table is None:
            return None
        size += table.size
        limit.check(EDGE_BYTES * size, f"{size} edges or more in lines that short")
        pairs = np.stack([table["u"], table["v"]])
        if kind.kind == "f":
            pairs = _whole(pairs, limit.what)
        small = np.abs(pairs).max() < 2**31  # half the memory, for most files
        ends.append(pairs.astype(np.int32) if small else pairs)
        weights.append(_weights(table))
    return Edges(np.concatenate(ends, axis=1), _joined(weights, size))


def _weights(table: np.ndarray) -> np.ndarray | None:
    return np.ascontiguousarray(table["w"]) if "w" in (table.dtype.names or ()) else None


def _joined(weights: list[np.ndarray | None], size: int) -> np.ndarray:
    """Return all weights, or as many ones, which take no memory."""
    given = [part for part in weights if part is not None]
    return np.concatenate(given) if given else np.broadcast_to(np.float64(1), (size,))


def _whole(pairs: np.ndarray, what: str) -> np.ndarray:
    """Return nodes as whole numbers, or refuse those that are none: such a file holds signals."""
    with np.errstate(invalid="ignore"):
        bad = (pairs != np.floor(pairs)) | (np.abs(pairs) > 2**53)
    if bad.any():
        raise InputError(
            f"{what} must name its nodes by whole numbers or by names, got {pairs[bad][0]:g}: is it a file of signals?"
        )
    return pairs.astype(np.int64)


def _named(text: str, header: bool, mark: str | None, columns: int, limit: Limit) -> Edges:
    """Read an edge list whose nodes have names; this is also where malformed lines are found."""
    wanted = "two nodes" if columns == 2 else "two nodes and a weight"
    rows: defaultdict[str, int] = defaultdict(count().__next__)  # a new name gets the next row
    ends, weights, size = [], [], 0
    for table in _tables(text, header, mark, columns, np.dtype(object)):
        if table is None:
            raise malformed(text, mark, columns, wanted, limit.what, numbers=range(2, columns))
        size += table.size
        names = map(str.strip, np.stack([table["u"], table["v"]], axis=1).ravel().tolist())
        pairs = np.fromiter(map(rows.__getitem__, names), dtype=np.int64, count=2 * table.size)
        limit.check(EDGE_BYTES * size + NAME_BYTES * len(rows), f"{size} edges or more of {len(rows)} names")
        ends.append(pairs.astype(np.int32).reshape(-1, 2).T)
        weights.append(_weights(table))
        if "" in rows:
            raise malformed(text, mark, columns, wanted, limit.what)
    check_names(rows, limit)
    return Edges(np.concatenate(ends, axis=1), _joined(weights, size), list(rows))


def check_names(names: Iterable[str], limit: Limit) -> None:
    """Refuse names of which one is so long that an array, with space for it in every entry, would not fit."""
    lengths = [len(name) for name in names]
    longest = max(lengths)
    limit.check(4 * longest * len(lengths), f"{len(lengths)} names, one of them of {longest} characters")
