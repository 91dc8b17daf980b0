// Everything that is compiled once per level of the instruction set.
#include "eigh_kernel.h"
#include "passes_kernel.h"
#include "product_kernel.h"
#include "relaxed_kernel.h"

namespace krylow::KRYLOW_LEVEL {

#define KRYLOW_MULTIPLY(I, V, X, O) \
    template void multiply_rows<I, V, X, O>(const Product<I, V, X, O>&, Size, Size);
#define KRYLOW_QUOTIENT(I, V, X)                                                                            \
    template void quotient_rows<I, V, X>(const Product<I, V, X, double>&, const double*, double*, double*, \
                                            double*, Size, Size);
#define KRYLOW_INDEX(I)                              \
    KRYLOW_MULTIPLY(I, float, float, float)          \
    KRYLOW_MULTIPLY(I, double, float, float)         \
    KRYLOW_MULTIPLY(I, float, double, double)        \
    KRYLOW_MULTIPLY(I, double, double, double)       \
    KRYLOW_MULTIPLY(I, float, float, double)         \
    KRYLOW_MULTIPLY(I, double, float, double)        \
    KRYLOW_QUOTIENT(I, float, float)                 \
    KRYLOW_QUOTIENT(I, double, float)                \
    KRYLOW_QUOTIENT(I, float, double)                \
    KRYLOW_QUOTIENT(I, double, double)
KRYLOW_INDEX(std::int32_t)
KRYLOW_INDEX(std::int64_t)

#define KRYLOW_DENSE(T)                                                                                              \
    template void lowest<T>(const T*, T*, T*, bool*, const double*, Size, Size, Size, double, EighWork<T>);          \
    template void relaxed_forward<T>(const T*, const T*, const T*, const T*, const std::int64_t*, const T*, T*, T*,  \
                                     T*, std::int64_t*, Size, Size, Size, T*);                                       \
    template void relaxed_backward<T>(const T*, const T*, const T*, const T*, const T*, const T*,                    \
                                      const std::int64_t*, T*, const T*, const T*, T*, T*, T*, T*, Size, Size, Size, \
                                      T*);                                                                           \
    template void gram_schmidt<T>(const T*, T*, T*, bool*, Size, Size, Size, T);
KRYLOW_DENSE(float)
KRYLOW_DENSE(double)


#define KRYLOW_PASSES(N, X)                                                                             \
    template void restrict_rows<N, X>(const Prolongation<N>&, Block<const X>, Block<double>);            \
    template void prolong_rows<N, X>(const Prolongation<N>&, Block<const X>, Block<X>);                  \
    template void subtract_rows<N, X>(const Prolongation<N>&, Block<const X>, Block<X>);
KRYLOW_PASSES(std::int32_t, float)
KRYLOW_PASSES(std::int32_t, double)
KRYLOW_PASSES(std::int64_t, float)
KRYLOW_PASSES(std::int64_t, double)
template void substitute<float>(const Triangle<float>&, Block<float>);
template void substitute<double>(const Triangle<double>&, Block<double>);

}  // namespace krylow::KRYLOW_LEVEL
