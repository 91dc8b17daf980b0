"""Text: lines and fields of tables, edge lists, and GraphML.

Separators are tabs, semicolons, commas or spaces; lines that start with ``#`` or ``%`` are comments. An edge list has
two nodes a line, and perhaps a weight or networkx's dictionary of data; one of more columns has to name them
(:mod:`krylow.io.columns`). Numbers are parsed by numpy's compiled reader, a batch of lines at a time within
the limit of memory, since line objects take many times the file; pandas is not part of the core install.
"""

from __future__ import annotations

import ast
import csv
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from xml.etree.ElementTree import ParseError, XMLParser

import numpy as np

from krylow._checks import InputError
from krylow.io.columns import DEFAULT, Columns, check_clear, used_columns
from krylow.io.files import Limit, decode


@dataclass(frozen=True)
class Edges:
    """Edges in the order of their file: ``ends (2, e)`` and ``weights (e,)``.

    The ends are positions in ``names``, which are in the order of the file, or whole numbers where there are no names.
    ``directed`` is None where the file does not say; ``n`` is given where it counts its nodes: the ends are then rows,
    whose nodes are numbered from ``first`` on.
    """

    ends: np.ndarray
    weights: np.ndarray
    names: list[str] | None = None
    directed: bool | None = None
    n: int | None = None
    first: int = 0


def separator(line: str) -> str | None:
    """Return the separator of a line of a table: a tab, semicolon or comma, in this order, or None for spaces."""
    return next((mark for mark in ("\t", ";", ",") if mark in line), None)


def content(text: str) -> Iterator[str]:
    """Yield the lines that are neither blank nor comments."""
    return (line for line in _lines(text) if line[:1].isalnum() or _is_content(line))


def _lines(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start + (1 << 20)) + 1 or len(text)
        yield from text[start:end].splitlines()
        start = end


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(("#", "%"))


def fields(line: str, mark: str | None, what: str) -> list[str]:
    """Split one line of the file ``what``, without the spaces and quotes around its fields."""
    if mark is None and '"' not in line:
        return line.split()
    line = line.strip(" ") if mark else line.strip()
    try:
        parts = next(csv.reader([line], delimiter=mark or " ", skipinitialspace=True))
    except csv.Error as error:
        raise InputError(f"{what} must hold lines of numbers and names, got {_quoted(line)}: {error}.") from None
    return [part.strip() for part in parts if part or mark is not None]


