# Needs only make, Python 3.11 or newer and access to a Python package index.
PYTHON ?= python3
PYTEST_ARGS ?= -n 2
UV_VERSION := 0.13.7

VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed
PACKAGES := $(wildcard service workers loadtest)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command 'make lock' --extra build

.DEFAULT_GOAL := help
.PHONY: help up test lint format types lab bench lock clean

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

up: $(RUNTIME) ## Start API, workers and an embedded Redis; options in ARGS="--port 8081"
	@exec $(BIN)/freshet up $(ARGS)

test: lint types ## Check style and types, then run every test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(DEV) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(DEV) ## Format and apply safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(DEV) ## Check types
	$(BIN)/mypy $(PACKAGES)

lab: $(RUNTIME) ## Run every experiment of the papers in full and write loadtest/lab/RESULTS.md
	OMP_NUM_THREADS=1 $(BIN)/freshet simulate --experiment all --jobs 2 --out loadtest/lab/results \
	  --results loadtest/lab/RESULTS.md

bench: $(RUNTIME) ## Measure speed, memory and scale and write loadtest/RESULTS.md; options in ARGS="--only next"
	OMP_NUM_THREADS=1 $(BIN)/freshet bench $(ARGS)

lock: $(DEV) ## Renew the lock files from pyproject.toml
	$(INSTALL) uv==$(UV_VERSION)
	$(COMPILE) --upgrade pyproject.toml -o requirements.lock
	$(COMPILE) --upgrade --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock

clean: ## Remove the environment and everything generated, but no data
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo >&2 \
	  "Freshet needs Python 3.11 or newer; '$(PYTHON)' is not. Try: make PYTHON=python3.12 ..."; exit 1; }
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# The build tool is in the lock file too, so building the package itself fetches nothing.
$(RUNTIME): requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing Freshet into $(VENV) ..."
	@$(INSTALL) --require-hashes -r requirements.lock
	@$(INSTALL) --no-build-isolation -e .
	@touch $@

$(DEV): requirements-dev.lock $(RUNTIME)
	@echo "Installing the test tools ..."
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@
