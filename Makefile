# Two commands do all set-up: `make testbed` (the testbed run) and `make test`.
# The first of these that is installed.
PYTHON ?= $(firstword $(foreach version,3.11 3.12 3.13,$(shell command -v python$(version) 2>/dev/null)) python3.11)
VENV   ?= .venv
POLICY ?=
ENGINE ?= local
OUT    ?= out/testbed
MIX    ?= conf/testbed/$(if $(filter yarn,$(ENGINE)),yarn,main).yaml
BIN    := $(VENV)/bin

.PHONY: setup testbed test test-unit test-slow test-hadoop stack stack-down test-stack test-docker test-soak test-chaos test-mutants test-nightly lint audit-deps wire docs docs-site clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt setup.py $(wildcard rm_plugin/solvers/exact/core/*) $(wildcard am/agent/core/*)
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 to 3.13, or name another with PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[tf,dev]'
	touch $@

testbed: setup
	@exec $(BIN)/themis testbed run $(MIX) $(addprefix --policy ,$(POLICY)) --engine $(ENGINE) --out $(OUT)

# In three processes on two cores, as many tests wait for programs that they started. A file's tests stay together, with
# their fixtures. Files begin in their order: by the number of tests, as pytest-xdist has it, those that take longest
# would come last.
BY_FILE := -n 3 --dist loadfile --no-loadscope-reorder

test: setup lint
	@exec $(BIN)/python -m pytest $(BY_FILE) -m "not slow and not hadoop and not stack and not docker"

# On another Python, in an environment of its own: make test-unit PYTHON=python3.13 VENV=.venv-3.13
test-unit: setup
	@exec $(BIN)/python -m pytest $(BY_FILE) -m "not slow" tests/unit tests/golden

# The files that have tests with a mark. Collecting all tests would take half a minute.
marked = $(shell grep -rl --include='test_*.py' 'mark\.$(1)' tests | sort)

# Tests that measure how long something takes run after the others, by themselves. The others share no fixtures that
# take long, so each goes to the process that is free: half of them are in one file.
test-slow: setup
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "slow and not alone and not nightly" $(call marked,slow)
	$(BIN)/python -m pytest -m "slow and alone and not nightly" $(call marked,alone)

# Short apps over months of virtual time, with a ResourceManager that is killed now and then; prints what it measures.
SOAK_APPS ?= 30000
test-soak: setup
	@THEMIS_SOAK_APPS=$(SOAK_APPS) exec $(BIN)/python -m pytest -s -m slow tests/soak

# Random faults under load, about a quarter of an hour; prints how long the service was unavailable. The seed decides the faults.
CHAOS_KILLS ?= 300
CHAOS_OUTAGES ?= 60
CHAOS_SEED ?= 0
# Of the active of two ResourceManagers, in a run of its own.
CHAOS_STANDBY_KILLS ?= 20
# Or yarn, a development cluster of Hadoop, which takes several times as long for each fault.
CHAOS_ENGINE ?= local
test-chaos: setup
	@THEMIS_CHAOS_KILLS=$(CHAOS_KILLS) THEMIS_CHAOS_OUTAGES=$(CHAOS_OUTAGES) THEMIS_CHAOS_SEED=$(CHAOS_SEED) \
	    THEMIS_CHAOS_ENGINE=$(CHAOS_ENGINE) THEMIS_STANDBY_KILLS=$(CHAOS_STANDBY_KILLS) \
	    exec $(BIN)/python -m pytest -s -m slow tests/chaos

# Small changes of the core modules, drawn by a seed; prints those that no test notices. A minute or two for each.
MUTANTS ?= 200
MUTANTS_SEED ?= 0
test-mutants: setup
	@exec $(BIN)/python tools/mutants.py --number $(MUTANTS) --seed $(MUTANTS_SEED) --least 0.9

# Against real daemons of Hadoop (docs/how-to/devcluster.md), a cluster for each of three processes, of 1 GB each; needs
# Java and Maven, and fails without them where CI is set. tests/hadoop/conftest.py says which tests stay together.
BY_GROUP := -n 3 --dist loadgroup --no-loadscope-reorder

test-hadoop: setup
	@exec $(BIN)/python -m pytest $(BY_GROUP) tests/hadoop -m "hadoop and not nightly"

# What takes long and changes seldom (CONTRIBUTING.md lists it); needs what test-slow and test-hadoop need.
test-nightly: setup
	$(BIN)/python -m pytest -m "nightly and not hadoop" $(call marked,nightly)
	$(BIN)/python -m pytest $(BY_GROUP) tests/hadoop -m "hadoop and nightly"

# The containers of docker-compose.yml (docs/how-to/stack.md); needs nothing but Docker.
stack:
	docker compose up -d --build --wait

stack-down:
	docker compose down -v

# Starts a stack of its own, beside one that may be running; without Docker it is skipped, or fails where CI is set.
test-stack: setup
	@exec $(BIN)/python -m pytest tests/stack -m stack

# Against a Docker engine (docs/how-to/docker.md): builds an image without TensorFlow; without an engine it is skipped, and says so.
test-docker: setup
	@exec $(BIN)/python -m pytest tests/docker -m docker

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Known holes of dependencies, by the JSON API of PyPI; needs a network. In an environment of its own, so that nothing
# of the tool is installed beside what it audits. Strict: a version that the index does not know fails.
audit-deps:
	$(PYTHON) -m venv out/audit-deps
	out/audit-deps/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	out/audit-deps/bin/pip-audit --strict --disable-pip --no-deps --requirement constraints.txt

# The generated wire code is committed; a test compares it with its source.
wire: setup
	$(BIN)/python tools/generate_wire.py

# Tables and figures in the documentation that come from the code; a test compares them with it.
docs: setup
	$(BIN)/python tools/generate_docs.py

# The site of the documents, in out/site. A warning is an error: a broken link or anchor fails.
docs-site: setup
	@$(BIN)/python -c "import sphinx" 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@exec $(BIN)/python -m sphinx -q -E -a -W --keep-going -c docs . out/site

clean:
	rm -rf out .pytest_cache .mypy_cache .ruff_cache .hypothesis
