"""Which columns of a table of edges are its nodes and weights: those that are named, else those that say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from krylow._checks import InputError

#: Names of the two columns of nodes, which are known wherever they stand.
ENDS = (
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
#: Names of the column of weights, and of columns that are none.
WEIGHTS = ("weight", "weights", "w")
NOT_WEIGHTS = ("time", "timestamp", "date", "year", "type", "id", "edge_id", "label", "name", "key", "index", "")
#: Names of the column that names the nodes of signals; the last is how pandas writes an index without a name.
NODE_COLUMNS = ("node", "nodes", "id", "name", "label", "index", "")


@dataclass(frozen=True)
class Columns:
    """The columns that were asked for, by name or by position from 0; ``weight`` also names other files' weights."""

    source: str | int | None = None
    target: str | int | None = None
    weight: str | int | None = None

    @property
    def attribute(self) -> str:
        """Name of the attribute that holds the weights, where there are no columns."""
        return "weight" if self.weight is None else str(self.weight)

    def known(self, names: Sequence[str]) -> bool:
        """Whether a line is column names: those that were asked for, or known ones."""
        given = [name for name in (self.source, self.target, self.weight) if isinstance(name, str)]
        return any(name in names for name in given) or known_ends(names) is not None


DEFAULT = Columns()


def used_columns(first: Sequence[str], header: bool, columns: Columns, what: str) -> tuple[int, ...]:
    """Return the places of the columns u, v and perhaps w in a table.

    Parameters
    ----------
    first
        The names of the columns, or the first line where there is no ``header``.
    header
        Whether there are names.
    columns
        What was asked for.
    what
        The table's name.
    """
    if (columns.source is None) != (columns.target is None):
        raise InputError("source and target must be given together (--source, --target), got one of them.")
    weight = None if columns.weight is None else _place(columns.weight, first, header, what)
    if columns.source is not None and columns.target is not None:
        ends = (_place(columns.source, first, header, what), _place(columns.target, first, header, what))
        if weight is None and header:
            weight = _named(WEIGHTS, first)
    else:
        known = known_ends(first) if header else None
        ends = (0, 1) if known is None else known
        if weight is None:
            weight = _default_weight(first, header, known, what)
    used = ends if weight is None else (*ends, weight)
    if len(set(used)) < len(used):
        raise InputError(f"{what} must have a column for each of its nodes and weights, got one for two of them.")
    return used


def check_clear(first: Sequence[str], used: tuple[int, ...], columns: Columns, numbers: bool, what: str) -> None:
    """Refuse whole numbers under names that do not say that they are nodes: they may as well be signals."""
    said = columns.source is not None or known_ends(first) is not None or _named(WEIGHTS, first) is not None
    if numbers and not said:
        raise InputError(
            f"{what} may be a table of signals, got numbers in columns called {_listed([first[i] for i in used])}: if "
            "these are nodes, say which columns are source and target (--source, --target)."
        )


def _default_weight(first: Sequence[str], header: bool, known: tuple[int, int] | None, what: str) -> int | None:
    """Return the column of weights where nothing was asked for, or refuse a table whose columns are not clear."""
    named = _named(WEIGHTS, first) if header else None
    if known is not None and (named is not None or known != (0, 1) or len(first) != 3):
        return named
    if len(first) not in (2, 3):
        raise InputError(
            f"{what} must hold two nodes and perhaps a weight a line, separated by commas, tabs or spaces, "
            f"got {len(first)} column{'s' if len(first) != 1 else ''}: {_listed(first)}. Say which they are by name, "
            "or by position from 0: source, target, weight (--source, --target, --weight)."
        )
    if header and known is None and first[0].lower() in NODE_COLUMNS:
        raise InputError(
            f"{what} must hold two nodes and perhaps a weight a line, got a first column called {first[0]!r}, as in "
            "a table of signals or one with an index: say which columns are source and target (--source, --target)."
        )
    if header and len(first) == 3 and first[2].lower() in NOT_WEIGHTS:
        raise InputError(
            f"{what} must have weights as its third column, got one called {first[2]!r}: say which columns are "
            "source and target (--source, --target), and weight if there is one."
        )
    return 2 if len(first) == 3 else None


def known_ends(names: Iterable[Any]) -> tuple[int, int] | None:
    """Return the places of the two columns of nodes by their known names, None where they have others."""
    lower = [str(name).lower() for name in names]
    return next(((lower.index(u), lower.index(v)) for u, v in ENDS if u in lower and v in lower), None)


def _named(known: tuple[str, ...], names: Sequence[str]) -> int | None:
    lower = [name.lower() for name in names]
    return next((lower.index(name) for name in known if name in lower), None)


def _place(column: str | int, first: Sequence[str], header: bool, what: str) -> int:
    """Return the place of a column that was asked for."""
    if header and column in first:
        if list(first).count(str(column)) > 1:
            raise InputError(f"{what} must name its columns differently, got several called {column!r}.")
        return list(first).index(str(column))
    place = int(column) if isinstance(column, int) or column.isdecimal() else -1
    if not 0 <= place < len(first):
        there = _listed(first) if header else f"{len(first)} columns without names: 0 to {len(first) - 1}"
        raise InputError(f"{what} must have the column {column!r}, got {there}.")
    return place


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(map(repr, names[:12])) + (", ..." if len(names) > 12 else "")
    return text if len(text) <= 200 else text[:197] + "..."
