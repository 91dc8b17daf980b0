"""Graphs as files and tables: one reader for the command line, for folders of graphs and for tables of edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from krylow import _checks
from krylow._checks import InputError
from krylow.io import datasets, networks, tables
from krylow.io.columns import Columns
from krylow.io.files import FLOOR, GROWTH, Limit, archive_size, attempt, limit_of, read_bytes, size_of, suffix
from krylow.io.matrices import MATRICES, ROW_BYTES
from krylow.io.text import Edges, parse_edge_list, parse_graphml

EDGE_LISTS = (".csv", ".tsv", ".txt", ".edges", ".edgelist")
#: What becomes of an edge whose two directions have different weights.
DIRECTED = ("error", "mean", "max", "sum")


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
    path: Any,
    *,
    num_nodes: int | None = None,
    add_up: bool = False,
    max_size: int | str | None = None,
    source: str | int | None = None,
    target: str | int | None = None,
    weight: str | int | None = None,
    directed: str = "error",
) -> GraphFile:
    r"""Read a graph in whatever form its suffix says, or a table of edges.

    Parameters
    ----------
    path
        A file: a matrix (``.mtx``, ``.npz`` of scipy or with an ``edge_index``, ``.npy``, ``.mat``), a network
        (``.graphml``, ``.gexf``, ``.gml``, ``.net``, ``.graph`` of METIS, ``.col``, ``.gr`` and other DIMACS files), a
        table of edges (``.csv``, ``.tsv``, ``.txt``, ``.edges``, ``.edgelist``, ``.parquet``), a PyG graph (``.pt``),
        or a folder of OGB. Text may be gzipped. Or a pandas or polars table of edges.
    num_nodes
        For edges of whole numbers: how many nodes there are, so that those without an edge are counted. None:
        the nodes that have an edge, in ascending order.
    add_up
        Whether edges that are named more than once add up. Else they must agree, and count once.
    max_size
        The most bytes of memory that reading may take, as a number or as text such as "4G". None: 64 MiB, or ten times
        the file (40 times for networks and datasets), which may unpack to 20 times its size.
    source, target
        The two columns of nodes in a table of edges, by name, or by position from 0. None: the columns of a known name
        (source and target, from and to, u and v, ...), else the first two of at most three.
    weight
        What holds the weights: a column, an attribute of the edges, or a matrix of a ``.mat``. None: what is called
        weight; else the third column of a table of three; else every edge weighs 1.
    directed
        What an edge is worth whose two directions have different weights: "mean", $(W + W^\top) / 2$, "max" or "sum",
        of the two, where a direction that is missing weighs 0. "error": they have to agree. An edge list, whose lines
        are else undirected edges, is taken as directed where this is given.

    Returns
    -------
    GraphFile
        Adjacency, and what the nodes are called.

    Examples
    --------
    >>> import pandas
    >>> flights = pandas.DataFrame({"year": [2001, 2002], "from": ["Oslo", "Rome"], "to": ["Rome", "Bonn"]})
    >>> graph = read_graph(flights)
    >>> graph.nodes.tolist(), graph.edges
    (['Oslo', 'Rome', 'Bonn'], 2)
    """
    _checks.choice(directed, DIRECTED, "directed")
    columns, most = Columns(source, target, weight), size_of(max_size)
    if tables.is_frame(path):
        limit = Limit("the table", max(GROWTH * tables.frame_size(path), FLOOR) if most is None else most)
        return _graph(tables.frame_edges(path, columns, limit), limit, num_nodes, add_up, directed)
    path = Path(path)
    if path.is_dir():
        return _graph(*datasets.read_ogb(path, most), num_nodes, add_up, directed)
    kind = suffix(path, GRAPHS, "a graph")
    content = read_bytes(path, most)
    size = archive_size(content, path.name, most) if kind in (".npz", ".pt") else len(content)
    limit = limit_of(path.name, size, most, GROWTH if kind in COMPACT else LARGE)
    found = READERS[kind](content, limit, columns)
    del content
    return _graph(found, limit, num_nodes, add_up, directed)


def rows_by_name(graph: GraphFile, names: list[str], what: str) -> np.ndarray:
    """Return the graph's row of each of ``names``, which must be its nodes, each once, in any order.

    A matrix's nodes are called by their rows, from 0; ``what`` is the file that has the names.
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


def _graph(found: Any, limit: Limit, num_nodes: int | None, add_up: bool, directed: str) -> GraphFile:
    """Return the graph of what a reader found: edges, or a matrix."""
    what, nodes = limit.what, None
    if isinstance(found, Edges):
        found, nodes = _from_edges(found, num_nodes, add_up, directed, limit)
    else:
        found = _undirected(_matrix(found, what), directed, what)
    return GraphFile(_with_finite_degrees(found, what), nodes)


