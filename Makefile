# Two commands do everything on a machine that has only Python (>= 3.11), venv and make:
#   make demo       installs into .venv and runs the demo
#   make test       lint, types, imports and the fast suite: every module, contract and command (five minutes)
# Beside them:
#   make test-slow  what the fast suite leaves out
#   make test-all   lint, types, imports and every test (twenty minutes)
#   make cover      line and branch coverage of the library
#   make mutants    whether tests notice small mistakes in the library, tried one at a time (an hour)
#   make docs       all pages as a site, in site/; every link is checked
#   make soak       many cases of every kind, under faults too (an hour); the same command goes on
#   make audit      known holes of every package that is installed
#   make dist       wheels and source distributions, each tried in an empty environment
#   make bench-gate  five minutes: has anything become slower, by a quarter of what was recorded?
# and `make bench` writes every table of BENCHMARKS.md anew (two hours, and 20 GB of disk for a while).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0  # an unpinned one may bring gigabytes for GPUs that tests do not need

SOURCES := src studies tests benchmarks examples $(wildcard docs/*.py) conftest.py
# A file's tests stay on one worker, so that what they share is made once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder
# Types are checked on the core that waits for Ray meanwhile; whichever fails, make does.
BESIDE := $(MAKE) --no-print-directory -j 2 lint

.PHONY: demo test test-fast test-slow test-all tests cover mutants soak audit docs dist lint format bench bench-gate clean

demo: $(VENV)/.installed
	$(BIN)/fairnepv demo

test:
	$(BESIDE) test-fast

test-fast: $(VENV)/.installed-dev
	$(PYTEST) -m "not slow"

test-slow: $(VENV)/.installed-dev
	$(PYTEST) -m slow

test-all:
	$(BESIDE) tests

tests: $(VENV)/.installed-dev
	$(PYTEST)

cover: $(VENV)/.installed-dev
	$(PYTEST) -m "not slow" --cov --cov-report=term-missing:skip-covered

# Cases that passed are kept in soak.jsonl, and are not run again before the sources change.
# Afterwards, `make soak SOAK=--write` writes the table of BENCHMARKS.md.
soak: $(VENV)/.installed-dev
	PYTHONPATH=tests:tests/contracts:studies/tests:benchmarks:src:studies/src OMP_NUM_THREADS=1 $(BIN)/python -m soak $(SOAK)

# Known holes of what is installed; pip-audit has an environment of its own, so that it audits ours.
audit: $(VENV)/.installed-dev
	test -x $(VENV)/audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)/audit && $(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check "pip-audit>=2.9"; }
	release/audit $(BIN)/python $(VENV)/audit/bin/python

mutants: $(VENV)/.installed-dev
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m mutants

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

dist: $(VENV)/.installed-dev
	release/wheels $(CURDIR)/$(BIN)/python

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/speed.py --write
	$(BIN)/python benchmarks/anytime.py --write
	$(BIN)/python benchmarks/scale.py --large --write
	$(BIN)/python benchmarks/tiers.py --write
	$(BIN)/python benchmarks/cluster.py --write
	$(BIN)/python benchmarks/certainty.py --write
	$(BIN)/python benchmarks/solvers.py --write
	$(BIN)/python benchmarks/peers.py --write
	$(BIN)/python benchmarks/relaxation.py --write
	$(BIN)/python benchmarks/selection.py --write
	$(BIN)/python benchmarks/ablations.py --write
	$(BIN)/python benchmarks/usefulness.py --write
	$(BIN)/python benchmarks/choosing_pictures.py --write

bench-gate: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/gate.py

clean:
	rm -rf $(VENV) dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.*

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.installed-dev: pyproject.toml studies/pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,docs,ray,torch]" -e "./studies[encoders,downstream]" $(TORCH)
	test -x /usr/bin/chromium || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >/dev/null; } || \
	  echo "Chromium could not be installed: tests of the report page will skip"
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]"
	touch $@
