// The loops of product.h, for one level.
#pragma once

#include "product.h"
#include "vector.h"

namespace krylow::KRYLOW_LEVEL {

// Vectors that one pass over a row's neighbours fills; and rows whose columns are gone through group by group.
inline constexpr int group = 8;
inline constexpr Size tile = 512;
// Where neighbours are far, a row of X is prefetched so many entries before it is used.
inline constexpr Size ahead = 96;

// `Count` vectors of columns from `first` on. The last one ends with the block, over a part of the one before if it has
// to: it then holds the same sums.
template <int Lanes, int Count, bool Ahead, class I, class V, class X, class O>
void pass(const Product<I, V, X, O>& m, Size begin, Size end, Size first) {
    using Sum = Vector<O, Lanes>;
    constexpr int chains = Count <= 2 ? 2 : 1;  // a sum waits for the product before
    // Copies of everything: a store to the result might change what is behind a reference.
    const I* const crow = m.crow;
    const I* const col = m.col;
    const V* const values = m.values;
    const Size columns = m.columns;
    const O a = m.a, b = m.b, c = m.c;
    const bool second = b != 0;
    const Size last = columns - Lanes - first < (Count - 1) * Lanes ? columns - Lanes - first : (Count - 1) * Lanes;
    const auto at = [last](int g) __attribute__((always_inline)) {
        return g > 0 && g == Count - 1 ? last : Size{g} * Lanes;
    };
    const Size shift = Count == 1 ? first + last : first;
    const X* const x = m.x + shift;
    const X* y = m.y == nullptr ? nullptr : m.y + begin * columns + shift;
    O* out = m.out + (begin - m.base) * columns + shift;
    const X* own = x + begin * columns;
    const Size final_entry = static_cast<Size>(crow[end]) - 1;
    Size low = crow[begin];
    for (Size i = begin; i < end; ++i) {
        const Size high = crow[i + 1];
        Sum sums[chains][Count] = {};
        if (y != nullptr) {
            KRYLOW_UNROLL
            for (int g = 0; g < Count; ++g) sums[0][g] = c * load<O, Lanes>(y + at(g));
            y += columns;
        }
        if (second) {
            KRYLOW_UNROLL
            for (int g = 0; g < Count; ++g) sums[0][g] += b * load<O, Lanes>(own + at(g));
        }
        const auto add = [&](Size p, Sum* sum) __attribute__((always_inline)) {
            if constexpr (Ahead) {
                const Size later = p + ahead < final_entry ? p + ahead : final_entry;
                const auto* const soon = reinterpret_cast<const char*>(x + col[later] * columns);
                KRYLOW_UNROLL
                for (int line = 0; line < Count * Lanes * static_cast<int>(sizeof(X)); line += 64)
                    __builtin_prefetch(soon + line);
            }
            const O weight = a * static_cast<O>(values[p]);
            const X* const neighbour = x + col[p] * columns;
            KRYLOW_UNROLL
            for (int g = 0; g < Count; ++g) sum[g] += weight * load<O, Lanes>(neighbour + at(g));
        };
        Size p = low;
        for (; p + chains <= high; p += chains) {
            KRYLOW_UNROLL
            for (int chain = 0; chain < chains; ++chain) add(p + chain, sums[chain]);
        }
        if constexpr (chains > 1) {
            if (p < high) add(p, sums[0]);
        }
        KRYLOW_UNROLL
        for (int g = 0; g < Count; ++g) {
            if constexpr (chains > 1) sums[0][g] += sums[1][g];
            store(out + at(g), sums[0][g]);
        }
        own += columns;
        out += columns;
        low = high;
    }
}

template <int Lanes, int Count, bool Ahead, class M>
KRYLOW_INLINE void pass_of(int count, const M& m, Size begin, Size end, Size first) {
    if (count == Count)
        pass<Lanes, Count, Ahead>(m, begin, end, first);
    else if constexpr (Count > 1)
        pass_of<Lanes, Count - 1, Ahead>(count, m, begin, end, first);
}

// Whole vectors, or the widest that the block holds: there are at most two of those.
template <int Lanes, int Most, bool Ahead, class M>
KRYLOW_INLINE void tile_rows(const M& m, Size begin, Size end) {
    if constexpr (Lanes > 1) {
        if (m.columns < Lanes) {
            tile_rows<Lanes / 2, 2, Ahead>(m, begin, end);
            return;
        }
    }
    const Size vectors = (m.columns + Lanes - 1) / Lanes, passes = (vectors + Most - 1) / Most;
    Size done = 0;
    for (Size k = 0; k < passes; ++k) {
        const Size next = vectors * (k + 1) / passes;
        pass_of<Lanes, Most, Ahead>(static_cast<int>(next - done), m, begin, end, done * Lanes);
        done = next;
    }
}

template <class I, class V, class X, class O>
void multiply_rows(const Product<I, V, X, O>& m, Size start, Size stop) {
    if (m.columns == 0) return;
    for (Size i = start; i < stop; i += tile) {
        const Size end = i + tile < stop ? i + tile : stop;
        if (m.far)
            tile_rows<lanes_of<O>, group, true>(m, i, end);
        else
            tile_rows<lanes_of<O>, group, false>(m, i, end);
    }
}

template <class I, class V, class X>
void quotient_rows(const Product<I, V, X, double>& m, const double* near, double* work, double* products,
                   double* squares, Size start, Size stop) {
    Product<I, V, X, double> part = m;
    part.out = work;
    for (Size begin = start; begin < stop; begin += quotient_tile) {
        const Size end = begin + quotient_tile < stop ? begin + quotient_tile : stop;
        part.base = begin;
        multiply_rows(part, begin, end);
        for (Size i = begin; i < end; ++i) {
            const double* const row = work + (i - begin) * m.columns;
            const X* const x = m.x + i * m.columns;
            for (Size j = 0; j < m.columns; ++j) {
                const double rest = row[j] - near[j] * x[j];
                products[j] += rest * x[j];
                squares[j] += rest * rest;
            }
        }
    }
}

}  // namespace krylow::KRYLOW_LEVEL