def is_number(text: str) -> bool:
    """Whether a field is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _quoted(line: str) -> str:
    return repr(line if len(line) <= 60 else line[:57] + "...")


def malformed(
    text: str,
    mark: str | None,
    columns: int,
    wanted: str,
    what: str,
    *,
    numbers: Iterable[int] = (),
    needed: Iterable[int] | None = None,
) -> InputError:
    """Return the error that quotes the first line without ``columns`` fields, or without a number at ``numbers``.

    A first line of names alone is a header. ``wanted`` is what a line must hold, ``what`` the name of the file; fields
    but the ``needed`` ones may be empty.
    """
    header, needed = True, range(columns) if needed is None else tuple(needed)
    for number, line in enumerate(_lines(text), 1):
        if not _is_content(line):
            continue
        parts = fields(line, mark, what)
        names = header and not any(map(is_number, parts))
        full = len(parts) == columns and all(parts[i] for i in needed)
        if not full or not (names or all(is_number(parts[i]) for i in numbers)):
            return InputError(f"{what} must hold {wanted} on every line, got {_quoted(line)} on line {number}.")
        header = False
    return InputError(f"{what} must hold {wanted} on every line, which it does not.")


def parse_edge_list(data: bytes, limit: Limit, columns: Columns = DEFAULT) -> Edges:
    """Read an edge list: every line, repeated edges too. Nodes are whole numbers or names."""
    what, text = limit.what, decode(data, limit.what)
    lines = list(islice(content(text), 2))
    if not lines:
        raise InputError(f"{what} must hold an edge a line, got an empty file.")
    if lines[0].rstrip().endswith("}") and "{" in lines[0]:
        return _with_data(text, columns, limit)
    mark = separator(lines[0])
    first = fields(lines[0], mark, what)
    header = _is_header(lines, mark, columns, what)
    used = used_columns(first, header, columns, what)
    if header and len(lines) == 1:
        raise InputError(f"{what} must hold an edge a line, got a line of column names alone.")
    if header:
        second = fields(lines[1], mark, what)
        numbers = len(second) == len(first) and any(is_number(second[place]) for place in used[:2])
        check_clear(first, used, columns, numbers, what)
    form = _Form(header, mark, used, len(first))
    edges = _of_any_kind(lambda: islice(content(text), int(header), None), form, limit)
    if edges is not None:
        return edges
    wanted = "two nodes" if len(used) == 2 else "two nodes and a weight"
    if len(first) > len(used):
        wanted += f" in {len(first)} columns"
    raise malformed(text, mark, len(first), wanted, what, numbers=used[2:], needed=used)


@dataclass(frozen=True)
class _Form:
    """How the lines of an edge list are to be read: ``used`` are the columns u, v and perhaps w among ``columns``."""

    header: bool
    mark: str | None
    used: tuple[int, ...]
    columns: int


def _is_header(lines: list[str], mark: str | None, columns: Columns, what: str) -> bool:
    """Whether the first line is column names, not an edge."""
    first = fields(lines[0], mark, what)
    if any(map(is_number, first)) or not all(first[1:]):
        return False
    if len(first) != 2 or columns.known(first):
        return True
    second = fields(lines[1], mark, what) if len(lines) > 1 else []
    return len(second) == 2 and any(map(is_number, second))


def _with_data(text: str, columns: Columns, limit: Limit) -> Edges:
    """Read what networkx writes: two nodes and a dictionary of data. Literals of Python are parsed, nothing runs."""
    key, what = columns.attribute, limit.what
    mark = separator(next(content(text)).partition("{")[0])

    def plain() -> Iterator[str]:
        for line in content(text):
            head, _, data = line.partition("{")
            try:
                weight = float(ast.literal_eval("{" + data.strip()).get(key, 1))
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, AttributeError):
                raise InputError(
                    f"{what} must hold two nodes and a dictionary with a number as {key!r} on every line, "
                    f"got {_quoted(line)}."
                ) from None
            yield f"{head.rstrip().removesuffix(mark or ' ')}{mark or ' '}{weight!r}"

    edges = _of_any_kind(plain, _Form(False, mark, (0, 1, 2), 3), limit)
    if edges is None:
        raise InputError(f"{what} must hold two nodes and a dictionary of data on every line, which it does not.")
    return edges


def _of_any_kind(lines: Callable[[], Iterator[str]], form: _Form, limit: Limit) -> Edges | None:
    """Read lines whose nodes are whole numbers, such numbers written as floats, or names; None where none fits."""
    for kind in (np.int64, np.float64, object):
        edges = _edges(lines(), form, kind, limit)
        if edges is not None:
            return edges
    return None


def _edges(lines: Iterator[str], form: _Form, kind: type, limit: Limit) -> Edges | None:
    """Read the columns u, v of this type and perhaps w, or return None where a line does not fit."""
    rows: defaultdict[str, int] = defaultdict(count().__next__)  # a new name gets the next row
    kinds: list[tuple[str, type]] = [("u", kind), ("v", kind), ("w", np.float64)][: len(form.used)]
    ends, weights, size = [], [], 0
    while batch := list(islice(lines, 1 << 15)):
        table = _table(batch, form, kinds)
        if table is None:
            return None
        size += table.size
        pairs = np.stack([table["u"], table["v"]])
        if kind is np.float64:
            pairs = whole(pairs, limit.what)
        elif kind is object:
            pairs = numbered(pairs, rows)
            if "" in rows:
                return None
        edge_bytes, name_bytes = 64, 192  # until they are in the adjacency
        limit.check(edge_bytes * size + name_bytes * len(rows), f"{size} edges or more, {len(rows)} names")
        ends.append(pairs.astype(np.int32) if np.abs(pairs).max() < 2**31 else pairs)
        if len(kinds) == 3:
            weights.append(np.ascontiguousarray(table["w"]))
    weight = np.concatenate(weights) if weights else np.broadcast_to(np.float64(1), (size,))
    names = None
    if kind is object:
        names = list(rows)
        check_names(names, limit.what)
    return Edges(np.concatenate(ends, axis=1), weight, names)


def numbered(pairs: np.ndarray, rows: defaultdict[str, int]) -> np.ndarray:
    """Return names ``(2, e)`` as their rows; a name that is new gets the next."""
    names = map(str.strip, pairs.T.ravel().tolist())
    return np.fromiter(map(rows.__getitem__, names), np.int64, pairs.size).reshape(-1, 2).T


def check_names(names: list[str], what: str) -> None:
    """Refuse names that are numbers with a fraction: such a table holds signals."""
    bad = next((name for name in names if name[-1:].isdigit() and is_number(name) and float(name) % 1), None)
    if bad is not None:
        raise InputError(
            f"{what} must name its nodes by whole numbers or by names, got {bad}: is it a file of signals?"
        )


def _table(lines: list[str], form: _Form, kinds: list[tuple[str, type]]) -> np.ndarray | None:
    mark, used = form.mark, None if form.used == tuple(range(form.columns)) else form.used
    if used is not None and any(_columns_of(line, mark) != form.columns for line in lines if '"' not in line):
        return None  # which numpy does not look at
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy only warns where it reads 1.5 as the whole number 1
        try:
            return np.loadtxt(lines, dtype=kinds, delimiter=mark, comments=None, quotechar='"', ndmin=1, usecols=used)
        except (ValueError, Warning):
            return None


def _columns_of(line: str, mark: str | None) -> int:
    return len(line.split()) if mark is None else line.count(mark) + 1


def whole(pairs: np.ndarray, what: str) -> np.ndarray:
    """Return nodes as whole numbers, or refuse other numbers: such a file holds signals."""
    with np.errstate(invalid="ignore"):
        bad = (pairs != np.floor(pairs)) | (np.abs(pairs) > 2**53)
    if bad.any():
        raise InputError(
            f"{what} must name its nodes by whole numbers or by names, got {pairs[bad][0]:g}: is it a file of signals?"
        )
    return pairs.astype(np.int64)


def parse_graphml(data: bytes, what: str, weight: str = "weight") -> Edges:
    """Read GraphML by the standard library's parser as a stream: no tree in memory, no document type to expand.

    networkx would hold the whole tree, expand entities, and is not part of the core install.
    """
    graph = _GraphML(what, weight)
    parser = XMLParser(target=graph)
    try:
        parser.feed(data)
        parser.close()
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"{what} must be a GraphML file, got a node or edge without {error}.") from None
    except (ParseError, ValueError, LookupError) as error:  # a lookup: an unknown encoding
        raise InputError(f"{what} must be a whole GraphML file: {error}.") from None
    if not graph.graphs:
        raise InputError(f"{what} must hold a graph, got a GraphML file without one.")
    if not graph.nodes:
        raise InputError(f"{what} must hold a graph with at least one node, got none.")
    unknown = next((end for end in graph.ends if end not in graph.nodes), None)
    if unknown is not None:
        raise InputError(f"{what} must list the nodes of its edges, got an edge of {unknown!r}, which is no node.")
    ends = np.array([graph.nodes[end] for end in graph.ends], dtype=np.int64).reshape(-1, 2).T
    return Edges(ends, np.array(graph.weights, dtype=np.float64), list(graph.nodes), graph.any_directed)


class _GraphML:
    """Takes the parser's events. Names come as ``{namespace}name``, whose namespace is ignored."""

    def __init__(self, what: str, weight: str) -> None:
        self.what = what
        self.weight = weight
        self.nodes: dict[str, int] = {}  # row of each id, in the order of the file
        self.ends: list[str] = []  # two an edge
        self.weights: list[float] = []  # data of the weight's name, else that key's default, else 1
        self.any_directed = False
        self.graphs = 0
        self._opened: list[str] = []
        self._directed = False
        self._weight_keys: set[str] = set()
        self._default = 1.0
        self._key: str | None = None  # of the key or data that is open
        self._text = ""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise InputError(f"{self.what} must have no document type (DOCTYPE), whose entities could be endless.")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition("}")[2]
        if not self._opened and name != "graphml":
            raise InputError(f"{self.what} must be a GraphML file, got XML that starts with <{name}>.")
        self._opened.append(name)
        self._text = ""
        if name == "graph":
            self.graphs += 1
            self._directed = attributes.get("edgedefault") == "directed"
            if self.graphs > 1:
                raise InputError(f"{self.what} must hold one graph, got several or nested ones.")
        elif name == "key":
            if attributes.get("attr.name") == self.weight and attributes.get("for", "all") in ("edge", "all"):
                self._key = attributes.get("id", "")
                self._weight_keys.add(self._key)
        elif name == "node":
            self.nodes.setdefault(attributes["id"], len(self.nodes))
        elif name == "edge":
            self.ends += attributes["source"], attributes["target"]
            self.weights.append(self._default)
            directed = attributes.get("directed")
            self.any_directed |= self._directed if directed is None else directed == "true"
        elif name == "hyperedge":
            raise InputError(f"{self.what} must have edges between two nodes, got a hyperedge.")
        elif name == "data" and "edge" in self._opened and attributes.get("key") in self._weight_keys:
            self._key = attributes["key"]

    def data(self, text: str) -> None:
        if self._key is not None:
            self._text += text

    def end(self, tag: str) -> None:
        name = self._opened.pop()
        if self._key is not None and name == "default":
            self._default = float(self._text)
        elif self._key is not None and name == "data":
            self.weights[-1] = float(self._text)
        if name in ("data", "key"):
            self._key = None
