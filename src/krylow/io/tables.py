"""Tables of edges with named columns: pandas and polars tables as they are, and Parquet."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from krylow._checks import InputError
from krylow.io.columns import Columns, check_clear, used_columns
from krylow.io.files import Limit, attempt
from krylow.io.networks import library
from krylow.io.text import Edges, check_names, numbered, whole

_EDGE_BYTES, _NAME_BYTES = 64, 192


def is_frame(table: Any) -> bool:
    """Whether an object is a table of named columns, of pandas, polars or a library like them."""
    return hasattr(table, "columns") and hasattr(table, "__getitem__") and hasattr(table, "shape")


def frame_size(frame: Any) -> int:
    """Return about how many bytes a table takes."""
    return 16 * int(np.prod(frame.shape))


def frame_edges(frame: Any, columns: Columns, limit: Limit) -> Edges:
    """Return the edges of a table in memory."""
    what, names = limit.what, list(frame.columns)
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"{what} must have columns with names, got {names[:6]}: is it a matrix? Pass its values.")
    used = used_columns(names, True, columns, what)

    def read() -> Edges:
        parts = [_values(frame[names[place]]) for place in used]
        check_clear(names, used, columns, any(part.dtype.kind in "iuf" for part in parts[:2]), what)
        return _edges(parts, limit)

    return attempt(read, b" ", what, "a table of edges")


def _values(column: Any) -> np.ndarray:
    return np.asarray(column.to_numpy())


def _edges(parts: list[np.ndarray], limit: Limit) -> Edges:
    """Return edges of the arrays u, v and perhaps w, of whole numbers, or of names."""
    what, size = limit.what, len(parts[0])
    if size == 0:
        raise InputError(f"{what} must hold an edge a row, got no rows.")
    limit.check(_EDGE_BYTES * size, f"{size} edges")
    weights = np.ones(size) if len(parts) == 2 else parts[2]
    if weights.dtype.kind not in "fiub":
        raise InputError(f"{what} must have numbers as weights, got {weights.dtype}.")
    ends = parts[:2]
    missing = sum(int(np.count_nonzero(part != part)) for part in ends)  # NaN and its like
    missing += sum(sum(value is None for value in part.tolist()) for part in ends if part.dtype.kind not in "iuf")
    if missing:
        raise InputError(f"{what} must have two nodes in every row, got {missing} that are missing.")
    if all(part.dtype.kind in "iuf" for part in ends):
        pairs = np.stack(ends)
        pairs = whole(pairs, what) if pairs.dtype.kind == "f" else pairs.astype(np.int64)
        return Edges(pairs, weights.astype(np.float64))
    rows: defaultdict[str, int] = defaultdict(count().__next__)
    texts = np.array([list(map(str, part.tolist())) for part in ends], dtype=object)
    pairs = numbered(texts, rows)
    limit.check(_EDGE_BYTES * size + _NAME_BYTES * len(rows), f"{size} edges and {len(rows)} names")
    if "" in rows:
        raise InputError(f"{what} must have two nodes in every row, got an empty name.")
    check_names(list(rows), what)
    return Edges(pairs, weights.astype(np.float64), list(rows))


def _parquet(content: bytes, limit: Limit, columns: Columns) -> Edges:
    parquet, what = library("pyarrow.parquet", limit.what), limit.what

    def read() -> Edges:
        file = parquet.ParquetFile(io.BytesIO(content))
        limit.check(_EDGE_BYTES * file.metadata.num_rows, f"{file.metadata.num_rows} rows")
        names = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]
        places = used_columns(names, True, columns, what)
        used = [names[place] for place in places]
        # A name that is stored once and repeated in every row is one object here, whatever its length.
        table = parquet.ParquetFile(io.BytesIO(content), read_dictionary=used[:2]).read(columns=used)
        parts = [_column(table.column(name).combine_chunks()) for name in used]
        check_clear(names, places, columns, any(part.dtype.kind in "iuf" for part in parts[:2]), what)
        return _edges(parts, limit)

    return attempt(read, content, what, "a Parquet file")


def _column(array: Any) -> np.ndarray:
    """Return an Arrow column as numbers, or as objects."""
    if hasattr(array, "dictionary"):
        if array.null_count:
            raise ValueError(f"{array.null_count} missing nodes")
        return np.array(array.dictionary.to_pylist(), dtype=object)[array.indices.to_numpy()]
    return np.asarray(array.to_numpy(zero_copy_only=False))


#: The reader of each kind of table beside text.
READERS: dict[str, Callable[[bytes, Limit, Columns], Edges]] = dict.fromkeys((".parquet", ".pq"), _parquet)
