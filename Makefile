# Two commands do everything: `make demo` and `make test`. Each creates .venv by itself; a second run installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
MODEL ?= studies/digits_cnn/model.py

.PHONY: demo test test-long check format docs bench-startup bench-overhead bench-same bench-reproduction bench-studies bench-search bench-scaling clean

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev,examples,postgres]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/autotune search $(MODEL) --space quick

test: $(INSTALLED)
	$(BIN)/python -m pytest

# Kills a search at 200 random moments instead of 20.
test-long: $(INSTALLED)
	AUTOTUNE_KILLS=200 $(BIN)/python -m pytest tests/integration/test_kills.py

# `test` runs as a second make so that the suite comes last, after every quick check has passed.
check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) --no-print-directory test

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(INSTALLED)
	$(BIN)/python -m autotune.knobs.page > docs/knobs.md

bench-startup: $(INSTALLED)
	$(BIN)/python benchmarks/startup.py

bench-overhead: $(INSTALLED)
	$(BIN)/python benchmarks/overhead.py

bench-same: $(INSTALLED)
	$(BIN)/python benchmarks/same_settings.py

bench-reproduction: $(INSTALLED)
	$(BIN)/python benchmarks/reproduction.py

bench-studies: $(INSTALLED)
	$(BIN)/python benchmarks/example_studies.py

# Each search is one process: linear algebra of its own threads would only be in the way.
bench-search: $(INSTALLED)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/search.py

bench-scaling: $(INSTALLED)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/scaling.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache dist
