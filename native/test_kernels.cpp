// Identities of the kernels in plain C++, for processors on which Python is not at hand.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "aggregation.h"
#include "eigh.h"
#include "elimination.h"
#include "factor.h"
#include "passes.h"
#include "pool.h"
#include "product.h"
#include "relaxed.h"

namespace krylow {
namespace {

int failures = 0;

void expect(bool holds, const char* what) {
    std::printf("%s: %s\n", holds ? "ok" : "FAILED", what);
    failures += !holds;
}

// The Laplacian of a ring with chords, plus the identity.
struct Graph {
    std::vector<std::int32_t> crow{0}, col;
    std::vector<double> values;

    explicit Graph(Size n, bool chords) {
        for (Size i = 0; i < n; ++i) {
            const Size far = (i + n / 2) % n;
            const bool chord = chords && i % 3 == 0 && far % 3 == 0;
            for (Size j = 0; j < n; ++j) {
                const bool near = j == (i + 1) % n || i == (j + 1) % n;
                const bool linked = near || (chord && j == far);
                if (!linked && j != i) continue;
                col.push_back(static_cast<std::int32_t>(j));
                values.push_back(j == i ? (chord ? 4.0 : 3.0) : -1.0);
            }
            crow.push_back(static_cast<std::int32_t>(col.size()));
        }
    }
    Rows<std::int32_t> rows() const {
        return {crow.data(), col.data(), static_cast<Size>(crow.size()) - 1, static_cast<Size>(col.size())};
    }
};

template <class T>
std::vector<T> random_numbers(Size count) {
    std::mt19937 generator(0);
    std::uniform_real_distribution<double> numbers(-1, 1);
    std::vector<T> x(static_cast<std::size_t>(count));
    for (T& each : x) each = static_cast<T>(numbers(generator));
    return x;
}

template <class T>
void test_product(double tolerance) {
    const Graph g(300, true);
    const Size n = 300;
    double worst = 0;
    for (Size s = 1; s <= 70; ++s) {
        const auto x = random_numbers<T>(n * s), y = random_numbers<T>(n * s);
        std::vector<T> out(x.size()), values(g.values.begin(), g.values.end());
        const Product<std::int32_t, T, T, T> m{g.crow.data(), g.col.data(), values.data(), x.data(), y.data(),
                                               out.data(), s, 0, T{2}, T{-0.5}, T{0.25}, s % 2 == 1};
        Pool::run(4, 2, [&](Size part) { KRYLOW_CALL(multiply_rows, m, n * part / 4, n * (part + 1) / 4); });
        for (Size i = 0; i < n; ++i) {
            for (Size j = 0; j < s; ++j) {
                const auto at = static_cast<std::size_t>(i * s + j);
                double sum = 0.25 * static_cast<double>(y[at]) - 0.5 * static_cast<double>(x[at]);
                for (std::int32_t p = g.crow[static_cast<std::size_t>(i)]; p < g.crow[static_cast<std::size_t>(i) + 1]; ++p) {
                    const auto q = static_cast<std::size_t>(p);
                    sum += 2 * g.values[q] * static_cast<double>(x[static_cast<std::size_t>(g.col[q] * s + j)]);
                }
                worst = std::max(worst, std::abs(sum - static_cast<double>(out[at])));
            }
        }
    }
    expect(worst < tolerance, "the fused product is the sum it stands for, at 1 to 70 columns");
}

template <class T>
void test_eigh(double tolerance) {
    const Size n = 40, k = 5;
    const Graph g(n, true);
    std::vector<T> S(static_cast<std::size_t>(n * n), T{0}), values(5), vectors(static_cast<std::size_t>(n * k));
    for (Size i = 0; i < n; ++i) {
        for (std::int32_t p = g.crow[static_cast<std::size_t>(i)]; p < g.crow[static_cast<std::size_t>(i) + 1]; ++p)
            S[static_cast<std::size_t>(i * n + g.col[static_cast<std::size_t>(p)])] = static_cast<T>(g.values[static_cast<std::size_t>(p)]);
    }
    bool failed = true;
    const auto start = random_numbers<double>(n * up(k, 4));
    Array<T> numbers(EighWork<T>::numbers(n, k));
    Array<double> doubles(EighWork<T>::doubles(n, k));
    const EighWork<T> work(numbers.data(), doubles.data(), n, k);
    KRYLOW_CALL(lowest, S.data(), values.data(), vectors.data(), &failed, start.data(), Size{1}, n, k,
                static_cast<double>(std::numeric_limits<T>::epsilon()), work);
    double worst = 0;
    for (Size j = 0; j < k; ++j) {
        for (Size i = 0; i < n; ++i) {
            double residual = 0;
            for (Size h = 0; h < n; ++h)
                residual += static_cast<double>(S[static_cast<std::size_t>(i * n + h)]) * static_cast<double>(vectors[static_cast<std::size_t>(h * k + j)]);
            residual -= static_cast<double>(values[static_cast<std::size_t>(j)]) * static_cast<double>(vectors[static_cast<std::size_t>(i * k + j)]);
            worst = std::max(worst, std::abs(residual));
        }
    }
    expect(!failed && worst < tolerance && std::abs(static_cast<double>(values[0]) - 1) < tolerance,
           "the lowest pairs leave no residual, and the lowest value is 1");
}

void test_graph() {
    const Graph g(1000, false);
    const Search found = search(g.rows(), [](Size) { return false; }, true, 0.25);
    expect(found.components == 1 && found.widest == 2, "a ring is one component, two nodes at every distance");
    const auto [labels, count] = aggregate(g.rows(), g.values.data(), 0.1, 0.0);
    std::vector<double> ones(1000, 1.0), sizes(static_cast<std::size_t>(count), 0.0);
    for (Size i = 0; i < 1000; ++i) sizes[static_cast<std::size_t>(labels[i])] += 1;
    for (double& each : sizes) each = std::sqrt(each);
    const auto coarse = coarsen(g.rows(), g.values.data(), labels.data(), ones.data(), sizes.data(), count);
    double total = 0;
    for (Size a = 0; a < count; ++a) {
        for (Size p = coarse.rows[a]; p < coarse.rows[a + 1]; ++p)
            total += coarse.values[p] * sizes[static_cast<std::size_t>(a)] * sizes[static_cast<std::size_t>(coarse.columns[p])];
    }
    expect(std::abs(total - 1000) < 1e-9, "the coarse matrix sums to what the fine one does");
}

void test_factor() {
    const Graph g(300, true);
    const Size n = 300;
    const Eliminated found = eliminate(g.rows(), g.values.data(), 0.0, 40.0, 64);
    expect(found.symmetric && found.nodes.size() < n, "nodes of two neighbours are eliminated");
    const Rows<std::int32_t> core{found.rows.data(), found.columns.data(), found.nodes.size(), found.columns.size()};
    const Ordering order = minimum_degree(core, 100 * core.count);
    Array<std::int64_t> at(core.n);
    for (Size i = 0; i < core.n; ++i) at[order.place[i]] = i;
    const Ordered<std::int32_t> ordered{core, order.place.data(), at.data()};
    const auto [parent, counts] = tree_and_counts(ordered);
    Factored factor;
    factor.start = Array<std::int64_t>(core.n + 1, 0);
    for (Size i = 0; i < core.n; ++i) factor.start[i + 1] = factor.start[i] + counts[i];
    factor.where = Array<std::int32_t>(factor.start[core.n]);
    factor.G = Array<double>(factor.start[core.n]);
    factor.D = Array<double>(core.n);
    expect(order.done && factorise(ordered, found.S.data(), parent.data(), factor), "the core has a factor");
    double worst = 0;
    for (const Size s : {1, 3, 16}) {
        const auto load = random_numbers<double>(n * s);
        std::vector<double> x = load, y(static_cast<std::size_t>(core.n * s));
        const Block<double> block{x.data(), n, s, s}, inner{y.data(), core.n, s, s};
        const Passed passed{found.order.data(), found.coefficients.data(), found.order.size() / 3};
        KRYLOW_CALL(down, passed, block);
        for (Size i = 0; i < core.n; ++i) std::copy_n(block[found.nodes[at[i]]], s, inner[i]);
        const Triangle<double> triangle{factor.start.data(), factor.where.data(), factor.G.data(), factor.D.data(),
                                        core.n};
        KRYLOW_CALL(substitute, triangle, inner);
        for (Size i = 0; i < core.n; ++i) std::copy_n(inner[i], s, block[found.nodes[at[i]]]);
        KRYLOW_CALL(up, passed, block);
        for (Size i = 0; i < n; ++i) {
            for (Size j = 0; j < s; ++j) {
                double sum = -load[static_cast<std::size_t>(i * s + j)];
                for (Size p = g.crow[static_cast<std::size_t>(i)]; p < g.crow[static_cast<std::size_t>(i) + 1]; ++p)
                    sum += g.values[static_cast<std::size_t>(p)] * block[g.col[static_cast<std::size_t>(p)]][j];
                worst = std::max(worst, std::abs(sum));
            }
        }
    }
    expect(worst < 1e-12, "elimination and factor solve the whole system");
}

}  // namespace
}  // namespace krylow

int main() {
    using namespace krylow;
    for (int most = 4; most >= (level() == static_cast<Level>(1) ? 4 : 2); --most) {
        limit_level(most);
        std::printf("level %d\n", static_cast<int>(level()));
        test_product<float>(1e-5);
        test_product<double>(1e-13);
        test_eigh<float>(1e-5);
        test_eigh<double>(1e-12);
        test_factor();
    }
    test_graph();
    return failures > 0;
}
