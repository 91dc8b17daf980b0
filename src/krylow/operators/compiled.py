"""Loops over graphs, compiled by numba where it is installed (the extra ``large``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any


@cache
def available() -> bool:
    """Return whether numba is installed."""
    return find_spec("numba") is not None


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return ``function`` compiled, kept on disk where that may be written, or None without numba.

    Compilation is at the first call, when numba is imported, too. The loops run without the interpreter's lock.
    """
    if not available():
        return None
    from numba import njit

    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no directory to keep it in
        return njit(**options)(function)
