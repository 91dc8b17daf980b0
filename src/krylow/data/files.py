"""Graphs and signals as files: one reader for the command line and for folders of graphs, and the writers.

=========  ====================================================================================  =====================
what       files                                                                                 by
=========  ====================================================================================  =====================
graphs     ``.mtx`` (Matrix Market), ``.npz`` (scipy sparse), ``.npy`` (dense), edge lists       :func:`read_graph`
           (``.csv``, ``.tsv``, ``.txt``, ``.edges``, ``.edgelist``), ``.graphml``
signals    ``.npy``, ``.npz``, and tables: ``.csv``, ``.tsv``, ``.txt``                          :func:`read_signals`
=========  ====================================================================================  =====================

Text may be gzipped (``.csv.gz``, ``.mtx.gz``). Nothing that a file says is executed, and no pickle is read.
"""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from krylow import _checks, _files
from krylow._checks import InputError
from krylow.data.edge_lists import Edges, adjacency, check_names, parse_edge_list, rows_of_numbers
from krylow.data.graphml import parse_graphml
from krylow.data.limits import Limit, limit_of, read_bytes, size_of, unpacked_limit
from krylow.data.matrix_market import read_matrix_market
from krylow.data.tables import Table, format_table, parse_table

EDGE_LISTS = (".csv", ".tsv", ".txt", ".edges", ".edgelist")
GRAPHS = (".npz", ".mtx", ".npy", ".graphml", *EDGE_LISTS)
#: The separator that each kind of table is written with.
TABLES = {".csv": ",", ".tsv": "\t", ".txt": " "}
SIGNALS = (".npy", ".npz", *TABLES)
#: Bytes that a row of a sparse matrix takes while it is read, even an empty one.
ROW_BYTES = 32
#: What is looked for in an ``.npz`` of several arrays.
SIGNAL_NAMES = ("signals", "x")


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
        A file of one of the kinds in the module's table.
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
    what = path.name
    most = size_of(max_size)
    content = read_bytes(path, most)
    limit = limit_of(what, _unpacked_size(content, what, most) if kind == ".npz" else len(content), most)
    if kind in EDGE_LISTS:
        text = _text(content, what)
        del content  # the text is as large
        return _from_edges(parse_edge_list(text, what, limit), num_nodes, what, add_up)
    if kind == ".graphml":
        return _from_graphml(content, what, add_up, limit)
    return GraphFile(_summable(_symmetric(_matrix(kind, content, what, limit), what), what))


def read_signals(path: str | os.PathLike[str], *, max_size: int | str | None = None) -> Table:
    """Read signals: an array ``(n,)``, ``(n, c)`` or ``(*batch, n, c)``, or a table of a row a node.

    A table may have a first line of column names, and a first column that names the nodes (called node, id, name,
    label or index, or not made of numbers). An ``.npz`` must hold one array, or one that is called signals or x.

    Parameters
    ----------
    path
        A file of one of the kinds in the module's table.
    max_size
        The most bytes of memory that reading may take, as a number or as text such as "4G". None: 64 MiB, or ten times
        the file, which may unpack to 20 times its size.

    Returns
    -------
    Table
        float32 or float64; whole numbers become float64.
    """
    path = Path(path)
    kind = suffix(path, SIGNALS, "signals")
    what = path.name
    most = size_of(max_size)
    content = read_bytes(path, most)
    if kind in TABLES:
        text = _text(content, what)
        del content  # the text is as large
        return parse_table(text, what, limit_of(what, len(text), most))
    if kind == ".npz":
        _unpacked_size(content, what, most)
    name, values = "signals", _stumbling(_load, content, what, "an array as numpy.save makes it")
    if kind == ".npz":
        if not isinstance(values, np.lib.npyio.NpzFile):
            raise InputError(f"{what} must be an .npz file as numpy.savez makes it.")
        name = _only_array(values.files, what)
        values = _stumbling(lambda _: values[name], content, what, "whole arrays of numbers")
    if not isinstance(values, np.ndarray):
        raise InputError(f"{what} must hold one array, got an .npz file: call it so.")
    if values.dtype.kind not in "fiub":
        raise InputError(f"{what} must hold real numbers, got {values.dtype}.")
    single = values.dtype.kind == "f" and values.dtype.itemsize == 4
    return Table(values.astype(np.float32 if single else np.float64), array=name)


def write_signals(path: str | os.PathLike[str], table: Table) -> Path:
    """Write signals in the form that the suffix says, whole or not at all.

    Parameters
    ----------
    path
        ``.npy``, ``.npz``, or a table, which takes at most two dimensions.
    table
        The signals, and in a table also the names of columns and nodes.
    """
    kind = suffix(Path(path), SIGNALS, "signals")
    if kind in TABLES:
        return _write(path, format_table(table, TABLES[kind]).encode())
    if kind == ".npz":
        return _write(path, _npz({table.array: table.values}))
    buffer = io.BytesIO()
    np.save(buffer, table.values)
    return _write(path, buffer.getvalue())


