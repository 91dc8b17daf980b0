// What comes from Python is checked here, once: dtypes, shapes, contiguity, and that indices are inside. The kernels
// trust it. Whatever is wrong raises ValueError, an index out of range IndexError.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

#include "graph.h"
#include "passes.h"

namespace krylow {

namespace nb = nanobind;

using In = nb::ndarray<nb::ro, nb::device::cpu>;
using Out = nb::ndarray<nb::device::cpu>;

template <class T>
struct Type {
    using type = T;
};

template <class T>
inline constexpr const char* name_of = "unknown";
template <>
inline constexpr const char* name_of<float> = "float32";
template <>
inline constexpr const char* name_of<double> = "float64";
template <>
inline constexpr const char* name_of<std::int32_t> = "int32";
template <>
inline constexpr const char* name_of<std::int64_t> = "int64";
template <>
inline constexpr const char* name_of<std::uint64_t> = "uint64";
template <>
inline constexpr const char* name_of<std::uint8_t> = "uint8";
template <>
inline constexpr const char* name_of<bool> = "bool";

[[noreturn]] inline void refuse(const char* name, const std::string& expected) {
    throw nb::value_error((std::string(name) + ": expected " + expected + ".").c_str());
}

// The entries of an array of a known dtype and shape, C-contiguous; -1 stands for any length.
template <class T, class Given>
auto* entries(const Given& array, const char* name, std::initializer_list<Size> shape) {
    if (array.dtype() != nb::dtype<T>()) refuse(name, std::string("dtype ") + name_of<T>);
    if (array.ndim() != shape.size()) refuse(name, std::to_string(shape.size()) + " dimensions");
    Size step = 1;
    bool contiguous = true;
    for (std::size_t axis = array.ndim(); axis-- > 0;) {
        const Size length = static_cast<Size>(array.shape(axis)), wanted = shape.begin()[axis];
        if (wanted >= 0 && length != wanted)
            refuse(name, "length " + std::to_string(wanted) + " of dimension " + std::to_string(axis) + ", got " +
                             std::to_string(length));
        contiguous = contiguous && (length <= 1 || array.stride(axis) == step);
        step *= length;
    }
    if (!contiguous && step != 0) refuse(name, "a C-contiguous array");
    using Entry = std::conditional_t<std::is_same_v<Given, In>, const T, T>;
    return static_cast<Entry*>(array.data());
}

inline Size length(const In& array, const char* name, std::size_t axis = 0) {
    if (array.ndim() <= axis) refuse(name, "more dimensions");
    return static_cast<Size>(array.shape(axis));
}
inline Size length(const Out& array, const char* name, std::size_t axis = 0) {
    if (array.ndim() <= axis) refuse(name, "more dimensions");
    return static_cast<Size>(array.shape(axis));
}

// Call `use` with the first of the types that the array has.
template <class First, class... Others, class Given, class Use>
void with_dtype(const Given& array, const char* name, const Use& use) {
    if (array.dtype() == nb::dtype<First>())
        use(Type<First>{});
    else if constexpr (sizeof...(Others) > 0)
        with_dtype<Others...>(array, name, use);
    else
        refuse(name, "another dtype");
}

// Whether all of `count` indices are in [0, bound): one pass, without a branch.
template <class I>
bool inside(const I* index, Size count, Size bound) {
    using U = std::make_unsigned_t<I>;
    if (count == 0) return true;
    if (bound <= 0) return false;
    constexpr Size most = sizeof(I) == 4 ? Size{INT32_MAX} : Size{INT64_MAX};
    const U last = static_cast<U>((bound - 1 < most ? bound - 1 : most));
    U outside = 0;
    for (Size i = 0; i < count; ++i) {
        const U own = static_cast<U>(index[i]);
        outside |= own | (last - own);
    }
    return (outside >> (8 * sizeof(I) - 1)) == 0;
}

template <class I>
void check_inside(const I* index, Size count, Size bound, const char* name) {
    if (!inside(index, count, bound))
        throw nb::index_error((std::string(name) + ": an index is out of range.").c_str());
}

template <class I>
void check_pointers(const I* crow, Size rows, Size count, const char* name) {
    bool ascending = crow[0] == 0;
    for (Size i = 0; i < rows; ++i) ascending = ascending && crow[i] <= crow[i + 1];
    if (!ascending || static_cast<Size>(crow[rows]) != count)
        refuse(name, "row pointers that ascend from 0 to the number of entries");
}

template <class I>
Rows<I> checked_rows(const In& crow, const In& col) {
    const Size n = length(crow, "crow") - 1;
    if (n < 0) refuse("crow", "at least one entry");
    const Rows<I> rows{entries<I>(crow, "crow", {-1}), entries<I>(col, "col", {-1}), n, length(col, "col")};
    check_pointers(rows.crow, n, rows.count, "crow");
    check_inside(rows.col, rows.count, n, "col");
    return rows;
}

// Call `use` with the rows of a square matrix, whose indices are int32 or int64.
template <class Use>
void with_rows(const In& crow, const In& col, const Use& use) {
    with_dtype<std::int32_t, std::int64_t>(crow, "crow", [&](auto type) {
        using I = typename decltype(type)::type;
        use(checked_rows<I>(crow, col));
    });
}

// Refuse rows whose columns do not ascend: two entries at one place are more neighbours than a node has.
template <class I>
void check_ascending(const Rows<I>& rows) {
    bool ascending = true;
    for (Size i = 0; i < rows.n; ++i) {
        for (Size p = rows.crow[i] + 1; p < rows.crow[i + 1]; ++p) ascending &= rows.col[p - 1] < rows.col[p];
    }
    if (!ascending) refuse("col", "ascending columns in each row");
}

// A vector whose entries may be any step apart, as one of equal entries is.
struct Strided {
    const double* data;
    Size step;
    double operator[](Size i) const { return data[i * step]; }
};

inline Strided strided(const In& array, Size n, const char* name) {
    if (array.dtype() != nb::dtype<double>() || array.ndim() != 1 || static_cast<Size>(array.shape(0)) != n)
        refuse(name, "a float64 vector of length " + std::to_string(n));
    return {static_cast<const double*>(array.data()), static_cast<Size>(array.stride(0))};
}

// A block whose rows are contiguous but may be any step apart.
template <class T, class Given>
auto rows_of(const Given& array, const char* name, Size rows, Size columns) {
    using Entry = std::conditional_t<std::is_same_v<Given, In>, const T, T>;
    if (array.dtype() != nb::dtype<T>()) refuse(name, std::string("dtype ") + name_of<T>);
    if (array.ndim() != 2) refuse(name, "2 dimensions");
    const Block<Entry> block{static_cast<Entry*>(array.data()), static_cast<Size>(array.shape(0)),
                             static_cast<Size>(array.shape(1)), static_cast<Size>(array.stride(0))};
    if ((rows >= 0 && block.rows != rows) || (columns >= 0 && block.columns != columns))
        refuse(name, "another shape");
    if (block.columns > 1 && array.stride(1) != 1) refuse(name, "contiguous rows");
    return block;
}

// Hand an array over to numpy.
template <class T>
nb::object to_numpy(Array<T>&& array, std::initializer_list<Size> shape = {}) {
    auto* const kept = new Array<T>(std::move(array));
    const nb::capsule owner(kept, [](void* own) noexcept { delete static_cast<Array<T>*>(own); });
    std::size_t lengths[4] = {static_cast<std::size_t>(kept->size())};
    std::size_t dimensions = shape.size() > 0 ? shape.size() : 1, axis = 0;
    for (const Size each : shape) lengths[axis++] = static_cast<std::size_t>(each);
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), dimensions, lengths, owner));
}

}  // namespace krylow