def _from_edges(
    edges: Edges, num_nodes: int | None, add_up: bool, directed: str, limit: Limit
) -> tuple[Any, np.ndarray]:
    """Return the adjacency and the nodes of undirected edges, or of directed ones given in both directions."""
    ends, weights, what = edges.ends, edges.weights, limit.what
    if edges.names is not None:
        longest = max(map(len, edges.names), default=0)  # an array has space for it in every entry
        limit.check(4 * longest * len(edges.names), f"{len(edges.names)} names, one of them of {longest} characters")
        nodes = np.array(edges.names)
    elif edges.n is not None:
        n = max(edges.n, num_nodes or 0)
        limit.check(ROW_BYTES * n, f"{n} nodes")
        nodes = np.arange(edges.first, edges.first + n)
    else:
        ends, nodes = _rows_of_numbers(ends, num_nodes)
    if nodes.size == 0:
        raise InputError(f"{what} must hold a graph with at least one node, got none.")
    _check_finite(weights, what)
    arcs = edges.directed or (edges.directed is None and directed != "error")
    W = _adjacency(ends, weights, len(nodes), add_up, arcs, what)
    return (_undirected(W, directed, what) if arcs else W), nodes


def _adjacency(ends: np.ndarray, weights: np.ndarray, n: int, add_up: bool, arcs: bool, what: str) -> Any:
    """Return the adjacency ``(n, n)`` of edges, float64: where they are no ``arcs``, ``a b`` and ``b a`` are one edge.

    An edge that is named several times must have one weight, and counts once, unless ``add_up``.
    """
    place = (ends[0] if arcs else np.minimum(*ends)).astype(np.int64) * n
    place += ends[1] if arcs else np.maximum(*ends)
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
                f"same two nodes ({other.size} such lines): correct them, add repeated edges up (add_up, --add-up)"
                f"{'' if arcs else ', or take them as directed (directed, --directed mean, max or sum)'}."
            )
    row, col = place // n, place % n
    if not arcs:
        off = row != col
        row, col = np.concatenate([row, col[off]]), np.concatenate([col, row[off]])
        weight = np.concatenate([weight, weight[off]])
    return scipy.sparse.csr_array((weight, (row, col)), shape=(n, n))


def _rows_of_numbers(numbers: np.ndarray, num_nodes: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of each numbered node, and the number of each row.

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
        present = np.zeros(highest + 1, dtype=bool)
        present[numbers] = True
        return (np.cumsum(present) - 1).astype(numbers.dtype)[numbers], np.flatnonzero(present)
    found, rows = np.unique(numbers, return_inverse=True)
    return rows.reshape(numbers.shape), found


def _matrix(W: Any, what: str) -> Any:
    """Return the square matrix of a file in compressed rows of float32 or float64."""
    if W.ndim != 2 or W.shape[0] != W.shape[1] or W.shape[0] == 0:
        raise InputError(f"{what} must be a square matrix with a row for each node, got shape {W.shape}.")
    if W.dtype.kind not in "fiub":
        raise InputError(f"{what} must hold real weights, got {W.dtype}.")
    dtype = np.float32 if W.dtype.kind == "f" and W.dtype.itemsize == 4 else np.float64
    return attempt(lambda: scipy.sparse.csr_array(W, dtype=dtype), b" ", what, "a matrix")


def _undirected(W: Any, directed: str, what: str) -> Any:
    """Return W, whose duplicates are summed, as a symmetric matrix; refuse one that is not where that is an error."""
    W.sum_duplicates()
    _check_finite(W.data, what)
    if directed == "mean":
        return (W + W.T) * W.dtype.type(0.5)  # scipy divides in float64
    if directed == "max":
        return W.maximum(W.T).tocsr()
    if directed == "sum":
        return W + W.T - scipy.sparse.diags_array(W.diagonal(), dtype=W.dtype)  # a self-loop has one direction
    gap, size = _largest((W - W.T).data), _largest(W.data)
    if gap > _checks.SYMMETRY_EPS * np.finfo(W.dtype).eps * size:
        raise InputError(
            f"{_checks.asymmetric(gap, what)} Or say what an edge is worth whose directions differ: directed "
            "(--directed mean, max or sum)."
        )
    return W


def _check_finite(weights: np.ndarray, what: str) -> None:
    bad = int((~np.isfinite(weights)).sum())
    if bad:
        raise InputError(f"{what} must have finite weights, got {bad} that are NaN or infinite: drop or replace them.")


def _with_finite_degrees(W: Any, what: str) -> Any:
    """Return W, or refuse finite weights whose sum at a node is infinite."""
    if _largest(W.data) > np.finfo(W.dtype).max / W.shape[0]:
        with np.errstate(over="ignore"):
            bad = int((~np.isfinite(abs(W).sum(axis=1))).sum())
        if bad:
            raise InputError(
                f"{what} must have weights with a finite sum at every node, "
                f"got {bad} where it is infinite: scale them down."
            )
    return W


def _largest(values: np.ndarray) -> float:
    """Return the largest modulus, without an array of moduli."""
    return max(float(values.max()), -float(values.min())) if values.size else 0.0


READERS: dict[str, Callable[[bytes, Limit, Columns], Any]] = {
    ".npz": datasets.read_npz,
    **MATRICES,
    ".graphml": lambda content, limit, columns: parse_graphml(content, limit.what, columns.attribute),
    **dict.fromkeys(EDGE_LISTS, lambda content, limit, columns: parse_edge_list(content, limit, columns)),
    **networks.READERS,
    **datasets.READERS,
    **tables.READERS,
}
GRAPHS = tuple(READERS)
#: The others take more memory for a byte of their file.
COMPACT, LARGE = (*MATRICES, ".npz", ".graphml", *EDGE_LISTS), 4 * GROWTH
