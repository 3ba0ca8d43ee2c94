# Two commands: `make serve` shows it, `make test` proves it. Each sets up what it needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
STAMP  := $(shell cat pyproject.toml Makefile | cksum | cut -d' ' -f1)
# the tests start hundreds of processes: with modules kept compiled each takes half as long
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup serve test test-upstream chaos check compiled format proto clean
setup: $(VENV)/.tested-$(STAMP)

$(VENV)/.served-$(STAMP):
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --editable ".[demo]"
	@rm -f $(VENV)/.served-* && touch $@

$(VENV)/.tested-$(STAMP): $(VENV)/.served-$(STAMP)
	$(PIP) install --upgrade "pip>=25.1"
	$(PIP) install --group dev
	@rm -f $(VENV)/.tested-* && touch $@

serve: $(VENV)/.served-$(STAMP)
	$(BIN)/shoal demo

test-upstream: setup
	$(BIN)/pytest tests/upstream -m upstream

SECONDS ?= 60
SEED ?=
chaos: setup
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

proto: setup
	$(BIN)/python -m shoal.frontend.grpc.proto.generate

# a wheel in dist/ whose hot path is compiled, for this platform and this Python; needs a C compiler
compiled: setup
	SHOAL_COMPILED=1 $(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest tests/unit tests/properties

# tests mostly wait for processes: more of them at once than there are cores; the order is that of tests/conftest.py
JOBS ?= 3
test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
