// Passes over the rows of a matrix, and traversals of its graph.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "array.h"
#include "pool.h"

namespace krylow {

// Row pointers and columns of a square matrix of n rows, checked.
template <class I>
struct Rows {
    const I* crow;
    const I* col;
    Size n, count;
};

struct Seen {
    double low, high;  // Gershgorin's bounds
    Array<bool> flat;  // whether a row sums to zero but for rounding
    bool positive;     // whether an entry off the diagonal is
};

// Rounding of a row's sum is eps times the sum of the entries' sizes, times `slack` plus the number of entries.
template <class I, class V>
Seen look(const Rows<I>& L, const V* values, double slack, double eps) {
    Seen seen{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), Array<bool>(L.n),
              false};
    for (Size i = 0; i < L.n; ++i) {
        double own = 0, others = 0, radius = 0;
        for (Size p = L.crow[i]; p < L.crow[i + 1]; ++p) {
            const double value = static_cast<double>(values[p]);
            if (L.col[p] == i) {
                own += value;
            } else {
                others += value;
                radius += std::abs(value);
                seen.positive = seen.positive || value > 0;
            }
        }
        seen.low = std::min(seen.low, own - radius);
        seen.high = std::max(seen.high, own + radius);
        const double terms = slack + static_cast<double>(L.crow[i + 1] - L.crow[i]);
        seen.flat[i] = std::abs(own + others) <= terms * eps * (std::abs(own) + radius);
    }
    return seen;
}

// Where L x is zero but for rounding, and whether L has a positive entry off its diagonal; x is positive.
template <class I, class V>
std::pair<Array<bool>, bool> null_rows(const Rows<I>& L, const V* values, const double* x, double slack, double eps) {
    std::pair<Array<bool>, bool> found{Array<bool>(L.n), false};
    for (Size i = 0; i < L.n; ++i) {
        double total = 0, size = 0;
        for (Size p = L.crow[i]; p < L.crow[i + 1]; ++p) {
            const double part = static_cast<double>(values[p]) * x[L.col[p]];
            total += part;
            size += std::abs(part);
            found.second = found.second || (part > 0 && L.col[p] != i);
        }
        const double terms = slack + static_cast<double>(L.crow[i + 1] - L.crow[i]);
        found.first[i] = std::abs(total) <= terms * eps * size;
    }
    return found;
}

struct Search {
    Array<std::int32_t> order, labels;
    Size components, widest;
};

// Breadth-first search of each component, from any node to one that is far away and, with `back`, from there again,
// unless its widest level exceeds the share `broad` of its nodes. `skip(p)` says which entries join nothing.
template <class I, class Skip>
Search search(const Rows<I>& L, const Skip& skip, bool back, double broad) {
    const Size n = L.n;
    Search found{Array<std::int32_t>(n), Array<std::int32_t>(n), 0, 1};
    Array<std::uint8_t> met(n, std::uint8_t{0});  // in how many searches
    std::int32_t* const order = found.order.data();
    Size begin = 0;
    for (Size root = 0; root < n; ++root) {
        if (met[root]) continue;
        Size start = root, end = begin;
        const auto component = static_cast<std::int32_t>(found.components);
        for (std::uint8_t again = 0; again < 2; ++again) {
            Size level = 1;
            order[begin] = static_cast<std::int32_t>(start);
            found.labels[start] = component;
            met[start] = static_cast<std::uint8_t>(again + 1);
            end = begin + 1;
            for (Size read = begin; read < end;) {
                const Size last = end;
                level = std::max(level, last - read);
                for (; read < last && end < n; ++read) {  // with all nodes met there is nothing more to find
                    const Size i = order[read];
                    for (Size p = L.crow[i]; p < L.crow[i + 1]; ++p) {
                        const Size j = L.col[p];
                        if (met[j] > again || skip(p)) continue;
                        found.labels[j] = component;
                        met[j] = static_cast<std::uint8_t>(again + 1);
                        order[end++] = static_cast<std::int32_t>(j);
                    }
                }
                read = last;
            }
            start = order[end - 1];
            if (again == 1 || !back || end - begin <= 2 ||
                static_cast<double>(level) > broad * static_cast<double>(end - begin)) {
                found.widest = std::max(found.widest, level);
                break;
            }
        }
        begin = end;
        ++found.components;
    }
    return found;
}

// The widths of the levels of a breadth-first search, and a node of the last one.
template <class I>
std::pair<Array<std::int64_t>, Size> levels(const Rows<I>& L, Size start) {
    Array<bool> seen(L.n, false);
    Array<I> queue(L.n);
    Array<std::int64_t> widths(L.n);
    queue[0] = static_cast<I>(start);
    seen[start] = true;
    Size low = 0, high = 1, depth = 0, last = start;
    while (low < high) {
        widths[depth++] = high - low;
        last = queue[low];
        const Size end = high;
        for (; low < end; ++low) {
            const Size i = queue[low];
            for (Size p = L.crow[i]; p < L.crow[i + 1]; ++p) {
                const Size j = L.col[p];
                if (seen[j]) continue;
                seen[j] = true;
                queue[high++] = L.col[p];
            }
        }
    }
    return {std::move(widths).first(depth), last};
}

