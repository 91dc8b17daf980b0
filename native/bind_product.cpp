// Products of a sparse matrix with a block, their rows shared among threads.
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <optional>
#include <nanobind/stl/optional.h>

#include "bind.h"
#include "border.h"
#include "pool.h"
#include "product.h"

namespace krylow {
namespace python {
namespace {

// Ranges of rows that quotients are summed up by, whatever the number of threads.
constexpr Size most_ranges = 256;

// Where the nonzero entries of a matrix are: row pointers and columns, checked once for all products.
struct Pattern {
    In crow, col;
    Size rows, count;

    Pattern(In given_crow, In given_col) : crow(std::move(given_crow)), col(std::move(given_col)) {
        with_rows(crow, col, [&](auto checked) {
            rows = checked.n;
            count = checked.count;
        });
    }
    template <class I>
    const I* pointers() const {
        return static_cast<const I*>(crow.data());
    }
    template <class I>
    const I* columns() const {
        return static_cast<const I*>(col.data());
    }
};

// Call `use` with the product's types: of indices, entries and block.
template <class Use>
void with_types(const Pattern& pattern, const In& values, const In& X, const Use& use) {
    with_dtype<std::int32_t, std::int64_t>(pattern.crow, "crow", [&](auto index) {
        with_dtype<float, double>(values, "values", [&](auto value) {
            with_dtype<float, double>(X, "X", [&](auto number) { use(index, value, number); });
        });
    });
}

template <class I, class V, class X, class O>
Product<I, V, X, O> product_of(const Pattern& pattern, const In& values, const In& block) {
    const Size columns = length(block, "X", 1);
    const I* const crow = pattern.pointers<I>();
    const I* const col = pattern.columns<I>();
    return {crow,
            col,
            entries<V>(values, "values", {pattern.count}),
            entries<X>(block, "X", {pattern.rows, columns}),
            nullptr,
            nullptr,
            columns,
            0,
            1,
            0,
            0,
            far_apart(crow, col, pattern.rows, columns * static_cast<Size>(sizeof(X)))};
}

void three_term(const Pattern& pattern, const In& values, const In& X, const std::optional<In>& Y, const Out& out,
                double a, double b, double c, int threads) {
    with_types(pattern, values, X, [&](auto index, auto value, auto number) {
        using I = typename decltype(index)::type;
        using V = typename decltype(value)::type;
        using T = typename decltype(number)::type;
        auto m = product_of<I, V, T, T>(pattern, values, X);
        m.out = entries<T>(out, "out", {pattern.rows, m.columns});
        m.y = Y ? entries<T>(*Y, "Y", {pattern.rows, m.columns}) : nullptr;
        m.a = static_cast<T>(a);
        m.b = static_cast<T>(b);
        m.c = static_cast<T>(c);
        if (m.out < m.x + pattern.rows * m.columns && m.x < m.out + pattern.rows * m.columns)
            refuse("out", "an array that shares no memory with X");
        const nb::gil_scoped_release unlocked;
        share_rows(m.crow, pattern.rows, m.columns, threads,
                   [&](Size start, Size stop) { KRYLOW_CALL(multiply_rows, m, start, stop); });
    });
}

void exact_rows(const Pattern& pattern, const In& values, const In& X, Size start, Size stop, const Out& out) {
    with_types(pattern, values, X, [&](auto index, auto value, auto number) {
        using I = typename decltype(index)::type;
        using V = typename decltype(value)::type;
        using T = typename decltype(number)::type;
        auto m = product_of<I, V, T, double>(pattern, values, X);
        if (start < 0 || stop < start || stop > pattern.rows) throw nb::index_error("rows out of range.");
        m.out = entries<double>(out, "out", {stop - start, m.columns});
        m.base = start;
        const nb::gil_scoped_release unlocked;
        KRYLOW_CALL(multiply_rows, m, start, stop);
    });
}

std::pair<nb::object, nb::object> quotients(const Pattern& pattern, const In& values, const In& X, const In& near,
                                            int threads) {
    Array<double> products(0), squares(0);
    with_types(pattern, values, X, [&](auto index, auto value, auto number) {
        using I = typename decltype(index)::type;
        using V = typename decltype(value)::type;
        using T = typename decltype(number)::type;
        const auto m = product_of<I, V, T, double>(pattern, values, X);
        const Size n = pattern.rows, s = m.columns;
        const auto* const shifts = entries<double>(near, "near", {s});
        const nb::gil_scoped_release unlocked;
        products = Array<double>(s, 0.0);
        squares = Array<double>(s, 0.0);
        const Size ranges = std::clamp<Size>(n / quotient_tile, 1, most_ranges);
        Array<double> sums(2 * ranges * s, 0.0), work(ranges * quotient_tile * s);
        const int worth = static_cast<int>(std::min<Size>(threads, pattern.count * s / work_per_thread));
        Pool::run(ranges, worth, [&](Size range) {
            double* const own = sums.data() + 2 * range * s;
            KRYLOW_CALL(quotient_rows, m, shifts, work.data() + range * quotient_tile * s, own, own + s,
                        n * range / ranges, n * (range + 1) / ranges);
        });
        for (Size range = 0; range < ranges; ++range) {
            for (Size j = 0; j < s; ++j) {
                products[j] += sums[2 * range * s + j];
                squares[j] += sums[(2 * range + 1) * s + j];
            }
        }
    });
    return {to_numpy(std::move(products)), to_numpy(std::move(squares))};
}

}  // namespace
}  // namespace python

void bind_product(nb::module_& m) {
    nb::class_<python::Pattern>(m, "Pattern",
                        "Row pointers and columns of a square sparse matrix, checked once: both int32 or both int64.")
        .def(nb::init<In, In>(), nb::arg("crow"), nb::arg("col"))
        .def_ro("rows", &python::Pattern::rows, "The number of rows.")
        .def_ro("entries", &python::Pattern::count, "The number of entries.");
    m.def("three_term", &python::three_term, nb::arg("pattern"), nb::arg("values"), nb::arg("X"), nb::arg("Y").none(),
          nb::arg("out"), nb::arg("a"), nb::arg("b"), nb::arg("c"), nb::arg("threads") = 1,
          "Write a L X + b X + c Y to `out`, which may be Y; None: no Y.");
    m.def("exact_rows", &python::exact_rows, nb::arg("pattern"), nb::arg("values"), nb::arg("X"), nb::arg("start"),
          nb::arg("stop"), nb::arg("out"), "Write rows `start` to `stop` of L X to `out` in float64.");
    m.def("quotients", &python::quotients, nb::arg("pattern"), nb::arg("values"), nb::arg("X"), nb::arg("near"),
          nb::arg("threads") = 1,
          "Return x^T (L - s) x and the squared norm of (L - s) x for each column of X, s being those of `near`.");
}

}  // namespace krylow
