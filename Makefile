# Each target does all of its own set-up: `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# Most of what comes with the packages is never imported: what is, Python compiles then.
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --no-compile
# Packages and servers are fetched at the same time.
MAKEFLAGS += --jobs=2

.DEFAULT_GOAL := help
.PHONY: help demo test torture marathon bench docs venv servers clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## the split brain, and the fence that stops it, in under 20 seconds
	@$(BIN)/holdfast demo $(ARGS)

test: $(VENV)/.dev servers ## every check: ruff, mypy, pytest
	@scripts/install-browser && scripts/check

torture: $(VENV)/.dev servers ## the verifier on every engine, all faults, 10 minutes or so
	@HOLDFAST_VERIFY_SECONDS=40 $(BIN)/pytest --timeout 900 tests/verify/test_targets.py $(ARGS)

marathon: $(VENV)/.dev servers ## every fault test for hours: thousands of kills, interrupts, cancellations and seeds
	@HOLDFAST_THOROUGH=1 $(BIN)/pytest --workers 4 tests/conformance
	@HOLDFAST_THOROUGH=1 HOLDFAST_KILLS=600 HOLDFAST_INTERRUPTS=1000 HOLDFAST_CANCELS=1000 HOLDFAST_SEEDS=200 HOLDFAST_ALL_UPDATES=1 HOLDFAST_SERVER_KILLS=200 HOLDFAST_CLUSTER_FAULTS=50 HOLDFAST_LOST_MESSAGES=1 HOLDFAST_SIMULATED_RUNS=10000 HOLDFAST_NAMES=1000000 \
		$(BIN)/pytest --timeout 1800 tests/core tests/process tests/interrupts tests/engines tests/fence tests/server tests/verify tests/without_lock tests/simulate tests/cluster tests/records $(ARGS)

bench: $(VENV)/.bench ## measure the embedded engine; another one: make bench ARGS="URL"
	@$(BIN)/$(if $(wildcard bench/$(firstword $(ARGS)).py),python -m bench.$(ARGS),holdfast bench $(ARGS))

docs: $(VENV)/.docs ## build the documentation into site/
	@$(BIN)/mkdocs build --strict --quiet
	@echo "Built: site/index.html"

venv: $(VENV)/.dev ## the virtual environment of a developer, in .venv

# After the virtual environment, because that may need apt too, and apt serves one at a time.
servers: $(VENV)/.made
	@scripts/install-servers

clean: ## remove the virtual environment and everything that was built
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of packages; all of them are made again when pyproject.toml changes.
$(VENV)/.made: scripts/make-venv
	@scripts/make-venv $(PYTHON) $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml
	@echo "Installing Holdfast into $(VENV)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	@echo "Installing Holdfast and its development tools into $(VENV)"
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.installed $(VENV)/.bench $@

$(VENV)/.bench: $(VENV)/.made pyproject.toml
	@echo "Installing Holdfast and the peers of its benchmark into $(VENV)"
	@$(PIP) --editable '.[bench]'
	@touch $(VENV)/.installed $@

$(VENV)/.docs: $(VENV)/.made pyproject.toml
	@echo "Installing the documentation builder into $(VENV)"
	@$(PIP) --editable '.[docs]'
	@touch $(VENV)/.installed $@
