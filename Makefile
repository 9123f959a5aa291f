# One command on a fresh machine: each target first makes .venv with what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: setup demo test test-all lint bench clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Dodona needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[arrow,learn,plot,postgres,spark,server,test,lint]'
	@touch $@

demo: setup
	$(BIN)/python -m dodona.demo

test: setup
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) tests

test-all: setup
	$(BIN)/python -m pytest -n $(WORKERS) tests

lint: setup
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
