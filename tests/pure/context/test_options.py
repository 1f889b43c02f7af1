"""Options of a search: sorted into values by their flat names, and checked there."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from autotune.configuration.constraints import Tolerance
from autotune.context.options import Resources, SearchOptions, StudyOptions, WorkloadOptions
from factories import cpu_machine, cuda_machine

FOLDER = Path("studies") / "a"
GIVEN = {
    "model_path": Path("model.py"),
    "study": "a",
    "storage": None,
    "folder": FOLDER,
    "out": FOLDER / "best.yaml",
}
# Names of flags, and of what studies store for their workers.
RENAMED = {
    "run_samples": 1000,
    "time_budget_seconds": 60.0,
    "accuracy_tolerance": Tolerance(0.02, relative=True),
    "min_accuracy": 0.9,
    "accuracy_samples": 512,
}


def test_an_option_that_is_not_named_has_its_default():
    kept = StudyOptions("a", None, FOLDER, FOLDER / "best.yaml")
    assert SearchOptions.of(**GIVEN) == SearchOptions(WorkloadOptions(Path("model.py")), kept)


def test_flat_names_come_back():
    options = SearchOptions.of(**GIVEN, **RENAMED, trials=3)
    assert options.study.name == "a"
    assert (options.budget.seconds, options.accuracy.minimum) == (60.0, 0.9)
    assert options.flat().items() >= {**GIVEN, **RENAMED, "trials": 3}.items()
    assert SearchOptions.of(**options.flat()) == options


def test_a_flat_name_belongs_to_one_option():
    options = SearchOptions.of(**GIVEN)
    values = [getattr(options, value.name) for value in fields(options)]
    assert len(options.flat()) == sum(len(fields(value)) for value in values)


@pytest.mark.parametrize("names", [{**GIVEN, "trial": 3}, {"model_path": Path("model.py")}])
def test_names_that_are_unknown_or_missing_are_refused(names):
    with pytest.raises(TypeError, match=r"trial|name"):
        SearchOptions.of(**names)


def test_trials_on_the_cpu_share_its_memory_and_those_on_devices_do_not():
    resources = Resources(memory_headroom=0.5, at_once=2)
    cpu, cuda = cpu_machine(), cuda_machine()
    assert resources.bytes_per_trial(cpu) == cpu.memory_bytes // 4
    assert resources.bytes_per_trial(cuda) == cuda.memory_bytes // 2
    assert replace(resources, memory_limit_bytes=7).bytes_per_trial(cuda) == 7
    more = replace(resources, memory_limit_bytes=2 * cuda.memory_bytes)
    assert more.bytes_per_trial(cuda) == cuda.memory_bytes // 2
