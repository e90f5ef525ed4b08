# Everything from a fresh clone with python3 (3.11+), pip and make.
#
#   make demo          measure a small model on this machine and print the table
#   make test          lint, types, layers and every test that needs no compiler
#   make test-engines  the adapters that need heavy installs, each in an environment of its own
#   make bench         what the harness itself costs, side by side with bare engines

PYTHON ?= python3
CACHE ?= .cache
VENV ?= .venv
BIN := $(VENV)/bin
LLAMA_CPP_VENV ?= .venv-llama-cpp

MODEL := $(CACHE)/models/SmolLM2-135M-Instruct.Q4_1.gguf
# A busy desktop distorts what runs on every core, so the demo takes half of them.
DEMO_THREADS ?= $(shell $(PYTHON) -c "import os; print(max(1, (os.cpu_count() or 2) // 2))")

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests of a real model must fail, not be skipped, where this file makes them ready.
export INFEROMETER_DEMO_MODEL := $(abspath $(MODEL))

.PHONY: demo test test-engines bench lint format types layers model clean

demo: $(VENV)/.installed $(MODEL)
	$(BIN)/inferometer run quick --engine llama-server --model $(MODEL) --option threads=$(DEMO_THREADS)

test: $(VENV)/.dev $(MODEL) lint types layers
	$(BIN)/python -m pytest -m "not llama_cpp"

test-engines: $(LLAMA_CPP_VENV)/.dev $(MODEL)
	$(LLAMA_CPP_VENV)/bin/python -m pytest -m llama_cpp

bench: $(VENV)/.dev $(LLAMA_CPP_VENV)/.dev $(MODEL)
	$(BIN)/python -m benchmarks --model $(MODEL) --llama-cpp-python $(LLAMA_CPP_VENV)/bin/python

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

model: $(MODEL)

$(MODEL):
	$(PYTHON) tools/fetch_demo_model.py $@

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[llama-server]"
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[llama-server,dev]"
	touch $@

# The in-process binding is built from source: a compiler and some minutes.
$(LLAMA_CPP_VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(LLAMA_CPP_VENV)
	CMAKE_BUILD_PARALLEL_LEVEL=$${CMAKE_BUILD_PARALLEL_LEVEL:-2} CMAKE_ARGS="$${CMAKE_ARGS--DLLAVA_BUILD=OFF}" \
	  $(LLAMA_CPP_VENV)/bin/python -m pip install --quiet --editable ".[llama-cpp,dev]"
	touch $@

clean:
	rm -rf $(VENV) $(LLAMA_CPP_VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
