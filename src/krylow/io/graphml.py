"""GraphML, read by the standard library's parser as a stream: no tree in memory, and no document type to expand.

networkx would read it too, but holds the whole tree, expands entities, and is not part of the core install.
"""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import ParseError, XMLParser

import numpy as np
import scipy.sparse

from krylow._checks import InputError
from krylow.io.edge_lists import adjacency, check_names
from krylow.io.files import Limit
from krylow.io.matrices import symmetric


class _Target:
    """Takes the parser's events. Names come as ``{namespace}name``; the namespace is not looked at."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.nodes: dict[str, int] = {}  # row of each id, in the order of the file
        self.ends: list[tuple[str, str]] = []
        self.weights: list[float] = []  # data of the name "weight", else that key's default, else 1
        self.any_directed = False
        self.graphs = 0
        self.opened: list[str] = []
        self.directed = False
        self.weight_keys: set[str] = set()
        self.default = 1.0
        self.key: str | None = None  # of the key or data that is being read
        self.text = ""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise InputError(f"{self.what} must have no document type (DOCTYPE), whose entities could be endless.")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition("}")[2]
        if not self.opened and name != "graphml":
            raise InputError(f"{self.what} must be a GraphML file, got XML that starts with <{name}>.")
        self.opened.append(name)
        if name == "graph":
            self.graphs += 1
            self.directed = attributes.get("edgedefault") == "directed"
            if self.graphs > 1:
                raise InputError(f"{self.what} must hold one graph, got several or nested ones.")
        elif (
            name == "key"
            and attributes.get("attr.name") == "weight"
            and attributes.get("for", "all") in ("edge", "all")
        ):
            self.weight_keys.add(attributes.get("id", ""))
            self.key = attributes.get("id", "")
        elif name == "node":
            self.nodes.setdefault(attributes["id"], len(self.nodes))
        elif name == "edge":
            self.ends.append((attributes["source"], attributes["target"]))
            self.weights.append(self.default)
            directed = attributes.get("directed")
            self.any_directed |= self.directed if directed is None else directed == "true"
        elif name == "hyperedge":
            raise InputError(f"{self.what} must have edges between two nodes, got a hyperedge.")
        elif name == "data" and "edge" in self.opened and attributes.get("key") in self.weight_keys:
            self.key = attributes["key"]
        self.text = ""

    def data(self, text: str) -> None:
        if self.key is not None:
            self.text += text

    def end(self, tag: str) -> None:
        name = self.opened.pop()
        if name == "default" and self.key is not None:
            self.default = float(self.text)
        elif name == "data" and self.key is not None:
            self.weights[-1] = float(self.text)
        if name in ("data", "key"):
            self.key = None


def read_graphml(content: bytes, add_up: bool, limit: Limit) -> tuple[Any, np.ndarray]:
    """Return the adjacency of a GraphML file, and the names of its nodes; a directed graph must be symmetric."""
    graph, what = _parse(content, limit.what), limit.what
    if not graph.nodes:
        raise InputError(f"{what} must hold a graph with at least one node, got none.")
    check_names(graph.nodes, limit)
    nodes, n = np.array(list(graph.nodes)), len(graph.nodes)
    ends = np.array([graph.nodes[end] for pair in graph.ends for end in pair], dtype=np.int64).reshape(-1, 2).T
    weights = np.array(graph.weights, dtype=np.float64)
    if graph.any_directed:  # then both directions have to be there
        return symmetric(scipy.sparse.csr_array((weights, tuple(ends)), shape=(n, n)), what), nodes
    return adjacency(ends, weights, n, what, add_up=add_up), nodes


def _parse(content: bytes, what: str) -> _Target:
    graph = _Target(what)
    parser = XMLParser(target=graph)
    try:
        parser.feed(content)
        parser.close()
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"{what} must be a GraphML file, got a node or edge without {error}.") from None
    except (ParseError, ValueError, LookupError) as error:  # a lookup: an encoding that nobody knows
        raise InputError(f"{what} must be a whole GraphML file: {error}.") from None
    if not graph.graphs:
        raise InputError(f"{what} must hold a graph, got a GraphML file without one.")
    unknown = next((end for pair in graph.ends for end in pair if end not in graph.nodes), None)
    if unknown is not None:
        raise InputError(f"{what} must list the nodes of its edges, got an edge of {unknown!r}, which is no node.")
    return graph
