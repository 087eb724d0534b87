# One command each; CONTRIBUTING.md lists them. `make demo` and `make test` do all of their own set-up.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= $(firstword $(shell type -P python3.11 python3))
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PYTHONPATH := $(CURDIR)
export TF_CPP_MIN_LOG_LEVEL ?= 2
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

CXX_FILES = $(shell find benchmarks cc_ops tests -name '*.cc' -o -name '*.h')
PYTHON_FILES = setup.py $(wildcard scripts/*.py tf_hps tests examples benchmarks)

.PHONY: help
help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 20

# --- Set-up: what is there already is left alone.

.PHONY: system system-tests
system:
	@scripts/install_system_packages.sh
system-tests:
	@scripts/install_system_packages.sh gtest

$(VENV)/runtime.stamp: requirements.txt constraints.txt | system
	@"$(PYTHON)" -c 'import sys; v = sys.version_info[:2]; v == (3, 11) or sys.exit(f"tf_hps is tested with Python 3.11; $(PYTHON) is {v[0]}.{v[1]}. Name another: make PYTHON=/path/to/python3.11")'
	@test -x $(VENV)/bin/python || "$(PYTHON)" -m venv $(VENV)
	@echo "Installing TensorFlow and the other packages of requirements.txt into $(VENV) (some minutes, once)"
	@$(PIP) -r requirements.txt
	@touch $@

$(VENV)/dev.stamp: requirements-dev.txt $(VENV)/runtime.stamp
	@$(PIP) -r requirements-dev.txt
	@touch $@

# MovieLens-100K comes inside this package, of which nothing else is used: not its dependencies either.
$(VENV)/movielens.stamp: Makefile | $(VENV)/runtime.stamp
	@$(PIP) --no-deps recbole==1.2.1
	@touch $@

# --- Build and run.

CONFIGURE = cmake -G Ninja -S . -DPython3_EXECUTABLE="$(CURDIR)/$(VENV)/bin/python" -DTF_HPS_WERROR=ON >/dev/null
BUILD_JOBS ?= $(shell nproc)

.PHONY: build
build: $(VENV)/runtime.stamp | system ## the C++ library, into tf_hps/, as far as something changed
	@$(CONFIGURE) -B build/release -DTF_HPS_OUTPUT_DIR="$(CURDIR)/tf_hps"
	@cmake --build build/release --target _tf_hps_ops -j $(BUILD_JOBS)

.PHONY: demo
demo: build $(VENV)/movielens.stamp ## train DeepFM dense and tiered, compare them, export, serve from a fresh process
	@python examples/train_ctr.py
	@python examples/serve.py

.PHONY: test
test: lint engine-test py-test $(if $(wildcard /usr/share/bazel/embedded_tools),bazel-test) ## everything that must hold before a commit
	@echo "make test: all passed"

.PHONY: engine-test
engine-test: $(VENV)/dev.stamp | system-tests ## the engine's C++ tests
	@$(CONFIGURE) -B build/release -DTF_HPS_OUTPUT_DIR="$(CURDIR)/tf_hps" -DTF_HPS_BUILD_TESTS=ON
	@cmake --build build/release --target tf_hps_engine_test -j $(BUILD_JOBS)
	@build/release/tf_hps_engine_test --gtest_brief=1

.PHONY: py-test
py-test: build $(VENV)/dev.stamp $(VENV)/movielens.stamp ## Python tests and the examples in docstrings (PYTEST_ARGS=...)
	@python -m pytest --doctest-modules tests tf_hps $(PYTEST_ARGS)

.PHONY: bazel-test
bazel-test: $(VENV)/runtime.stamp | system-tests ## the library and the engine's tests built by Bazel, offline
	@scripts/install_system_packages.sh bazel
	@mkdir -p build
	@bazel test --noshow_progress //...

# --- Sanitizers.

TEST_FILTER ?= *

.PHONY: sanitize sanitize-address sanitize-thread sanitize-crash thread-safety
sanitize: thread-safety sanitize-address sanitize-thread sanitize-crash ## the engine's tests under ASan with UBSan, and under TSan; some crashes under ASan; Clang's analysis of its locks

thread-safety: $(VENV)/runtime.stamp | system
	@scripts/install_system_packages.sh clang
	@$(CONFIGURE) -B build/clang -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Debug
	@cmake --build build/clang --target tf_hps_engine -j $(BUILD_JOBS)

sanitize-address sanitize-thread: sanitize-%: $(VENV)/dev.stamp | system-tests
	@$(CONFIGURE) -B build/$* -DTF_HPS_BUILD_TESTS=ON -DTF_HPS_SANITIZE=$*
	@cmake --build build/$* --target tf_hps_engine_test -j $(BUILD_JOBS)
	@ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
	  LSAN_OPTIONS=suppressions=tests/engine/lsan.supp:print_suppressions=0 \
	  TSAN_OPTIONS=suppressions=tests/engine/tsan.supp:print_suppressions=0 \
	  build/$*/tf_hps_engine_test --gtest_brief=1 --gtest_filter='$(TEST_FILTER)'

sanitize-crash: sanitize-address
	@cmake --build build/address --target tf_hps_crash_test -j $(BUILD_JOBS)
	@LSAN_OPTIONS=suppressions=tests/engine/lsan.supp:print_suppressions=0 build/address/tf_hps_crash_test --kills=20

# --- Faults, crashes, fuzzing, endurance.

KILLS ?= 500
SECONDS ?= 0
SEED ?= 1
FUZZ_SECONDS ?= 60
MINUTES ?= 30

.PHONY: fault-sweep
fault-sweep: $(VENV)/dev.stamp | system-tests ## make each file operation of a store's life fail in turn, and check what comes of it
	@$(CONFIGURE) -B build/release -DTF_HPS_OUTPUT_DIR="$(CURDIR)/tf_hps" -DTF_HPS_BUILD_TESTS=ON
	@cmake --build build/release --target tf_hps_engine_test -j $(BUILD_JOBS)
	@TF_HPS_FAULT_SWEEP=all build/release/tf_hps_engine_test --gtest_brief=1 --gtest_filter='*FaultSweep*'

.PHONY: crash-test
crash-test: $(VENV)/dev.stamp | system-tests ## kill processes that use a store, KILLS=500 times or for SECONDS=60, and check what they leave
	@$(CONFIGURE) -B build/release -DTF_HPS_OUTPUT_DIR="$(CURDIR)/tf_hps" -DTF_HPS_BUILD_TESTS=ON
	@cmake --build build/release --target tf_hps_crash_test -j $(BUILD_JOBS)
	@build/release/tf_hps_crash_test --kills=$(KILLS) --seconds=$(SECONDS) --seed=$(SEED)

.PHONY: fuzz
fuzz: $(VENV)/dev.stamp | system ## a table's interface against a map, under libFuzzer, ASan and UBSan (FUZZ_SECONDS=60)
	@scripts/install_system_packages.sh fuzz
	@$(CONFIGURE) -B build/fuzz -DCMAKE_CXX_COMPILER=clang++ -DTF_HPS_FUZZ=ON -DTF_HPS_SANITIZE=address
	@cmake --build build/fuzz --target tf_hps_table_fuzz -j $(BUILD_JOBS)
	@mkdir -p build/fuzz/corpus build/fuzz/tmp
	@python -c 'import random; r = random.Random(1); [open(f"build/fuzz/corpus/start-{i}", "wb").write(r.randbytes(200)) for i in range(30)]'
	@TMPDIR=$$(test -w /dev/shm && echo /dev/shm || echo $(CURDIR)/build/fuzz/tmp) LSAN_OPTIONS=suppressions=tests/engine/lsan.supp:print_suppressions=0 \
	  build/fuzz/tf_hps_table_fuzz -max_total_time=$(FUZZ_SECONDS) -len_control=0 -max_len=600 -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 \
	  -artifact_prefix=build/fuzz/ build/fuzz/corpus

.PHONY: soak
soak: build $(VENV)/dev.stamp ## train, commit, checkpoint and export for MINUTES=30; memory, files, threads and disk must be flat
	@python tests/soak/soak.py --minutes=$(MINUTES)

# --- Benchmarks. FBGEMM goes with one version of torch; of that, pip needs to see the CPU build, for example with
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu: the CUDA build takes gigabytes and runs the same code here.

SIZE ?= all
BENCH_ARGS ?=
PEER_PIP = -m pip --disable-pip-version-check install --quiet

.PHONY: bench-build
bench-build: build
	@$(CONFIGURE) -B build/release -DTF_HPS_OUTPUT_DIR="$(CURDIR)/tf_hps" -DTF_HPS_BUILD_BENCHMARKS=ON
	@cmake --build build/release --target tf_hps_gather_limit tf_hps_engine_bench -j $(BUILD_JOBS)

.PHONY: bench
bench: bench-build ## benchmarks (SIZE=small: a minute; BENCH_ARGS="--cases=memory --dims=16 --vocabularies=5000000")
	@python -m benchmarks --size=$(SIZE) $(BENCH_ARGS)

.PHONY: bench-peers
bench-peers: bench-build build/peers/tfra.stamp build/peers/fbgemm.stamp ## the same beside TFRA and FBGEMM, in environments of their own
	@python -m benchmarks --size=$(SIZE) --peers $(BENCH_ARGS)

.PHONY: engine-bench
engine-bench: bench-build ## the engine's C++ alone (BENCH_ARGS="--case=lookup --threads=1 --seconds=10")
	@build/release/tf_hps_engine_bench $(BENCH_ARGS)

build/peers/tfra.stamp: PACKAGES = tensorflow-recommenders-addons==0.8.1 tensorflow==2.16.2 tf-keras==2.16.0
build/peers/fbgemm.stamp: PACKAGES = fbgemm-gpu-cpu==1.8.0 torch==2.13.0
build/peers/%.stamp:
	@echo "Installing $(PACKAGES) into build/peers/$* (once)"
	@"$(PYTHON)" -m venv build/peers/$*
	@build/peers/$*/bin/python $(PEER_PIP) $(PACKAGES)
	@touch $@

# --- Formatters and linters, of the versions in requirements-dev.txt.

.PHONY: format
format: $(VENV)/dev.stamp ## rewrite all sources in the project's style
	@clang-format -i $(CXX_FILES)
	@ruff check --quiet --fix $(PYTHON_FILES) || true
	@ruff format $(PYTHON_FILES)

.PHONY: lint
lint: $(VENV)/dev.stamp ## style and static checks; changes nothing
	@clang-format --dry-run --Werror $(CXX_FILES)
	@ruff check $(PYTHON_FILES)
	@ruff format --check $(PYTHON_FILES)

# --- The wheel.

.PHONY: wheel
wheel: $(VENV)/dev.stamp | system ## dist/*.whl, which brings its own LevelDB
	@rm -rf dist build/wheel build/lib.* build/bdist.*
	@python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir build/wheel .
	@auditwheel repair --exclude libtensorflow_framework.so.2 --wheel-dir dist build/wheel/*.whl

.PHONY: wheel-test
wheel-test: wheel ## install the wheel in a fresh environment without the system's LevelDB, and use it
	@scripts/test_wheel.sh dist/*.whl

.PHONY: clean
clean: ## remove all that was built; the environment in .venv stays
	@rm -rf build dist *.egg-info tf_hps/_tf_hps_ops.so
