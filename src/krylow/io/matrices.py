"""Square matrices as files: Matrix Market, scipy's ``.npz``, numpy's ``.npy``; what is taken on trust is checked."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from krylow import _checks
from krylow._checks import InputError
from krylow.io.files import Limit, attempt, load

#: Bytes that a row takes while a sparse matrix is read, even an empty one, and the fewest that a line of text has.
ROW_BYTES, LINE_BYTES = 32, 4
_SIZES = re.compile(rb"(?:[ \t\r]*(?:%[^\n]*)?\n)*[ \t]*(\d+)[ \t]+(\d+)(?:[ \t]+(\d+))?[ \t\r]*(?:\n|$)")
_TRAILING = re.compile(rb"[ \t\r\v\f]+$", re.MULTILINE)
#: All that numbers are written with, and the spaces between them.
_NUMBERS = b"0123456789+-.eEdDnaNAifIFtyTY \t\n"


def read_matrix(kind: str, content: bytes, limit: Limit) -> Any:
    """Return the symmetric matrix of a file of type ``kind``, finite, in compressed rows of float32 or float64."""
    what, (wanted, reader) = limit.what, _READERS[kind]
    W = attempt(lambda: reader(content, limit), content, what, wanted)
    if W.ndim != 2 or W.shape[0] != W.shape[1] or W.shape[0] == 0:
        raise InputError(f"{what} must be a square matrix with a row for each node, got shape {W.shape}.")
    if W.dtype.kind not in "fiub":
        raise InputError(f"{what} must hold real weights, got {W.dtype}.")
    dtype = np.float32 if W.dtype.kind == "f" and W.dtype.itemsize == 4 else np.float64
    return symmetric(attempt(lambda: scipy.sparse.csr_array(W, dtype=dtype), content, what, wanted), what)


def symmetric(W: Any, what: str) -> Any:
    """Return W with duplicates summed, or refuse one that is not finite and symmetric to rounding."""
    W.sum_duplicates()
    finite(W.data, what)
    gap, size = _largest((W - W.T).data), _largest(W.data)
    if gap > _checks.SYMMETRY_EPS * np.finfo(W.dtype).eps * size:
        raise _checks.asymmetric(gap, what)
    return W


def finite(weights: np.ndarray, what: str) -> None:
    """Refuse weights that are NaN or infinite."""
    if not np.isfinite(weights).all():
        bad = int((~np.isfinite(weights)).sum())
        raise InputError(f"{what} must have finite weights, got {bad} that are NaN or infinite: drop or replace them.")


def summable(W: Any, what: str) -> Any:
    """Return W, or refuse finite weights whose sum at a node is not: there would be no degree."""
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


def _matrix_market(content: bytes, limit: Limit) -> Any:
    header, _, rest = content.partition(b"\n")
    sizes = _SIZES.match(rest)
    if not header.startswith(b"%%MatrixMarket") or sizes is None:
        raise ValueError("a file without the line %%MatrixMarket or the line of sizes")
    body = rest[sizes.end() :]
    del rest
    if body.translate(None, _NUMBERS):
        raise ValueError("characters that are no part of numbers")
    rows, columns = int(sizes[1]), int(sizes[2])
    if not rows or not columns:
        raise ValueError(f"a matrix of {rows} by {columns}")  # in an array, scipy's reader divides by their number
    if sizes[3] is not None:
        declared, possible = int(sizes[3]), len(body) // LINE_BYTES + 1
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
    if hasattr(W, "check_format"):
        W.check_format(full_check=True)  # indices beyond the shape would be read from elsewhere in memory
    return W


def _dense(content: bytes, limit: Limit) -> Any:
    W = load(content)
    if not isinstance(W, np.ndarray):
        raise ValueError("an .npz file")
    return W


#: What each kind of matrix must be, and what reads it.
_READERS: dict[str, tuple[str, Callable[[bytes, Limit], Any]]] = {
    ".mtx": ("a matrix as scipy.io.mmwrite makes it", _matrix_market),
    ".npz": ("a sparse matrix as scipy.sparse.save_npz makes it", _sparse),
    ".npy": ("a matrix as numpy.save makes it", _dense),
}
