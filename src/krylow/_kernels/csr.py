r"""A sparse matrix in compressed rows times a block of columns, with the three-term step fused, and passes over rows.

$$\text{out} = a L X + b X + c Y$$

One row of the result at a time, its sums in registers: up to eight vectors of 256 bits advance together over the row's
neighbours. Where these are far in memory, rows of X are prefetched; where they are near, that takes longer than it
saves. Each row is the same sum whoever computes it, so that callers may share rows among threads.
"""

from __future__ import annotations

import itertools
from importlib import import_module
from typing import Any

import numpy as np

from krylow._kernels._compile import available, kernel

#: A row of X is asked for this many entries before it is used.
AHEAD = 96
#: Bits of a vector, and how many of them one pass over a row's neighbours fills. Blocks are a multiple of 8 columns
#: wide: a vector of 16 would be masked at their end, which takes twice as long where the processor has no masks.
VECTOR_BITS, GROUP = 256, 8
#: Bits of a line of the cache.
LINE_BITS = 512
#: Rows whose columns are gone through a group at a time: what is the same for all of them is done once.
TILE = 512
#: Rows whose results are summed up while they are in the cache.
SHORT = 64
#: A neighbour so many bytes of X away is far. Entries are asked for ahead of time if one row in so many, of those that
#: are looked at, begins or ends with one.
FAR, MOST_NEAR, LOOKS = 1 << 20, 16, 128
#: Narrow blocks, of up to so many vectors, have so many sums a vector: each waits for the last entry's product.
NARROW, CHAINS = 2, 2
#: The largest whole number that is small: in a byte, with its sign.
SMALL = 127


def _plain_tile(
    crow: Any,
    col: Any,
    values: Any,
    X: Any,
    Y: Any,
    out: Any,
    begin: int,
    end: int,
    base: int,
    a: Any,
    b: Any,
    c: Any,
    middle: bool,
    second: bool,
    far: bool,
) -> None:
    """Write rows ``begin`` to ``end`` of the result to ``out``, whose first row is row ``base``, in its dtype.

    This is the meaning; :func:`_vector_tile` is what runs, and asks for entries ahead of time if these are ``far``.
    """
    for i in range(begin, end):
        total = c * Y[i].astype(out.dtype) if second else np.zeros_like(out[i - base])
        if middle:
            total = total + b * X[i]
        for p in range(crow[i], crow[i + 1]):
            total = total + a * values[p] * X[col[p]].astype(out.dtype)
        out[i - base] = total


