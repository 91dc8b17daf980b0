#!/usr/bin/env bash
# Run a Python command with the extension built with AddressSanitizer and UndefinedBehaviorSanitizer: asan.sh PYTHON ...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$PWD/build/asan
mkdir -p "$build/src"
cp -r src/krylow "$build/src"
rm -f "$build"/src/krylow/_native*.so
export PATH=$(dirname "$1"):$PATH  # cmake and ninja as pip installs them
cmake -S native -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DKRYLOW_SANITIZE=ON -DPython_EXECUTABLE="$1" \
    -DKRYLOW_OUTPUT="$build/src/krylow"
cmake --build "$build"
# The interpreter is built without them: it has to load their library first, and its own memory at exit is no leak.
LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so) $(g++ -print-file-name=libstdc++.so)"
export LD_PRELOAD ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc PYTHONPATH=$build/src
exec "$@"
