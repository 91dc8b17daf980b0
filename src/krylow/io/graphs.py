"""Graphs as files: one reader for the command line and for folders of graphs."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from krylow import _checks
from krylow._checks import InputError
from krylow.io.files import Limit, archive_size, attempt, decode, limit_of, load, read_bytes, size_of, suffix
from krylow.io.text import Edges, parse_edge_list, parse_graphml

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
        W, nodes = _from_edges(parse_edge_list(text, limit), num_nodes, add_up, limit)
    elif kind == ".graphml":
        W, nodes = _from_edges(parse_graphml(content, what), None, add_up, limit)
    else:
        W = _read_matrix(kind, content, limit)
    return GraphFile(_with_finite_degrees(W, what), nodes)


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


def _from_edges(edges: Edges, num_nodes: int | None, add_up: bool, limit: Limit) -> tuple[Any, np.ndarray]:
    """Return the adjacency and the nodes of undirected edges, or of directed ones given in both directions."""
    ends, weights, what = edges.ends, edges.weights, limit.what
    if edges.names is None:
        ends, nodes = _rows_of_numbers(ends, num_nodes)
    else:
        longest = max(map(len, edges.names))  # an array has space for it in every entry
        limit.check(4 * longest * len(edges.names), f"{len(edges.names)} names, one of them of {longest} characters")
        nodes = np.array(edges.names)
    _check_finite(weights, what)
    if edges.directed:
        return _symmetric(scipy.sparse.csr_array((weights, tuple(ends)), shape=(len(nodes),) * 2), what), nodes
    return _adjacency(ends, weights, len(nodes), add_up, what), nodes


def _adjacency(ends: np.ndarray, weights: np.ndarray, n: int, add_up: bool, what: str) -> Any:
    """Return the symmetric adjacency ``(n, n)`` of undirected edges, float64: ``a b`` and ``b a`` are one edge.

    An edge that is named several times must have one weight, and counts once, unless ``add_up``.
    """
    place = np.minimum(*ends).astype(np.int64) * n
    place += np.maximum(*ends)
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
    off = low != high
    row, col = np.concatenate([low, high[off]]), np.concatenate([high, low[off]])
    return scipy.sparse.csr_array((np.concatenate([weight, weight[off]]), (row, col)), shape=(n, n))


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


def _read_matrix(kind: str, content: bytes, limit: Limit) -> Any:
    """Return the symmetric matrix of a file of type ``kind``, finite, in compressed rows of float32 or float64."""
    what, (wanted, reader) = limit.what, _READERS[kind]
    W = attempt(lambda: reader(content, limit), content, what, wanted)
    if W.ndim != 2 or W.shape[0] != W.shape[1] or W.shape[0] == 0:
        raise InputError(f"{what} must be a square matrix with a row for each node, got shape {W.shape}.")
    if W.dtype.kind not in "fiub":
        raise InputError(f"{what} must hold real weights, got {W.dtype}.")
    dtype = np.float32 if W.dtype.kind == "f" and W.dtype.itemsize == 4 else np.float64
    return _symmetric(attempt(lambda: scipy.sparse.csr_array(W, dtype=dtype), content, what, wanted), what)


def _symmetric(W: Any, what: str) -> Any:
    """Return W with duplicates summed, or refuse one that is not finite and symmetric to rounding."""
    W.sum_duplicates()
    _check_finite(W.data, what)
    gap, size = _largest((W - W.T).data), _largest(W.data)
    if gap > _checks.SYMMETRY_EPS * np.finfo(W.dtype).eps * size:
        raise _checks.asymmetric(gap, what)
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


_SIZES = re.compile(rb"(?:[ \t\r]*(?:%[^\n]*)?\n)*[ \t]*(\d+)[ \t]+(\d+)(?:[ \t]+(\d+))?[ \t\r]*(?:\n|$)")
_TRAILING = re.compile(rb"[ \t\r\v\f]+$", re.MULTILINE)
_ROW_BYTES = 32  # that a row takes while a sparse matrix is read, even an empty one


def _matrix_market(content: bytes, limit: Limit) -> Any:
    """Read Matrix Market by scipy, whose reader crashes or allocates without limit on some damaged files."""
    header, _, rest = content.partition(b"\n")
    sizes = _SIZES.match(rest)
    if not header.startswith(b"%%MatrixMarket") or sizes is None:
        raise ValueError("a file without the line %%MatrixMarket or the line of sizes")
    body = rest[sizes.end() :]
    del rest
    if body.translate(None, b"0123456789+-.eEdDnaNAifIFtyTY \t\n"):
        raise ValueError("characters that are no part of numbers")
    rows, columns = int(sizes[1]), int(sizes[2])
    if not rows or not columns:
        raise ValueError(f"a matrix of {rows} by {columns}")  # in an array, scipy's reader divides by their number
    if sizes[3] is not None:
        declared, possible = int(sizes[3]), len(body) // 4 + 1  # an entry has at least "1 1\n"
    else:
        triangle = 1 if b"general" in header.lower() else 2
        declared, possible = rows * columns // triangle, len(body) // 2 + rows + 1
    if declared > possible:
        raise ValueError(f"{declared} entries declared in a file of at most {possible}")
    if sizes[3] is not None:
        limit.check(_ROW_BYTES * max(rows, columns), f"a matrix of {rows} by {columns}")
    # scipy's reader runs over the end of a last line that has spaces but no newline, and kills the process.
    return scipy.io.mmread(io.BytesIO(content[: -len(body) or None] + _TRAILING.sub(b"", body) + b"\n"))


def _sparse(content: bytes, limit: Limit) -> Any:
    with load(content) as arrays:
        shape = arrays["shape"]  # a few entries can declare any number of rows, and each takes memory
    limit.check(_ROW_BYTES * int(shape.max()), f"a matrix of shape {tuple(shape.tolist())}")
    W = scipy.sparse.load_npz(io.BytesIO(content))
    if hasattr(W, "check_format"):
        W.check_format(full_check=True)  # indices beyond the shape would read other memory
    return W


def _dense(content: bytes, limit: Limit) -> Any:
    W = load(content)
    if not isinstance(W, np.ndarray):
        raise ValueError("an .npz file")
    return W


#: What each kind of matrix must be, and its reader.
_READERS: dict[str, tuple[str, Callable[[bytes, Limit], Any]]] = {
    ".mtx": ("a matrix as scipy.io.mmwrite makes it", _matrix_market),
    ".npz": ("a sparse matrix as scipy.sparse.save_npz makes it", _sparse),
    ".npy": ("a matrix as numpy.save makes it", _dense),
}
