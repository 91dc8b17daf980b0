r"""A sparse matrix times a block of columns, with the three-term step fused, compiled by numba.

$$\text{out} = a L X + b X + c Y$$

One row of the result at a time, its sums in registers: up to eight vectors of 256 bits advance together over the row's
neighbours, and the rows of X that come a little later are asked for ahead of time, since no processor can guess where
a sparse matrix reaches next. What is left is memory: X, Y, out and the matrix pass through it once if neighbours are
near in memory, which :mod:`krylow.operators.ordering` sees to.

Rows are shared among threads by their entries; each row is the same sum whoever computes it, so that the answer does
not depend on the number of threads. numba compiles on first use and keeps the result on disk where it may; without
numba (the extra ``large``) :func:`~krylow.operators.sparse.SparseOperator` multiplies by torch or scipy, to the same
answer up to rounding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch

from krylow._threads import shared, thread_count
from krylow.operators.compiled import ask, asking, available, compiled

#: Narrower blocks go to scipy, whose scalar loop is faster there.
LEAST_COLUMNS = 2
#: Smaller products (entries times columns) cost less than the way into compiled code, and are left to torch.
LEAST_WORK = 200_000
#: Entries times columns that are worth a thread of their own.
WORK_PER_THREAD = 1_000_000
#: A row of X is asked for this many entries before it is used.
AHEAD = 96
#: And this many where rows are float64.
AHEAD_DOUBLE = 32
#: Bits of a vector, and how many of them one pass over a row's neighbours fills. Blocks are a multiple of 8 columns
#: wide: a vector of 16 would be masked at their end, which takes twice as long where the processor has no masks.
VECTOR_BITS, GROUP = 256, 8
#: Bits of a line of the cache.
LINE_BITS = 512
#: Rows whose columns are gone through a group at a time: what is the same for all of them is done once.
TILE = 512

_lock = threading.Lock()
_compiled: list[Callable[..., None]] = []


def kernel_in_use(dtype: torch.dtype, columns: int, device: str = "cpu") -> str:
    """Return what multiplies a large sparse matrix by a block: "numba", "scipy" or "torch", for ``krylow info``.

    Parameters
    ----------
    dtype
        Of matrix and block.
    columns
        Of the block.
    device
        Of both.

    >>> import torch
    >>> kernel_in_use(torch.float32, 32, "cuda")
    'torch'
    """
    if device != "cpu" or dtype not in (torch.float32, torch.float64):
        return "torch"
    if columns < LEAST_COLUMNS:
        return "scipy"
    return "numba" if available() else "scipy"


def three_term(
    crow: np.ndarray,
    col: np.ndarray,
    values: np.ndarray,
    X: np.ndarray,
    Y: np.ndarray | None,
    a: float,
    b: float,
    c: float,
    out: np.ndarray,
) -> None:
    """Write a L X + b X + c Y to ``out``, which may be Y.

    Parameters
    ----------
    crow, col, values
        The matrix in rows; both indices int32 or both int64.
    X, Y, out
        ``(n, s)`` blocks whose rows are contiguous, of the dtype of ``values`` unless those are whole numbers; None:
        no Y.
    a, b, c
        Numbers; a b of zero leaves the middle term out altogether.
    """
    columns = X.shape[1]
    kernel = _compile()
    number = X.dtype.type
    second = X if Y is None else Y
    lanes = VECTOR_BITS // 8 // X.itemsize
    arguments = (crow, col, values, X, second, out, number(a), number(b), number(c), b != 0, Y is not None, lanes)
    _shared(kernel, arguments, crow, columns)


def vector_product(crow: np.ndarray, col: np.ndarray, values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return L x of one vector ``(n,)``, for entries of another dtype than its own, which scipy would copy."""
    kernel = compiled(_vector_product)
    assert kernel is not None
    out = np.empty_like(x)
    _shared(kernel, (crow, col, values, x, out), crow, 1)
    return out


