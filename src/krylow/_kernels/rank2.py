"""The pass over the matrix that tridiagonalisation spends its time in, written in vector instructions."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def vector_pass() -> Any:
    """Return ``eigh._plain_pass`` in vector instructions: for n of 100 and more, most of the arithmetic is here.

    The compiler's own vectors would cost twice the time, since it cannot know that the rows do not overlap. Four rows
    advance together along one cache line after the other; left of the diagonal block an entry serves its row, in a
    sum, and its column, in p.
    """
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    ir = import_module("llvmlite.ir")

    @intrinsic
    def compiled_pass(typing: Any, A: Any, u: Any, w: Any, v: Any, p: Any, rows: Any, width: Any) -> Any:
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            *types_, _, _ = signature.args
            *arrays, rows, width = args
            A, u, w, v, p = (context.make_array(t)(context, b, x) for t, x in zip(types_, arrays, strict=True))
            bits = types_[0].dtype.bitwidth
            lanes, number, index = 512 // bits, context.get_data_type(types_[0].dtype), rows.type
            vector = ir.VectorType(number, lanes)
            nothing = ir.Constant(vector, ir.Undefined)
            zero = ir.Constant(vector, [0.0] * lanes)
            first = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            kind = f"v{lanes}f{bits}"
            fma_type, sum_type = ir.FunctionType(vector, [vector] * 3), ir.FunctionType(number, [number, vector])
            fma = cgutils.get_or_insert_function(b.module, fma_type, f"llvm.fma.{kind}")
            add_up = cgutils.get_or_insert_function(b.module, sum_type, f"llvm.vector.reduce.fadd.{kind}")
            sums = [cgutils.alloca_once(b, vector) for _ in range(4)]

            def loop(stop: Any, step: int) -> Any:
                return cgutils.for_range_slice(b, index(0), stop, index(step), intp=index)

            def load(pointer: Any, j: Any) -> tuple[Any, Any]:
                place = b.bitcast(b.gep(pointer, [j]), vector.as_pointer())
                return b.load(place, align=bits // 8), place

            def entry(pointer: Any, r: Any) -> Any:
                scalar = b.load(b.gep(pointer, [r]))
                return b.shuffle_vector(b.insert_element(nothing, scalar, ir.IntType(32)(0)), nothing, first)

            def block(j: Any, row: Any, factors: Any, below_diagonal: bool) -> None:
                u_j, w_j, v_j = (load(x.data, j)[0] for x in (u, w, v))
                p_j, p_place = load(p.data, j)
                for t in range(4):
                    a, place = load(row[t], j)
                    a = b.call(fma, [factors[t][0], w_j, a])
                    a = b.call(fma, [factors[t][1], u_j, a])
                    b.store(a, place, align=bits // 8)
                    b.store(b.call(fma, [a, v_j, b.load(sums[t])]), sums[t])
                    p_j = b.call(fma, [a, factors[t][2], p_j])
                if below_diagonal:
                    b.store(p_j, p_place, align=bits // 8)

            with loop(width, lanes) as (j, _):
                b.store(zero, load(p.data, j)[1], align=bits // 8)
            with loop(rows, 4) as (r, _):
                each = [b.add(r, index(t)) for t in range(4)]
                row = [cgutils.pointer_add(b, A.data, b.mul(x, b.extract_value(A.strides, 0))) for x in each]
                factors = [(b.fneg(entry(u.data, x)), b.fneg(entry(w.data, x)), entry(v.data, x)) for x in each]
                for t in range(4):
                    b.store(zero, sums[t])
                diagonal = b.and_(r, index(-lanes))
                with loop(diagonal, lanes) as (j, _):
                    block(j, row, factors, True)
                block(diagonal, row, factors, False)
                for t in range(4):
                    place = b.gep(p.data, [each[t]])
                    b.store(b.call(add_up, [b.load(place), b.load(sums[t])], fastmath=("reassoc",)), place)
            return context.get_dummy_value()

        return types.void(A, u, w, v, p, rows, width), codegen

    return compiled_pass
