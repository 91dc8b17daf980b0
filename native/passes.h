// Passes over the rows of a block that add multiples of rows to rows: prolongation and restriction between a graph and
// its aggregates, the passes over eliminated nodes, and triangular solves.
#pragma once

#include "levels.h"

namespace krylow {

// Rows of a block, `stride` numbers apart.
template <class T>
struct Block {
    T* data;
    Size rows, columns, stride;
    T* operator[](Size i) const { return data + i * stride; }
};

// P[i, labels[i]] = v[i] / sizes[labels[i]], the entries of v `step` apart.
template <class N>
struct Prolongation {
    const N* labels;
    const double* v;
    Size step;
    const double* sizes;
    Size n;
    double weight(Size i) const { return v[i * step] / sizes[labels[i]]; }
};

// Eliminated nodes, each with two neighbours, its weights on these, and its pivot.
struct Passed {
    const std::int32_t* order;
    const double* coefficients;
    Size count;
};

// A factor G D G^T, G by columns.
template <class T>
struct Triangle {
    const std::int64_t* start;
    const std::int32_t* where;
    const T* G;
    const T* D;
    Size n;
};

KRYLOW_EACH_LEVEL(
    template <class N, class X> void restrict_rows(const Prolongation<N>& P, Block<const X> x, Block<double> total);
    template <class N, class X> void prolong_rows(const Prolongation<N>& P, Block<const X> z, Block<X> x);
    template <class N, class X> void subtract_rows(const Prolongation<N>& P, Block<const X> z, Block<X> x);
    void down(const Passed& passed, Block<double> x);  // the forward half of a solve
    void up(const Passed& passed, Block<double> x);  // the backward half of a solve
    void extend(const Passed& passed, Block<double> x);  // the solution without a load on eliminated nodes
    template <class T> void substitute(const Triangle<T>& factor, Block<T> x);)

}  // namespace krylow
