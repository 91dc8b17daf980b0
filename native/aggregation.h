// Aggregates of nodes and the Laplacian between them.
#pragma once

#include <stdexcept>

#include "graph.h"

namespace krylow {

// By falling degree: a node without a joined near neighbour becomes a root; the others join the nearest. A node that is
// tied to its root by less than `bound`, its edge and the paths of two edges inside the aggregate in all, is an
// aggregate by itself. Roots of many neighbours make fewer aggregates, and more even ones. They are numbered in the
// order of the nodes. Neighbours are near if their weight is at least `strong` times the geometric mean of the largest
// weights of both.
template <class I, class V>
std::pair<Array<std::int32_t>, Size> aggregate(const Rows<I>& L, const V* values, double strong, double bound) {
    using Int = std::int32_t;
    const Size n = L.n;
    const I* const crow = L.crow;
    const I* const col = L.col;
    Array<Int> order(n), labels(n, -1), roots(n), late(n), joined(n);
    Array<double> scale(n), tie(n, 0.0);  // tie: the edge to the root
    const auto weight = [values](Size q) { return std::abs(static_cast<double>(values[q])); };
    Size most = 0;
    for (Size i = 0; i < n; ++i) most = std::max<Size>(most, crow[i + 1] - crow[i]);
    Array<std::int64_t> place(most + 2, std::int64_t{0});  // where nodes of a degree begin
    for (Size i = 0; i < n; ++i) ++place[most - (crow[i + 1] - crow[i]) + 1];
    for (Size d = 0; d <= most; ++d) place[d + 1] += place[d];
    for (Size i = 0; i < n; ++i) order[place[most - (crow[i + 1] - crow[i])]++] = static_cast<Int>(i);
    for (Size i = 0; i < n; ++i) {
        double found = 0;
        for (Size q = crow[i]; q < crow[i + 1]; ++q) {
            if (col[q] != i) found = std::max(found, weight(q));
        }
        scale[i] = std::sqrt(strong * found);
    }
    const auto near = [&](Size i, Size q) {
        const double size = weight(q);
        return col[q] != i && size > 0 && size >= scale[i] * scale[col[q]];
    };
    Size count = 0;
    for (Size visited = 0; visited < n; ++visited) {
        const Size i = order[visited];
        bool free = labels[i] < 0;
        for (Size q = crow[i]; free && q < crow[i + 1]; ++q) free = labels[col[q]] < 0 || !near(i, q);
        if (!free) continue;
        labels[i] = static_cast<Int>(count);
        roots[count] = static_cast<Int>(i);
        for (Size q = crow[i]; q < crow[i + 1]; ++q) {
            if (!near(i, q)) continue;
            labels[col[q]] = static_cast<Int>(count);
            tie[col[q]] = weight(q);
        }
        ++count;
    }
    for (Size i = 0; i < n; ++i) late[i] = labels[i];
    for (Size i = 0; i < n; ++i) {
        if (labels[i] >= 0) continue;
        double best = 0;
        for (Size q = crow[i]; q < crow[i + 1]; ++q) {
            const double size = weight(q);
            if (labels[col[q]] >= 0 && size > best && size >= scale[i] * scale[col[q]]) {
                best = size;
                late[i] = labels[col[q]];
            }
        }
        if (late[i] < 0) {
            late[i] = static_cast<Int>(count);
            roots[count++] = static_cast<Int>(i);
        }
        for (Size q = crow[i]; q < crow[i + 1]; ++q) {
            if (col[q] == roots[late[i]] && col[q] != i) tie[i] = weight(q);
        }
    }
    for (Size i = 0; i < n; ++i) joined[i] = late[i];
    for (Size i = 0; i < n; ++i) {
        double tied = tie[i];
        for (Size q = crow[i]; tied < bound && q < crow[i + 1]; ++q) {
            if (col[q] != i && joined[col[q]] == joined[i]) tied += std::min(weight(q), tie[col[q]]);
        }
        if (tied < bound && roots[joined[i]] != i) late[i] = static_cast<Int>(count++);
    }
    Array<Int> number(count, -1);
    Int named = 0;
    for (Size i = 0; i < n; ++i) {
        if (number[late[i]] < 0) number[late[i]] = named++;
        late[i] = number[late[i]];
    }
    return {std::move(late), named};
}

template <class I>
struct Coarse {
    Array<I> rows, columns;
    Array<double> values;
};

// P^T L P with P[i, labels[i]] = v[i] / sizes[labels[i]]: the rows of each aggregate's nodes are added up, then what was
// found is mirrored, so that columns ascend.
template <class I, class V, class N, class Vector>
Coarse<I> coarsen(const Rows<I>& L, const V* values, const N* labels, const Vector& v, const double* sizes,
                  Size count) {
    const Size n = L.n;
    Array<std::int64_t> first(count + 1, std::int64_t{0}), filled(count);
    for (Size i = 0; i < n; ++i) ++first[labels[i] + 1];
    for (Size a = 0; a < count; ++a) {
        first[a + 1] += first[a];
        filled[a] = first[a];
    }
    Array<N> nodes(n);
    for (Size i = 0; i < n; ++i) nodes[filled[labels[i]]++] = static_cast<N>(i);
    Array<I> rows(count + 1, I{0}), met(L.count), following(count);
    Array<double> sums(L.count);
    Array<std::int64_t> place(count, std::int64_t{-1});  // of a column's entry, if at or after the row's start
    Size end = 0;
    for (Size a = 0; a < count; ++a) {
        const Size start = end;
        for (Size q = first[a]; q < first[a + 1]; ++q) {
            const Size i = nodes[q];
            for (Size p = L.crow[i]; p < L.crow[i + 1]; ++p) {
                const Size j = L.col[p], b = labels[j];
                if (place[b] < start) {
                    place[b] = end;
                    met[end] = static_cast<I>(b);
                    sums[end++] = 0;
                }
                sums[place[b]] += static_cast<double>(values[p]) * v[i] * v[j];
            }
        }
        rows[a + 1] = static_cast<I>(end);
        following[a] = rows[a];
    }
    Array<I> columns(end);
    Array<double> entries(end);
    for (Size a = 0; a < count; ++a) {
        for (Size p = rows[a]; p < rows[a + 1]; ++p) {
            const Size b = met[p], q = following[b]++;
            if (q >= rows[b + 1]) throw std::invalid_argument("col: expected a symmetric pattern.");
            columns[q] = static_cast<I>(a);
            entries[q] = sums[p] / (sizes[a] * sizes[b]);
        }
    }
    return {std::move(rows), std::move(columns), std::move(entries)};
}

}  // namespace krylow
