"""Traversals of a graph and aggregates of its nodes."""

from __future__ import annotations

from typing import Any

from krylow import _native
from krylow._native import (
    add_squares,
    coarsen_dense,
    levels,
    mirror_balance,
    move_rows,
    permute,
    prolong,
    restrict,
    subtract,
)

__all__ = [
    "add_squares",
    "aggregate",
    "coarsen",
    "coarsen_dense",
    "levels",
    "mirror_balance",
    "move_rows",
    "permute",
    "prolong",
    "propagate",
    "restrict",
    "search",
    "subtract",
]


def search(crow: Any, col: Any, values: Any, zeros: bool, back: bool) -> Any:
    return _native.search(crow, col, values if zeros else None, back, 0.25)


def propagate(crow: Any, col: Any, tally: Any, rounds: int, enough: float) -> Any:
    return _native.propagate(crow, col, rounds, enough)


def aggregate(crow: Any, col: Any, values: Any, strong: float, bound: float, *_: Any) -> Any:
    return _native.aggregate(crow, col, values, strong, bound)


def coarsen(crow: Any, col: Any, values: Any, labels: Any, v: Any, sizes: Any, *_: Any) -> Any:
    return _native.coarsen(crow, col, values, labels, v, sizes)
