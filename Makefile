# Everything a person or CI runs. Each target makes the environment first if it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TEST_PROCESSES ?= 2
LOCKS := requirements.lock requirements-dev.lock
XLA := .venv-xla

.PHONY: demo test test-demo crash-matrix test-xla xla-env lint audit-deps ui bench docs env dev browser postgres clean

## environment ─ exact pins, then the project itself in editable mode (spawned workers must be able to import it)
$(VENV)/.runtime: requirements.lock pyproject.toml setup.py pipeline/wikitext.py pipeline/wikitext_scan.pyx
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v == (3, 11) else f"bertworks needs Python 3.11, {sys.executable} is {v[0]}.{v[1]}: make PYTHON=python3.11 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(VENV)/.dev: $(LOCKS) $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock -r requirements-dev.lock
	@touch $@

## xla-env ─ an environment for TPUs beside the other: torch-xla works beside torch 2.9 only (docs/devices.md)
$(XLA)/.runtime: requirements-xla.lock pyproject.toml setup.py pipeline/wikitext.py pipeline/wikitext_scan.pyx
	@test -x $(XLA)/bin/python || $(PYTHON) -m venv $(XLA)
	$(XLA)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-xla.lock
	$(XLA)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

env: $(VENV)/.runtime
xla-env: $(XLA)/.runtime
dev: $(VENV)/.dev

## demo ─ recipe `demo` on real text, then its report and what to do next
demo: $(VENV)/.runtime
	$(BIN)/bert run demo
	@echo
	$(BIN)/bert report demo
	@echo
	$(BIN)/bert fill-mask demo "The capital of France is [MASK]."
	@echo
	@echo "Look at it in Dagster:  make ui   →  http://127.0.0.1:3000/locations/bert/asset-groups/demo"

## ui ─ Dagster on 127.0.0.1:3000 with every recipe loaded
ui: $(VENV)/.runtime
	$(BIN)/bert ui

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --durations 40

## test-demo ─ `make demo` itself in an empty home, held against its bars (ten minutes of real training); in a container too, where
## there is Docker
test-demo: $(VENV)/.dev
	$(BIN)/python -m pytest -m demo tests/test_demo.py tests/test_docker.py

## crash-matrix ─ every write point × every fault, an hour (docs/crash-matrix.md); ONLY=documents: some of them, MARKDOWN=FILE: the table
crash-matrix: $(VENV)/.dev
	$(BIN)/python -m tests.crash $(if $(ONLY),--only $(ONLY)) $(if $(MARKDOWN),--markdown $(MARKDOWN))

## test-xla ─ steps through torch-xla on the CPU, against torch's (some minutes, most of them compiling)
test-xla: $(XLA)/.runtime
	$(XLA)/bin/python -m pip install --quiet --disable-pip-version-check -c requirements-dev.lock pytest
	$(XLA)/bin/python -m pytest -m xla --durations 10 tests/model/test_xla.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

## audit-deps ─ what is known to be unsafe of the locked packages; asks PyPI, and fails where that can't be reached
audit-deps: $(VENV)/.dev
	$(BIN)/python .ci/audit_deps.py $(LOCKS) requirements-xla.lock

bench: $(VENV)/.runtime
	$(BIN)/python -m benchmarks

## docs ─ the pages of docs/ as a site: build/site/index.html; a broken link or anchor ends it
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

## browser ─ what the browser tests need from the system (Debian)
browser:
	apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium

## postgres ─ what the tests with PostgreSQL need from the system (Debian)
postgres:
	apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql

clean:
	rm -rf $(VENV) $(XLA) .bert build *.egg-info
