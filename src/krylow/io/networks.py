"""Networks as text: GEXF, GML and Pajek through networkx, METIS and DIMACS by numpy, which no light library reads."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count, islice, pairwise
from typing import Any
from xml.etree.ElementTree import ParseError, XMLParser

import numpy as np

from krylow._checks import InputError
from krylow.io.columns import DEFAULT, Columns
from krylow.io.files import Limit, attempt, decode
from krylow.io.text import Edges, numbered, parse_edge_list


def library(name: str, what: str) -> Any:
    """Return a package that is not part of the core install, or say how it is installed."""
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise InputError(f"{what} needs the package {package}: pip install {package}.") from None


def graph_edges(G: Any, attribute: str, what: str) -> Edges:
    """Return the edges of a networkx graph, in the order of its nodes; an edge without the attribute weighs 1."""
    rows: defaultdict[str, int] = defaultdict(count().__next__)
    names = [str(node) for node in G]
    numbered(np.array([names, names], dtype=object), rows)
    if len(rows) < len(names):
        raise InputError(f"{what} must name its nodes differently, got {len(names)} nodes with {len(rows)} names.")
    place = dict(zip(G, range(len(names)), strict=True))
    ends = [(place[u], place[v], data.get(attribute, 1)) for u, v, data in G.edges(data=True)]
    if attribute != "weight" and ends and not any(attribute in data for _, _, data in G.edges(data=True)):
        raise InputError(f"{what} must have edges with the attribute {attribute!r}, got none.")
    table = np.array(ends, dtype=np.float64).reshape(-1, 3).T
    return Edges(table[:2].astype(np.int64), table[2], names, bool(G.is_directed()))


def _through_networkx(
    read: Callable[[Any, bytes, Limit], Any], tag: bytes, wanted: str
) -> Callable[[bytes, Limit, Columns], Edges]:
    """Return the reader of a kind of file whose edges and nodes each take at least one ``tag``."""
    tag_bytes = 400  # of an object with a dictionary of attributes

    def reader(content: bytes, limit: Limit, columns: Columns = DEFAULT) -> Edges:
        networkx, pieces = library("networkx", limit.what), content.count(tag)
        limit.check(tag_bytes * pieces, f"{pieces} nodes, edges and attributes or so")
        return attempt(
            lambda: graph_edges(read(networkx, content, limit), columns.attribute, limit.what),
            content,
            limit.what,
            wanted,
        )

    return reader


def _gexf(networkx: Any, content: bytes, limit: Limit) -> Any:
    check_doctype(content, limit.what)
    return networkx.read_gexf(io.BytesIO(content))


class _Opening:
    """Stops the parser at the first element, and refuses a document type before it."""

    def __init__(self, what: str) -> None:
        self.what = what

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise InputError(f"{self.what} must have no document type (DOCTYPE), whose entities could be endless.")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        raise StopIteration


def check_doctype(content: bytes, what: str) -> None:
    """Refuse XML with a document type."""
    parser = XMLParser(target=_Opening(what))
    try:
        parser.feed(content)
    except StopIteration:
        return
    except (ParseError, ValueError, LookupError) as error:
        raise InputError(f"{what} must be a whole XML file: {error}.") from None


def _gml(networkx: Any, content: bytes, limit: Limit) -> Any:
    text = decode(content, limit.what)
    try:
        return networkx.parse_gml(text)
    except networkx.NetworkXError:  # labels that are missing or not unique
        return networkx.parse_gml(text, label="id")


def _pajek(networkx: Any, content: bytes, limit: Limit) -> Any:
    """Read Pajek by networkx, for which all vertices are listed, and a second list of edges is more of the first."""
    what = limit.what
    lines = [line for line in decode(content, what).splitlines() if line.strip() and not line.startswith("%")]
    starts = [i for i, line in enumerate(lines) if line.lstrip().startswith("*")] + [len(lines)]
    kept, kinds, declared = list[str](), list[str](), 0
    for first, last in pairwise(starts):
        section, words = lines[first:last], lines[first].lower().split()
        if words[0] == "*vertices":
            declared = int(words[1])
            limit.check(400 * declared, f"{declared} vertices")
            listed = {line.split(None, 1)[0] for line in section[1:]}
            section += [f"{i} {i}" for i in range(1, declared + 1) if str(i) not in listed]
        elif words[0] != "*network":
            if len(section) == 1:
                continue  # it is empty
            kinds.append(words[0])
        kept += section
    if len(kinds) > 1 or any(kind not in ("*arcs", "*edges", "*matrix") for kind in kinds):
        raise InputError(f"{what} must have one section of edges, arcs or a matrix, got {', '.join(kinds)}.")
    G = networkx.parse_pajek(kept)
    if len(G) != declared:
        raise ValueError(f"{declared} vertices with {len(G)} names or numbers")
    return G


def _declared(digits: str, what: str) -> int:
    """Return the number of nodes, edges or weights that a file declares."""
    if len(digits) > 18:  # Python refuses to convert some thousand digits
        raise InputError(f"{what} must declare no more nodes and edges than 10^18, got {digits[:18]}...")
    return int(digits)


def _metis(content: bytes, limit: Limit, columns: Columns = DEFAULT) -> Edges:
    """Read METIS: a line a node of its neighbours from 1, with weights where the header's format says so."""
    what = limit.what
    lines = iter(line for line in decode(content, what).splitlines() if not line.lstrip().startswith("%"))
    header = next((line for line in lines if line.strip()), "").split()
    if not 2 <= len(header) <= 4 or not all(map(str.isdecimal, header)):
        raise InputError(f"{what} must begin with the numbers of its nodes and edges as METIS does, got another line.")
    n, m = _declared(header[0], what), _declared(header[1], what)
    form = (header[2] if len(header) > 2 else "0").zfill(3)[-3:]
    weighted = form[2] == "1"
    before = (form[0] == "1") + (form[1] == "1") * (_declared(header[3], what) if len(header) > 3 else 1)
    counts, numbers = _ragged(lines, n, before, limit)
    if weighted and (counts % 2).any():
        raise InputError(
            f"{what} must have a weight after each neighbour, as its format {form} says, got a line not so."
        )
    weights = numbers[1::2] if weighted else np.ones(numbers.size)
    found, counts = (numbers[::2], counts // 2) if weighted else (numbers, counts)
    if found.size != 2 * m:
        raise InputError(f"{what} must name each of {m} edges at both its nodes, got {found.size} neighbours.")
    if ((found != np.floor(found)) | (found < 1) | (found > n)).any():
        raise InputError(f"{what} must have neighbours from 1 to {n}, got others.")
    ends = np.stack([np.repeat(np.arange(n), counts), found.astype(np.int64) - 1])
    return Edges(ends, weights, directed=True, n=n, first=1)


def _ragged(lines: Iterator[str], n: int, before: int, limit: Limit) -> tuple[np.ndarray, np.ndarray]:
    """Return how many numbers each of n lines has beyond the first ``before``, and these numbers."""
    what, counts, numbers, size = limit.what, [np.zeros(0, np.int64)], [np.zeros(0)], 0
    while batch := [line.split()[before:] for line in islice(lines, 1 << 15)]:
        counts.append(np.array([len(words) for words in batch], dtype=np.int64))
        try:
            numbers.append(np.array([word for words in batch for word in words], dtype=np.float64))
        except ValueError:
            raise InputError(f"{what} must hold numbers as METIS does, got others.") from None
        size += 64 * numbers[-1].size + 32 * len(batch)
        limit.check(size, "so many neighbours or more")
    count = np.concatenate(counts)
    if count.size < n or n == 0 or count[n:].any():
        raise InputError(f"{what} must have a line for each of {n} nodes, got {count.size}.")
    return count[:n], np.concatenate(numbers)


def _dimacs(content: bytes, limit: Limit, columns: Columns = DEFAULT) -> Edges:
    """Read DIMACS: lines "e u v" are edges, "a u v w" arcs, "p kind n m" counts them; nodes are numbered from 1."""
    what, text = limit.what, decode(content, limit.what)
    problem = re.search(r"^p[ \t]+\w+[ \t]+(\d+)[ \t]+(\d+)", text, re.MULTILINE)
    if problem is None:
        raise InputError(f"{what} must have a line 'p kind nodes edges' as DIMACS files do, got none.")
    n, kinds = _declared(problem[1], what), set(re.findall(r"^([ae])[ \t]", text, re.MULTILINE))
    if len(kinds) > 1:
        raise InputError(f"{what} must have edges or arcs, got both.")
    body = "\n".join(_dimacs_lines(text))
    if not body:
        limit.check(32 * n, f"{n} nodes")
        return Edges(np.zeros((2, 0), np.int64), np.zeros(0), n=n, first=1)
    edges = parse_edge_list(body.encode(), limit)
    if edges.names is not None or edges.ends.min() < 1 or edges.ends.max() > n:
        raise InputError(f"{what} must have nodes from 1 to {n}, got others.")
    return Edges(edges.ends.astype(np.int64) - 1, edges.weights, directed=kinds == {"a"}, n=n, first=1)


def _dimacs_lines(text: str) -> Iterator[str]:
    return (line[1:].strip() for line in text.splitlines() if line[:2] in ("a ", "e ", "a\t", "e\t"))


#: How networkx reads each kind that is read through it.
NETWORKX: dict[str, Callable[[Any, bytes, Limit], Any]] = {
    ".gexf": _gexf,
    ".gml": _gml,
    ".net": _pajek,
    ".pajek": _pajek,
}
#: The reader of each kind of network.
READERS: dict[str, Callable[[bytes, Limit, Columns], Edges]] = {
    ".gexf": _through_networkx(_gexf, b"<", "a GEXF file"),
    ".gml": _through_networkx(_gml, b"[", "a GML file"),
    **dict.fromkeys((".net", ".pajek"), _through_networkx(_pajek, b"\n", "a Pajek file")),
    **dict.fromkeys((".graph", ".metis"), _metis),
    **dict.fromkeys((".dimacs", ".col", ".gr", ".max"), _dimacs),
}
