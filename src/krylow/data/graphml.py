"""GraphML, read by the standard library's parser as a stream: no tree in memory, and no document type to expand."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.etree.ElementTree import ParseError, XMLParser

from krylow._checks import InputError


@dataclass
class GraphML:
    """What a GraphML file says.

    Attributes
    ----------
    nodes
        Row of each node, by its id, in the order of the file.
    ends
        The two ids of each edge.
    weights
        Weight of each edge: its data of the name "weight", else that key's default, else 1.
    directed
        Whether any edge is directed.
    """

    nodes: dict[str, int] = field(default_factory=dict)
    ends: list[tuple[str, str]] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    directed: bool = False


class _Target:
    """Takes the parser's events. Names come as ``{namespace}name``; the namespace is not looked at."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.graph = GraphML()
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
            self.graph.nodes.setdefault(attributes["id"], len(self.graph.nodes))
        elif name == "edge":
            self.graph.ends.append((attributes["source"], attributes["target"]))
            self.graph.weights.append(self.default)
            directed = attributes.get("directed")
            self.graph.directed |= self.directed if directed is None else directed == "true"
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
            self.graph.weights[-1] = float(self.text)
        if name in ("data", "key"):
            self.key = None


def parse_graphml(content: bytes, what: str) -> GraphML:
    """Read a GraphML file.

    Parameters
    ----------
    content
        The whole file.
    what
        How messages call the file.
    """
    target = _Target(what)
    parser = XMLParser(target=target)
    try:
        parser.feed(content)
        parser.close()
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"{what} must be a GraphML file, got a node or edge without {error}.") from None
    except (ParseError, ValueError, LookupError) as error:  # a lookup: an encoding that nobody knows
        raise InputError(f"{what} must be a whole GraphML file: {error}.") from None
    graph = target.graph
    if not target.graphs:
        raise InputError(f"{what} must hold a graph, got a GraphML file without one.")
    unknown = next((end for pair in graph.ends for end in pair if end not in graph.nodes), None)
    if unknown is not None:
        raise InputError(f"{what} must list the nodes of its edges, got an edge of {unknown!r}, which is no node.")
    return graph
