"""Sparse factors."""

from __future__ import annotations

from typing import Any

from krylow import _native
from krylow._native import factorise, minimum_degree, tree_and_counts

__all__ = ["factorise", "minimum_degree", "substitute", "substitute_one", "tree_and_counts"]


def substitute(start: Any, where: Any, G: Any, D: Any, X: Any) -> None:
    _native.substitute(where, G, D, X)


substitute_one = substitute