def write_subspace(
    path: str | os.PathLike[str], basis: np.ndarray, ritz_values: np.ndarray, nodes: np.ndarray | None = None
) -> Path:
    """Write a subspace in the form that the suffix says, whole or not at all.

    Parameters
    ----------
    path
        ``.npz`` for the arrays basis, ritz_values and (where they have names) nodes; ``.npy`` or a table for the basis
        alone, in a table with the names of the nodes before it.
    basis, ritz_values
        ``(n, k)`` and ``(k,)``.
    nodes
        ``(n,)`` numbers or names of the nodes.
    """
    kind = suffix(Path(path), SIGNALS, "a basis")
    if kind != ".npz":
        return write_signals(path, basis_table(basis, nodes))
    arrays = {"basis": basis, "ritz_values": ritz_values}
    return _write(path, _npz(arrays if nodes is None else arrays | {"nodes": nodes}))


def basis_table(basis: np.ndarray, nodes: np.ndarray | None = None) -> Table:
    """Return a basis ``(n, k)`` as a table with columns u1 to uk, and the names of the nodes where there are any."""
    names = None if nodes is None else [str(node) for node in nodes.tolist()]
    return Table(basis, columns=[f"u{i}" for i in range(1, basis.shape[1] + 1)], nodes=names)


def rows_by_name(graph: GraphFile, names: list[str], what: str) -> np.ndarray:
    """Return the graph's row of each of ``names``, which must be its nodes, each once.

    Parameters
    ----------
    graph
        A matrix's nodes are called by their rows, from 0.
    names
        Of the nodes, in any order.
    what
        How messages call the file that has the names.
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


def kind_of(path: Path) -> str:
    """Return the suffix that says what a file is, in small letters and without ``.gz``; empty where there is none."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def suffix(path: Path, known: tuple[str, ...], what: str) -> str:
    """Return the suffix that says what a file is, or refuse one that is not among the known."""
    kind = kind_of(path)
    if kind not in known:
        raise InputError(f"{what} must be a file of type {', '.join(known)}, got {path.name!r}.")
    if path.suffix.lower() == ".gz" and kind in (".npy", ".npz"):
        raise InputError(f"{what} as {kind} must not be gzipped, got {path.name!r}: unpack it first.")
    return kind


def check_output(path: str | os.PathLike[str]) -> None:
    """Find out whether a file could be written, before the time is spent to compute it."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError(f"the output must be a file, got the folder {str(path)!r}.")
    if not target.parent.is_dir():
        raise InputError(f"the output must go to a folder that exists, got {str(path)!r}: make {target.parent} first.")
    if target.exists() and not target.is_file():  # a device or a pipe: nothing is written beside it
        return
    try:
        _files.check_folder(target.parent)
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror}.") from None


def _write(path: str | os.PathLike[str], content: bytes) -> Path:
    zipped = os.fspath(path).lower().endswith(".gz")
    try:
        return _files.write_whole(path, gzip.compress(content, mtime=0) if zipped else content)
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror}.") from None


def _npz(arrays: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _unpacked_size(content: bytes, what: str, max_size: int | None) -> int:
    """Return how many bytes the arrays of an ``.npz`` have, which its directory says; what is none has its own size."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except Exception:  # whatever is damaged: the reader itself finds the words for it
        return len(content)
    unpacked_limit(what, len(content), max_size).check(size, "arrays that unpack to more than that")
    return size


def _text(content: bytes, what: str) -> str:
    if b"\0" in content:
        raise InputError(f"{what} must be text (UTF-8), got a NUL character: is it a binary file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{what} must be text (UTF-8), got bytes that are none.") from None


def _load(content: bytes) -> Any:
    return np.load(io.BytesIO(content), allow_pickle=False)


def _load_sparse(content: bytes, limit: Limit) -> Any:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        shape = arrays["shape"]  # a few entries can declare any number of rows, and each takes memory
    limit.check(ROW_BYTES * int(shape.max()), f"a matrix of shape {tuple(shape.tolist())}")
    W = scipy.sparse.load_npz(io.BytesIO(content))
    if hasattr(W, "check_format"):
        W.check_format(full_check=True)  # indices beyond the shape would be read from elsewhere in memory
    return W


def _load_array(content: bytes, limit: Limit) -> Any:
    W = _load(content)
    if not isinstance(W, np.ndarray):
        raise ValueError("an .npz file")
    return W


