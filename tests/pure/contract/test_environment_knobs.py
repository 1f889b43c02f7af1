"""Knobs that live in the environment: a host is started with each value, and forks read it back."""

import pytest

from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Knob
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Measured, NotApplied
from children import WORKLOADS, job_for
from factories import cpu_machine

PAIRS = [
    pytest.param(
        knob,
        value,
        id=f"{knob.name}={value}",
        marks=pytest.mark.long if value in ("tcmalloc", "active") else pytest.mark.real,
    )
    for knob in ALL_KNOBS
    if type(knob).environ is not Knob.environ
    for value in knob.suggestions(cpu_machine())
    if knob.environ(value)
]


@pytest.mark.parametrize(("knob", "value"), PAIRS)
def test_a_host_is_started_with_the_value_and_its_forks_read_it_back(knob, value, tmp_path):
    with SubprocessRunner(tmp_path / "inductor") as runner:
        job = job_for(WORKLOADS / "plain.py", {knob.name: value})
        outcome = runner.run(job, tmp_path / "trial")
    assert isinstance(outcome, Measured)
    launch = (tmp_path / "trial" / "launch").read_text()
    (name,) = knob.environ(value)
    assert launch == f"forked with {name}; dataset built anew: asked for\n"


@pytest.mark.real
def test_a_process_that_was_started_without_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    with SubprocessRunner(tmp_path / "inductor") as runner:
        outcome = runner.run(job_for(WORKLOADS / "plain.py"), tmp_path / "trial")
    assert outcome == NotApplied("omp_wait_policy", "null", "active")


def test_a_variable_that_is_set_already_is_part_of_the_baseline(monkeypatch):
    knob = next(knob for knob in ALL_KNOBS if knob.name == "omp_wait_policy")
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    assert knob.resolve(None, cpu_machine()) == "passive"
    assert knob.resolve("active", cpu_machine()) == "active"
