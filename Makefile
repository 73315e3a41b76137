# Needs only Python >= 3.10 and make. `make help` lists the targets.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2
OUT    ?= runs/demo

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# One stamp for each set of packages: a target installs what it needs once, and again only when
# the requirements change.
BASE_STAMP := $(VENV)/.stamp-base
DEMO_STAMP := $(VENV)/.stamp-demo
DEV_STAMP  := $(VENV)/.stamp-dev
DOCS_STAMP := $(VENV)/.stamp-docs
REQUIREMENTS := pyproject.toml constraints.txt

# The development environment contains the demo's, so the demo reuses it where it exists.
DEMO_ENV := $(if $(wildcard $(DEV_STAMP)),$(DEV_STAMP),$(DEMO_STAMP))

.DEFAULT_GOAL := help
.PHONY: help demo test browser test-slow faults commit-checks format bench-admission bench-buffers docs docs-serve dev clean distclean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: $(DEMO_ENV)  ## Train SAC with all transitions, with FAC and with two small buffers; print a table, write plots
	$(BIN)/frugalrl demo --out $(OUT)

# A worker that a hanging test has ended is not replaced: xdist would wait for its tests for ever.
test: $(DEV_STAMP) browser  ## Run the tests and enforce the coverage gate
	$(BIN)/coverage erase
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --max-worker-restart 0 --cov --cov-report= --cov-fail-under=0
	@# Coverage cannot see inside compiled kernels, so their small tests run once more as plain Python.
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n $(JOBS) --max-worker-restart 0 -m pure_python --cov --cov-append --cov-report= --cov-fail-under=0
	$(BIN)/coverage report

# The report's tests look at it in a real browser, and are skipped where there is none.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing Chromium for the report's tests ..."; \
			export DEBIAN_FRONTEND=noninteractive; \
			{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1; \
		fi; \
		command -v chromium >/dev/null \
			|| echo "No Chromium: the report's browser tests are skipped (on Debian: apt-get install chromium)"; \
	}

test-slow: $(DEV_STAMP)  ## Run the tests that take minutes
	$(BIN)/python -m pytest -m slow -o faulthandler_timeout=1800

faults: $(DEV_STAMP)  ## Try what a fault must never do, the long cases too, and print a table of cases
	$(BIN)/python -m pytest -n $(JOBS) --max-worker-restart 0 -m "slow or not slow" -o faulthandler_timeout=1800 --faults-table tests/faults

commit-checks: $(DEV_STAMP)  ## Check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(DEV_STAMP)  ## Format the code and repair what the linter can repair
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench-admission: $(DEV_STAMP)  ## Measure the cost of a decision against scikit-learn's density
	$(BIN)/python benchmarks/admission.py

bench-buffers: $(DEV_STAMP)  ## Measure bytes and time of a transition against other replay buffers
	$(BIN)/python benchmarks/buffers.py

docs: $(DOCS_STAMP)  ## Build the documentation into site/, refusing broken links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: $(DOCS_STAMP)  ## Serve the documentation while editing it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

dev: $(DEV_STAMP)  ## Install the development environment

clean:  ## Remove caches and builds
	rm -rf build dist site htmlcov .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## Remove the virtual environment too
	rm -rf $(VENV)

$(BASE_STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "Frugal needs Python 3.10 or newer; choose one with: make PYTHON=python3.11 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
		|| { echo "Could not create $(VENV); on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@touch $@

$(DEMO_STAMP): $(REQUIREMENTS) | $(BASE_STAMP)
	@echo "Installing Frugal with its training extra into $(VENV) ..."
	$(PIP) -e ".[train]"
	@touch $@

$(DEV_STAMP): $(REQUIREMENTS) | $(BASE_STAMP)
	@echo "Installing the development environment into $(VENV); the first time takes a few minutes ..."
	$(PIP) -e ".[dev]"
	@touch $@

$(DOCS_STAMP): $(REQUIREMENTS) | $(BASE_STAMP)
	@echo "Installing the documentation tools into $(VENV) ..."
	$(PIP) -e ".[docs]"
	@touch $@
