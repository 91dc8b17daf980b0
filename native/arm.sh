#!/usr/bin/env bash
# Compile the kernels and their C++ tests for ARM, warnings being errors, and run them in an emulator.
# Debian: apt-get install g++-aarch64-linux-gnu qemu-user
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
build=../build/arm
mkdir -p "$build"
flags=(-std=c++20 -O3 -ffp-contract=fast -Wall -Wextra -Wconversion -Werror)
aarch64-linux-gnu-g++ "${flags[@]}" -DKRYLOW_LEVEL=base -DKRYLOW_VECTOR=16 -c kernels.cpp -o "$build/kernels.o"
aarch64-linux-gnu-g++ "${flags[@]}" test_kernels.cpp levels.cpp "$build/kernels.o" -pthread -static -o "$build/test_kernels"
qemu-aarch64 "$build/test_kernels"
