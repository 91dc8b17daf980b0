// The loops of eigh.h, for one level.
#pragma once

#include "eigh.h"
#include "vector.h"

namespace krylow::KRYLOW_LEVEL {

// Residuals, in eps times the norm of T, that end the inverse iteration, and that are accepted when it ends without
// them. An item beyond the latter is left to another method.
inline constexpr double wanted = 4, accepted = 16;
// An off-diagonal of T, whose norm is about 1, that is set to zero; and what stands for its square.
inline constexpr double negligible = 2 * 2.220446049250313e-16, tiny_square = 1e-36;

// Shifts that advance together: four to a vector, on every level.
using Four = Vector<double, 4>;
using Flags = Vector<std::int64_t, 4>;

KRYLOW_INLINE Four four(const double* from) { return load<double, 4>(from); }
KRYLOW_INLINE Four same(double value) { return Four{value, value, value, value}; }
KRYLOW_INLINE Four magnitude(const Four& x) { return x < 0 ? -x : x; }

// A <- A - u w^T - w u^T and p = A v, reading the lower triangle of A once. Four rows advance together; left of the
// diagonal block an entry serves its row, in a sum, and its column, in p. Up to three more rows are used and updated,
// where u, w and v are zero.
template <class T>
void rank_two_pass(T* A, Size wide, const T* u, const T* w, const T* v, T* p, Size rows, Size width) {
    constexpr int N = lanes_of<T>;
    constexpr Size block = N > 4 ? N : 4;
    using Lanes = Vector<T, N>;
    for (Size j = 0; j < width; ++j) p[j] = 0;
    for (Size r = 0; r < rows; r += 4) {
        T* const row0 = A + r * wide;
        T* const row1 = row0 + wide;
        T* const row2 = row1 + wide;
        T* const row3 = row2 + wide;
        const T u0 = u[r], u1 = u[r + 1], u2 = u[r + 2], u3 = u[r + 3];
        const T w0 = w[r], w1 = w[r + 1], w2 = w[r + 2], w3 = w[r + 3];
        const T v0 = v[r], v1 = v[r + 1], v2 = v[r + 2], v3 = v[r + 3];
        Lanes s0 = {}, s1 = {}, s2 = {}, s3 = {};
        const auto each = [&](Size j, bool below) __attribute__((always_inline)) {
            const Lanes u_j = load<T, N>(u + j), w_j = load<T, N>(w + j), v_j = load<T, N>(v + j);
            Lanes a0 = load<T, N>(row0 + j), a1 = load<T, N>(row1 + j), a2 = load<T, N>(row2 + j);
            Lanes a3 = load<T, N>(row3 + j);
            a0 -= u0 * w_j;
            a1 -= u1 * w_j;
            a2 -= u2 * w_j;
            a3 -= u3 * w_j;
            a0 -= w0 * u_j;
            a1 -= w1 * u_j;
            a2 -= w2 * u_j;
            a3 -= w3 * u_j;
            store(row0 + j, a0);
            store(row1 + j, a1);
            store(row2 + j, a2);
            store(row3 + j, a3);
            s0 += a0 * v_j;
            s1 += a1 * v_j;
            s2 += a2 * v_j;
            s3 += a3 * v_j;
            if (below) store(p + j, load<T, N>(p + j) + a0 * v0 + a1 * v1 + a2 * v2 + a3 * v3);
        };
        const Size diagonal = r / block * block;
        for (Size j = 0; j < diagonal; j += N) each(j, true);
        for (Size j = diagonal; j < diagonal + block; j += N) each(j, false);
        p[r] += sum_of<T, N>(s0);
        p[r + 1] += sum_of<T, N>(s1);
        p[r + 2] += sum_of<T, N>(s2);
        p[r + 3] += sum_of<T, N>(s3);
    }
}

template <class T>
struct Reflection {
    T diagonal, beta, tau;
};

// Bring row i up to date; return A_ii, beta and tau with (I - tau v v^T) A[i, :i] = beta e_{i-1}.
template <class T>
Reflection<T> reflector(T* row, Size i, Size width, T* u, T* w, T* v, T tiny) {
    constexpr int N = lanes_of<T>;
    const T u_i = u[i], w_i = w[i];
    for (Size j = 0; j < width; j += N)
        store(v + j, load<T, N>(row + j) - u_i * load<T, N>(w + j) - w_i * load<T, N>(u + j));
    u[i] = w[i] = 0;
    const T diagonal = v[i], alpha = v[i - 1];
    for (Size j = i - 1; j < width; ++j) v[j] = 0;
    const T size = dot(v, v, width);
    T beta = alpha, tau = 0, scale = 0;
    if (size > tiny) {
        const T norm = static_cast<T>(__builtin_sqrt(static_cast<double>(alpha * alpha + size)));
        beta = alpha < 0 || (alpha == 0 && 1 / alpha < 0) ? norm : -norm;
        tau = (beta - alpha) / beta;
        scale = 1 / (alpha - beta);
    }
    for (Size j = 0; j < width; j += N) store(v + j, load<T, N>(v + j) * scale);
    v[i - 1] = 1;
    for (Size j = 0; j < width; j += N) store(row + j, load<T, N>(v + j));
    return {diagonal, beta, tau};
}

// Overwrite the rows of A by the reflectors, from the last to the first; d and e get the two diagonals.
template <class T>
void tridiagonalize(T* A, Size n, Size wide, double* d, double* e, T* tau, T* work, T tiny) {
    constexpr int N = lanes_of<T>;
    T *u = work, *w = u + wide, *v = w + wide, *p = v + wide;
    for (Size j = 0; j < wide; ++j) u[j] = w[j] = 0;
    for (Size i = n - 1; i > 0; --i) {
        const Size width = (i + 16) / 16 * 16;
        const auto [diagonal, beta, t] = reflector(A + i * wide, i, width, u, w, v, tiny);
        d[i] = static_cast<double>(diagonal);
        e[i - 1] = static_cast<double>(beta);
        tau[i] = t;
        rank_two_pass(A, wide, u, w, v, p, i, width);
        for (Size j = i; j < width; ++j) p[j] = 0;
        const T s = dot(p, v, width) * t * static_cast<T>(-0.5);
        for (Size j = 0; j < width; j += N) store(p + j, t * (load<T, N>(p + j) + s * load<T, N>(v + j)));
        T* const old_u = u;
        T* const old_w = w;
        u = v;
        w = p;
        v = old_u;
        p = old_w;
    }
    d[0] = static_cast<double>(A[0] - 2 * u[0] * w[0]);
}

// Count the eigenvalues of T below each shift: sign changes of q_i = (d_i - x) q_{i-1} - e_{i-1}^2 q_{i-2}, four rows at
// a time. A minor that is exactly zero counts as positive; its two neighbours then differ in sign, so that the count is
// the same either way. Rescaling keeps the minors in range.
template <int Groups>
void count_below(const double* d, const double* f, Size rows, const double* x, double* count) {
    const Four high = same(0x1p300), low = same(0x1p-300), one = same(1);
    Four shift[Groups], last[Groups], before[Groups];
    Flags changes[Groups] = {};
    KRYLOW_UNROLL
    for (int g = 0; g < Groups; ++g) {
        shift[g] = four(x + 4 * g);
        last[g] = one;
        before[g] = same(0);
    }
    for (Size i = 0; i < rows; i += 4) {
        KRYLOW_UNROLL
        for (int g = 0; g < Groups; ++g) {
            const Four q = last[g];
            const Four q0 = (d[i] - shift[g]) * q - f[i] * before[g];
            const Four q1 = (d[i + 1] - shift[g]) * q0 - f[i + 1] * q;
            const Four q2 = (d[i + 2] - shift[g]) * q1 - f[i + 2] * q0;
            const Four q3 = (d[i + 3] - shift[g]) * q2 - f[i + 3] * q1;
            const Flags n = q < 0, n0 = q0 < 0, n1 = q1 < 0, n2 = q2 < 0, n3 = q3 < 0;
            changes[g] += (n ^ n0) + (n0 ^ n1) + (n1 ^ n2) + (n2 ^ n3);
            const Four size2 = magnitude(q2), size3 = magnitude(q3);
            const Four size = size2 > size3 ? size2 : size3;
            const Four scale = size < low ? high : (size > high ? low : one);
            last[g] = q3 * scale;
            before[g] = q2 * scale;
        }
    }
    KRYLOW_UNROLL
    for (int g = 0; g < Groups; ++g) store(count + 4 * g, -__builtin_convertvector(changes[g], Four));
}

// Fill work[0] with the k lowest eigenvalues of T, which lie in [-1, 1], to within tol. Shifts whose brackets agree are
// spread over the bracket, and every count narrows every bracket.
inline void bisect(const double* d, const double* f, Size rows, Size k, Size lanes, double tol, double* work) {
    double *low = work, *high = low + lanes, *x = high + lanes, *count = x + lanes;
    for (Size j = 0; j < lanes; ++j) {
        low[j] = -1;
        high[j] = x[j] = 1;
    }
    double width = 2;
    while (width > tol) {
        for (Size j = 0; j < k;) {
            Size alike = 1;
            while (j + alike < k && low[j + alike] == low[j] && high[j + alike] == high[j]) ++alike;
            const double step = (high[j] - low[j]) / static_cast<double>(alike + 1), from = low[j];
            for (Size i = 0; i < alike; ++i) x[j + i] = from + static_cast<double>(i + 1) * step;
            j += alike;
        }
        Size j = 0;
        for (; j + 16 <= lanes; j += 16) count_below<4>(d, f, rows, x + j, count + j);
        if (lanes - j == 12)
            count_below<3>(d, f, rows, x + j, count + j);
        else if (lanes - j == 8)
            count_below<2>(d, f, rows, x + j, count + j);
        else if (lanes - j == 4)
            count_below<1>(d, f, rows, x + j, count + j);
        for (Size at = 0; at < lanes; at += 4) {
            const double first = static_cast<double>(at);
            const Four place = {first, first + 1, first + 2, first + 3};
            Four own_low = four(low + at), own_high = four(high + at);
            for (Size i = 0; i < k; ++i) {
                const Four x_i = same(x[i]);
                const Flags above = place < same(count[i]);
                own_high = (above & (x_i < own_high)) ? x_i : own_high;
                own_low = (~above & (x_i > own_low)) ? x_i : own_low;
            }
            store(low + at, own_low);
            store(high + at, own_high);
        }
        width = 0;
        for (Size i = 0; i < k; ++i) width = high[i] - low[i] > width ? high[i] - low[i] : width;
    }
    for (Size j = 0; j < lanes; ++j) {
        const Size own = j < k ? j : k - 1;
        low[j] = 0.5 * (low[own] + high[own]);
    }
}

// Factor P (T - theta_j) = L U with partial pivoting for every j. LU holds 1 / diagonal, first and second superdiagonal
// of U, the multiplier, and 1 where rows were exchanged; a and b hold the row that is at work.
inline void factor_shifted(const double* d, const double* e, Size n, const double* theta, Size lanes, double least,
                           double* LU, double* a, double* b) {
    const Four zero = same(0), one = same(1), floor = same(least);
    for (Size j = 0; j < lanes; ++j) {
        a[j] = d[0] - theta[j];
        b[j] = e[0];
    }
    const Size plane = n * lanes;
    for (Size i = 0; i < n; ++i) {  // beyond the last row e is 0 and d is any number
        const Four e_i = same(e[i]), e_next = same(i + 1 < n ? e[i + 1] : 0.0);
        double* const at = LU + i * lanes;
        for (Size j = 0; j < lanes; j += 4) {
            const Four diagonal = d[i + 1] - four(theta + j), a_j = four(a + j), b_j = four(b + j);
            const Flags swap = magnitude(a_j) < magnitude(e_i);
            Four pivot = swap ? e_i : a_j;
            pivot = magnitude(pivot) > floor ? pivot : floor;
            const Four r = one / pivot, u1 = swap ? diagonal : b_j, u2 = swap ? e_next : zero;
            const Four m = (swap ? a_j : e_i) * r;
            store(a + j, (swap ? b_j : diagonal) - m * u1);
            store(b + j, (swap ? zero : e_next) - m * u2);
            store(at + j, r);
            store(at + plane + j, u1);
            store(at + 2 * plane + j, u2);
            store(at + 3 * plane + j, m);
            store(at + 4 * plane + j, swap ? one : zero);
        }
    }
}

// Overwrite columns of X by the solutions of L U x = P X, or, without the elimination, of U x = X. X is (n + 2, lanes)
// with two rows of zeros at its end.
template <int Groups>
void solve_shifted(const double* LU, Size n, Size lanes, double* X, bool eliminate) {
    const Size plane = n * lanes;
    if (eliminate) {
        Four here[Groups];
        KRYLOW_UNROLL
        for (int g = 0; g < Groups; ++g) here[g] = four(X + 4 * g);
        for (Size i = 0; i + 1 < n; ++i) {
            const double* const at = LU + 3 * plane + i * lanes;
            KRYLOW_UNROLL
            for (int g = 0; g < Groups; ++g) {
                const Four next = four(X + (i + 1) * lanes + 4 * g);
                const Flags swap = four(at + plane + 4 * g) > 0;
                const Four top = swap ? next : here[g];
                store(X + i * lanes + 4 * g, top);
                here[g] = (swap ? here[g] : next) - four(at + 4 * g) * top;
            }
        }
        KRYLOW_UNROLL
        for (int g = 0; g < Groups; ++g) store(X + (n - 1) * lanes + 4 * g, here[g]);
    }
    Four below[Groups] = {}, next_below[Groups] = {};
    for (Size i = n - 1; i >= 0; --i) {
        const double* const at = LU + i * lanes;
        KRYLOW_UNROLL
        for (int g = 0; g < Groups; ++g) {
            const Four rest = four(X + i * lanes + 4 * g) - four(at + 2 * plane + 4 * g) * next_below[g];
            const Four here = (rest - four(at + plane + 4 * g) * below[g]) * four(at + 4 * g);
            store(X + i * lanes + 4 * g, here);
            next_below[g] = below[g];
            below[g] = here;
        }
    }
}

inline void solve_all(const double* LU, Size n, Size lanes, double* X, bool eliminate) {
    Size j = 0;
    for (; j + 16 <= lanes; j += 16) solve_shifted<4>(LU + j, n, lanes, X + j, eliminate);
    if (lanes - j == 12)
        solve_shifted<3>(LU + j, n, lanes, X + j, eliminate);
    else if (lanes - j == 8)
        solve_shifted<2>(LU + j, n, lanes, X + j, eliminate);
    else if (lanes - j == 4)
        solve_shifted<1>(LU + j, n, lanes, X + j, eliminate);
}

KRYLOW_INLINE void scale_row(double* z, double by, Size width) {
    constexpr int N = lanes_of<double>;
    for (Size i = 0; i < width; i += N) store(z + i, load<double, N>(z + i) * by);
}

// Orthonormalise the rows of Z in order, whose ends up to `width` are zero; return the least part of a squared length
// that remained of a row.
inline double orthonormalize(double* Z, Size k, Size width) {
    constexpr int N = lanes_of<double>;
    using Lanes = Vector<double, N>;
    double least = 1;
    for (Size j = 0; j < k; ++j) {
        double* const z = Z + j * width;
        Lanes sizes = {};
        for (Size i = 0; i < width; i += N) {
            const Lanes own = load<double, N>(z + i), size = own < 0 ? -own : own;
            sizes = size > sizes ? size : sizes;
        }
        double largest = 0;
        for (int i = 0; i < N; ++i) largest = sizes[i] > largest ? sizes[i] : largest;
        scale_row(z, 1 / largest, width);
        const double before = dot(z, z, width);
        for (Size h = 0; h < j; ++h) add_multiple(z, -dot(Z + h * width, z, width), Z + h * width, width);
        const double after = dot(z, z, width);
        least = after / before < least ? after / before : least;
        scale_row(z, 1 / __builtin_sqrt(after), width);
    }
    return least;
}

// The largest || T z_j - theta_j z_j || over the rows of Z.
inline double residual(const double* d, const double* e, Size n, const double* theta, Size k, const double* Z,
                       Size width) {
    constexpr int N = lanes_of<double>;
    using Lanes = Vector<double, N>;
    double worst = 0;
    for (Size j = 0; j < k; ++j) {
        const double* const z = Z + j * width;
        const auto row = [&](Size i) {
            double r = (d[i] - theta[j]) * z[i];
            if (i + 1 < n) r += e[i] * z[i + 1];
            if (i > 0) r += e[i - 1] * z[i - 1];
            return r * r;
        };
        Lanes squares = {};
        double total = row(0);
        Size i = 1;
        for (; i + N < n; i += N) {
            const Lanes r = (load<double, N>(d + i) - theta[j]) * load<double, N>(z + i) +
                            load<double, N>(e + i) * load<double, N>(z + i + 1) +
                            load<double, N>(e + i - 1) * load<double, N>(z + i - 1);
            squares += r * r;
        }
        for (; i < n; ++i) total += row(i);
        total += sum_of<double, N>(squares);
        if (!(total <= worst)) worst = total;  // also where it is NaN
    }
    return __builtin_sqrt(worst);
}

// Fill the rows of Z with orthonormal eigenvectors of T for the values lane[0]; return whether they passed.
inline bool inverse_iteration(const double* d, const double* e, Size n, Size k, Size lanes, const double* start,
                              double* lane, double* LU, double* X, double* Z, Size width, double eps) {
    const double* const theta = lane;
    factor_shifted(d, e, n, theta, lanes, 1.1e-16, LU, lane + lanes, lane + 2 * lanes);
    for (Size i = 0; i < n * lanes; ++i) X[i] = start[i];
    for (int trial = 0; trial < 6; ++trial) {
        solve_all(LU, n, lanes, X, trial > 0);
        if (trial == 0) continue;
        for (Size j = 0; j < k; ++j) {
            for (Size i = 0; i < n; ++i) Z[j * width + i] = X[i * lanes + j];
        }
        double least = 0;
        for (int again = 0; again < 4; ++again) {
            least = orthonormalize(Z, k, width);
            if (least > 0.5) break;
        }
        if (least > 0.5 && residual(d, e, n, theta, k, Z, width) <= (trial < 5 ? wanted : accepted) * eps) return true;
        for (Size j = 0; j < k; ++j) {
            for (Size i = 0; i < n; ++i) X[i * lanes + j] = Z[j * width + i];
        }
    }
    return false;
}

// Apply the reflections to the rows of Y, four at a time; their number is a multiple of four.
template <class T>
void transform_back(const T* A, Size n, Size wide, const T* tau, T* Y, Size count) {
    constexpr int N = lanes_of<T>;
    using Lanes = Vector<T, N>;
    for (Size j = 0; j < count; j += 4) {
        T* const y0 = Y + j * wide;
        T* const y1 = y0 + wide;
        T* const y2 = y1 + wide;
        T* const y3 = y2 + wide;
        for (Size i = 2; i < n; ++i) {
            const T* const row = A + i * wide;
            const Size width = (i + 15) / 16 * 16;
            Lanes s0 = {}, s1 = {}, s2 = {}, s3 = {};
            for (Size h = 0; h < width; h += N) {
                const Lanes a = load<T, N>(row + h);
                s0 += a * load<T, N>(y0 + h);
                s1 += a * load<T, N>(y1 + h);
                s2 += a * load<T, N>(y2 + h);
                s3 += a * load<T, N>(y3 + h);
            }
            const T t0 = sum_of<T, N>(s0) * tau[i], t1 = sum_of<T, N>(s1) * tau[i];
            const T t2 = sum_of<T, N>(s2) * tau[i], t3 = sum_of<T, N>(s3) * tau[i];
            for (Size h = 0; h < width; h += N) {
                const Lanes a = load<T, N>(row + h);
                store(y0 + h, load<T, N>(y0 + h) - t0 * a);
                store(y1 + h, load<T, N>(y1 + h) - t1 * a);
                store(y2 + h, load<T, N>(y2 + h) - t2 * a);
                store(y3 + h, load<T, N>(y3 + h) - t3 * a);
            }
        }
    }
}

// One matrix; whether it passed.
template <class T>
bool lowest_of_one(const T* S, T* values, T* vectors, const double* start, Size n, Size k, double eps,
                   EighWork<T> work) {
    using Work = EighWork<T>;
    const Size wide = Work::wide(n), lanes = Work::lanes(k), rows = Work::long_n(n), width = Work::long_z(n);
    double *d = work.T3, *e = d + rows, *f = e + rows;
    T* const tau = work.rows + 4 * wide;
    const T tiny = static_cast<T>(sizeof(T) == 4 ? 1e-30 : 1e-280);
    constexpr int N = lanes_of<T>;
    Vector<T, N> sums = {};
    T total = 0;
    Size first = 0;
    for (; first + N <= n * n; first += N) {
        const auto own = load<T, N>(S + first);
        sums += own < 0 ? -own : own;
    }
    for (; first < n * n; ++first) total += S[first] < 0 ? -S[first] : S[first];
    total += sum_of<T, N>(sums);
    if (!(total < static_cast<T>(__builtin_inff()))) return false;
    int exponent = 0, stretch = 0;
    __builtin_frexp(static_cast<double>(total), &exponent);
    const T scale = static_cast<T>(__builtin_ldexp(1.0, -exponent));
    for (Size i = 0; i < n; ++i) {
        for (Size j = 0; j < n; ++j) work.A[i * wide + j] = S[i * n + j] * scale;
    }
    tridiagonalize(work.A, n, wide, d, e, tau, work.rows, tiny);
    double bound = 0;
    for (Size i = 0; i < n; ++i) {
        const double own = __builtin_fabs(d[i]) + __builtin_fabs(e[i]) + (i > 0 ? __builtin_fabs(e[i - 1]) : 0.0);
        bound = own > bound ? own : bound;
    }
    __builtin_frexp(bound, &stretch);
    const double unit = __builtin_ldexp(1.0, -stretch);
    for (Size i = 0; i < n; ++i) {
        d[i] *= unit;
        e[i] = __builtin_fabs(e[i] * unit) > negligible ? e[i] * unit : 0.0;
        f[i + 1] = e[i] * e[i] > tiny_square ? e[i] * e[i] : tiny_square;
    }
    const double fine = 0.06 * eps;
    bisect(d, f, rows, k, lanes, fine > 4.5e-16 ? fine : 4.5e-16, work.lane);
    if (!inverse_iteration(d, e, n, k, lanes, start, work.lane, work.LU, work.X, work.Z, width, eps)) return false;
    for (Size j = 0; j < k; ++j) {
        for (Size i = 0; i < n; ++i) work.Y[j * wide + i] = static_cast<T>(work.Z[j * width + i]);
    }
    transform_back(work.A, n, wide, tau, work.Y, lanes);
    for (Size i = 0; i < n; ++i) {
        for (Size j = 0; j < k; ++j) vectors[i * k + j] = work.Y[j * wide + i];
    }
    for (Size j = 0; j < k; ++j)
        values[j] = bound > 0 ? static_cast<T>(__builtin_ldexp(work.lane[j], exponent + stretch)) : T{0};
    return true;
}

template <class T>
void lowest(const T* S, T* values, T* vectors, bool* failed, const double* start, Size count, Size n, Size k,
            double eps, EighWork<T> work) {
    using Work = EighWork<T>;
    for (Size i = 0; i < Work::numbers(n, k); ++i) work.A[i] = 0;
    for (Size i = 0; i < Work::doubles(n, k); ++i) work.T3[i] = 0;
    for (Size i = 0; i < Work::long_n(n); ++i) {  // beyond n a diagonal that no shift reaches
        work.T3[i] = 2;
        work.T3[2 * Work::long_n(n) + i] = tiny_square;
    }
    for (Size item = 0; item < count; ++item)
        failed[item] = !lowest_of_one(S + item * n * n, values + item * k, vectors + item * n * k, start, n, k, eps,
                                      work);
}

}  // namespace krylow::KRYLOW_LEVEL
