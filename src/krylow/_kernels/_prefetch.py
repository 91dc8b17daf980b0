"""A prefetch instruction for compiled loops: a traversal knows where it reads next, a processor does not."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from krylow._kernels._compile import available


def _nothing(array: Any, index: Any) -> None:
    """Prefetch an entry: this is the meaning, the instruction is what runs in a compiled loop."""


def _prefetch() -> Any:
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


prefetch: Any = _prefetch() if available() else _nothing
