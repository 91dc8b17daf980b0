"""Products of a sparse matrix and passes over its rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from krylow import _native

_patterns: dict[tuple[int, int], tuple[Any, Any, _native.Pattern]] = {}


def _pattern(crow: Any, col: Any) -> _native.Pattern:
    key = (id(crow), id(col))
    found = _patterns.get(key)
    if found is None:
        found = crow, col, _native.Pattern(crow, col)
        while len(_patterns) >= 8:
            _patterns.pop(next(iter(_patterns)), None)
        _patterns[key] = found
    return found[2]


def three_term(
    crow: Any,
    col: Any,
    values: Any,
    X: Any,
    Y: Any,
    out: Any,
    a: Any,
    b: Any,
    c: Any,
    middle: bool,
    second: bool,
    start: int,
    stop: int,
) -> None:
    third = Y if second else None
    _native.three_term(_pattern(crow, col), values, X, third, out, a, b if middle else 0.0, c, 1, start, stop)


def vector_product(crow: Any, col: Any, values: Any, x: Any, out: Any, start: int, stop: int) -> None:
    X, Y = x[:, None], out[:, None]
    _native.three_term(_pattern(crow, col), values, X, None, Y, 1.0, 0.0, 0.0, 1, start, stop)


def exact_rows(crow: Any, col: Any, values: Any, X: Any, start: int, stop: int, out: Any) -> None:
    _native.exact_rows(_pattern(crow, col), values, X, start, stop, out)


def quotients(crow: Any, col: Any, values: Any, X: Any, near: Any, start: int, stop: int) -> Any:
    if start > 0:  # the first range answers for all
        return np.zeros(X.shape[1]), np.zeros(X.shape[1])
    return _native.quotients(_pattern(crow, col), values, X, near, 1)


def look(crow: Any, col: Any, values: Any, slack: float, eps: float) -> Any:
    low, high, flat, positive = _native.look(crow, col, values, slack, eps)
    return None, low, high, None, flat, positive


def null_rows(crow: Any, col: Any, values: Any, x: Any, slack: float, eps: float) -> Any:
    return _native.null_rows(crow, col, values, x, slack, eps)
