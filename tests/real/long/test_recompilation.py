"""Compilations are counted as the compiler itself reports them, whoever asked for them."""

import pytest

from asked_scripts import Ask, observed
from autotune.configuration.job import Measure
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Measured
from children import QUICK, WORKLOADS, job_for, run_child


def measured(outcome):
    assert isinstance(outcome, Measured), outcome
    return outcome.measurement


@pytest.mark.parametrize(
    ("workload", "settings"),
    [("recompiles.py", {"compile_mode": "default"}), ("compiles_itself.py", {})],
)
def test_a_model_that_is_compiled_again_while_it_is_timed_is_flagged(workload, settings, tmp_path):
    run = measured(run_child(tmp_path, job_for(WORKLOADS / workload, settings)))
    assert "recompiled" in run.flags
    assert run.one_time_seconds >= run.compile_seconds > 0
    slowest = max(block.seconds for block in run.blocks)
    assert slowest < run.compile_seconds, "no block that counts holds a compilation"


@pytest.mark.parametrize(
    ("when", "flags"), [("once", {"recompiled"}), ("in every step", {"recompiled", "unsteady"})]
)
def test_a_script_that_compiles_by_itself_is_watched(when, flags, tmp_path):
    with SubprocessRunner(tmp_path / "inductor") as runner:
        ask = Ask(runner, tmp_path / "trial")
        seen = observed(ask("recompiles.py", when))
        run = measured(ask("recompiles.py", when, task=Measure(QUICK), settings={}))
    assert flags <= set(run.flags)
    assert ("unsteady" in run.flags) == ("unsteady" in flags)
    assert (seen.recompilations > 0) == ("unsteady" in flags)
    assert run.one_time_seconds >= run.compile_seconds > 0