def _vector_tile() -> Any:
    """Return :func:`_plain_tile` in vector instructions.

    The compiler's own vectors take three times as long: it keeps the sums in memory, since it cannot know that out and
    X do not overlap. The last vector is masked where the block ends inside it. In one file with the loops that call it:
    numba keeps those on disk for as long as their own file stays as it is.
    """
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    ir = import_module("llvmlite.ir")

    @intrinsic
    def tile(
        typing: Any,
        crow: Any,
        col: Any,
        values: Any,
        X: Any,
        Y: Any,
        out: Any,
        begin: Any,
        end: Any,
        base: Any,
        a: Any,
        b: Any,
        c: Any,
        middle: Any,
        second: Any,
        far: Any,
    ) -> Any:
        def codegen(context: Any, build: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            crow, col, values, X, Y, out = (
                context.make_array(kind)(context, build, array) for kind, array in zip(kinds[:6], args[:6], strict=True)
            )
            begin, end, base, a, b, c, middle, second, far = args[6:]
            bits, held_bits = kinds[5].dtype.bitwidth, kinds[3].dtype.bitwidth
            number, held_number = (context.get_data_type(kinds[each].dtype) for each in (5, 3))
            lanes, index = VECTOR_BITS // bits, begin.type
            i1, i8, i32 = (ir.IntType(width) for width in (1, 8, 32))
            vector, flags, whole = ir.VectorType(number, lanes), ir.VectorType(i1, lanes), ir.VectorType(index, lanes)
            undefined, spread = ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(i32, lanes), [0] * lanes)
            held, zero = ir.VectorType(held_number, lanes), ir.Constant(vector, [0.0] * lanes)
            columns = build.extract_value(X.shape, 1)
            last = build.sub(build.extract_value(col.shape, 0), index(1))

            def library(name: str, result: Any, arguments: list[Any]) -> Any:
                return cgutils.get_or_insert_function(build.module, ir.FunctionType(result, arguments), name)

            fma = library(f"llvm.fma.v{lanes}f{bits}", vector, [vector] * 3)
            ask = library("llvm.prefetch.p0", ir.VoidType(), [i8.as_pointer(), i32, i32, i32])
            load_some = library(
                f"llvm.masked.load.v{lanes}f{held_bits}.p0", held, [held.as_pointer(), i32, flags, held]
            )
            store_some = library(
                f"llvm.masked.store.v{lanes}f{bits}.p0", ir.VoidType(), [vector, vector.as_pointer(), i32, flags]
            )

            def everywhere(value: Any, like: Any = undefined) -> Any:
                return build.shuffle_vector(build.insert_element(like, value, i32(0)), like, spread)

            def number_at(array: Any, p: Any) -> Any:
                value = build.load(build.gep(array.data, [p]))
                return build.sext(value, index) if value.type.width < index.width else value

            def line(array: Any, r: Any) -> Any:
                return cgutils.pointer_add(build, array.data, build.mul(r, build.extract_value(array.strides, 0)))

            def neighbour(p: Any) -> Any:
                return line(X, number_at(col, p))

            def entry(p: Any) -> Any:
                value = build.load(build.gep(values.data, [p]))
                if value.type == number:
                    return value
                whole_number = isinstance(value.type, ir.IntType)
                return build.sitofp(value, number) if whole_number else build.fpext(value, number)

            def wide(x: Any) -> Any:
                return x if held == vector else build.fpext(x, vector)

            def rows(low: Any, high: Any, step: int) -> Any:
                return cgutils.for_range_slice(build, low, high, index(step), intp=index)

            sums = [[cgutils.alloca_once(build, vector) for _ in range(GROUP)] for _ in range(CHAINS)]

            def emit(first: Any, count: int, masked: bool, ahead: bool) -> None:
                """Write the code for ``count`` vectors from a column on: with the last one masked, asked for ahead."""
                masks: list[Any] = [None] * count
                if masked:
                    left = build.sub(columns, build.add(first, index((count - 1) * lanes)))
                    each = ir.Constant(whole, list(range(lanes)))
                    masks[-1] = build.icmp_signed("<", each, everywhere(left, ir.Constant(whole, ir.Undefined)))
                chains = sums if count <= NARROW else sums[:1]

                def place(start: Any, g: int, kind: Any) -> Any:
                    return build.bitcast(build.gep(start, [build.add(first, index(g * lanes))]), kind.as_pointer())

                def load(start: Any, g: int) -> Any:
                    if masks[g] is None:
                        return wide(build.load(place(start, g, held), align=held_bits // 8))
                    none = ir.Constant(held, [0.0] * lanes)
                    return wide(build.call(load_some, [place(start, g, held), i32(held_bits // 8), masks[g], none]))

                def add(p: Any, chain: list[Any]) -> None:
                    if ahead:
                        later = build.add(p, index(AHEAD))
                        soon = neighbour(build.select(build.icmp_signed("<", later, last), later, last))
                        for g in range(0, count, max(1, LINE_BITS // (lanes * held_bits))):
                            build.call(ask, [place(soon, g, i8), i32(0), i32(3), i32(1)])
                    weight, x = everywhere(build.fmul(a, entry(p))), neighbour(p)
                    for g in range(count):
                        build.store(build.call(fma, [weight, load(x, g), build.load(chain[g])]), chain[g])

                with rows(begin, end, 1) as (i, _):
                    low, high = number_at(crow, i), number_at(crow, build.add(i, index(1)))
                    for chain in chains:
                        for g in range(count):
                            build.store(zero, chain[g])
                    with build.if_then(second):
                        for g in range(count):
                            build.store(build.fmul(everywhere(c), load(line(Y, i), g)), sums[0][g])
                    with build.if_then(middle):
                        for g in range(count):
                            total = build.call(fma, [everywhere(b), load(line(X, i), g), build.load(sums[0][g])])
                            build.store(total, sums[0][g])
                    together = build.sub(high, build.srem(build.sub(high, low), index(len(chains))))
                    with rows(low, together, len(chains)) as (p, _):
                        for j, chain in enumerate(chains):
                            add(build.add(p, index(j)), chain)
                    with rows(together, high, 1) as (p, _):
                        add(p, sums[0])
                    for g in range(count):
                        total, there = build.load(sums[0][g]), place(line(out, build.sub(i, base)), g, vector)
                        for chain in chains[1:]:
                            total = build.fadd(total, build.load(chain[g]))
                        if masks[g] is None:
                            build.store(total, there, align=bits // 8)
                        else:
                            build.call(store_some, [total, there, i32(bits // 8), masks[g]])

            with rows(index(0), columns, GROUP * lanes) as (first, _):
                rest = build.sub(columns, first)
                for count, masked, ahead in itertools.product(range(1, GROUP + 1), (False, True), (False, True)):
                    least, most = index((count - 1) * lanes), index(count * lanes)
                    if masked:
                        here = build.and_(build.icmp_signed(">", rest, least), build.icmp_signed("<", rest, most))
                    else:
                        here = build.icmp_signed(">=" if count == GROUP else "==", rest, most)
                    with build.if_then(build.and_(here, far if ahead else build.not_(far))):
                        emit(first, count, masked, ahead)
            return context.get_dummy_value()

        return types.void(crow, col, values, X, Y, out, begin, end, base, a, b, c, middle, second, far), codegen

    return tile


_tile: Any = _vector_tile() if available() else _plain_tile


@kernel
def _far(crow: Any, col: Any, X: Any, start: int, stop: int) -> bool:
    """Return whether neighbours of these rows are far in memory, by a look at some of them."""
    reach: int = FAR // min(X.shape[1] * X.itemsize, GROUP * VECTOR_BITS // 8)
    far = 0
    for look in range(LOOKS if start < stop else 0):
        i = start + (stop - start) * look // LOOKS
        low, high = np.int64(crow[i]), np.int64(crow[i + 1])
        if low < high and max(abs(col[low] - i), abs(col[high - 1] - i)) > reach:
            far += 1
    return MOST_NEAR * far > LOOKS


@kernel
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
    far = _far(crow, col, X, start, stop)
    for i in range(start, stop, TILE):
        _tile(crow, col, values, X, Y, out, i, min(i + TILE, stop), 0, a, b, c, middle, second, far)


@kernel
def exact_rows(crow: Any, col: Any, values: Any, X: Any, start: int, stop: int, out: Any) -> None:
    far, one, none = _far(crow, col, X, start, stop), np.float64(1), np.float64(0)
    for i in range(start, stop, TILE):
        _tile(crow, col, values, X, X, out, i, min(i + TILE, stop), start, one, none, none, False, False, far)


@kernel
def quotients(crow: Any, col: Any, values: Any, X: Any, near: Any, start: int, stop: int) -> Any:
    columns, far, one, none = X.shape[1], _far(crow, col, X, start, stop), np.float64(1), np.float64(0)
    products, squares, room = np.zeros(columns), np.zeros(columns), np.empty((SHORT, columns))
    for begin in range(start, stop, SHORT):
        end = min(begin + SHORT, stop)
        _tile(crow, col, values, X, X, room, begin, end, begin, one, none, none, False, False, far)
        for i in range(begin, end):
            for j in range(columns):
                rest = room[i - begin, j] - near[j] * X[i, j]
                products[j] += rest * X[i, j]
                squares[j] += rest * rest
    return products, squares


@kernel
def vector_product(crow: Any, col: Any, values: Any, x: Any, out: Any, start: int, stop: int) -> None:
    for i in range(start, stop):
        total = x.dtype.type(0)
        for p in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
            total += x.dtype.type(values[p]) * x[np.uint64(col[p])]
        out[i] = total


@kernel
def look(crow: Any, col: Any, values: Any, slack: float, eps: float) -> Any:
    n = crow.size - 1
    diagonal, flat, positive = np.empty(n), np.empty(n, np.bool_), False
    low, high, whole = np.inf, -np.inf, True
    for i in range(n):
        own, others, radius = 0.0, 0.0, 0.0
        for p in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
            whole = whole and abs(values[p]) <= SMALL and np.floor(values[p]) == values[p]
            if col[p] == i:
                own += values[p]
            else:
                others += values[p]
                radius += abs(values[p])
                positive = positive or values[p] > 0
        diagonal[i] = own
        whole = whole and abs(own) <= SMALL
        low, high = min(low, own - radius), max(high, own + radius)
        flat[i] = abs(own + others) <= (slack + crow[i + 1] - crow[i]) * eps * (abs(own) + radius)
    return diagonal, low, high, whole, flat, positive


@kernel
def null_rows(crow: Any, col: Any, values: Any, x: Any, slack: float, eps: float) -> Any:
    n = crow.size - 1
    within, positive = np.empty(n, np.bool_), False
    for i in range(n):
        total, size = 0.0, 0.0
        for p in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
            part = values[p] * x[col[p]]
            total += part
            size += abs(part)
            positive = positive or (part > 0 and col[p] != i)
        within[i] = abs(total) <= (slack + crow[i + 1] - crow[i]) * eps * size
    return within, positive
