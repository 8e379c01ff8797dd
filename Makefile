# `make run` and `make test` set up .venv on first use and reuse it; it is brought up to date when pyproject.toml changes.
#   PYTHON  the interpreter that makes the environment (3.10 or newer)     VENV  where it lies
#   MODEL, PROMPT  what `make run` runs                                    TESTS  arguments for pytest

PYTHON ?= python3
VENV ?= .venv
MODEL ?= smollm2
PROMPT ?= The capital of France is
TESTS ?= -n auto

ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: run test lint types clean

run: $(VENV)/.gml-run
	@$(BIN)/gml run $(MODEL) "$(PROMPT)"

test: $(VENV)/.gml-test
	$(BIN)/python -m pytest $(TESTS)

lint: $(VENV)/.gml-dev types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/layering.py

# The package as it is installed: its parts come from several folders, and a type checker sees only the result.
types: $(VENV)/.gml-dev
	@$(BIN)/python -c "import shutil; shutil.rmtree('build', ignore_errors=True)"
	$(PIP) --no-deps --target build/site .
	$(BIN)/pyright --pythonpath $(BIN)/python

clean:
	$(PYTHON) -c "import shutil; [shutil.rmtree(d, ignore_errors=True) for d in ('$(VENV)', 'build', 'gml.egg-info')]"

$(VENV)/.gml-python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10) and 'gml needs Python 3.10 or newer: make PYTHON=...')"
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.gml-run: pyproject.toml $(VENV)/.gml-python
	$(PIP) -e .
	@touch $@

$(VENV)/.gml-test: pyproject.toml $(VENV)/.gml-python
	$(PIP) -e ".[test]"
	@touch $@ $(VENV)/.gml-run

$(VENV)/.gml-dev: pyproject.toml $(VENV)/.gml-python
	$(PIP) -e ".[dev]"
	@touch $@ $(VENV)/.gml-run
