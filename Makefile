# Every target works on a fresh machine with Python 3.11 and gcc. The first target that needs a virtual environment
# (VENV=, by default .venv) makes it and installs Orion into it, editable; pip installs the rest, including CMake. C
# builds are in a cache outside the tree, so that a clean checkout and a second one build fast.

PYTHON ?= python3
VENV   ?= .venv
CACHE  ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/orion
# Each checkout has its own build folder, since CMake rejects a build folder of another source folder.
BUILD  := $(CACHE)/build-$(shell pwd -P | cksum | cut -d' ' -f1)
BIN    := $(VENV)/bin
PACKAGES  := operator api_server device_plugin dra_driver injection node_agent node_pods exposition hook inprocess crds errors atomic_files shutdown planning simulation cli bench
LINKS  := build/import/orion
TIERS  := quiet host cluster node neighbours
# The sources of the hook and the simulated driver.
SOURCES := hook/CMakeLists.txt $(wildcard hook/include/orion/*.h hook/src/*.[ch] hook/src/*/*.[ch] hook/src/*/*.inc \
           hook/src/*.map hook/starting/*.[ch] hook/sim/*.[ch] hook/sim/*.inc hook/sim/*/* hook/sim/*.map)
# The names of all modules. An editable install maps each module, so a moved module needs a new installation.
MODULES := build/modules
$(shell mkdir -p build && find $(PACKAGES) -name '*.py' | sort > $(MODULES).now && \
        (cmp -s $(MODULES).now $(MODULES) || cp $(MODULES).now $(MODULES)))
# All C files whose style .clang-format defines; generated files have their own style.
FORMATTED = $(filter-out %/generated/% hook/include/orion/policy.h,$(wildcard $(foreach part,include/orion src/* sim sim/nvml sim/old \
              starting profiler test test/*,hook/$(part)/*.[ch]) examples/workload/*.[ch]))
# Without MAKEFLAGS, Ninja does not try to use make's job server, whose pipe only make processes inherit.
ALONE := env -u MAKEFLAGS
# Skip compiling at installation: few of the installed modules are imported, and Python compiles these on import.
INSTALL = $(BIN)/python -m pip install --quiet --no-compile
# In CI with the options of `make warnings`, so that it finds these objects. A user's compiler may have more warnings.
STRICT := $(if $(CI),$(addprefix --config-settings=cmake.define.,ORION_STRICT=ON CMAKE_C_COMPILER=cc))
CONFIGURE = $(BIN)/cmake -G Ninja -DPython3_EXECUTABLE=$(abspath $(BIN)/python) -S hook

export PATH := $(abspath $(BIN)):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests reuse the build of `make warnings`: a Release build with the same sources and options.
export ORION_TEST_BUILD := $(BUILD)/strict
# Tests start thousands of short Python processes. Their byte code is cached outside the tree, also between runs.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(BUILD)/bytecode
# make test KUBERNETES=1.34: the tests' clusters have an earlier Kubernetes.
export ORION_TEST_KUBERNETES := $(KUBERNETES)
export MYPY_CACHE_DIR := $(CACHE)/mypy
# A new checkout has new times of files, so that Ninja compiles all; ccache then finds the objects. They name sources by
# absolute paths, so builds of one checkout in different folders share them.
export CMAKE_C_COMPILER_LAUNCHER := $(abspath $(BIN))/ccache
export CCACHE_DIR := $(CACHE)/ccache
export CCACHE_NOHASHDIR := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-all neighbours check build lint format types layers generated warnings pytest sanitizers \
        slowest $(TIERS:%=%-tier) node-needs \
        bench-hook cluster cluster-binaries cluster-down crds generate wheel image image-locks clean

help:  ## Show this help
	@echo "Targets (the first one that you call sets up $(VENV)):"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 20

demo: $(VENV)/built  ## Two processes share a GPU, unmanaged and under Orion; on a real GPU if there is one, else simulated
	@$(BIN)/orion demo $(ARGS)

# Tests about time run first and alone. Then those with nodes begin, which take the longest, as they wait more than they
# compute; beside them those that need no cluster, then those with control planes. Two jobs run beside others, with nice:
# C tests under sanitizers, and the preparation of nodes. Each job prints its output when it ends.
test: $(VENV)/built  ## All tests that this machine can run; the last line says which tiers ran
	@$(MAKE) --no-print-directory --jobs=4 --output-sync=target IN_TURN=yes node-tier cluster-tier sanitizers
	@$(BIN)/python -m tools.tiers.summary --outcomes $(BUILD)/outcomes

test-all:  ## As test, with every case of the thorough tests: before a release, and after a change of what they test
	@$(MAKE) --no-print-directory test THOROUGH=--thorough

neighbours: neighbours-tier  ## Run controllers of other projects beside Orion; not part of `make test`: their build takes minutes

check: lint types layers generated warnings  ## Style, types, layers, generated files, C warnings (after set-up: under a minute)
	@echo "check: all passed"

build: $(VENV)/built  ## Set up, and compile what has changed

lint: $(VENV)/built
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run --Werror $(FORMATTED)

format: $(VENV)/built  ## Format Python and C in the style that `make check` requires
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
	$(BIN)/python tools/check_words.py
	PYTHONPATH=build/import $(BIN)/python -m tools.check_docs

warnings: $(VENV)/ready
	$(CONFIGURE) -B $(BUILD)/strict -DORION_STRICT=ON -DORION_TESTS=ON -DCMAKE_BUILD_TYPE=Release --log-level=WARNING
	$(ALONE) $(BIN)/cmake --build $(BUILD)/strict
	$(BIN)/python tools/hook_layers.py $(BUILD)/strict

pytest: $(VENV)/built $(VENV)/others/ready  ## Tests that need no cluster, or some of them (ARGS="tests/cli -k doctor")
	$(ALONE) $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

$(TIERS:%=%-tier): %-tier: $(VENV)/built $(VENV)/others/ready
	$(ALONE) $(BIN)/python -m tools.tiers.run $* --outcomes $(BUILD)/outcomes $(THOROUGH) $(ARGS)

ifdef IN_TURN
host-tier sanitizers node-needs: | quiet-tier
cluster-tier: | host-tier
node-tier: | node-needs
endif

node-needs: $(VENV)/built
	$(ALONE) nice -n 19 $(BIN)/python -m tools.tiers.run node --bring-only

sanitizers: $(VENV)/ready
	$(ALONE) nice -n 5 $(BIN)/python tools/sanitizers.py --build $(BUILD)

slowest: $(VENV)/ready  ## List the slowest tests of the last `make test` (ARGS="--most 50")
	@$(BIN)/python -m tools.tiers.durations --outcomes $(BUILD)/outcomes $(ARGS)

cluster: $(VENV)/built  ## Start a real Kubernetes cluster with a node and Orion (ARGS=--no-node, --no-orion), and print how to use it
	$(BIN)/python -m testbed up $(ARGS)

cluster-down: $(VENV)/ready  ## End the cluster, and remove its data
	$(BIN)/python -m testbed down $(ARGS)

cluster-binaries: $(VENV)/ready  ## Only build and download the cluster's programs (5 to 9 minutes, once for this machine)
	$(BIN)/python -m testbed build $(ARGS)

bench-hook: $(VENV)/built  ## Measure what the hook costs a launch: in time on a GPU, else in instructions
	$(BIN)/python -m measurements.overhead.hook_cost $(ARGS)

crds: $(VENV)/ready $(LINKS)  ## Generate the CRDs that the chart ships, from the models in crds/
	PYTHONPATH=build/import $(BIN)/python -m orion.crds.generate
	PYTHONPATH=build/import $(BIN)/python -m orion.operator.webhook.manifests

generate: $(VENV)/ready $(LINKS) crds  ## Generate all generated files: wrappers, stubs, CRDs, their reference
	PYTHONPATH=build/import $(BIN)/python -m orion.hook.generate --write
	PYTHONPATH=build/import $(BIN)/python hook/sim/generate.py
	$(BIN)/python tools/generate_stubs.py
	PYTHONPATH=build/import $(BIN)/python -m orion.crds.reference

wheel: $(VENV)/ready  ## Build a release wheel in dist/ that loads on glibc 2.17 and later
	env -u CMAKE_C_COMPILER_LAUNCHER CC="$(abspath tools/cc-glibc-2.17)" \
	  $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation \
	  --config-settings=build-dir=$(BUILD)/release --wheel-dir dist .
	$(BIN)/python tools/check_wheel.py dist/*.whl

image: $(VENV)/ready  ## Build Orion's container image with buildah (root), if its sources changed (ARGS=--help)
	@$(BIN)/python -m tools.image build $(ARGS)

image-locks: $(VENV)/ready  ## Renew every pin of the image: PyPI, Debian, the base's digest
	$(INSTALL) uv
	$(BIN)/python -m tools.image lock

clean:  ## Remove the output of builds and tests, including the virtual environment
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

# Tests of other projects that come as packages. In a folder of their own, they hide no packages of the tools.
$(VENV)/others/ready: pyproject.toml | $(BIN)/python
	@$(INSTALL) --no-deps --upgrade --target $(VENV)/others --group others
	@mkdir -p $(VENV)/others && touch $@

# Orion itself, without build isolation: the tools are in the environment, and CMake compiles only what has changed.
$(VENV)/built: $(VENV)/ready $(SOURCES) $(MODULES)
	@echo "installing orion-gpu into $(VENV), editable"
	@$(ALONE) $(INSTALL) --no-build-isolation --config-settings=build-dir=$(BUILD)/editable $(STRICT) \
	  --editable ".[bench,cluster,plan]"
	@touch $@

# mypy, pyright and editors do not follow import hooks, so they need a folder with the package's name.
$(LINKS): pyproject.toml
	@mkdir -p $@
	@for package in $(PACKAGES); do ln -sfn ../../../$$package $@/$$package; done
	@touch $@
