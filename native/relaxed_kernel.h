// The loops of relaxed.h, for one level. A matrix of twenty rows fits the nearest cache.
#pragma once

#include "relaxed.h"
#include "vector.h"

namespace krylow::KRYLOW_LEVEL {

// w = A c for columns f to s, A being symmetric, by N columns at a time and then by fewer.
template <class T, int N>
KRYLOW_INLINE void small_product_from(const T* A, const T* c, T* w, Size s, Size f) {
    for (; f + N <= s; f += N) {
        Vector<T, N> even = {}, odd = {};
        Size e = 0;
        for (; e + 2 <= s; e += 2) {
            even += c[e] * load<T, N>(A + e * s + f);
            odd += c[e + 1] * load<T, N>(A + (e + 1) * s + f);
        }
        if (e < s) even += c[e] * load<T, N>(A + e * s + f);
        store(w + f, even + odd);
    }
    if constexpr (N > 1) small_product_from<T, N / 2>(A, c, w, s, f);
}
template <class T>
KRYLOW_INLINE void small_product(const T* A, const T* c, T* w, Size s) {
    small_product_from<T, lanes_of<T>>(A, c, w, s, 0);
}

template <class T>
KRYLOW_INLINE T root(T x) {
    return sizeof(T) == 4 ? static_cast<T>(__builtin_sqrtf(static_cast<float>(x)))
                          : static_cast<T>(__builtin_sqrt(static_cast<double>(x)));
}

// Fill C (batch, m, s), alpha and beta (batch, m), all zero before, and steps (batch,). `limits` (batch, 3) are the
// sizes of a residual at or below and above which the recurrence ends, and that of its product with the smallest one
// before.
template <class T>
void relaxed_forward(const T* A, const T* start, const T* gamma1, const T* gamma2, const std::int64_t* sizes,
                     const T* limits, T* C, T* alpha, T* beta, std::int64_t* steps, Size batch, Size m, Size s,
                     T* work) {
    T* const w = work;
    for (Size i = 0; i < batch; ++i, A += s * s, start += s, limits += 3, C += m * s, alpha += m, beta += m) {
        for (Size e = 0; e < s; ++e) C[e] = start[e];
        steps[i] = sizes[i] < 1 ? sizes[i] : 1;
        T smallest = static_cast<T>(__builtin_inf());
        for (Size j = 0; j < (sizes[i] > 0 ? m : 0); ++j) {
            const T* const c = C + j * s;
            small_product(A, c, w, s);
            const T a = dot(c, w, s);
            alpha[j] = a;
            if (j + 1 == m) break;
            add_multiple(w, -gamma1[j] * a, c, s);
            if (j > 0) add_multiple(w, -gamma2[j] * beta[j - 1], c - s, s);
            const T b = root(dot(w, w, s));
            if (!(limits[0] < b && b < limits[1] && limits[2] < b * smallest && j + 1 < sizes[i])) break;
            smallest = b < smallest ? b : smallest;
            beta[j] = b;
            ++steps[i];
            for (Size e = 0; e < s; ++e) C[(j + 1) * s + e] = w[e] / b;
        }
    }
}

// Add the gradients to the last four, all zero before, and use C_bar for work.
template <class T>
void relaxed_backward(const T* A, const T* gamma1, const T* gamma2, const T* C, const T* alpha, const T* beta,
                      const std::int64_t* steps, T* C_bar, const T* alpha_bar, const T* beta_bar, T* A_bar,
                      T* start_bar, T* gamma1_bar, T* gamma2_bar, Size batch, Size m, Size s, T* work) {
    T *const w = work, *const r_bar = w + s, *const w_bar = r_bar + s;
    for (Size i = 0; i < batch; ++i) {
        T b_bar = 0;
        for (Size j = static_cast<Size>(steps[i]) - 1; j >= 0; --j) {
            const T* const c = C + j * s;
            T* const c_bar = C_bar + j * s;
            for (Size e = 0; e < s; ++e) r_bar[e] = 0;  // a step after which it ended passes nothing on
            if (j + 1 < steps[i]) {
                const T along = dot(c + s, c_bar + s, s), inverse = 1 / beta[j];
                const T own = beta_bar[j] + b_bar - along * inverse;
                for (Size e = 0; e < s; ++e) r_bar[e] = c_bar[s + e] * inverse + own * c[s + e];
            }
            small_product(A, c, w, s);
            const T here = dot(c, r_bar, s);
            gamma1_bar[j] -= alpha[j] * here;
            const T a_bar = alpha_bar[j] - gamma1[j] * here, shift = gamma1[j] * alpha[j];
            for (Size e = 0; e < s; ++e) {
                w_bar[e] = r_bar[e] + a_bar * c[e];
                c_bar[e] += a_bar * w[e] - shift * r_bar[e];
            }
            small_product(A, w_bar, w, s);
            for (Size e = 0; e < s; ++e) c_bar[e] += w[e];
            for (Size e = 0; e < s; ++e) add_multiples(A_bar + e * s, w_bar[e] / 2, c, c[e] / 2, w_bar, s);
            b_bar = 0;
            if (j > 0) {
                const T before = dot(c - s, r_bar, s);
                add_multiple(c_bar - s, -gamma2[j] * beta[j - 1], r_bar, s);
                gamma2_bar[j] -= beta[j - 1] * before;
                b_bar = -gamma2[j] * before;
            }
        }
        for (Size e = 0; e < s; ++e) start_bar[e] = C_bar[e];
        A += s * s, A_bar += s * s, C += m * s, C_bar += m * s, start_bar += s;
        alpha += m, beta += m, alpha_bar += m, beta_bar += m;
    }
}

// Orthonormalise the k rows of each block of X (batch, k, n) in order, twice each; R, zero before, gets the
// coefficients. A row of which at most `tiny` is left becomes zero.
template <class T>
void gram_schmidt(const T* X, T* Q, T* R, bool* alive, Size batch, Size k, Size n, T tiny) {
    for (Size i = 0; i < batch; ++i, X += k * n, Q += k * n, R += k * k, alive += k) {
        for (Size j = 0; j < k; ++j) {
            T* const q = Q + j * n;
            for (Size e = 0; e < n; ++e) q[e] = X[j * n + e];
            for (int again = 0; again < 2; ++again) {
                for (Size before = 0; before < j; ++before) {
                    const T along = dot(Q + before * n, q, n);
                    R[before * k + j] += along;
                    add_multiple(q, -along, Q + before * n, n);
                }
            }
            const T size = root(dot(q, q, n));
            alive[j] = size > tiny;
            if (alive[j]) R[j * k + j] = size;
            for (Size e = 0; e < n; ++e) q[e] = alive[j] ? q[e] / size : T{0};
        }
    }
}

}  // namespace krylow::KRYLOW_LEVEL
