// Static condensation: nodes of one or two neighbours eliminated, and the Schur complement on the others.
#pragma once

#include "graph.h"

namespace krylow {

struct Eliminated {
    bool symmetric;               // the pattern; nothing else is of use if not
    Array<std::int32_t> order;    // (t, 3) each eliminated node and its two neighbours then, twice the same if it had one
    Array<double> coefficients;   // (t, 3) its weights on these, and its pivot
    Array<std::int32_t> nodes;    // (c,) those that remain
    Array<std::int32_t> rows, columns;  // of the Schur complement, the diagonal first in each row
    Array<double> S, M;           // its values and its mass matrix
    double farthest;              // a bound of the row sums of the eliminated block's inverse; infinite: unknown
    Size joined;                  // entries of the whole off its diagonal
};

// Eliminate nodes of at most two neighbours from L + shift I, and carry the mass of their pieces over.
//
// A piece is not enlarged beyond `slowest`: its nodes times its resistance, and an eighth of that in a path, which is
// about one over its lowest frequency with the ends held. A node between two nodes that both have more entries than
// `widest` remains.
//
// With a load of one on every node and the ends held, a node between two others carries at most all that its piece has,
// over its pivot, and what is inside the piece that much more than it did with that node held, too: so far a bound of the
// inverse's row sums follows on the way. Weights on neighbours must be positive and add up to 1 at most.
template <class I>
Eliminated eliminate(const Rows<I>& L, const double* values, double shift, double slowest, Size widest) {
    using Int = std::int32_t;
    // How far above 1 rounding may take weights on neighbours, and by how much it may change a sum of such numbers.
    constexpr double slack = 1e-9, rounded = 1e-4;
    struct Entry {
        Int neighbor, twin;  // the twin is the same edge in the neighbour's row
        float deep, held;    // how slow the piece on the edge is, and its nodes
        double weight, mass;
    };
    struct Node {
        double diagonal, mass;
        float own, hung;  // nodes of a node and its trees, and how slow these are
        Int degree, queued;  // a degree of -1: eliminated
    };
    const Size n = L.n;
    Array<Entry> entry(L.count);
    Array<Node> node(n);
    Array<Int> first(n + 1), following(n), stack(n);
    Int joined = 0;
    for (Size i = 0; i < n; ++i) {
        node[i] = {shift, 1.0, 1.0f, 0.0f, 0, 0};
        first[i] = following[i] = joined;
        for (Size e = L.crow[i]; e < L.crow[i + 1]; ++e) {
            if (L.col[e] == i)
                node[i].diagonal += values[e];
            else
                entry[joined++] = {static_cast<Int>(L.col[e]), 0, 0, 0, values[e], 0};
        }
        node[i].degree = joined - first[i];
    }
    first[n] = joined;
    bool symmetric = true;
    for (Size i = 0; symmetric && i < n; ++i) {  // row i is the next one that each of its neighbours meets
        for (Int e = first[i]; e < first[i + 1]; ++e) {
            const Int j = entry[e].neighbor, p = following[j];
            if (p >= first[j + 1] || entry[p].neighbor != i) {
                symmetric = false;
                break;
            }
            entry[e].twin = p;
            following[j] = p + 1;
        }
    }
    Eliminated found{symmetric, Array<Int>(3 * n), Array<double>(3 * n), Array<Int>(0), Array<Int>(0), Array<Int>(0),
                     Array<double>(0), Array<double>(0), 0.0, joined};
    Size top = 0, count = 0;
    for (Size i = n; symmetric && i-- > 0;) {
        if (node[i].degree <= 2) {
            stack[top++] = static_cast<Int>(i);
            node[i].queued = 1;
        }
    }
    while (top > 0) {
        const Int v = stack[--top];
        Node& own = node[v];
        own.queued = 0;
        Int one = -1, two = -1;
        for (Int e = first[v]; e < first[v + 1]; ++e) {
            if (entry[e].neighbor < 0) continue;
            (one < 0 ? one : two) = e;
        }
        if (own.degree > 2 || one < 0 || own.diagonal == 0) continue;
        const Entry to_one = entry[one];
        const Int a = to_one.neighbor, to_a = to_one.twin;
        const double pivot = own.diagonal, c = -to_one.weight / pivot;
        float total = own.own + to_one.held;
        double d = 0, far = std::max(own.hung, to_one.deep);
        Int b = a, to_b = to_a, link = -1;
        if (two < 0) {
            const double slow = far + total / std::abs(to_one.weight);
            if (!(slow <= slowest)) continue;
            node[a].own += total;
            node[a].hung = std::max(node[a].hung, static_cast<float>(slow));
            far = slow;
        } else {
            const Entry to_two = entry[two];
            total += to_two.held;
            b = to_two.neighbor;
            const double resistance = 1 / std::abs(to_one.weight) + 1 / std::abs(to_two.weight);
            if (!(own.hung + total * resistance / 8 <= slowest)) continue;
            to_b = to_two.twin;
            d = -to_two.weight / pivot;
            const Int in_a = first[a + 1] - first[a], in_b = first[b + 1] - first[b];
            if (std::min(in_a, in_b) > widest) continue;
            if (in_a <= in_b) {  // link: the entry of b in the row of a, if they are neighbours already
                for (Int e = first[a]; e < first[a + 1]; ++e) {
                    if (entry[e].neighbor == b) link = e;
                }
            } else {
                for (Int e = first[b]; e < first[b + 1]; ++e) {
                    if (entry[e].neighbor == a) link = entry[e].twin;
                }
            }
            far = std::max(far, static_cast<double>(to_two.deep)) + total / std::abs(pivot);
            const double between = c * to_two.weight;
            const double mixed = c * d * own.mass + c * to_two.mass + d * to_one.mass;
            node[b].diagonal += d * to_two.weight;
            node[b].mass += d * (d * own.mass + 2 * to_two.mass);
            const auto deep = static_cast<float>(far);
            if (link < 0) {
                entry[to_a] = {b, to_b, deep, total, between, mixed};
                entry[to_b] = {a, to_a, deep, total, between, mixed};
            } else {
                Entry& forth = entry[link];
                forth.weight += between;
                forth.mass += mixed;
                forth.held += total;
                forth.deep = std::max(forth.deep, deep);
                Entry& back = entry[forth.twin];
                back.weight = forth.weight;
                back.mass = forth.mass;
                back.held = forth.held;
                back.deep = forth.deep;
                entry[to_b].neighbor = -1;
                --node[b].degree;
            }
        }
        if (c >= 0 && d >= 0 && c + d <= 1 + slack && pivot > 0)
            found.farthest = std::max(found.farthest, far);
        else
            found.farthest = std::numeric_limits<double>::infinity();
        node[a].diagonal += c * to_one.weight;
        node[a].mass += c * (c * own.mass + 2 * to_one.mass);
        if (two < 0 || link >= 0) {
            entry[to_a].neighbor = -1;
            --node[a].degree;
            for (const Int u : {a, b}) {
                if (node[u].degree <= 2 && !node[u].queued) {
                    stack[top++] = u;
                    node[u].queued = 1;
                }
            }
        }
        own.degree = -1;
        found.order[3 * count] = v;
        found.order[3 * count + 1] = a;
        found.order[3 * count + 2] = b;
        found.coefficients[3 * count] = c;
        found.coefficients[3 * count + 1] = d;
        found.coefficients[3 * count + 2] = pivot;
        ++count;
    }
    const Size left = n - count;
    found.order = std::move(found.order).first(3 * count);
    found.coefficients = std::move(found.coefficients).first(3 * count);
    found.nodes = Array<Int>(left);
    Array<Int>& place = following;
    Size kept = 0;
    for (Size i = 0; i < n; ++i) {
        if (node[i].degree < 0) continue;
        place[i] = static_cast<Int>(kept);
        found.nodes[kept++] = static_cast<Int>(i);
    }
    found.rows = Array<Int>(left + 1, 0);
    for (Size r = 0; r < left; ++r) found.rows[r + 1] = found.rows[r] + node[found.nodes[r]].degree + 1;
    found.columns = Array<Int>(found.rows[left]);
    found.S = Array<double>(found.rows[left]);
    found.M = Array<double>(found.rows[left]);
    for (Size r = 0; symmetric && r < left; ++r) {
        const Int i = found.nodes[r];
        Int p = found.rows[r];
        found.columns[p] = static_cast<Int>(r);
        found.S[p] = node[i].diagonal;
        found.M[p] = node[i].mass;
        for (Int e = first[i]; e < first[i + 1]; ++e) {
            if (entry[e].neighbor < 0) continue;
            ++p;
            found.columns[p] = place[entry[e].neighbor];
            found.S[p] = entry[e].weight;
            found.M[p] = entry[e].mass;
        }
    }
    found.farthest *= 1 + rounded;
    return found;
}

// Give each eliminated node the label of a neighbour that it had then.
template <class N>
void inherit(const std::int32_t* order, Size count, N* labels) {
    for (Size i = count; i-- > 0;) labels[order[3 * i]] = labels[order[3 * i + 1]];
}

}  // namespace krylow
