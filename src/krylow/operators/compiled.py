"""Loops over graphs, compiled by numba where it is installed (the extra ``large``).

An index with a sign might count from an array's end, which is looked at for every entry and takes up to half of a short
loop's time: the hot ones go through a row's entries by numbers without one, ``np.uint64``.
"""

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
def prefetch() -> Any:
    """Return a function ``(array, index)`` for compiled loops that asks for an entry ahead of time: needs numba.

    A walk jumps through memory in an order that it knows a little ahead, and a processor does not.
    """
    from importlib import import_module

    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    ir = import_module("llvmlite.ir")

    @intrinsic
    def ask(typing: Any, array: Any, index: Any) -> Any:
        def codegen(context: Any, build: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, build, args[0]).data
            byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            call = cgutils.get_or_insert_function(build.module, kind, "llvm.prefetch.p0")
            place = build.bitcast(build.gep(data, [args[1]]), byte)
            build.call(call, [place, number(0), number(3), number(1)])
            return context.get_dummy_value()

        return types.void(array, index), codegen

    return ask


def ask(array: Any, index: Any) -> None:
    """Ask for an entry ahead of time: the meaning; :func:`prefetch` is what runs in a loop of :func:`asking`."""


def asking(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return a loop that calls :func:`ask`, which its module imports, compiled; None without numba."""
    if available():
        function.__globals__["ask"] = prefetch()
    return compiled(function)


def loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what :func:`asking` does where numba has to be there."""
    kernel = asking(function)
    assert kernel is not None
    return kernel


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
