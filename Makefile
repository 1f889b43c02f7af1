# Two commands do everything: `make demo` and `make test`. Each creates .venv by itself; a second run installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
MODEL ?= studies/digits_cnn/model.py
READER ?= best.yaml

.PHONY: demo test test-long fuzz check format docs docs-pictures bench-startup bench-overhead bench-run bench-same bench-reproduction bench-report bench-studies bench-search bench-scaling clean

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev,examples,hf,lightning,timm,browser,postgres]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/autotune search $(MODEL) --space quick

# Two at a time, a file each: most of a test is waiting for a process that it started.
test: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile

# Fifty times as many generated inputs as `test`, and a search that is killed at 200 random moments instead of 20.
test-long: $(INSTALLED)
	$(BIN)/python -m pytest --hypothesis-profile=long tests/property tests/unit/test_strict_yaml.py
	AUTOTUNE_KILLS=200 $(BIN)/python -m pytest tests/integration/test_kills.py tests/integration/test_real_kills.py

fuzz: $(INSTALLED)
	$(BIN)/python -m pip install --quiet atheris
	PYTHONPATH=tests $(BIN)/python tests/fuzz.py $(READER) -max_total_time=60

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

# Needs chromium. With STUDY=folder the search is kept there, and drawn again the next time.
docs-pictures: $(INSTALLED)
	$(BIN)/python docs/pictures.py $(if $(STUDY),--study $(STUDY))

bench-startup: $(INSTALLED)
	$(BIN)/python benchmarks/startup.py

bench-overhead: $(INSTALLED)
	$(BIN)/python benchmarks/overhead.py

bench-run: $(INSTALLED)
	$(BIN)/python benchmarks/run_overhead.py
	for script in plain_loop hf_trainer lightning_fit; do $(BIN)/python benchmarks/run_throughput.py $$script || exit; done

bench-same: $(INSTALLED)
	$(BIN)/python benchmarks/same_settings.py

bench-reproduction: $(INSTALLED)
	$(BIN)/python benchmarks/reproduction.py

bench-report: $(INSTALLED)
	$(BIN)/python benchmarks/report.py

bench-studies: $(INSTALLED)
	$(BIN)/python benchmarks/example_studies.py

# Each search is one process: linear algebra of its own threads would only be in the way.
bench-search: $(INSTALLED)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/search.py
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/budget.py

bench-scaling: $(INSTALLED)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/scaling.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache dist
