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
    bool far;   // neighbours are far apart in X: fetch them ahead
};

KRYLOW_EACH_LEVEL(template <class I, class V, class X, class O>
                  void multiply_rows(const Product<I, V, X, O>& m, Size start, Size stop);
                  template <class I, class V, class X>
                  void quotient_rows(const Product<I, V, X, double>& m, const double* near, double* work,
                                     double* products, double* squares, Size start, Size stop);)

// Whether one row in `most_near` of `looks` has a neighbour that is `far_bytes` of X away: where neighbours are near,
// fetching them ahead takes longer than it saves. It is asked once a matrix, as compilers round the two loops apart.
template <class I>
bool far_apart(const I* crow, const I* col, Size n, Size row_bytes) {
    constexpr Size far_bytes = 1 << 20, most_near = 16, looks = 128, most_bytes = 512;
    const Size reach = far_bytes / (row_bytes < 1 ? 1 : row_bytes < most_bytes ? row_bytes : most_bytes);
    Size far = 0;
    for (Size look = 0; look < looks && n > 0; ++look) {
        const Size i = n * look / looks;
        const Size low = crow[i], high = crow[i + 1];
        if (low == high) continue;
        const Size first = col[low] - i, last = col[high - 1] - i;
        far += first > reach || -first > reach || last > reach || -last > reach;
    }
    return most_near * far > looks;
}

// Rows whose results are summed up while they are in the cache; `work` of quotient_rows holds as many.
inline constexpr Size quotient_tile = 64;

}  // namespace krylow
