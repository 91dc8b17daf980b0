// The lowest eigenpairs of small dense symmetric matrices, one at a time: Householder reduction to tridiagonal T,
// bisection for its lowest values (Sturm counts), inverse iteration for their vectors, and the back-transformation.
#pragma once

#include "levels.h"

namespace krylow {

// A number of rows or columns up to a multiple.
constexpr Size up(Size count, Size multiple) { return (count + multiple - 1) / multiple * multiple; }

// What one thread works in, for n x n matrices and k pairs. Rows are whole cache lines, lanes whole vectors.
template <class T>
struct EighWork {
    T* A;      // (n + 3, wide)
    T* rows;   // (5, wide)
    T* Y;      // (lanes, wide)
    double* T3;    // (3, long_n): d, e and e^2, up(n + 1, 4) long
    double* lane;  // (6, lanes)
    double* LU;    // (5, n, lanes)
    double* X;     // (n + 2, lanes)
    double* Z;     // (k, long_z)

    static Size wide(Size n) { return up(n, 16); }
    static Size lanes(Size k) { return up(k, 4); }
    static Size long_n(Size n) { return up(n + 1, 4); }
    static Size long_z(Size n) { return up(n, 8); }
    static Size numbers(Size n, Size k) { return (n + 8 + lanes(k)) * wide(n); }
    static Size doubles(Size n, Size k) {
        return up(3 * long_n(n), 8) + up(6 * lanes(k), 8) + up(5 * n * lanes(k), 8) + up((n + 2) * lanes(k), 8) +
               k * long_z(n);
    }
    EighWork(T* own, double* other, Size n, Size k)
        : A(own),
          rows(A + (n + 3) * wide(n)),
          Y(rows + 5 * wide(n)),
          T3(other),
          lane(T3 + up(3 * long_n(n), 8)),
          LU(lane + up(6 * lanes(k), 8)),
          X(LU + up(5 * n * lanes(k), 8)),
          Z(X + up((n + 2) * lanes(k), 8)) {}
};

// Fill values (count, k), vectors (count, n, k) and failed (count,) for S (count, n, n); `start` (n, lanes) are random.
KRYLOW_EACH_LEVEL(template <class T>
                  void lowest(const T* S, T* values, T* vectors, bool* failed, const double* start, Size count, Size n,
                              Size k, double eps, EighWork<T> work);)

}  // namespace krylow
