# Two commands do all set-up: `make testbed` (the main job) and `make test`.
PYTHON ?= python3.11
VENV   ?= .venv
POLICY ?= themis
OUT    ?= out/testbed
MIX    ?= conf/testbed/main.yaml
BIN    := $(VENV)/bin

.PHONY: setup testbed test test-slow lint wire docs clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt setup.py $(wildcard rm_plugin/solvers/exact/core/*)
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11, or name another with PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[tf,plots,dev]'
	touch $@

testbed: setup
	@exec $(BIN)/themis testbed run $(MIX) --policy $(POLICY) --out $(OUT)

test: setup lint
	@exec $(BIN)/python -m pytest -m "not slow"

test-slow: setup
	@exec $(BIN)/python -m pytest -m slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The generated wire code is committed; a test compares it with its source.
wire: setup
	$(BIN)/python tools/generate_wire.py

# Tables and figures in the documentation that come from the code; a test compares them with it.
docs: setup
	$(BIN)/python tools/generate_docs.py

clean:
	rm -rf out .pytest_cache .mypy_cache .ruff_cache .hypothesis
