"""Graphs as files: one reader for the command line and for folders of graphs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from krylow._checks import InputError
from krylow.io.edge_lists import adjacency, parse_edge_list, rows_of_numbers
from krylow.io.files import Limit, archive_size, decode, limit_of, read_bytes, size_of, suffix
from krylow.io.graphml import read_graphml
from krylow.io.matrices import read_matrix, summable

EDGE_LISTS = (".csv", ".tsv", ".txt", ".edges", ".edgelist")
GRAPHS = (".npz", ".mtx", ".npy", ".graphml", *EDGE_LISTS)


@dataclass(frozen=True)
class GraphFile:
    """A graph that was read.

    Attributes
    ----------
    adjacency
        ``(n, n)`` symmetric ``csr_array``, finite, float32 or float64.
    nodes
        ``(n,)`` the number or name of each row's node, as the file has it. None: a matrix, whose rows have no names.
    """

    adjacency: Any
    nodes: np.ndarray | None = None

    @property
    def n(self) -> int:
        """Number of nodes."""
        return int(self.adjacency.shape[0])

    @property
    def edges(self) -> int:
        """Number of edges, self-loops among them."""
        loops = int(np.count_nonzero(self.adjacency.diagonal()))
        return (int(self.adjacency.count_nonzero()) - loops) // 2 + loops


def read_graph(
    path: str | os.PathLike[str],
    *,
    num_nodes: int | None = None,
    add_up: bool = False,
    max_size: int | str | None = None,
) -> GraphFile:
    """Read a graph in whatever form its suffix says.

    Parameters
    ----------
    path
        Matrix Market (``.mtx``), a scipy sparse matrix (``.npz``), a dense matrix (``.npy``), GraphML (``.graphml``),
        or an edge list (``.csv``, ``.tsv``, ``.txt``, ``.edges``, ``.edgelist``). Text may be gzipped.
    num_nodes
        For edge lists of whole numbers: how many nodes there are, so that those without an edge are counted. None:
        the nodes that have an edge, in ascending order.
    add_up
        For edge lists and GraphML: whether edges that are named more than once add up. Else they must agree, and
        count once.
    max_size
        The most bytes of memory that reading may take, as a number or as text such as "4G". None: 64 MiB, or ten times
        the file, which may unpack to 20 times its size.

    Returns
    -------
    GraphFile
        Adjacency, and what the nodes are called.
    """
    path = Path(path)
    kind = suffix(path, GRAPHS, "a graph")
    what, most = path.name, size_of(max_size)
    content = read_bytes(path, most)
    limit = limit_of(what, archive_size(content, what, most) if kind == ".npz" else len(content), most)
    nodes = None
    if kind in EDGE_LISTS:
        text = decode(content, what)
        del content  # the text is as large
        W, nodes = _from_edge_list(text, num_nodes, add_up, limit)
    elif kind == ".graphml":
        W, nodes = read_graphml(content, add_up, limit)
    else:
        W = read_matrix(kind, content, limit)
    return GraphFile(summable(W, what), nodes)


def _from_edge_list(text: str, num_nodes: int | None, add_up: bool, limit: Limit) -> tuple[Any, np.ndarray]:
    edges = parse_edge_list(text, limit)
    if edges.names is None:
        rows, nodes = rows_of_numbers(edges.ends, num_nodes)
    else:
        rows, nodes = edges.ends, np.array(edges.names)
    weights = edges.weights
    del edges  # its numbers are as large as the rows
    return adjacency(rows, weights, len(nodes), limit.what, add_up=add_up), nodes


def rows_by_name(graph: GraphFile, names: list[str], what: str) -> np.ndarray:
    """Return the graph's row of each of ``names``, which must be its nodes, each once, in any order.

    A matrix's nodes are called by their rows, from 0; ``what`` is how messages call the file that has the names.
    """
    nodes = np.arange(graph.n) if graph.nodes is None else graph.nodes
    rows = {str(node): row for row, node in enumerate(nodes.tolist())}
    unknown = [name for name in names if name not in rows]
    if unknown:
        raise InputError(
            f"{what} must name nodes of the graph, got {len(unknown)} that it has not, such as {unknown[0]!r}: "
            "a node without edges is in an edge list as an edge to itself of weight 0."
        )
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise InputError(f"{what} must name every node once, got {twice!r} twice.")
    if len(names) < graph.n:
        missing = next(name for name in rows if name not in set(names))
        raise InputError(
            f"{what} must have a row for each of the {graph.n} nodes, got {len(names)}: {missing!r} has none."
        )
    return np.array([rows[name] for name in names])
