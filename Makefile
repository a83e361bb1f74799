# Everything runs from .venv; see CONTRIBUTING.md.

PYTHON ?= python3
BOOTSTRAP := $(PYTHON) tools/bootstrap.py
BIN := .venv/bin
COSMIC_RAY := cosmic-ray==8.7.0 coverage==7.17.3  # not in the lock: only `make mutants` needs them
# Spark would take java and python3 from PATH; give it the Java that `make java` found and our Python.
WITH_SPARK = JAVA_HOME="$$($(BOOTSTRAP) java --home)" PYSPARK_PYTHON="$(CURDIR)/$(BIN)/python"

.DEFAULT_GOAL := help
.PHONY: help setup java demo test lint types check bench papers mutants lock clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## create or refresh .venv
	@$(BOOTSTRAP) venv

java: ## find Java, or install it where that is possible
	@$(BOOTSTRAP) java

demo: setup java ## a skewed query, static and then balanced, live (ARGS="--lanes 8" is passed on)
	@$(WITH_SPARK) $(BIN)/evenflow demo $(ARGS)

test: setup java ## run the tests (ARGS="-k name" is passed on)
	@$(WITH_SPARK) $(BIN)/pytest --numprocesses auto --dist loadgroup $(ARGS)

lint: setup ## check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup ## check types
	@$(BIN)/mypy

check: lint types test ## lint, types and test: what CI runs

bench: setup ## how good and how fast decisions are (ARGS="--quick" is passed on)
	@$(BIN)/python -m benchmarks.policies $(ARGS)

papers: setup java ## the papers' experiments (ARGS="run AF-E1", "all --quick", "cross", "report"; a list without)
	@$(WITH_SPARK) $(BIN)/python -m papers $(or $(ARGS),list)

mutants: setup ## mutation testing (ARGS="engine --sample 150 --seed 1": a package, mutants of it)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(COSMIC_RAY)
	@$(BIN)/python -m tools.mutants $(or $(ARGS),engine --sample 150)

lock: setup ## resolve requirements.lock again (ARGS=--upgrade for the newest versions)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-python-downloads --all-extras \
		--custom-compile-command "make lock" $(ARGS) pyproject.toml --output-file requirements.lock

clean: ## remove .venv, caches and build products
	@rm -rf .venv build dist .mutants .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse
	@find src papers tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
