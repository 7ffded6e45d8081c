# Everything a newcomer needs: `make demo`, `make test`. Both set up .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test release portable checks lint types check-imports docs unit browser slow format bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   set up and run everything on a cohort of drawn slides: minutes, offline, a report at the end"
	@echo "make test   set up, then lint, types, import rules and tests (what CI runs)"
	@echo "make unit ROOM=models   the tests of one room; make browser   those of the viewer in Chromium"
	@echo "make slow   the tests that take minutes each, which CI leaves out"
	@echo "make release   build and try wheels, sdist and containers, as far as this machine has the tools; make portable imitates Windows and macOS"
	@echo "make bench  the benchmark scripts (minutes); make docs, make format, make clean"

$(STAMP): pyproject.toml constraints.txt hatch_build.py $(wildcard src/panther/statistics/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python >= 3.11 is needed: make PYTHON=/path/to/python3.12 ..."; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/panther demo -o demo
	@echo "(the command is $(BIN)/panther; once more: $(BIN)/panther view demo)"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

check-imports: $(STAMP)
	$(BIN)/lint-imports

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

unit: $(STAMP)
	$(BIN)/pytest -n 2 --dist worksteal $(ROOM:%=tests/unit/%)

browser: $(STAMP)
	$(BIN)/pytest -n 2 --dist loadfile tests/browser

slow: $(STAMP)
	$(BIN)/pytest -n 2 -m slow

PORTABLE := engine/test_engine.py storage study/test_run.py viewer/test_serve.py encoders/test_extract.py cli/test_from_slide_to_embedding.py explain/test_map_command.py
portable: $(STAMP)
	PYTHONPATH=tests/portable $(BIN)/pytest -n 2 --ignore tests/unit/storage/test_isolated.py $(PORTABLE:%=tests/unit/%)

release: $(STAMP)
	packaging/check.sh

test: checks unit

checks: $(STAMP)
	@$(MAKE) --no-print-directory -j2 lint types check-imports docs

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python docs/skill.py

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	for script in embed huge_slide kmeans aggregators learning scaling study mil slides map claims size; do $(BIN)/python benchmarks/$$script.py || exit 1; done

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
