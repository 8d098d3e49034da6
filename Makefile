# Two commands do everything on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CHAIN  ?= biomed
# Test processes at once, two more than cores, since many tests wait for servers; 1 for one after the other.
JOBS   ?= 4
STATE  := $(CURDIR)/.dagster_home
BENCHMARKS := link_quality links recommenders sequence_quality conve hgt health

.PHONY: setup demo test test-long ui check lint types docs pages format bench bench-report release tensorboard clean

setup: $(VENV)/.installed
$(VENV)/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(STATE)/dagster.yaml: dagster.yaml
	@mkdir -p $(STATE) && cp dagster.yaml $@

# Only where history is to be kept: the tests have instances of their own.
demo ui: export DAGSTER_HOME := $(STATE)

demo: setup $(STATE)/dagster.yaml  ## run the whole sample chain through Dagster and print the results
	@$(BIN)/python -m graphmill.orchestration.demo $(CHAIN)

ui: setup $(STATE)/dagster.yaml  ## webserver and daemon on http://localhost:3000
	@$(BIN)/python -m graphmill.orchestration.ui

test: setup
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not long"

test-long: setup  ## storms and long matrices, which `make test` leaves out
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m long

check: lint types docs  ## what needs no run: style, imports, types, the site; `make -j2 check` does two at once

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

types: setup
	@$(BIN)/mypy

docs: setup  ## the site into build/site; a broken link or a page that no menu names is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pages: setup  ## write the pages that are made from the code: settings, health checks, commands, HTTP, folders
	@for page in settings checks commands http_api folders; do $(BIN)/python .ci/$${page}_page.py || exit 1; done

format: setup
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup  ## the main benchmarks one after the other (hours); one that fails does not stop those after it
	@failed=; for b in $(BENCHMARKS); do echo "== $$b"; $(BIN)/python -m benchmarks.$$b --json || failed="$$failed $$b"; done; \
	test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

bench-report: setup  ## one line for each file of committed results, then the rows that miss their target
	@$(BIN)/python -m benchmarks

release: setup  ## sdist and wheel into dist/, tried in an empty environment; notes from CHANGELOG.md. Uploads nothing
	@$(BIN)/python .ci/release.py --tag "$(TAG)"

tensorboard: setup
	@$(BIN)/tensorboard --logdir data/06_models

clean:
	rm -rf $(VENV) .dagster_home .pytest_cache .mypy_cache .ruff_cache
