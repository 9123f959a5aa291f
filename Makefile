# One command on a fresh machine: each target first makes .venv with what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One more than the two cores of a small machine: some tests wait for a clock, a disk or another process.
WORKERS ?= 3
# Tests write thousands of small files: in memory, where four gigabytes of it are free for files. None tests the disk.
IN_MEMORY := $(shell test "$$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }')" -gt 4000000 2>/dev/null && echo TMPDIR=/dev/shm)
PYTEST = $(IN_MEMORY) $(BIN)/python -m pytest
# Hundreds of processes start while testing; none need compile everything anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup system demo test test-again quick test-all test-lowest lint docs wheel-test gallery bench bench-quick clean

setup: $(VENV)/.installed

# What Dodona itself needs: enough for the demo and the command line.
$(VENV)/.small: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Dodona needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed: $(VENV)/.small
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[arrow,learn,plot,postgres,spark,server,test,lint,docs]'
	@touch $@

# What tests need beside Python packages. On Debian, as root, what is missing is installed; elsewhere it is named.
system:
	@missing=""; \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing="$$missing postgresql"; \
	command -v java >/dev/null || missing="$$missing default-jre-headless"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v curl >/dev/null || missing="$$missing curl"; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	command -v Rscript >/dev/null || missing="$$missing r-base-core r-cran-curl r-cran-jsonlite"; \
	command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	else echo "tests that need these are skipped:$$missing"; fi

demo: $(VENV)/.small
	$(BIN)/python -m dodona.cli.demo

test: setup
	DODONA_SAME_EXAMPLES=1 $(PYTEST) -m "not slow" -n $(WORKERS) --durations=25 tests

# After `make test` in CI: up to three tests that failed run once more, by themselves; laws, statistics and planted bugs never do.
test-again: setup
	$(BIN)/python .ci/again.py

# Lint and the fastest tests, for between two edits.
quick: setup
	$(BIN)/ruff check -q src tests benchmarks examples docs/tools
	$(BIN)/ruff format -q --check src tests benchmarks examples docs/tools
	$(BIN)/lint-imports --no-logo 2>/dev/null | tail -1
	$(PYTEST) -m "not slow" -n $(WORKERS) -q tests/unit/query tests/unit/mechanisms tests/unit/test_public.py \
		tests/unit/test_config.py tests/unit/privacy/test_ledger.py tests/unit/oracles tests/system/test_citations.py

test-all: setup
	$(PYTEST) -n $(WORKERS) tests

# The unit tests with the oldest version of every dependency that pyproject.toml allows, in an environment of its own.
test-lowest: setup
	rm -rf $(VENV)-lowest && $(PYTHON) -m venv $(VENV)-lowest
	$(BIN)/python .ci/lowest.py > $(VENV)-lowest/constraints.txt
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(VENV)-lowest/constraints.txt \
		--editable '.[arrow,learn,plot,postgres,spark,server,test]'
	$(IN_MEMORY) $(VENV)-lowest/bin/python -m pytest -m "not slow" -n $(WORKERS) tests/unit

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
	rm -rf $(VENV) $(VENV)-lowest build dist .pytest_cache .mypy_cache .ruff_cache
