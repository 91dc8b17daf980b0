// Vectors of the compiler's own (GCC and Clang), of as many bytes as the level has, and sums over them.
#pragma once

#include "levels.h"

#define KRYLOW_INLINE [[gnu::always_inline]] inline
#define KRYLOW_UNROLL _Pragma("GCC unroll 16")

// Vectors wider than the level's own are returned by functions, all of which are inlined: there is no ABI to change.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace krylow::KRYLOW_LEVEL {

template <class T, int N>
struct VectorOf {
    typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <class T>
struct VectorOf<T, 1> {
    using type = T;
};
template <class T, int N>
using Vector = typename VectorOf<T, N>::type;

// Lanes of a whole vector.
template <class T>
inline constexpr int lanes_of = KRYLOW_VECTOR / static_cast<int>(sizeof(T));

// N numbers from any address, in the type T.
template <class T, int N, class From>
KRYLOW_INLINE Vector<T, N> load(const From* from) {
    Vector<From, N> loaded;
    __builtin_memcpy(&loaded, from, sizeof loaded);
    if constexpr (sizeof(T) == sizeof(From))
        return loaded;
    else if constexpr (N == 1)
        return static_cast<T>(loaded);
    else
        return __builtin_convertvector(loaded, Vector<T, N>);
}

template <class V, class T>
KRYLOW_INLINE void store(T* to, const V& vector) {
    __builtin_memcpy(to, &vector, sizeof vector);
}

template <class T, int N>
KRYLOW_INLINE T sum_of(const Vector<T, N>& vector) {
    if constexpr (N == 1) {
        return vector;
    } else {
        Vector<T, N / 2> halves[2];
        __builtin_memcpy(&halves, &vector, sizeof halves);
        return sum_of<T, N / 2>(halves[0] + halves[1]);
    }
}

// Ends of arrays, of less than a vector of 2 N: by N, N / 2, ... lanes.
template <class T, int N>
KRYLOW_INLINE T dot_end(const T* x, const T* y, Size n) {
    T total = 0;
    if constexpr (N > 1) {
        if (n >= N) {
            total = sum_of<T, N>(load<T, N>(x) * load<T, N>(y));
            x += N, y += N, n -= N;
        }
        return total + dot_end<T, N / 2>(x, y, n);
    } else {
        return n > 0 ? *x * *y : T{0};
    }
}
template <class T, int N, class From>
KRYLOW_INLINE void add_multiple_end(T* y, T a, const From* x, Size n) {
    if constexpr (N > 1) {
        if (n >= N) {
            store(y, load<T, N>(y) + a * load<T, N>(x));
            x += N, y += N, n -= N;
        }
        add_multiple_end<T, N / 2>(y, a, x, n);
    } else {
        if (n > 0) *y += a * static_cast<T>(*x);
    }
}
template <class T, int N>
KRYLOW_INLINE void write_multiple_end(T* y, T a, const T* x, Size n) {
    if constexpr (N > 1) {
        if (n >= N) {
            store(y, a * load<T, N>(x));
            x += N, y += N, n -= N;
        }
        write_multiple_end<T, N / 2>(y, a, x, n);
    } else {
        if (n > 0) *y = a * *x;
    }
}

// The inner product of two arrays, in four sums a lane.
template <class T>
KRYLOW_INLINE T dot(const T* x, const T* y, Size n) {
    constexpr int N = lanes_of<T>;
    Vector<T, N> sums[4] = {};
    Size i = 0;
    for (; i + 4 * N <= n; i += 4 * N) {
        KRYLOW_UNROLL
        for (int j = 0; j < 4; ++j) sums[j] += load<T, N>(x + i + j * N) * load<T, N>(y + i + j * N);
    }
    for (; i + N <= n; i += N) sums[0] += load<T, N>(x + i) * load<T, N>(y + i);
    const T total = sum_of<T, N>((sums[0] + sums[1]) + (sums[2] + sums[3]));
    return total + dot_end<T, N / 2>(x + i, y + i, n - i);
}

// z += a x + b y
template <class T>
KRYLOW_INLINE void add_multiples(T* z, T a, const T* x, T b, const T* y, Size n) {
    constexpr int N = lanes_of<T>;
    Size i = 0;
    for (; i + N <= n; i += N)
        store(z + i, load<T, N>(z + i) + a * load<T, N>(x + i) + b * load<T, N>(y + i));
    add_multiple_end<T, N / 2>(z + i, a, x + i, n - i);
    add_multiple_end<T, N / 2>(z + i, b, y + i, n - i);
}

// y += a x
template <class T, class From>
KRYLOW_INLINE void add_multiple(T* y, T a, const From* x, Size n) {
    constexpr int N = lanes_of<T>;
    Size i = 0;
    for (; i + N <= n; i += N) store(y + i, load<T, N>(y + i) + a * load<T, N>(x + i));
    add_multiple_end<T, N / 2>(y + i, a, x + i, n - i);
}

// y = a x
template <class T>
KRYLOW_INLINE void write_multiple(T* y, T a, const T* x, Size n) {
    constexpr int N = lanes_of<T>;
    Size i = 0;
    for (; i + N <= n; i += N) store(y + i, a * load<T, N>(x + i));
    write_multiple_end<T, N / 2>(y + i, a, x + i, n - i);
}

}  // namespace krylow::KRYLOW_LEVEL
