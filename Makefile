# The front door. `make` alone explains itself; the real build is CMake (see CMakePresets.json).

ROOT := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
override MOONPOOL_STATE := $(abspath $(or $(MOONPOOL_STATE),$(ROOT)/.state))
JOBS ?= $(shell nproc)
BENCH ?= swarm

# Everything that tools like to keep in a home directory lives under the state root.
export MOONPOOL_STATE
export CCACHE_DIR := $(MOONPOOL_STATE)/cache/ccache
export PIP_CACHE_DIR := $(MOONPOOL_STATE)/cache/pip
export PYTHONPYCACHEPREFIX := $(MOONPOOL_STATE)/cache/pycache

.DEFAULT_GOAL := help
.PHONY: help setup release demo test test-fast bench fuzz format clean

help:
	@echo 'Moonpool: llama.cpp servers share the KV cache of a prompt prefix.'
	@echo
	@echo '  make demo        two real llama.cpp servers and six agents, with and without the bus'
	@echo '  make test        everything: unit tests, real servers, analysis, sanitizers'
	@echo
	@echo '  make setup       only what the machine lacks: packages, Python environment, models'
	@echo '  make release     build/release/moonpool'
	@echo '  make test-fast   unit tests of the dev build'
	@echo '  make bench       build/release/moonpool bench $$(BENCH); BENCH=swarm if not given'
	@echo '  make fuzz        each fuzz target for 20 seconds'
	@echo '  make format      clang-format over the sources'
	@echo '  make clean       removes build/; the state root stays'
	@echo
	@echo 'State root (models, Python environment, caches): $(MOONPOOL_STATE)'
	@echo 'Another one: MOONPOOL_STATE=/path make ...   Fewer processes: make JOBS=1 ...'
	@echo 'Day to day: cmake --preset dev && cmake --build build/dev && ctest --preset dev -L unit'

setup:
	@$(ROOT)/tools/setup.sh

release: setup
	cmake --preset release -S $(ROOT)
	cmake --build $(ROOT)/build/release -j $(JOBS)

demo: release
	$(ROOT)/build/release/moonpool demo --json $(MOONPOOL_STATE)/demo.json

test: setup
	@$(ROOT)/tools/run_tests.py --jobs $(JOBS)

test-fast: setup
	@$(ROOT)/tools/run_tests.py --fast --jobs $(JOBS)

bench: release
	$(ROOT)/build/release/moonpool bench $(BENCH) --json $(MOONPOOL_STATE)/bench-$(BENCH).json

fuzz: setup
	cmake --preset fuzz -S $(ROOT)
	cmake --build $(ROOT)/build/fuzz -j $(JOBS) --target tests/fuzz/all
	ctest --test-dir $(ROOT)/build/fuzz -R '^fuzz_' --output-on-failure --no-tests=error -j $(JOBS)

format:
	git -C $(ROOT) ls-files -z '*.cc' '*.h' | (cd $(ROOT) && xargs -0 clang-format-16 -i)

clean:
	rm -rf $(ROOT)/build