#: What each kind of matrix must be, and what reads it.
_MATRICES: dict[str, tuple[str, Callable[[bytes, Limit], Any]]] = {
    ".mtx": ("a matrix as scipy.io.mmwrite makes it", read_matrix_market),
    ".npz": ("a sparse matrix as scipy.sparse.save_npz makes it", _load_sparse),
    ".npy": ("a matrix as numpy.save makes it", _load_array),
}


def _stumbling(reader: Callable[[bytes], Any], content: bytes, what: str, wanted: str) -> Any:
    """Read, and turn whatever the first damaged byte makes a reader stumble over into one message."""
    try:
        return reader(content)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what} must be {wanted}, got {_damage(content, error)}.") from None


def _damage(content: bytes, error: Exception) -> str:
    return "an empty file" if not content.strip() else f"something else ({' '.join(str(error).split())})".rstrip(".")


def _matrix(kind: str, content: bytes, what: str, limit: Limit) -> Any:
    """Read a square matrix of finite real numbers, as float32 or float64 in compressed rows."""
    wanted, reader = _MATRICES[kind]
    W = _stumbling(lambda content: reader(content, limit), content, what, wanted)
    if W.ndim != 2 or W.shape[0] != W.shape[1] or W.shape[0] == 0:
        raise InputError(f"{what} must be a square matrix with a row for each node, got shape {W.shape}.")
    if W.dtype.kind not in "fiub":
        raise InputError(f"{what} must hold real weights, got {W.dtype}.")
    single = W.dtype.kind == "f" and W.dtype.itemsize == 4
    W = _stumbling(
        lambda _: scipy.sparse.csr_array(W, dtype=np.float32 if single else np.float64), content, what, wanted
    )
    return _finite(W, what)


def _finite(W: Any, what: str) -> Any:
    W.sum_duplicates()
    if not np.isfinite(W.data).all():
        bad = int((~np.isfinite(W.data)).sum())
        raise InputError(f"{what} must have finite weights, got {bad} that are NaN or infinite: drop or replace them.")
    return W


def _summable(W: Any, what: str) -> Any:
    """Refuse finite weights whose sum at a node is not: there would be no degree."""
    if _largest(W.data) > np.finfo(W.dtype).max / W.shape[0]:
        with np.errstate(over="ignore"):
            bad = int((~np.isfinite(abs(W).sum(axis=1))).sum())
        if bad:
            raise InputError(
                f"{what} must have weights with a finite sum at every node, "
                f"got {bad} where it is infinite: scale them down."
            )
    return W


def _symmetric(W: Any, what: str) -> Any:
    gap, size = (_largest((W - W.T).data), _largest(W.data))
    if gap > _checks.SYMMETRY_EPS * np.finfo(W.dtype).eps * size:
        raise _checks.asymmetric(gap, what)
    return W


def _largest(values: np.ndarray) -> float:
    """Return the largest modulus, without an array of moduli."""
    return max(float(values.max()), -float(values.min())) if values.size else 0.0


def _only_array(names: list[str], what: str) -> str:
    if len(names) == 1:
        return names[0]
    found = next((name for name in SIGNAL_NAMES if name in names), None)
    if found is None:
        raise InputError(
            f"{what} must hold one array, or one that is called {' or '.join(SIGNAL_NAMES)}, "
            f"got {', '.join(names) or 'none'}."
        )
    return found


def _from_edges(edges: Edges, num_nodes: int | None, what: str, add_up: bool) -> GraphFile:
    if edges.names is None:
        rows, numbers = rows_of_numbers(edges.ends, num_nodes)
    else:
        rows, numbers = edges.ends, np.array(edges.names)
    weights = edges.weights
    del edges  # its numbers are as large as the rows
    return GraphFile(_summable(adjacency(rows, weights, len(numbers), what, add_up=add_up), what), numbers)


def _from_graphml(content: bytes, what: str, add_up: bool, limit: Limit) -> GraphFile:
    graph = parse_graphml(content, what)
    if not graph.nodes:
        raise InputError(f"{what} must hold a graph with at least one node, got none.")
    check_names(graph.nodes, limit)
    nodes = np.array(list(graph.nodes))
    n = len(nodes)
    ends = np.array([graph.nodes[end] for pair in graph.ends for end in pair], dtype=np.int64).reshape(-1, 2).T
    weights = np.array(graph.weights, dtype=np.float64)
    if graph.directed:  # then both directions have to be there
        W = _symmetric(_finite(scipy.sparse.csr_array((weights, tuple(ends)), shape=(n, n)), what), what)
    else:
        W = adjacency(ends, weights, n, what, add_up=add_up)
    return GraphFile(_summable(W, what), nodes)
