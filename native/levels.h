// Function multiversioning: the hot loops are compiled once per level of the instruction set and chosen at run time.
//
// `kernels.cpp` is compiled for each level with KRYLOW_LEVEL as its namespace and KRYLOW_VECTOR as the bytes of a
// vector. What it includes keeps out of the C++ library: an inline function of that, compiled for one level, could be
// the copy that the linker keeps for all.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#define KRYLOW_X86 1
#endif

namespace krylow {

using Size = std::ptrdiff_t;

#ifdef KRYLOW_X86
// x86-64-v2 is SSE4.2, v3 AVX2 with FMA, v4 AVX-512.
enum class Level { v2 = 2, v3 = 3, v4 = 4 };
Level level();
void limit_level(int most);  // for tests

#define KRYLOW_EACH_LEVEL(...) \
    namespace v2 {             \
    __VA_ARGS__                \
    }                          \
    namespace v3 {             \
    __VA_ARGS__                \
    }                          \
    namespace v4 {             \
    __VA_ARGS__                \
    }
#define KRYLOW_CALL(function, ...)                                \
    (level() == Level::v4   ? v4::function(__VA_ARGS__)           \
     : level() == Level::v3 ? v3::function(__VA_ARGS__)           \
                            : v2::function(__VA_ARGS__))
#else
enum class Level { base = 1 };
Level level();
void limit_level(int most);

#define KRYLOW_EACH_LEVEL(...) \
    namespace base {           \
    __VA_ARGS__                \
    }
#define KRYLOW_CALL(function, ...) base::function(__VA_ARGS__)
#endif

}  // namespace krylow
