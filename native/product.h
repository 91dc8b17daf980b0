// A sparse matrix in compressed rows times a block of columns, with the three-term step fused:
//
//     out = a L X + b X + c Y
//
// A row of the result at a time, its sums in registers: up to eight vectors advance together over the row's
// neighbours. Each row is the same sum whoever computes it, so that rows are shared among threads.
#pragma once

#include "levels.h"

namespace krylow {

// I is the type of row pointers and columns, V, X and O those of entries, block and result.
template <class I, class V, class X, class O>
struct Product {
    const I* crow;
    const I* col;
    const V* values;
    const X* x;
    const X* y;  // null: no third term
    O* out;
    Size columns;
    Size base;  // the row of the result that `out` begins with
    O a, b, c;  // a b of zero leaves the second term out
};

KRYLOW_EACH_LEVEL(template <class I, class V, class X, class O>
                  void multiply_rows(const Product<I, V, X, O>& m, Size start, Size stop);
                  template <class I, class V, class X>
                  void quotient_rows(const Product<I, V, X, double>& m, const double* near, double* work,
                                     double* products, double* squares, Size start, Size stop);)

// Rows whose results are summed up while they are in the cache; `work` of quotient_rows holds as many.
inline constexpr Size quotient_tile = 64;

}  // namespace krylow