// Label propagation: every node begins with a label of its own and takes the one that most of its neighbours have, until
// the share `enough` of nodes agrees with most of its neighbours. A label's tally begins anew at each node: from
// `start`, beyond all tallies of the nodes before.
template <class I>
Array<std::int32_t> propagate(const Rows<I>& L, int rounds, double enough) {
    Array<std::int32_t> labels(L.n);
    Array<std::int64_t> tally(L.n, std::int64_t{0});
    for (Size i = 0; i < L.n; ++i) labels[i] = static_cast<std::int32_t>(i);
    std::int64_t start = 0;
    for (int round = 0; round < rounds; ++round) {
        Size agreed = 0;
        for (Size i = 0; i < L.n; ++i) {
            const std::int64_t entries = L.crow[i + 1] - L.crow[i];
            const std::int32_t own = labels[i];
            std::int32_t best = own;
            std::int64_t most = start;
            for (Size p = L.crow[i]; p < L.crow[i + 1]; ++p) {
                if (L.col[p] == i) continue;
                const std::int32_t name = labels[L.col[p]];
                const std::int64_t counted = std::max(tally[name], start) + 1;
                tally[name] = counted;
                if (counted > most || (counted == most && name == own)) {
                    best = name;
                    most = counted;
                }
            }
            agreed += 2 * (most - start) > entries - 1;
            labels[i] = best;
            start += entries;
        }
        if (static_cast<double>(agreed) >= enough * static_cast<double>(L.n)) break;
    }
    return labels;
}

// The sum over entries of a hash of place and value, those below the diagonal negative: zero where the matrix is
// symmetric to the last bit, and but for one case in 10^19 only there.
template <class I>
std::uint64_t mirror_balance(const Rows<I>& L, const std::uint64_t* bits) {
    std::uint64_t total = 0;
    for (Size i = 0; i < L.n; ++i) {
        for (Size p = L.crow[i]; p < L.crow[i + 1]; ++p) {
            const Size j = L.col[p];
            if (i == j) continue;
            std::uint64_t x = static_cast<std::uint64_t>(std::min(i, j)) * 0x9E3779B97F4A7C15u +
                              static_cast<std::uint64_t>(std::max(i, j));
            x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u + bits[p];
            x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
            x ^= x >> 32;
            total += i < j ? x : 0 - x;
        }
    }
    return total;
}

// The rows of a matrix whose nodes are put in an order, order[new] = old, a permutation: its columns are in none.
template <class I, class N, class V, class W>
void permute(const Rows<I>& L, const V* values, const N* order, I* rows, I* columns, W* entries, int threads) {
    Array<I> place(L.n);
    rows[0] = 0;
    for (Size i = 0; i < L.n; ++i) {
        place[order[i]] = static_cast<I>(i);
        rows[i + 1] = static_cast<I>(rows[i] + L.crow[order[i] + 1] - L.crow[order[i]]);
    }
    share_rows(rows, L.n, 1, threads, [&](Size start, Size stop) {
        for (Size i = start; i < stop; ++i) {
            Size to = rows[i];
            for (Size p = L.crow[order[i]]; p < L.crow[order[i] + 1]; ++p, ++to) {
                columns[to] = place[L.col[p]];
                entries[to] = static_cast<W>(values[p]);
            }
        }
    });
}

template <class I>
struct Subgraph {
    Array<I> rows, columns;
    Array<double> values;
};

// The rows and columns of some nodes, in their order.
template <class I, class V, class N>
Subgraph<I> subgraph(const Rows<I>& L, const V* values, const N* nodes, Size count) {
    Array<I> place(L.n, I{-1}), rows(count + 1, I{0});
    Size most = 0;
    for (Size i = 0; i < count; ++i) {
        place[nodes[i]] = static_cast<I>(i);
        most += L.crow[nodes[i] + 1] - L.crow[nodes[i]];
    }
    Array<I> columns(most);
    Array<double> entries(most);
    Size end = 0;
    for (Size i = 0; i < count; ++i) {
        for (Size p = L.crow[nodes[i]]; p < L.crow[nodes[i] + 1]; ++p) {
            const I j = place[L.col[p]];
            if (j < 0) continue;
            columns[end] = j;
            entries[end++] = static_cast<double>(values[p]);
        }
        rows[i + 1] = static_cast<I>(end);
    }
    return {std::move(rows), std::move(columns).first(end), std::move(entries).first(end)};
}

// Write row i of a block to row order[i] of another one, a permutation.
template <class T, class N>
void scatter_rows(const T* X, const N* order, T* out, Size n, Size columns, int threads) {
    const Size parts = std::clamp<Size>(n * columns / work_per_thread, 1, threads * parts_per_thread);
    Pool::run(parts, threads, [&](Size part) {
        for (Size i = n * part / parts; i < n * (part + 1) / parts; ++i)
            std::copy_n(X + i * columns, columns, out + order[i] * columns);
    });
}

}  // namespace krylow
