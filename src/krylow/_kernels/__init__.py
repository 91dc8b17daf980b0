"""The former names of the compiled kernels, until every caller imports :mod:`krylow._native` itself."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["available"]

blocks: Any
csr: Any
eigh: Any
elimination: Any
factor: Any
graph: Any
relaxed: Any


def available() -> bool:
    """Return True."""
    return True


def __getattr__(name: str) -> Any:
    if name not in {"blocks", "csr", "eigh", "elimination", "factor", "graph", "relaxed"}:
        raise AttributeError(name)
    return import_module(f"{__name__}.{name}")
