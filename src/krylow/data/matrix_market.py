"""Matrix Market files: what scipy's reader takes on trust is checked before it reads."""

from __future__ import annotations

import io
import re
from typing import Any

import scipy.io

from krylow.data.limits import Limit

#: Bytes that a row takes while a sparse matrix is read, and the fewest that a line of one has.
ROW_BYTES, LINE_BYTES = 32, 4
_SIZES = re.compile(rb"(?:[ \t\r]*(?:%[^\n]*)?\n)*[ \t]*(\d+)[ \t]+(\d+)(?:[ \t]+(\d+))?[ \t\r]*(?:\n|$)")
_TRAILING = re.compile(rb"[ \t\r\v\f]+$", re.MULTILINE)
#: All that numbers are written with, and the spaces between them.
_NUMBERS = b"0123456789+-.eEdDnaNAifIFtyTY \t\n"


def read_matrix_market(content: bytes, limit: Limit) -> Any:
    """Return the matrix of a Matrix Market file.

    Parameters
    ----------
    content
        The whole file.
    limit
        The most memory that it may take.
    """
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
        raise ValueError(f"a matrix of {rows} by {columns}")  # in an array, its reader divides by their number
    if sizes[3] is not None:
        _check_entries(int(sizes[3]), len(body) // LINE_BYTES + 1)
        limit.check(ROW_BYTES * max(rows, columns), f"a matrix of {rows} by {columns}")
    else:
        triangle = 1 if b"general" in header.lower() else 2
        _check_entries(rows * columns // triangle, len(body) // 2 + rows + 1)
    # Its reader runs over the end of a last line that has spaces but no newline, and kills the process.
    return scipy.io.mmread(io.BytesIO(content[: -len(body) or None] + _TRAILING.sub(b"", body) + b"\n"))


def _check_entries(declared: int, possible: int) -> None:
    if declared > possible:
        raise ValueError(f"{declared} entries declared in a file of at most {possible}")
