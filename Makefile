# `make demo`, `make test` and `make check` create .venv, each with what it needs; a second run installs nothing.
PYTHON ?= python3
VENV := .venv
OLDEST := .venv-oldest
BIN := $(VENV)/bin
# Installed so far: the core with the examples, the tools of the tests, everything.
CORE := $(VENV)/.installed-core
TEST := $(VENV)/.installed-test
ALL := $(VENV)/.installed-all
ZOO := $(VENV)/.installed-zoo
# Libraries of the zoo's scripts that nothing else here needs. Their versions do not conflict.
LIBRARIES := fastai segmentation-models-pytorch skorch stable-baselines3 torch_geometric
# Holds pip to a torch that the environment shares; empty otherwise.
CONSTRAINTS := $(VENV)/constraints.txt
# A file of versions to install, such as .ci/constraints.txt; the newest that fit without one.
LOCK ?=
HOLD = --constraint $(CONSTRAINTS) $(if $(LOCK),--constraint $(LOCK))
# Dependency groups need this pip; a newer one stays.
PIP = -m pip install --quiet 'pip>=25.1'
INSTALL = $(BIN)/python $(PIP) && $(BIN)/python -m pip install --quiet $(HOLD)
# Optional packages that tests import; the others are skipped where they are missing.
TESTED := '.[dashboard,samplers,torch]'
comma := ,
OLDEST_TORCH ?= 2.11.0
MODEL ?= studies/digits_cnn/model.py

.PHONY: demo test test-real test-promises test-long long-rule long-all long-property long-kills long-goldens test-oldest check lock format docs site docs-pictures bench-startup bench-overhead bench-run bench-same bench-reproduction bench-install bench-report bench-studies bench-search bench-scaling zoo clean
.DELETE_ON_ERROR:

$(CONSTRAINTS):
	$(PYTHON) -m venv $(VENV)
	$(if $(SHARED),$(PYTHON) .ci/shared_torch.py $(VENV),printf '') > $@

$(CORE): pyproject.toml | $(CONSTRAINTS)
	$(INSTALL) --editable '.[torch]' --group examples
	touch $@

$(TEST): pyproject.toml | $(CONSTRAINTS)
	$(INSTALL) --editable $(TESTED) --group examples --group test
	touch $(CORE) $@

$(ALL): pyproject.toml | $(CONSTRAINTS)
	$(INSTALL) --editable '.[all,torch]' $(foreach group,examples test check frameworks browser site,--group $(group))
	touch $(CORE) $(TEST) $@

$(ZOO): $(ALL)
	$(INSTALL) $(LIBRARIES)
	touch $@

# A new environment for the demo uses the packages of PYTHON where its torch will do. Tests get one of their own.
demo: SHARED := yes
demo: $(CORE)
	$(BIN)/autotune search $(MODEL) --space quick

# What trains nothing, and one search of a model.py and of a script: tests/tiers.py. Reports lie in build/.
test: $(TEST)
	$(BIN)/python tests/run_tests.py test -m 'not real and not long'

# The promises with real processes.
test-real: $(TEST)
	$(BIN)/python tests/run_tests.py real -m 'real and not long'

# Both at once, as `check` runs them. Each row of docs/dev/reliability.md has a test that ran and passed.
test-promises: $(TEST)
	$(BIN)/python tests/run_tests.py promises -m 'not long'
	$(BIN)/python tests/covering.py check build/promises*.xml

# All that those leave out. Then a hundred times as many generated inputs, a search that is killed at 200 random moments
# instead of 10, and five seeds of each golden.
test-long: $(ALL)
	$(MAKE) --no-print-directory --keep-going long-rule long-all long-property long-kills long-goldens
	$(BIN)/python tests/covering.py check-long build/long*.xml

long-all:
	$(BIN)/python tests/run_tests.py long -m long --ignore=tests/real/long/test_shipped_rule.py

# Alone, since it times whole searches; once, since a second run would halve what it can show.
long-rule:
	$(BIN)/python -m pytest -m long --junitxml=build/long-rule.xml tests/real/long/test_shipped_rule.py

long-property:
	$(BIN)/python tests/run_tests.py long-property --hypothesis-profile=long tests/pure/property tests/pure/values/test_strict_yaml.py

long-kills:
	AUTOTUNE_KILLS=200 $(BIN)/python tests/run_tests.py long-kills -m '' tests/real/kills/test_real_kills.py

long-goldens:
	AUTOTUNE_GOLDEN_SEEDS=5 $(BIN)/python tests/run_tests.py long-goldens -m '' tests/repo/long/test_goldens.py

# The private names of torch and every knob, on the oldest torch that a search allows: 5 GB of its own. With
# OLDEST_TORCH=2.6.0 on the oldest to which settings are applied.
test-oldest:
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python $(PIP)
	$(OLDEST)/bin/python -m pip install --quiet torch==$(OLDEST_TORCH) --editable $(subst $(comma)torch,,$(TESTED)) --group test
	$(OLDEST)/bin/python -m pytest -m '' --junitxml=build/oldest.xml tests/pure/contract

# As .ci/run does. The tests run as a second make, after every quick check.
check: $(ALL)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/deptry autotune
	$(MAKE) --no-print-directory test-promises

# The versions of everything that is installed, for CI. Run it after `make clean check`.
lock: $(ALL)
	$(BIN)/python .ci/versions.py locked > .ci/constraints.txt

format: $(ALL)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(CORE)
	$(BIN)/python docs/knobs_page.py > docs/reference/settings.md
	$(BIN)/python docs/best_yaml_page.py > docs/reference/best-yaml.md
	$(BIN)/python -m benchmarks.page
	$(BIN)/python docs/results.py
	$(BIN)/python tests/covering.py

# Pages, command line and docstrings as one site; a link within it that leads nowhere is an error.
site: $(ALL)
	$(BIN)/python -m sphinx -E -W --keep-going -q docs build/site

# Needs chromium. With STUDY=folder the search is kept there, and drawn again the next time; with
# REPLAY=1 it is replayed from recorded timings.
docs-pictures: $(ALL)
	$(BIN)/python docs/pictures.py $(if $(REPLAY),--replay) $(if $(STUDY),--study $(STUDY))

bench-startup: $(CORE)
	$(BIN)/python -m benchmarks.startup

bench-overhead: $(CORE)
	$(BIN)/python -m benchmarks.overhead

bench-run: $(ALL)
	$(BIN)/python -m benchmarks.run_overhead
	for script in plain_loop hf_trainer lightning_fit; do $(BIN)/python -m benchmarks.run_throughput $$script || exit; done

bench-same: $(CORE)
	$(BIN)/python -m benchmarks.same_settings

bench-reproduction: $(CORE)
	$(BIN)/python -m benchmarks.reproduction

# With --torch and --demo it downloads gigabytes.
bench-install: $(CORE)
	$(BIN)/python -m benchmarks.install

bench-report: $(CORE)
	$(BIN)/python -m benchmarks.report

bench-studies: $(CORE)
	$(BIN)/python -m benchmarks.example_studies

zoo: $(ZOO)
	$(BIN)/python -m benchmarks.zoo --by-hand

# Each search is one process: linear algebra of its own threads would only be in the way.
bench-search: $(CORE)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.search
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.budget

bench-scaling: $(ALL)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.scaling

clean:
	rm -rf $(VENV) $(OLDEST) .mypy_cache .ruff_cache .pytest_cache build dist
