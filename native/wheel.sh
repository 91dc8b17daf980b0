#!/usr/bin/env bash
# Build a wheel, install it into a fresh environment, and run the contract tests there without a compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$work" .
wheel=$(ls "$work"/*.whl)
size=$(stat -c %s "$wheel" 2>/dev/null || stat -f %z "$wheel")
echo "$(basename "$wheel"): $size bytes"
((size < 3000000)) || { echo "a wheel of 3 MB and more"; exit 1; }
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt torch "$wheel" pytest hypothesis networkx
cp -r tests "$work/tests"
cp pyproject.toml "$work"
cd "$work"
# Nothing on the path: a compiler would not be found.
env -i HOME="$work" PATH= OMP_NUM_THREADS=2 "$work/venv/bin/python" -m pytest -q -x -p no:cacheprovider -m "not slow" tests/contracts tests/native
