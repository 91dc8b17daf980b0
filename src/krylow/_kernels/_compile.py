"""Compilation by numba, where that is installed (the extra ``large``): at the first call, kept on disk if possible.

An index with a sign might count from an array's end, which is checked for every entry and takes up to half of a short
loop's time: hot loops go through a row's entries by ``np.uint64``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from typing import Any


@cache
def available() -> bool:
    """Return whether numba is installed."""
    return find_spec("numba") is not None


def kernel(function: Callable[..., Any] | None = None, *, fastmath: Any = False) -> Any:
    """Decorate a loop: compiled with numba, without it the Python that it is; ``fastmath`` as numba has it."""
    if function is None:
        return partial(kernel, fastmath=fastmath)
    if not available():
        return function
    from numba import njit

    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no directory to keep it in
        return njit(**options)(function)


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return a loop of another package compiled, or None without numba."""
    return kernel(function) if available() else None
