"""Matrices as files: Matrix Market, numpy, scipy and MATLAB, checked before they take memory."""

from __future__ import annotations

import io
import math
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from krylow._checks import InputError, not_two_by_two
from krylow.io.columns import Columns
from krylow.io.files import Limit, attempt, load
from krylow.io.text import Edges

_SIZES = re.compile(rb"(?:[ \t\r]*(?:%[^\n]*)?\n)*[ \t]*(\d+)[ \t]+(\d+)(?:[ \t]+(\d+))?[ \t\r]*(?:\n|$)")
_TRAILING = re.compile(rb"[ \t\r\v\f]+$", re.MULTILINE)
ROW_BYTES = 32  # that a row takes while a sparse matrix is read, even an empty one


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
        limit.check(ROW_BYTES * max(rows, columns), f"a matrix of {rows} by {columns}")
    # scipy's reader runs over the end of a last line that has spaces but no newline, and kills the process.
    return scipy.io.mmread(io.BytesIO(content[: -len(body) or None] + _TRAILING.sub(b"", body) + b"\n"))


def _sparse(content: bytes, limit: Limit) -> Any:
    with load(content) as arrays:
        shape = arrays["shape"]  # a few entries can declare any number of rows, and each takes memory
    limit.check(ROW_BYTES * int(shape.max()), f"a matrix of shape {tuple(shape.tolist())}")
    W = scipy.sparse.load_npz(io.BytesIO(content))
    return whole_rows(W)


def whole_rows(W: Any) -> Any:
    """Return a sparse matrix, or refuse indices beyond its shape, which would read or write other memory."""
    if hasattr(W, "check_format"):
        W.check_format(full_check=True)
        # That skips the starts of rows where the last one ends at 0, and sorting would write beyond the arrays.
        if hasattr(W, "indptr") and (np.diff(W.indptr) < 0).any():
            raise ValueError("rows that end before they begin")
    return W


def _dense(content: bytes, limit: Limit) -> Any:
    W = load(content)
    if not isinstance(W, np.ndarray):
        raise ValueError("an .npz file")
    if W.ndim == 2 and W.shape[0] == 2 and W.dtype.kind in "iu":  # an edge_index
        not_two_by_two(W, limit.what)
        if W.shape[1] != 2:
            return edge_index(W, None, limit)
    return W


#: Names of a .mat file's matrix among several, in this order; and its most bytes of a name.
MATRIX_NAMES = ("A", "W", "adjacency", "adj", "network", "graph", "G", "L")
_COMPRESSED, _MATRIX, _HEADER = 15, 14, 128  # of a MATLAB 5 file: types of a variable, and where variables begin
_NUMBERS = (*range(1, 8), 9, 12, 13, 16, 17, 18)  # the types of numbers and text


def _matlab(content: bytes, limit: Limit, name: str | None) -> Any:
    """Read a square matrix of a MATLAB file by scipy, or Problem.A as the SuiteSparse collection writes it."""
    if content[:8] == b"\x89HDF\r\n\x1a\n" or content[:10] == b"MATLAB 7.3":
        raise InputError(f"{limit.what} must be a MATLAB file up to version 7, got 7.3: save it with -v7.")
    _check_unpacked(content, limit)
    found = {who: (shape, kind) for who, shape, kind in scipy.io.whosmat(io.BytesIO(content))}
    if name is not None and name not in found:
        raise InputError(f"{limit.what} must hold the variable {name!r}, got {', '.join(found) or 'none'}.")
    if name is None:
        name = _matrix_name(found, limit.what)
    shape, kind = found[name]
    size = max(shape) * ROW_BYTES if kind in ("sparse", "struct") else 8 * math.prod(shape)
    limit.check(size, f"a matrix of shape {shape}")
    W = scipy.io.loadmat(io.BytesIO(content), variable_names=[name])[name]
    if kind == "struct":
        W = W["A"].item()
    if scipy.sparse.issparse(W):
        limit.check(ROW_BYTES * max(W.shape), f"a matrix of shape {W.shape}")
        whole_rows(W)
    return W


