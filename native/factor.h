// Sparse LDL^T factors without pivoting: minimum-degree order, elimination tree, factor.
#pragma once

#include <stdexcept>

#include "graph.h"

namespace krylow {

struct Ordering {
    Array<std::int64_t> place;
    Size entries;
    bool done;
};

// Always a node with the fewest neighbours next, each with a list of its neighbours: at most `most` entries of lists are
// read.
template <class I>
Ordering minimum_degree(const Rows<I>& L, Size most) {
    using Int = std::int32_t;
    const Size n = L.n;
    Array<Int> lists(L.count + most), length(n), capacity(n), mark(n, -1);
    Array<std::int64_t> start(n);
    // Nodes of each degree, in linked lists: the last one that came is the first to go. One whose degree has changed
    // since is in another list, too, and passed over where it was.
    Array<Int> head(n + 1, -1), linked(n + most), following(n + most);
    Ordering found{Array<std::int64_t>(n, std::int64_t{-1}), 0, false};
    Size end = 0, read = 0;
    for (Size i = 0; i < n; ++i) {
        start[i] = end;
        for (Size e = L.crow[i]; e < L.crow[i + 1]; ++e) {
            if (mark[L.col[e]] == i) throw std::invalid_argument("col: expected no column twice in a row.");
            mark[L.col[e]] = static_cast<Int>(i);
            if (L.col[e] != i) lists[end++] = static_cast<Int>(L.col[e]);
        }
        length[i] = capacity[i] = static_cast<Int>(end - start[i]);
    }
    for (Size i = 0; i < n; ++i) mark[i] = -1;
    Int links = 0;
    const auto link = [&](Int i, Int degree) {
        linked[links] = i;
        following[links] = head[degree];
        head[degree] = links++;
    };
    for (Size i = n; i-- > 0;) link(static_cast<Int>(i), length[i]);
    Int least = 0;
    for (Size count = 0; count < n;) {
        while (head[least] < 0) ++least;
        const Int v = linked[head[least]];
        head[least] = following[head[least]];
        if (found.place[v] >= 0 || length[v] != least) continue;
        found.place[v] = count++;
        found.entries += length[v];
        const Size first = start[v], last = first + length[v];
        for (Size p = first; p < last; ++p) {
            const Int u = lists[p], degree = length[u];
            Size own = start[u];
            read += degree + last - first;
            if (read > most) return found;
            mark[u] = u;
            Int kept = 0;
            for (Size q = own; q < own + degree; ++q) {
                const Int w = lists[q];
                if (w == v) continue;
                lists[own + kept++] = w;
                mark[w] = u;
            }
            Int fresh = 0;
            for (Size q = first; q < last; ++q) fresh += mark[lists[q]] != u;
            if (kept + fresh > capacity[u]) {
                if (end + 2 * (kept + fresh) > lists.size()) return found;
                std::copy_n(lists.data() + own, kept, lists.data() + end);
                own = start[u] = end;
                capacity[u] = 2 * (kept + fresh);
                end += capacity[u];
            }
            for (Size q = first; q < last; ++q) {
                if (mark[lists[q]] != u) lists[own + kept++] = lists[q];
            }
            if (kept != degree) {
                length[u] = kept;
                link(u, kept);
                least = std::min(least, kept);
            }
        }
    }
    found.done = true;
    return found;
}

// A symmetric matrix in a given order: the place of each node, and the node at each place.
template <class I>
struct Ordered {
    Rows<I> rows;
    const std::int64_t* place;
    const std::int64_t* at;
};

// The elimination tree, and the entries of the factor's columns.
template <class I>
std::pair<Array<std::int64_t>, Array<std::int64_t>> tree_and_counts(const Ordered<I>& A) {
    const Size n = A.rows.n;
    Array<std::int64_t> parent(n, std::int64_t{-1}), counts(n, std::int64_t{0}), ancestor(n, std::int64_t{-1});
    Array<std::int64_t> mark(n, std::int64_t{-1});
    for (Size i = 0; i < n; ++i) {
        const Size low = A.rows.crow[A.at[i]], high = A.rows.crow[A.at[i] + 1];
        mark[i] = i;
        for (Size e = low; e < high; ++e) {
            Size j = A.place[A.rows.col[e]];
            while (j < i && ancestor[j] != i) {  // climb with shortcuts, as far as row i has not been
                const Size above = ancestor[j];
                ancestor[j] = i;
                if (above < 0) {
                    parent[j] = i;
                    break;
                }
                j = above;
            }
        }
        for (Size e = low; e < high; ++e) {
            for (Size j = A.place[A.rows.col[e]]; j < i && mark[j] != i; j = parent[j]) {
                ++counts[j];
                mark[j] = i;
            }
        }
    }
    return {std::move(parent), std::move(counts)};
}

struct Factored {
    Array<std::int64_t> start;  // (n + 1,) where each column of G begins
    Array<std::int32_t> where;  // rows of G below its diagonal, by columns
    Array<double> G, D;
    double largest;  // number that was met
};

// P A P^T = G D G^T, row by row. `start` are the sums of the tree's counts; whatever it and the matrix are, nothing is
// written outside: false is returned where a column is full.
template <class I>
bool factorise(const Ordered<I>& A, const double* values, const std::int64_t* parent, Factored& found) {
    const Size n = A.rows.n;
    const std::int64_t* const start = found.start.data();
    std::int32_t* const where = found.where.data();
    double* const G = found.G.data();
    Array<std::int64_t> end(n), mark(n, std::int64_t{-1}), pattern(n), path(n);
    Array<double> y(n, 0.0);
    for (Size i = 0; i < n; ++i) end[i] = start[i];
    found.largest = 0;
    for (Size i = 0; i < n; ++i) {
        Size top = n;
        double pivot = 0;
        mark[i] = i;
        for (Size e = A.rows.crow[A.at[i]]; e < A.rows.crow[A.at[i] + 1]; ++e) {
            Size j = A.place[A.rows.col[e]];
            if (j == i) pivot += values[e];
            if (j >= i) continue;
            y[j] += values[e];
            Size length = 0;
            for (; mark[j] != i; j = parent[j]) {
                path[length++] = j;
                mark[j] = i;
                if (parent[j] <= j || parent[j] > i) return false;  // not this matrix's tree
            }
            while (length > 0) pattern[--top] = path[--length];
        }
        for (Size t = top; t < n; ++t) {
            const Size j = pattern[t];
            const double z = y[j];
            y[j] = 0;
            const Size stop = end[j];
            for (Size p = start[j]; p < stop; ++p) y[where[p]] -= G[p] * z;
            const double g = z / found.D[j];
            pivot -= g * z;
            found.largest = std::max(found.largest, std::abs(g * z));
            if (stop == start[j + 1]) return false;
            where[stop] = static_cast<std::int32_t>(i);
            G[stop] = g;
            end[j] = stop + 1;
        }
        found.D[i] = pivot;
    }
    for (Size i = 0; i < n; ++i) {
        if (end[i] != start[i + 1]) return false;
    }
    return true;
}

}  // namespace krylow
