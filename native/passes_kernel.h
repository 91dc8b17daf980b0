// The loops of passes.h, for one level.
#pragma once

#include "passes.h"
#include "vector.h"

namespace krylow::KRYLOW_LEVEL {

template <class N, class X>
void restrict_rows(const Prolongation<N>& P, Block<const X> x, Block<double> total) {
    for (Size i = 0; i < P.n; ++i) add_multiple(total[P.labels[i]], P.weight(i), x[i], x.columns);
}

template <class N, class X>
void prolong_rows(const Prolongation<N>& P, Block<const X> z, Block<X> x) {
    for (Size i = 0; i < P.n; ++i) write_multiple(x[i], static_cast<X>(P.weight(i)), z[P.labels[i]], x.columns);
}

template <class N, class X>
void subtract_rows(const Prolongation<N>& P, Block<const X> z, Block<X> x) {
    for (Size i = 0; i < P.n; ++i) add_multiple(x[i], -static_cast<X>(P.weight(i)), z[P.labels[i]], x.columns);
}

void down(const Passed& passed, Block<double> x) {
    for (Size i = 0; i < passed.count; ++i) {
        const std::int32_t* const at = passed.order + 3 * i;
        const double* const weight = passed.coefficients + 3 * i;
        add_multiple(x[at[1]], weight[0], x[at[0]], x.columns);
        if (weight[1] != 0) add_multiple(x[at[2]], weight[1], x[at[0]], x.columns);
    }
}

void up(const Passed& passed, Block<double> x) {
    for (Size i = passed.count; i-- > 0;) {
        const std::int32_t* const at = passed.order + 3 * i;
        const double* const weight = passed.coefficients + 3 * i;
        write_multiple(x[at[0]], 1 / weight[2], x[at[0]], x.columns);
        add_multiples(x[at[0]], weight[0], x[at[1]], weight[1], x[at[2]], x.columns);
    }
}

void extend(const Passed& passed, Block<double> x) {
    for (Size i = passed.count; i-- > 0;) {
        const std::int32_t* const at = passed.order + 3 * i;
        const double* const weight = passed.coefficients + 3 * i;
        write_multiple(x[at[0]], weight[0], x[at[1]], x.columns);
        add_multiple(x[at[0]], weight[1], x[at[2]], x.columns);
    }
}

// One step of a triangular solve, N columns at a time and then fewer: row i given out to those below, and gathered.
template <class T, int N>
KRYLOW_INLINE void give_out(const Triangle<T>& f, const Block<T>& x, Size i, Size c) {
    for (; c + N <= x.columns; c += N) {
        const auto own = load<T, N>(x[i] + c);
        for (Size p = f.start[i]; p < f.start[i + 1]; ++p) {
            T* const to = x[f.where[p]] + c;
            store(to, load<T, N>(to) - f.G[p] * own);
        }
    }
    if constexpr (N > 1) give_out<T, N / 2>(f, x, i, c);
}
template <class T, int N>
KRYLOW_INLINE void gather(const Triangle<T>& f, const Block<T>& x, Size i, Size c) {
    for (; c + N <= x.columns; c += N) {
        auto own = load<T, N>(x[i] + c) * (1 / f.D[i]);
        for (Size p = f.start[i]; p < f.start[i + 1]; ++p) own -= f.G[p] * load<T, N>(x[f.where[p]] + c);
        store(x[i] + c, own);
    }
    if constexpr (N > 1) gather<T, N / 2>(f, x, i, c);
}

template <class T>
void substitute(const Triangle<T>& f, Block<T> x) {
    if (x.columns == 1 && x.stride == 1) {  // without the inner loop, twice as fast
        T* const y = x.data;
        for (Size i = 0; i < f.n; ++i) {
            const T z = y[i];
            for (Size p = f.start[i]; p < f.start[i + 1]; ++p) y[f.where[p]] -= f.G[p] * z;
        }
        for (Size i = f.n; i-- > 0;) {
            T z = y[i] / f.D[i];
            for (Size p = f.start[i]; p < f.start[i + 1]; ++p) z -= f.G[p] * y[f.where[p]];
            y[i] = z;
        }
        return;
    }
    for (Size i = 0; i < f.n; ++i) give_out<T, lanes_of<T>>(f, x, i, 0);
    for (Size i = f.n; i-- > 0;) gather<T, lanes_of<T>>(f, x, i, 0);
}

}  // namespace krylow::KRYLOW_LEVEL
