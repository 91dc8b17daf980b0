// What the processor at hand understands.
#include "levels.h"

namespace krylow {

#ifdef KRYLOW_X86
namespace {
Level detected() {
    __builtin_cpu_init();
    const bool three = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const bool four = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
    return three ? (four ? Level::v4 : Level::v3) : Level::v2;
}
Level chosen = detected();
}  // namespace

void limit_level(int most) {
    chosen = detected();
    if (static_cast<int>(chosen) > most) chosen = most >= 3 ? Level::v3 : Level::v2;
}
#else
namespace {
constexpr Level chosen = Level::base;
}
void limit_level(int) {}
#endif

Level level() { return chosen; }

}  // namespace krylow
