// Batches of small dense matrices: partial eigensolver, relaxed recurrence, Gram-Schmidt.
#include <algorithm>

#include "bind.h"
#include "border.h"
#include "eigh.h"
#include "pool.h"
#include "relaxed.h"

namespace krylow {
namespace python {
namespace {

// Matrices in one piece of work.
constexpr Size piece = 16;

void lowest(const In& S, const Out& values, const Out& vectors, const Out& failed, const In& start, double eps,
            int threads) {
    with_dtype<float, double>(S, "S", [&](auto type) {
        using T = typename decltype(type)::type;
        const Size batch = length(S, "S"), n = length(S, "S", 1), k = length(values, "values", 1);
        const auto* const matrices = entries<T>(S, "S", {batch, n, n});
        auto* const own_values = entries<T>(values, "values", {batch, k});
        auto* const own_vectors = entries<T>(vectors, "vectors", {batch, n, k});
        auto* const own_failed = entries<bool>(failed, "failed", {batch});
        const auto* const random = entries<double>(start, "start", {n, up(k, 4)});
        if (n < 1 || k < 1 || k > n) refuse("values", "between 1 and n columns");
        const nb::gil_scoped_release unlocked;
        const Size pieces = (batch + piece - 1) / piece, numbers = up(EighWork<T>::numbers(n, k), 16);
        const Size doubles = up(EighWork<T>::doubles(n, k), 8);
        Pool::run(pieces, threads, [&](Size part) {
            const Size first = part * piece, count = std::min(piece, batch - first);
            Array<T> single(numbers);
            Array<double> other(doubles);
            const EighWork<T> work(single.data(), other.data(), n, k);
            KRYLOW_CALL(lowest, matrices + first * n * n, own_values + first * k, own_vectors + first * n * k,
                        own_failed + first, random, count, n, k, eps, work);
        });
    });
}

void relaxed_forward(const In& A, const In& start, const In& gamma1, const In& gamma2, const In& sizes,
                     const In& limits, const Out& C, const Out& alpha, const Out& beta, const Out& steps) {
    with_dtype<float, double>(A, "A", [&](auto type) {
        using T = typename decltype(type)::type;
        const Size batch = length(A, "A"), s = length(A, "A", 1), m = length(gamma1, "gamma1");
        const auto *a = entries<T>(A, "A", {batch, s, s}), *first = entries<T>(start, "start", {batch, s});
        const auto *g1 = entries<T>(gamma1, "gamma1", {m}), *g2 = entries<T>(gamma2, "gamma2", {m});
        const auto* size = entries<std::int64_t>(sizes, "sizes", {batch});
        const auto* limit = entries<T>(limits, "limits", {batch, 3});
        auto *c = entries<T>(C, "C", {batch, m, s}), *al = entries<T>(alpha, "alpha", {batch, m});
        auto* be = entries<T>(beta, "beta", {batch, m});
        auto* step = entries<std::int64_t>(steps, "steps", {batch});
        if (m < 1 || s < 1) refuse("A", "at least one step and one row");
        const nb::gil_scoped_release unlocked;
        Array<T> work(s);
        KRYLOW_CALL(relaxed_forward, a, first, g1, g2, size, limit, c, al, be, step, batch, m, s, work.data());
    });
}

void relaxed_backward(const In& A, const In& gamma1, const In& gamma2, const In& C, const In& alpha, const In& beta,
                      const In& steps, const Out& C_bar, const In& alpha_bar, const In& beta_bar, const Out& A_bar,
                      const Out& start_bar, const Out& gamma1_bar, const Out& gamma2_bar) {
    with_dtype<float, double>(A, "A", [&](auto type) {
        using T = typename decltype(type)::type;
        const Size batch = length(A, "A"), s = length(A, "A", 1), m = length(gamma1, "gamma1");
        const auto *a = entries<T>(A, "A", {batch, s, s}), *c = entries<T>(C, "C", {batch, m, s});
        const auto *g1 = entries<T>(gamma1, "gamma1", {m}), *g2 = entries<T>(gamma2, "gamma2", {m});
        const auto *al = entries<T>(alpha, "alpha", {batch, m}), *be = entries<T>(beta, "beta", {batch, m});
        const auto* step = entries<std::int64_t>(steps, "steps", {batch});
        auto* c_bar = entries<T>(C_bar, "C_bar", {batch, m, s});
        const auto* al_bar = entries<T>(alpha_bar, "alpha_bar", {batch, m});
        const auto* be_bar = entries<T>(beta_bar, "beta_bar", {batch, m});
        auto *a_bar = entries<T>(A_bar, "A_bar", {batch, s, s}), *s_bar = entries<T>(start_bar, "start_bar", {batch, s});
        auto *g1_bar = entries<T>(gamma1_bar, "gamma1_bar", {m}), *g2_bar = entries<T>(gamma2_bar, "gamma2_bar", {m});
        if (m < 1 || s < 1) refuse("A", "at least one step and one row");
        for (Size i = 0; i < batch; ++i) {
            if (step[i] > m) throw nb::index_error("steps: more than m.");
        }
        const nb::gil_scoped_release unlocked;
        Array<T> work(3 * s);
        KRYLOW_CALL(relaxed_backward, a, g1, g2, c, al, be, step, c_bar, al_bar, be_bar, a_bar, s_bar, g1_bar, g2_bar,
                    batch, m, s, work.data());
    });
}

void gram_schmidt(const In& X, const Out& Q, const Out& R, const Out& alive, double tiny) {
    with_dtype<float, double>(X, "X", [&](auto type) {
        using T = typename decltype(type)::type;
        const Size batch = length(X, "X"), k = length(X, "X", 1), n = length(X, "X", 2);
        const auto* x = entries<T>(X, "X", {batch, k, n});
        auto *q = entries<T>(Q, "Q", {batch, k, n}), *r = entries<T>(R, "R", {batch, k, k});
        auto* live = entries<bool>(alive, "alive", {batch, k});
        const nb::gil_scoped_release unlocked;
        KRYLOW_CALL(gram_schmidt, x, q, r, live, batch, k, n, static_cast<T>(tiny));
    });
}

}  // namespace
}  // namespace python

void bind_dense(nb::module_& m) {
    m.def("lowest", &python::lowest, nb::arg("S"), nb::arg("values"), nb::arg("vectors"), nb::arg("failed"), nb::arg("start"),
          nb::arg("eps"), nb::arg("threads") = 1,
          "Fill the lowest eigenpairs of a batch of symmetric matrices; one that does not pass is marked as failed.");
    m.def("relaxed_forward", &python::relaxed_forward, nb::arg("A"), nb::arg("start"), nb::arg("gamma1"), nb::arg("gamma2"),
          nb::arg("sizes"), nb::arg("limits"), nb::arg("C"), nb::arg("alpha"), nb::arg("beta"), nb::arg("steps"),
          "Run the relaxed recurrence on a batch of small matrices.");
    m.def("relaxed_backward", &python::relaxed_backward, nb::arg("A"), nb::arg("gamma1"), nb::arg("gamma2"), nb::arg("C"),
          nb::arg("alpha"), nb::arg("beta"), nb::arg("steps"), nb::arg("C_bar"), nb::arg("alpha_bar"),
          nb::arg("beta_bar"), nb::arg("A_bar"), nb::arg("start_bar"), nb::arg("gamma1_bar"), nb::arg("gamma2_bar"),
          "Add the gradients of the relaxed recurrence to the last four arrays.");
    m.def("gram_schmidt", &python::gram_schmidt, nb::arg("X"), nb::arg("Q"), nb::arg("R"), nb::arg("alive"), nb::arg("tiny"),
          "Orthonormalise the rows of a batch of blocks in order: X = R^T Q.");
}

}  // namespace krylow