def _matrix_name(found: dict[str, tuple[tuple[int, ...], str]], what: str) -> str:
    numbers = ("sparse", "double", "single", "logical")
    square = [
        name
        for name, (shape, kind) in found.items()
        if (len(shape) == 2 and shape[0] == shape[1] > 1 and (kind in numbers or "int" in kind))
        or (name == "Problem" and kind == "struct")
    ]
    chosen = square if len(square) == 1 else [name for name in MATRIX_NAMES if name in square]
    if not chosen:
        raise InputError(
            f"{what} must hold one square matrix, got {', '.join(square) or 'none'}: name it (weight, --weight)."
        )
    return chosen[0]


def _check_unpacked(content: bytes, limit: Limit) -> None:
    """Refuse variables of a MATLAB 5 file that unpack to too much, or with elements of which scipy's reader crashes."""
    order, place, total = ("<" if content[126:128] == b"IM" else ">"), _HEADER, 0
    if 0 in content[:4]:  # a MATLAB 4 file, by the rule of scipy
        return
    while place + 8 <= len(content):
        kind, size = struct.unpack_from(order + "II", content, place)
        variable = content[place : place + 8 + size]
        if kind == _COMPRESSED:
            unpack, rest, variable = zlib.decompressobj(), variable[8:], b""
            while rest:
                variable += unpack.decompress(rest, 1 << 20)
                limit.check(total + len(variable), "variables that unpack to more than that")
                if unpack.unconsumed_tail == rest or unpack.eof:
                    break
                rest = unpack.unconsumed_tail
            total += len(variable)
        _check_elements(variable, order, 0, len(variable), top=True)
        place += 8 + size


def _check_elements(data: bytes, order: str, place: int, end: int, *, top: bool = False) -> None:
    """Refuse elements of a type that is none, which would be a null pointer to scipy, and those beyond the end."""
    while place + 8 <= end:
        kind, size = struct.unpack_from(order + "II", data, place)
        begin, after = place + 8, place + 8 + size + -size % 8
        if kind >> 16:  # up to four bytes beside their type
            kind, size, begin, after = kind & 0xFFFF, kind >> 16, place + 4, place + 8
        if begin + size > end or (top and kind != _MATRIX) or (kind != _MATRIX and kind not in _NUMBERS):
            raise ValueError(f"an element of type {kind} and {size} bytes")
        if kind == _MATRIX:
            _check_elements(data, order, begin, begin + size)
        place = after


def edge_index(index: np.ndarray, weights: np.ndarray | None, limit: Limit, n: int | None = None) -> Edges:
    """Return the directed edges of an edge_index ``(2, e)``; nodes count from 0 to the largest, or to n - 1."""
    what = limit.what
    if index.ndim != 2 or index.shape[0] != 2 or index.dtype.kind not in "iu":
        raise InputError(f"{what} must have whole numbers (2, e) as edge_index, got {index.dtype} {index.shape}.")
    limit.check(64 * index.shape[1], f"{index.shape[1]} edges")
    index = index.astype(np.int64)
    low, high = (int(index.min()), int(index.max())) if index.size else (0, -1)
    n = max(n or 0, high + 1)
    if low < 0:
        raise InputError(f"{what} must have nodes from 0 on in its edge_index, got {low}.")
    values = np.ones(index.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    if values.size != index.shape[1]:
        raise InputError(f"{what} must have a weight for each of {index.shape[1]} edges, got shape {values.shape}.")
    return Edges(index, values.reshape(-1), directed=True, n=n)


def _reader(wanted: str, read: Callable[[bytes, Limit, Columns], Any]) -> Callable[[bytes, Limit, Columns], Any]:
    return lambda content, limit, columns: attempt(lambda: read(content, limit, columns), content, limit.what, wanted)


read_sparse = _reader(
    "a sparse matrix as scipy.sparse.save_npz makes it", lambda content, limit, _: _sparse(content, limit)
)
#: The reader of each kind of matrix.
MATRICES: dict[str, Callable[[bytes, Limit, Columns], Any]] = {
    ".mtx": _reader("a matrix as scipy.io.mmwrite makes it", lambda content, limit, _: _matrix_market(content, limit)),
    ".npy": _reader("a matrix as numpy.save makes it", lambda content, limit, _: _dense(content, limit)),
    ".mat": _reader(
        "a file as scipy.io.savemat makes it",
        lambda content, limit, columns: _matlab(
            content, limit, None if columns.weight is None else str(columns.weight)
        ),
    ),
}
