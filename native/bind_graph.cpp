// Passes over rows, traversals, aggregates.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "aggregation.h"
#include "bind.h"
#include "border.h"
#include "graph.h"
#include "passes.h"
#include "refine.h"

namespace krylow {
namespace python {
namespace {

// Call `use` with the rows and the values, of one of the types.
template <class... Values, class Use>
void with_matrix(const In& crow, const In& col, const In& values, const Use& use) {
    with_rows(crow, col, [&](auto rows) {
        with_dtype<Values...>(values, "values", [&](auto type) {
            using V = typename decltype(type)::type;
            use(rows, entries<V>(values, "values", {rows.count}));
        });
    });
}

nb::object look(const In& crow, const In& col, const In& values, double slack, double eps) {
    Seen seen{0, 0, Array<bool>(0), false};
    with_matrix<float, double>(crow, col, values, [&](auto rows, auto* own) {
        const nb::gil_scoped_release unlocked;
        seen = krylow::look(rows, own, slack, eps);
    });
    return nb::make_tuple(seen.low, seen.high, to_numpy(std::move(seen.flat)), seen.positive);
}

nb::object null_rows(const In& crow, const In& col, const In& values, const In& x, double slack, double eps) {
    std::pair<Array<bool>, bool> found{Array<bool>(0), false};
    with_matrix<float, double>(crow, col, values, [&](auto rows, auto* own) {
        const auto* const positive = entries<double>(x, "x", {rows.n});
        const nb::gil_scoped_release unlocked;
        found = krylow::null_rows(rows, own, positive, slack, eps);
    });
    return nb::make_tuple(to_numpy(std::move(found.first)), found.second);
}

nb::object search(const In& crow, const In& col, const nb::object& values, bool back, double broad) {
    Search found{Array<std::int32_t>(0), Array<std::int32_t>(0), 0, 0};
    const auto all = [](Size) { return false; };
    if (values.is_none()) {
        with_rows(crow, col, [&](auto rows) {
            if (rows.n >= INT32_MAX) refuse("crow", "fewer than 2^31 rows");
            const nb::gil_scoped_release unlocked;
            found = krylow::search(rows, all, back, broad);
        });
    } else {
        with_matrix<float, double>(crow, col, nb::cast<In>(values), [&](auto rows, auto* own) {
            if (rows.n >= INT32_MAX) refuse("crow", "fewer than 2^31 rows");
            const nb::gil_scoped_release unlocked;
            bool zeros = false;
            for (Size p = 0; p < rows.count; ++p) zeros |= own[p] == 0;
            found = zeros ? krylow::search(rows, [own](Size p) { return own[p] == 0; }, back, broad)
                          : krylow::search(rows, all, back, broad);
        });
    }
    return nb::make_tuple(to_numpy(std::move(found.order)), to_numpy(std::move(found.labels)), found.components,
                          found.widest);
}

nb::object levels(const In& crow, const In& col, Size start) {
    std::pair<Array<std::int64_t>, Size> found{Array<std::int64_t>(0), 0};
    with_rows(crow, col, [&](auto rows) {
        if (start < 0 || start >= rows.n) throw nb::index_error("start: no such node.");
        const nb::gil_scoped_release unlocked;
        found = krylow::levels(rows, start);
    });
    return nb::make_tuple(to_numpy(std::move(found.first)), found.second);
}

nb::object propagate(const In& crow, const In& col, int rounds, double enough) {
    Array<std::int32_t> labels(0);
    with_rows(crow, col, [&](auto rows) {
        if (rows.n >= INT32_MAX) refuse("crow", "fewer than 2^31 rows");
        const nb::gil_scoped_release unlocked;
        labels = krylow::propagate(rows, rounds, enough);
    });
    return to_numpy(std::move(labels));
}

std::uint64_t mirror_balance(const In& crow, const In& col, const In& bits) {
    std::uint64_t balance = 0;
    with_matrix<std::uint64_t>(crow, col, bits, [&](auto rows, auto* own) {
        const nb::gil_scoped_release unlocked;
        balance = krylow::mirror_balance(rows, own);
    });
    return balance;
}

// Refuse nodes that are not inside, or not each another one: with n of them they are a permutation.
template <class N>
void check_distinct(const N* nodes, Size count, Size n, const char* name) {
    check_inside(nodes, count, n, name);
    Array<bool> seen(n, false);
    for (Size i = 0; i < count; ++i) {
        if (seen[nodes[i]]) refuse(name, "each node once");
        seen[nodes[i]] = true;
    }
}

void permute(const In& crow, const In& col, const In& values, const In& order, const Out& rows, const Out& columns,
             const Out& permuted, int threads) {
    with_matrix<float, double>(crow, col, values, [&](auto given, auto* own) {
        using I = std::remove_const_t<std::remove_pointer_t<decltype(given.crow)>>;
        with_dtype<std::int32_t, std::int64_t>(order, "order", [&](auto node) {
            using N = typename decltype(node)::type;
            with_dtype<float, double>(permuted, "entries", [&](auto number) {
                using W = typename decltype(number)::type;
                const auto* const ordered = entries<N>(order, "order", {given.n});
                auto* const to_rows = entries<I>(rows, "rows", {given.n + 1});
                auto* const to_columns = entries<I>(columns, "columns", {given.count});
                auto* const to_values = entries<W>(permuted, "entries", {given.count});
                const nb::gil_scoped_release unlocked;
                check_distinct(ordered, given.n, given.n, "order");
                permute(given, own, ordered, to_rows, to_columns, to_values, threads);
            });
        });
    });
}

nb::object subgraph(const In& crow, const In& col, const In& values, const In& nodes) {
    nb::object found;
    with_matrix<float, double>(crow, col, values, [&](auto rows, auto* own) {
        using I = std::remove_const_t<std::remove_pointer_t<decltype(rows.crow)>>;
        with_dtype<std::int32_t, std::int64_t>(nodes, "nodes", [&](auto type) {
            using N = typename decltype(type)::type;
            const Size count = length(nodes, "nodes");
            const auto* const chosen = entries<N>(nodes, "nodes", {count});
            Subgraph<I> part;
            {
                const nb::gil_scoped_release unlocked;
                check_distinct(chosen, count, rows.n, "nodes");
                part = krylow::subgraph(rows, own, chosen, count);
            }
            found = nb::make_tuple(to_numpy(std::move(part.rows)), to_numpy(std::move(part.columns)),
                                   to_numpy(std::move(part.values)));
        });
    });
    return found;
}

void scatter_rows(const In& X, const In& order, const Out& out, int threads) {
    with_dtype<float, double>(X, "X", [&](auto type) {
        using T = typename decltype(type)::type;
        with_dtype<std::int32_t, std::int64_t>(order, "order", [&](auto node) {
            using N = typename decltype(node)::type;
            const Size n = length(X, "X"), columns = length(X, "X", 1);
            const auto* const block = entries<T>(X, "X", {n, columns});
            const auto* const ordered = entries<N>(order, "order", {n});
            auto* const target = entries<T>(out, "out", {n, columns});
            const nb::gil_scoped_release unlocked;
            check_distinct(ordered, n, n, "order");
            krylow::scatter_rows(block, ordered, target, n, columns, threads);
        });
    });
}

nb::object aggregate(const In& crow, const In& col, const In& values, double strong, double bound) {
    std::pair<Array<std::int32_t>, Size> found{Array<std::int32_t>(0), 0};
    with_matrix<float, double>(crow, col, values, [&](auto rows, auto* own) {
        if (rows.n >= INT32_MAX) refuse("crow", "fewer than 2^31 rows");
        const nb::gil_scoped_release unlocked;
        found = krylow::aggregate(rows, own, strong, bound);
    });
    return nb::make_tuple(to_numpy(std::move(found.first)), found.second);
}

template <class Use>
void with_labels(const In& labels, Size n, Size count, const Use& use) {
    with_dtype<std::int32_t, std::int64_t>(labels, "labels", [&](auto type) {
        using N = typename decltype(type)::type;
        const auto* const own = entries<N>(labels, "labels", {n});
        check_inside(own, n, count, "labels");
        use(own);
    });
}

nb::object coarsen(const In& crow, const In& col, const In& values, const In& labels, const In& v, const In& sizes) {
    nb::object found;
    with_matrix<float, double>(crow, col, values, [&](auto rows, auto* own) {
        using I = std::remove_const_t<std::remove_pointer_t<decltype(rows.crow)>>;
        const Size count = length(sizes, "sizes");
        const auto* const lengths = entries<double>(sizes, "sizes", {count});
        const Strided vector = strided(v, rows.n, "v");
        with_labels(labels, rows.n, count, [&](auto* own_labels) {
            Coarse<I> coarse;
            {
                const nb::gil_scoped_release unlocked;
                coarse = krylow::coarsen(rows, own, own_labels, vector, lengths, count);
            }
            found = nb::make_tuple(to_numpy(std::move(coarse.rows)), to_numpy(std::move(coarse.columns)),
                                   to_numpy(std::move(coarse.values)));
        });
    });
    return found;
}

void add_squares(const In& labels, const In& v, const Out& total) {
    const Size n = length(labels, "labels"), count = length(total, "total");
    auto* const sums = entries<double>(total, "total", {count});
    const Strided vector = strided(v, n, "v");
    with_labels(labels, n, count, [&](auto* own) {
        const nb::gil_scoped_release unlocked;
        for (Size i = 0; i < n; ++i) sums[own[i]] += vector[i] * vector[i];
    });
}

// Call `use` with a prolongation, checked.
template <class Use>
void with_prolongation(const In& labels, const In& v, const In& sizes, const Use& use) {
    const Size n = length(labels, "labels"), count = length(sizes, "sizes");
    const auto* const lengths = entries<double>(sizes, "sizes", {count});
    const Strided vector = strided(v, n, "v");
    with_labels(labels, n, count, [&](auto* own) {
        using N = std::remove_const_t<std::remove_pointer_t<decltype(own)>>;
        use(Prolongation<N>{own, vector.data, vector.step, lengths, n}, count);
    });
}

void restrict(const In& labels, const In& v, const In& sizes, const In& X, const Out& total) {
    with_prolongation(labels, v, sizes, [&](const auto& P, Size count) {
        with_dtype<float, double>(X, "X", [&](auto type) {
            using T = typename decltype(type)::type;
            const auto x = rows_of<T>(X, "X", P.n, -1);
            const auto sums = rows_of<double>(total, "total", count, x.columns);
            const nb::gil_scoped_release unlocked;
            KRYLOW_CALL(restrict_rows, P, x, sums);
        });
    });
}

void prolong(const In& labels, const In& v, const In& sizes, const In& Z, const Out& X) {
    with_prolongation(labels, v, sizes, [&](const auto& P, Size count) {
        with_dtype<float, double>(X, "X", [&](auto type) {
            using T = typename decltype(type)::type;
            const auto x = rows_of<T>(X, "X", P.n, -1);
            const auto z = rows_of<T>(Z, "Z", count, x.columns);
            const nb::gil_scoped_release unlocked;
            KRYLOW_CALL(prolong_rows, P, z, x);
        });
    });
}

void subtract(const In& labels, const In& v, const In& sizes, const In& Z, const Out& X) {
    with_prolongation(labels, v, sizes, [&](const auto& P, Size count) {
        with_dtype<float, double>(X, "X", [&](auto type) {
            using T = typename decltype(type)::type;
            const auto x = rows_of<T>(X, "X", P.n, -1);
            const auto z = rows_of<T>(Z, "Z", count, x.columns);
            const nb::gil_scoped_release unlocked;
            KRYLOW_CALL(subtract_rows, P, z, x);
        });
    });
}

double refine(const In& crow, const In& col, const In& values, const In& weights, const Out& side, double target,
              double slack, int passes, Size patience) {
    double cut = 0;
    with_matrix<float, double>(crow, col, values, [&](auto rows, auto* own) {
        const auto* const nodes = entries<double>(weights, "weights", {rows.n});
        auto* const sides = entries<std::uint8_t>(side, "side", {rows.n});
        const nb::gil_scoped_release unlocked;
        check_inside(sides, rows.n, 2, "side");
        cut = Refinement(rows, own, nodes, sides, target, slack).run(passes, patience);
    });
    return cut;
}

}  // namespace
}  // namespace python

void bind_graph(nb::module_& m) {
    const auto arg = [](const char* name) { return nb::arg(name); };
    m.def("look", &python::look, arg("crow"), arg("col"), arg("values"), arg("slack"), arg("eps"),
          "Return Gershgorin's bounds, which rows sum to zero, and whether an entry off the diagonal is positive.");
    m.def("null_rows", &python::null_rows, arg("crow"), arg("col"), arg("values"), arg("x"), arg("slack"), arg("eps"),
          "Return where L x is zero but for rounding, and whether an entry off the diagonal is positive.");
    m.def("search", &python::search, arg("crow"), arg("col"), nb::arg("values").none(), arg("back"), arg("broad"),
          "Search breadth first; return order, labels, the number of components and the widest level.");
    m.def("levels", &python::levels, arg("crow"), arg("col"), arg("start"),
          "Return the widths of the levels of a breadth-first search, and a node of the last one.");
    m.def("propagate", &python::propagate, arg("crow"), arg("col"), arg("rounds"), arg("enough"),
          "Return the labels of a label propagation.");
    m.def("mirror_balance", &python::mirror_balance, arg("crow"), arg("col"), arg("bits"),
          "Return zero where a matrix is symmetric to the last bit.");
    m.def("permute", &python::permute, arg("crow"), arg("col"), arg("values"), arg("order"), arg("rows"), arg("columns"),
          arg("entries"), arg("threads"), "Write the rows of a matrix whose nodes are put in an order.");
    m.def("subgraph", &python::subgraph, arg("crow"), arg("col"), arg("values"), arg("nodes"),
          "Return the rows, columns and values of the matrix of some nodes.");
    m.def("scatter_rows", &python::scatter_rows, arg("X"), arg("order"), arg("out"), arg("threads"),
          "Write row i of a block to row order[i] of another one.");
    m.def("aggregate", &python::aggregate, arg("crow"), arg("col"), arg("values"), arg("strong"), arg("bound"),
          "Return the aggregate of each node and their number.");
    m.def("coarsen", &python::coarsen, arg("crow"), arg("col"), arg("values"), arg("labels"), arg("v"), arg("sizes"),
          "Return the rows, columns and values of P^T L P.");
    m.def("add_squares", &python::add_squares, arg("labels"), arg("v"), arg("total"),
          "Add the squares of v on each aggregate to `total`.");
    m.def("restrict", &python::restrict, arg("labels"), arg("v"), arg("sizes"), arg("X"), arg("total"), "Add P^T X to `total`.");
    m.def("prolong", &python::prolong, arg("labels"), arg("v"), arg("sizes"), arg("Z"), arg("X"), "Write P Z to X.");
    m.def("subtract", &python::subtract, arg("labels"), arg("v"), arg("sizes"), arg("Z"), arg("X"), "Subtract P Z from X.");
    m.def("refine", &python::refine, arg("crow"), arg("col"), arg("values"), arg("weights"), arg("side"), arg("target"),
          arg("slack"), arg("passes"), arg("patience"), "Refine a cut in two in place; return it.");
}

}  // namespace krylow
