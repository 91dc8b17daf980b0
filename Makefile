# Two commands do everything on a fresh machine: `make test` and `make reproduce`.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.krylow-setup
# What the tests and the reproduction need. `cluster` (ray) is large and left to those who want it.
EXTRAS ?= sklearn,pyg,dev
WORKERS ?= 2
CODE := $(wildcard src lab tests benchmarks examples)
# One thread a worker: the workers are the parallelism, and sums do not depend on the machine's core count.
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

.PHONY: help setup setup-mpi lint test test-mpi test-slow test-lowest soak reproduce bench docs format clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | awk -F'|' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: $(STAMP)  ## create .venv and install krylow and its laboratory with everything the tests need

NATIVE := $(wildcard native/*.h native/*.cpp native/CMakeLists.txt)

$(STAMP): pyproject.toml lab/pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch -e '.[$(EXTRAS)]' -e lab
	@touch $@

native: setup  ## build the compiled extension into src/krylow, where `make setup` already has what that takes
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .

PETSC ?= 3.18
setup-mpi: setup  ## PETSc, SLEPc and their Python on Debian 12, for graphs shared by ranks (root; conda-forge has them elsewhere)
	apt-get update
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends petsc-dev slepc-dev libopenmpi-dev openmpi-bin
	$(BIN)/python -m venv --system-site-packages build/petsc
	build/petsc/bin/pip install --quiet "cython<3" "setuptools<70" wheel numpy
	export PETSC_DIR=$$(echo /usr/lib/petscdir/petsc$(PETSC)/*-real) SLEPC_DIR=$$(echo /usr/lib/slepcdir/slepc$(PETSC)/*-real) CFLAGS=-O0; \
	build/petsc/bin/pip wheel --no-deps --no-build-isolation -w build/petsc/wheels "petsc4py==$(PETSC).*" && \
	build/petsc/bin/pip install --no-deps build/petsc/wheels/petsc4py*.whl && \
	build/petsc/bin/pip wheel --no-deps --no-build-isolation -w build/petsc/wheels "slepc4py==$(PETSC).*"
	$(BIN)/python -m pip install --quiet --no-deps build/petsc/wheels/*.whl "mpi4py>=4"

lint: setup  ## style, types and the order of the layers
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint  ## lint, then every fast test and every docstring example
	$(PYTEST) -m "not slow" --doctest-modules src/krylow lab/src tests lab/tests

test-mpi: setup  ## graphs shared by 1, 2, 3 and 4 ranks, which `make test` runs as well where PETSc is installed
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -v tests/distributed

test-slow: setup  ## the end-to-end tests (minutes)
	$(PYTEST) -m slow tests lab/tests

test-lowest:  ## the fast tests with the lowest versions that are allowed (torch: the newest)
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt torch -e '.[sklearn,pyg]' -e lab pytest pytest-xdist hypothesis networkx
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -n $(WORKERS) -m "not slow" tests lab/tests

soak: setup  ## random graphs against LAPACK for SECONDS (3600), 10^5 odd files and calls; goes on where it was
	export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 SEED=$(or $(SEED),0); failed=0; \
	$(BIN)/python tests/fuzz/run.py --cases 100000 --seed $$SEED --out results/fuzz || failed=1; \
	$(BIN)/python tests/soak/run.py --seconds $(or $(SECONDS),3600) --seed $$SEED --out results/soak || failed=1; \
	exit $$failed

test-native-asan: setup  ## the tests of the extension, built with AddressSanitizer and UndefinedBehaviorSanitizer
	native/asan.sh $(abspath $(BIN)/python) -m pytest -q -p no:cacheprovider tests/native

test-wheel: setup  ## build a wheel, install it into an empty environment without a compiler, run the contract tests there
	native/wheel.sh $(abspath $(BIN)/python)

test-arm:  ## the kernels on ARM: cross-compiled, run by an emulator (Debian: g++-aarch64-linux-gnu, qemu-user)
	native/arm.sh

reproduce: setup  ## train and measure the paper's table 1
	$(BIN)/krylow reproduce table1

bench: setup  ## small graphs beside PyG and eigh, and where each method wins; then the tables made from that
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/batch.py --out results/batch
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/crossover.py --out results/crossover
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/certificate.py --out results/certificate
	$(BIN)/python benchmarks/tables.py

docs: setup  ## build the documentation into docs/_build/html
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -E -b html docs docs/_build/html

format: setup  ## rewrite the code in the house format
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

clean:  ## remove .venv, caches and built files
	rm -rf $(VENV) .venv-lowest src/krylow/_native*.so native/CMakeCache.txt native/CMakeFiles native/cmake_install.cmake native/*.ninja native/.ninja_* native/*.a build dist docs/_build docs/gallery .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