def quotients(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, X: np.ndarray, near: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return x^T (L - s) x and the squared length of (L - s) x for each column of X, without room for L X; all float64.

    ``near`` are the numbers s, one a column.
    """
    kernel = asking(_quotients)
    assert kernel is not None
    parts = _shared(kernel, (crow, col, values, X, near), crow, X.shape[1])
    products, squares = (sum(part) for part in zip(*parts, strict=True))
    return products, squares


def exact_rows(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, X: np.ndarray, start: int, stop: int, out: np.ndarray
) -> None:
    """Write rows ``start`` to ``stop`` of L X to ``out`` in float64, whatever values and X are in."""
    kernel = asking(_exact_rows)
    assert kernel is not None
    kernel(crow, col, values, X, start, stop, out)


def _shared(kernel: Callable[..., Any], arguments: tuple[Any, ...], crow: np.ndarray, columns: int) -> list[Any]:
    """Call a kernel for ranges of rows, one a thread, that end its arguments; return what the calls do."""
    n, entries = crow.size - 1, int(crow[-1])
    threads = max(1, min(thread_count(), entries * columns // WORK_PER_THREAD))
    if threads == 1:
        return [kernel(*arguments, 0, n)]
    # Of crow's dtype: numbers of another would have a copy of it made.
    ends = np.searchsorted(crow, np.array([entries * t // threads for t in range(1, threads)], dtype=crow.dtype))
    return shared(lambda start, stop: kernel(*arguments, start, stop), [0, *(int(end) for end in ends), n])


def _compile() -> Callable[..., None]:
    """Return the compiled :func:`_rows`; numba is imported here, not with the package."""
    with _lock:
        if not _compiled:
            globals()["_row"] = _vector_row()  # the kernel finds it as a global of this module
            kernel = compiled(_rows)
            assert kernel is not None
            _compiled.append(kernel)
    return _compiled[0]


def _rows(
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
    lanes: int,
    start: int,
    stop: int,
) -> None:
    columns = X.shape[1]
    last = np.int64(col.size - 1)
    for begin in range(start, stop, TILE):
        for first in range(0, columns, lanes * GROUP):
            rest = columns - first
            vectors = min(GROUP, (rest + lanes - 1) // lanes)
            for i in range(begin, min(begin + TILE, stop)):
                low, high = np.int64(crow[i]), np.int64(crow[i + 1])
                _row(col, values, X, Y, out, i, low, high, first, vectors, rest, a, b, c, middle, second, last)


def _vector_product(crow: Any, col: Any, values: Any, x: Any, out: Any, start: int, stop: int) -> None:
    for i in range(start, stop):
        total = x.dtype.type(0)
        for p in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
            total += x.dtype.type(values[p]) * x[np.uint64(col[p])]
        out[i] = total


def _exact_rows(crow: Any, col: Any, values: Any, X: Any, start: int, stop: int, out: Any) -> None:
    columns, last, line = X.shape[1], np.int64(col.size - 1), 64 // X.itemsize
    row = np.empty(columns)
    for i in range(start, stop):
        row[:] = 0.0
        for p in range(crow[i], crow[i + 1]):
            value, other, soon = np.float64(values[p]), col[p], np.int64(col[min(p + AHEAD_DOUBLE, last)])
            for j in range(0, columns, line):
                ask(X, soon * columns + j)
            for j in range(columns):
                row[j] += value * X[other, j]
        out[i - start] = row


def _quotients(crow: Any, col: Any, values: Any, X: Any, near: Any, start: int, stop: int) -> Any:
    columns, last = X.shape[1], np.int64(col.size - 1)
    products, squares, row = np.zeros(columns), np.zeros(columns), np.empty(columns)
    for i in range(start, stop):
        for j in range(columns):
            row[j] = -near[j] * X[i, j]
        for p in range(crow[i], crow[i + 1]):
            value, other, soon = values[p], col[p], np.int64(col[min(p + AHEAD_DOUBLE, last)])
            for j in range(0, columns, 8):  # once a line of the cache
                ask(X, soon * columns + j)
            for j in range(columns):
                row[j] += value * X[other, j]
        for j in range(columns):
            products[j] += row[j] * X[i, j]
            squares[j] += row[j] * row[j]
    return products, squares


def _row(
    col: Any,
    values: Any,
    X: Any,
    Y: Any,
    out: Any,
    i: int,
    low: Any,
    high: Any,
    first: int,
    vectors: int,
    rest: int,
    a: Any,
    b: Any,
    c: Any,
    middle: bool,
    second: bool,
    last: Any,
) -> None:
    """Write row i of the result, the ``vectors`` vectors (of at most ``rest`` columns) from column ``first`` on.

    This is the meaning; :func:`_vector_row` is what runs.
    """
    lanes = VECTOR_BITS // 8 // X.itemsize
    here = slice(first, first + min(rest, vectors * lanes))
    total = c * Y[i, here] if second else np.zeros_like(X[i, here])
    if middle:
        total = total + b * X[i, here]
    for p in range(low, high):
        total = total + a * values[p] * X[col[p], here]
    out[i, here] = total


def _vector_row() -> Any:
    """Return :func:`_row` in vector instructions.

    The compiler's own vectors take three times as long: it keeps the sums in memory, since it cannot know that out and
    X do not overlap. The last vector is masked where the block ends inside it.
    """
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    ir = import_module("llvmlite.ir")

    @intrinsic
    def row(
        typing: Any,
        col: Any,
        values: Any,
        X: Any,
        Y: Any,
        out: Any,
        i: Any,
        low: Any,
        high: Any,
        first: Any,
        vectors: Any,
        rest: Any,
        a: Any,
        b: Any,
        c: Any,
        middle: Any,
        second: Any,
        last: Any,
    ) -> Any:
        def codegen(context: Any, build: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            col, values, X, Y, out = (
                context.make_array(kind)(context, build, array) for kind, array in zip(kinds[:5], args[:5], strict=True)
            )
            i, low, high, first, vectors, rest, a, b, c, middle, second, last = args[5:]
            bits = kinds[2].dtype.bitwidth
            lanes, number, index = VECTOR_BITS // bits, context.get_data_type(kinds[2].dtype), low.type
            i1, i8, i32 = (ir.IntType(width) for width in (1, 8, 32))
            vector, flags, whole = ir.VectorType(number, lanes), ir.VectorType(i1, lanes), ir.VectorType(index, lanes)
            undefined, spread = ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(i32, lanes), [0] * lanes)
            zero = ir.Constant(vector, [0.0] * lanes)
            place_type, suffix = vector.as_pointer(), f"v{lanes}f{bits}"

            def library(name: str, result: Any, arguments: list[Any]) -> Any:
                return cgutils.get_or_insert_function(build.module, ir.FunctionType(result, arguments), name)

            fma = library(f"llvm.fma.{suffix}", vector, [vector] * 3)
            ask = library("llvm.prefetch.p0", ir.VoidType(), [i8.as_pointer(), i32, i32, i32])
            load_some = library(f"llvm.masked.load.{suffix}.p0", vector, [place_type, i32, flags, vector])
            store_some = library(f"llvm.masked.store.{suffix}.p0", ir.VoidType(), [vector, place_type, i32, flags])

            def everywhere(value: Any, like: Any = undefined) -> Any:
                return build.shuffle_vector(build.insert_element(like, value, i32(0)), like, spread)

            def line(array: Any, r: Any) -> Any:
                return cgutils.pointer_add(build, array.data, build.mul(r, build.extract_value(array.strides, 0)))

            def place(start: Any, g: int) -> Any:
                return build.bitcast(build.gep(start, [build.add(first, index(g * lanes))]), place_type)

            def neighbour(p: Any) -> Any:
                j = build.load(build.gep(col.data, [p]))
                return line(X, build.sext(j, index) if j.type.width < index.width else j)

            def entry(p: Any) -> Any:
                value = build.load(build.gep(values.data, [p]))
                return value if value.type == number else build.sitofp(value, number)

            def load(start: Any, g: int, mask: Any) -> Any:
                if mask is None:
                    return build.load(place(start, g), align=bits // 8)
                return build.call(load_some, [place(start, g), i32(bits // 8), mask, zero])

            sums = [cgutils.alloca_once(build, vector) for _ in range(GROUP)]

            def emit(count: int, masked: bool) -> None:
                """Write the code for ``count`` vectors."""
                masks: list[Any] = [None] * count
                if masked:
                    left = build.sub(rest, index((count - 1) * lanes))
                    each = ir.Constant(whole, list(range(lanes)))
                    masks[-1] = build.icmp_signed("<", each, everywhere(left, ir.Constant(whole, ir.Undefined)))
                for g in range(count):
                    build.store(zero, sums[g])
                with build.if_then(second):
                    for g in range(count):
                        build.store(build.fmul(everywhere(c), load(line(Y, i), g, masks[g])), sums[g])
                with build.if_then(middle):
                    for g in range(count):
                        x = load(line(X, i), g, masks[g])
                        build.store(build.call(fma, [everywhere(b), x, build.load(sums[g])]), sums[g])
                with cgutils.for_range_slice(build, low, high, index(1), intp=index) as (p, _):
                    later = build.add(p, index(AHEAD))
                    later = build.select(build.icmp_signed("<", later, last), later, last)
                    soon = neighbour(later)
                    for g in range(0, count, LINE_BITS // VECTOR_BITS):
                        build.call(ask, [build.bitcast(place(soon, g), i8.as_pointer()), i32(0), i32(3), i32(1)])
                    weight = everywhere(build.fmul(a, entry(p)))
                    x = neighbour(p)
                    for g in range(count):
                        total = build.call(fma, [weight, load(x, g, masks[g]), build.load(sums[g])])
                        build.store(total, sums[g])
                for g in range(count):
                    total, there = build.load(sums[g]), place(line(out, i), g)
                    if masks[g] is None:
                        build.store(total, there, align=bits // 8)
                    else:
                        build.call(store_some, [total, there, i32(bits // 8), masks[g]])

            for count in range(1, GROUP + 1):
                with build.if_then(build.icmp_signed("==", vectors, index(count))):
                    full = build.icmp_signed(">=", rest, index(count * lanes))
                    with build.if_else(full) as (then, otherwise):
                        with then:
                            emit(count, False)
                        with otherwise:
                            emit(count, True)
            return context.get_dummy_value()

        return types.void(
            col, values, X, Y, out, i, low, high, first, vectors, rest, a, b, c, middle, second, last
        ), codegen

    return row
