// The relaxed Lanczos recurrence on small symmetric matrices, one at a time, and its adjoint.
#pragma once

#include "levels.h"

namespace krylow {

KRYLOW_EACH_LEVEL(
    template <class T>
    void relaxed_forward(const T* A, const T* start, const T* gamma1, const T* gamma2, const std::int64_t* sizes,
                         const T* limits, T* C, T* alpha, T* beta, std::int64_t* steps, Size batch, Size m, Size s,
                         T* work);
    template <class T>
    void relaxed_backward(const T* A, const T* gamma1, const T* gamma2, const T* C, const T* alpha, const T* beta,
                          const std::int64_t* steps, T* C_bar, const T* alpha_bar, const T* beta_bar, T* A_bar,
                          T* start_bar, T* gamma1_bar, T* gamma2_bar, Size batch, Size m, Size s, T* work);
    template <class T>
    void gram_schmidt(const T* X, T* Q, T* R, bool* alive, Size batch, Size k, Size n, T tiny);)

}  // namespace krylow
