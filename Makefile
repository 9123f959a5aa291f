# One command on a fresh machine: each target first makes .venv with what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: setup system demo test test-all lint docs wheel-test gallery bench bench-quick clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Dodona needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[arrow,learn,plot,postgres,spark,server,test,lint,docs]'
	@touch $@

# What tests need beside Python packages. On Debian, as root, what is missing is installed; elsewhere it is named.
system:
	@missing=""; \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing="$$missing postgresql"; \
	command -v java >/dev/null || missing="$$missing default-jre-headless"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	else echo "tests that need these are skipped:$$missing"; fi

demo: setup
	$(BIN)/python -m dodona.demo

test: setup
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadgroup --durations=25 tests

test-all: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup tests

lint: setup
	$(BIN)/ruff check src tests benchmarks examples docs/tools
	$(BIN)/ruff format --check src tests benchmarks examples docs/tools
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup
	$(BIN)/python docs/tools/pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "site/index.html"

# Builds the wheel and installs it in clean environments, with and without extras.
wheel-test: setup
	$(BIN)/python -m pytest -n 0 tests/system/test_wheel.py

gallery: setup
	@for script in examples/gallery/[a-z]*.py; do echo $$script; $(BIN)/python $$script || exit 1; done

bench: setup
	$(BIN)/python -m benchmarks
	$(BIN)/python docs/tools/pages.py

bench-quick: setup
	$(BIN)/python -m benchmarks --quick

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
