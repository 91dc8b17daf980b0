// Elimination of nodes of one or two neighbours, and factors of sparse symmetric matrices.
#include "bind.h"
#include "border.h"
#include "elimination.h"
#include "factor.h"
#include "passes.h"

namespace krylow {
namespace python {
namespace {

nb::object eliminate(const In& crow, const In& col, const In& values, double shift, double slowest, Size widest) {
    Eliminated found;
    with_rows(crow, col, [&](auto rows) {
        const auto* const own = entries<double>(values, "values", {rows.count});
        if (rows.n >= INT32_MAX || rows.count >= INT32_MAX) refuse("col", "fewer than 2^31 entries");
        check_ascending(rows);
        const nb::gil_scoped_release unlocked;
        found = krylow::eliminate(rows, own, shift, slowest, widest);
    });
    const Size count = found.order.size() / 3;
    return nb::make_tuple(found.symmetric, to_numpy(std::move(found.order), {count, 3}),
                          to_numpy(std::move(found.coefficients), {count, 3}), to_numpy(std::move(found.nodes)),
                          to_numpy(std::move(found.rows)), to_numpy(std::move(found.columns)),
                          to_numpy(std::move(found.S)), to_numpy(std::move(found.M)), found.farthest, found.joined);
}

Passed passed_of(const In& order, const In& coefficients, Size n) {
    const Size count = length(order, "order");
    const Passed passed{entries<std::int32_t>(order, "order", {count, 3}),
                        entries<double>(coefficients, "coefficients", {count, 3}), count};
    check_inside(passed.order, 3 * count, n, "order");
    return passed;
}

void down(const In& order, const In& coefficients, const Out& X) {
    const auto x = rows_of<double>(X, "X", -1, -1);
    const Passed passed = passed_of(order, coefficients, x.rows);
    const nb::gil_scoped_release unlocked;
    KRYLOW_CALL(down, passed, x);
}

void up(const In& order, const In& coefficients, const Out& X) {
    const auto x = rows_of<double>(X, "X", -1, -1);
    const Passed passed = passed_of(order, coefficients, x.rows);
    const nb::gil_scoped_release unlocked;
    KRYLOW_CALL(up, passed, x);
}

void extend(const In& order, const In& coefficients, const Out& X) {
    const auto x = rows_of<double>(X, "X", -1, -1);
    const Passed passed = passed_of(order, coefficients, x.rows);
    const nb::gil_scoped_release unlocked;
    KRYLOW_CALL(extend, passed, x);
}

void inherit(const In& order, const Out& labels) {
    const Size n = length(labels, "labels"), count = length(order, "order");
    const auto* const own = entries<std::int32_t>(order, "order", {count, 3});
    check_inside(own, 3 * count, n, "order");
    with_dtype<std::int32_t, std::int64_t>(labels, "labels", [&](auto type) {
        using N = typename decltype(type)::type;
        krylow::inherit(own, count, entries<N>(labels, "labels", {n}));
    });
}

nb::object minimum_degree(const In& crow, const In& col, Size most) {
    Ordering found{Array<std::int64_t>(0), 0, false};
    with_rows(crow, col, [&](auto rows) {
        if (most < 0 || rows.count + most >= INT32_MAX || rows.n + most >= INT32_MAX)
            refuse("most", "fewer than 2^31 entries in all");
        const nb::gil_scoped_release unlocked;
        found = krylow::minimum_degree(rows, most);
    });
    return nb::make_tuple(to_numpy(std::move(found.place)), found.entries, found.done);
}

// Call `use` with a matrix in an order, both checked.
template <class Use>
void with_order(const In& crow, const In& col, const In& place, const In& at, const Use& use) {
    with_rows(crow, col, [&](auto rows) {
        using I = std::remove_const_t<std::remove_pointer_t<decltype(rows.crow)>>;
        const Ordered<I> ordered{rows, entries<std::int64_t>(place, "place", {rows.n}),
                                 entries<std::int64_t>(at, "at", {rows.n})};
        check_inside(ordered.at, rows.n, rows.n, "at");
        for (Size i = 0; i < rows.n; ++i) {
            if (ordered.place[ordered.at[i]] != i) refuse("place", "the inverse of `at`");
        }
        use(ordered);
    });
}

nb::object tree_and_counts(const In& crow, const In& col, const In& place, const In& at) {
    std::pair<Array<std::int64_t>, Array<std::int64_t>> found{Array<std::int64_t>(0), Array<std::int64_t>(0)};
    with_order(crow, col, place, at, [&](const auto& ordered) {
        const nb::gil_scoped_release unlocked;
        found = krylow::tree_and_counts(ordered);
    });
    return nb::make_tuple(to_numpy(std::move(found.first)), to_numpy(std::move(found.second)));
}

// Where the entries of a factor are, made by `factorise` alone and therefore right.
struct Columns {
    Array<std::int64_t> start;
    Array<std::int32_t> where;
};

nb::object factorise(const In& crow, const In& col, const In& values, const In& place, const In& at, const In& parent,
                     const In& start) {
    Factored found;
    with_order(crow, col, place, at, [&](const auto& ordered) {
        const Size n = ordered.rows.n;
        const auto* const own = entries<double>(values, "values", {ordered.rows.count});
        const auto* const tree = entries<std::int64_t>(parent, "parent", {n});
        const auto* const given = entries<std::int64_t>(start, "start", {n + 1});
        if (n >= INT32_MAX) refuse("crow", "fewer than 2^31 rows");
        check_pointers(given, n, given[n], "start");
        const nb::gil_scoped_release unlocked;
        found.start = Array<std::int64_t>(n + 1);
        std::copy_n(given, n + 1, found.start.data());
        found.where = Array<std::int32_t>(given[n]);
        found.G = Array<double>(given[n]);
        found.D = Array<double>(n);
        if (!krylow::factorise(ordered, own, tree, found))
            refuse("parent", "the elimination tree of a symmetric pattern");
    });
    const double largest = found.largest;
    nb::object columns = nb::cast(new Columns{std::move(found.start), std::move(found.where)},
                                  nb::rv_policy::take_ownership);
    return nb::make_tuple(columns, to_numpy(std::move(found.G)), to_numpy(std::move(found.D)), largest);
}

void substitute(const Columns& columns, const In& G, const In& D, const Out& X) {
    with_dtype<float, double>(X, "X", [&](auto type) {
        using T = typename decltype(type)::type;
        const Size n = columns.start.size() - 1;
        const Triangle<T> factor{columns.start.data(), columns.where.data(),
                                 entries<T>(G, "G", {columns.where.size()}), entries<T>(D, "D", {n}), n};
        const auto x = X.ndim() == 1 ? Block<T>{entries<T>(X, "X", {n}), n, 1, 1} : rows_of<T>(X, "X", n, -1);
        const nb::gil_scoped_release unlocked;
        KRYLOW_CALL(substitute, factor, x);
    });
}

}  // namespace
}  // namespace python

void bind_elimination(nb::module_& m) {
    const auto arg = [](const char* name) { return nb::arg(name); };
    m.def("eliminate", &python::eliminate, arg("crow"), arg("col"), arg("values"), arg("shift"), arg("slowest"), arg("widest"),
          "Eliminate nodes of at most two neighbours from L + shift I; return the Schur complement on the others.");
    m.def("down", &python::down, arg("order"), arg("coefficients"), arg("X"),
          "Add to each node that remains what the eliminated ones pass on to it: the forward half of a solve.");
    m.def("up", &python::up, arg("order"), arg("coefficients"), arg("X"),
          "Fill the eliminated nodes from those that remain: the backward half of a solve.");
    m.def("extend", &python::extend, arg("order"), arg("coefficients"), arg("X"),
          "Fill the eliminated nodes as the solution without a load on them has it.");
    m.def("inherit", &python::inherit, arg("order"), arg("labels"), "Give each eliminated node the label of a neighbour.");
    m.def("minimum_degree", &python::minimum_degree, arg("crow"), arg("col"), arg("most"),
          "Return the places, the entries, and whether all is done: at most `most` entries of lists are read.");
    m.def("tree_and_counts", &python::tree_and_counts, arg("crow"), arg("col"), arg("place"), arg("at"),
          "Return the elimination tree of a symmetric pattern in an order, and the entries of its factor's columns.");
    nb::class_<python::Columns>(m, "Columns", "Where the entries of a factor are, by columns.")
        .def_prop_ro("entries", [](const python::Columns& columns) { return columns.where.size(); },
                     "The number of entries below the diagonal.");
    m.def("factorise", &python::factorise, arg("crow"), arg("col"), arg("values"), arg("place"), arg("at"), arg("parent"),
          arg("start"), "Return the places of the entries of G, G, D and the largest number met: P A P^T = G D G^T.");
    m.def("substitute", &python::substitute, arg("columns"), arg("G"), arg("D"), arg("X"),
          "Overwrite a vector or a block, in the factor's order, with the solution.");
}

}  // namespace krylow
