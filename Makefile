# Everything here works on a fresh machine with Python 3.11 and gcc: the first target that needs it makes a virtual
# environment (VENV=, by default .venv) and installs Orion into it, editable; pip brings the rest, CMake included.
# C builds live outside the tree, in a cache, so that a clean checkout and a second one are quick.

PYTHON ?= python3
VENV   ?= .venv
CACHE  ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/orion
# One folder of builds for each checkout: CMake refuses a build folder of another source folder.
BUILD  := $(CACHE)/build-$(shell pwd -P | cksum | cut -d' ' -f1)
BIN    := $(VENV)/bin
PACKAGES  := operator api_server device_plugin node_agent exposition hook inprocess crds cli bench
LINKS  := build/import/orion
TIERS  := quiet host cluster node
# What the hook and the simulated driver are compiled from.
SOURCES := hook/CMakeLists.txt $(wildcard hook/include/orion/*.h hook/src/*.[ch] hook/src/*/*.[ch] hook/src/*/*.inc \
           hook/src/*.map hook/sim/*.[ch] hook/sim/*.inc hook/sim/*/* hook/sim/*.map)
# The names of all modules: an editable install maps each, and does not find one that was moved since.
MODULES := build/modules
$(shell mkdir -p build && find $(PACKAGES) -name '*.py' | sort > $(MODULES).now && \
        (cmp -s $(MODULES).now $(MODULES) || cp $(MODULES).now $(MODULES)))
# All C in the style of .clang-format, but for what generators write in their own.
FORMATTED = $(filter-out %/generated/% hook/include/orion/policy.h,$(wildcard $(foreach part,include/orion src/* sim \
              profiler test test/*,hook/$(part)/*.[ch]) examples/workload/*.[ch]))
# Ninja would ask for a place among make's jobs, at a pipe that only makes inherit.
ALONE := env -u MAKEFLAGS
# Of all that is installed little is imported: that is compiled then.
INSTALL = $(BIN)/python -m pip install --quiet --no-compile
CONFIGURE = $(BIN)/cmake -G Ninja -DPython3_EXECUTABLE=$(abspath $(BIN)/python) -S hook

export PATH := $(abspath $(BIN)):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests compile their C programs where `make warnings` has: as Release builds with the same sources and options.
export ORION_TEST_BUILD := $(BUILD)/strict
# Thousands of short Python processes: their byte code is kept, also from one run of tests to the next, outside the tree.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(BUILD)/bytecode
export MYPY_CACHE_DIR := $(CACHE)/mypy

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check build lint format types layers generated warnings pytest sanitizers \
        slowest $(TIERS:%=%-tier) node-needs \
        bench-hook cluster cluster-binaries cluster-down crds generate wheel image image-locks clean

help:  ## Show this help
	@echo "Targets (the first one that you call sets up $(VENV)):"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 20

demo: $(VENV)/built  ## Two processes share a GPU, unmanaged and under Orion; a real GPU where there is one, else simulated
	@$(BIN)/orion demo $(ARGS)

# First what is about time, then all else that needs no cluster, then the tiers with clusters side by side, as they wait
# more than they compute. Beside them, niced: C tests under sanitizers, and what nodes need. Each shows its output as it ends.
test: $(VENV)/built  ## All tests that this machine can run; the last line says which tiers ran
	@$(MAKE) --no-print-directory --jobs=4 --output-sync=target IN_TURN=yes node-tier cluster-tier sanitizers
	@$(BIN)/python -m tools.tiers.summary --outcomes $(BUILD)/outcomes

test-all:  ## The same with every case of the thorough tests: before a release, and after a change of what they test
	@$(MAKE) --no-print-directory test THOROUGH=--thorough

check: lint types layers generated warnings  ## Style, types, layers, generated files, C warnings (after set-up: under a minute)
	@echo "check: all passed"

build: $(VENV)/built  ## Set up, and compile what has changed

lint: $(VENV)/built
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run --Werror $(FORMATTED)

format: $(VENV)/built  ## Write Python and C in the style that `make check` compares with
	$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(FORMATTED)

types: $(VENV)/built $(LINKS)
	$(BIN)/mypy

layers: $(VENV)/built $(LINKS)
	PYTHONPATH=build/import $(BIN)/lint-imports --no-cache

generated: $(VENV)/built $(LINKS)
	PYTHONPATH=build/import $(BIN)/python -m orion.hook.generate --check
	PYTHONPATH=build/import $(BIN)/python hook/sim/generate.py --check
	$(BIN)/python tools/generate_stubs.py --check
	PYTHONPATH=build/import $(BIN)/python -m orion.crds.generate --check
	PYTHONPATH=build/import $(BIN)/python -m orion.crds.reference --check
	PYTHONPATH=build/import $(BIN)/python -m orion.operator.webhook.manifests --check
	$(BIN)/python tools/check_version.py
	PYTHONPATH=build/import $(BIN)/python -m tools.check_docs

warnings: $(VENV)/ready
	$(CONFIGURE) -B $(BUILD)/strict -DORION_STRICT=ON -DORION_TESTS=ON -DCMAKE_BUILD_TYPE=Release --log-level=WARNING
	$(ALONE) $(BIN)/cmake --build $(BUILD)/strict
	$(BIN)/python tools/hook_layers.py $(BUILD)/strict

pytest: $(VENV)/built
	$(ALONE) $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

$(TIERS:%=%-tier): %-tier: $(VENV)/built
	$(ALONE) $(BIN)/python -m tools.tiers.run $* --outcomes $(BUILD)/outcomes $(THOROUGH) $(ARGS)

ifdef IN_TURN
host-tier: | quiet-tier
node-tier cluster-tier: | host-tier
node-tier: | node-needs
endif

node-needs: $(VENV)/built
	$(ALONE) nice -n 19 $(BIN)/python -m tools.tiers.run node --bring-only

sanitizers: $(VENV)/ready
	$(ALONE) nice -n 19 $(BIN)/python tools/sanitizers.py --build $(BUILD)

slowest: $(VENV)/ready  ## List the slowest tests of the last `make test` (ARGS="--most 50")
	@$(BIN)/python -m tools.tiers.durations --outcomes $(BUILD)/outcomes $(ARGS)

cluster: $(VENV)/built  ## Start a real Kubernetes cluster with a node and Orion on it (ARGS=--no-node, --no-orion), and say how to use it
	$(BIN)/python -m testbed up $(ARGS)

cluster-down: $(VENV)/ready  ## End it, and remove its data
	$(BIN)/python -m testbed down $(ARGS)

cluster-binaries: $(VENV)/ready  ## Only build and download its programs (5 to 9 minutes, once for this machine)
	$(BIN)/python -m testbed build $(ARGS)

bench-hook: $(VENV)/built  ## What the hook costs a launch: in instructions here, in time on a GPU
	$(BIN)/python -m measurements.overhead.hook_cost $(ARGS)

crds: $(VENV)/ready $(LINKS)  ## Write the definitions of the API types that the chart ships, from the models in crds/
	PYTHONPATH=build/import $(BIN)/python -m orion.crds.generate
	PYTHONPATH=build/import $(BIN)/python -m orion.operator.webhook.manifests

generate: $(VENV)/ready $(LINKS) crds  ## Make the generated files again: wrappers, stubs, API definitions, their reference
	PYTHONPATH=build/import $(BIN)/python -m orion.hook.generate --write
	PYTHONPATH=build/import $(BIN)/python hook/sim/generate.py
	$(BIN)/python tools/generate_stubs.py
	PYTHONPATH=build/import $(BIN)/python -m orion.crds.reference

wheel: $(VENV)/ready  ## A release wheel in dist/ that loads on glibc 2.17 and later
	CC="$(abspath tools/cc-glibc-2.17)" $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation \
	  --config-settings=build-dir=$(BUILD)/release --wheel-dir dist .
	$(BIN)/python tools/check_wheel.py dist/*.whl

image: $(VENV)/ready  ## Orion's container image as an archive, by buildah (root), if its sources changed (ARGS=--help)
	@$(BIN)/python -m tools.image build $(ARGS)

image-locks: $(VENV)/ready  ## Renew every pin of the image: PyPI, Debian, the base's digest
	$(INSTALL) uv
	$(BIN)/python -m tools.image lock

clean:  ## Drop what builds and tests made, the virtual environment included
	rm -rf build dist $(VENV) $(BUILD) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# -- Set-up ------------------------------------------------------------------------------------------------------------

$(BIN)/python:
	@echo "setting up $(VENV) (once; about a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) "pip>=25.1"

# The tools: compilers' helpers, linters, test runners.
$(VENV)/ready: pyproject.toml | $(BIN)/python
	@$(INSTALL) --group dev
	@touch $@

# Orion itself. Without build isolation: the tools are in the environment, and CMake compiles only what has changed.
$(VENV)/built: $(VENV)/ready $(SOURCES) $(MODULES)
	@echo "installing orion-gpu into $(VENV), editable"
	@$(ALONE) $(INSTALL) --no-build-isolation --config-settings=build-dir=$(BUILD)/editable --editable ".[bench,cluster]"
	@touch $@

# mypy, pyright and editors read files, not import hooks: give them a folder that has the package's name.
$(LINKS): pyproject.toml
	@mkdir -p $@
	@for room in $(PACKAGES); do ln -sfn ../../../$$room $@/$$room; done
	@touch $@
