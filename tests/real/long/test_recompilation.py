"""What a measurement rests on: compilations and the rate of a loader."""

import pytest

from asked_scripts import Ask, observed
from autotune.configuration.job import Measure, MeasurePlan
from autotune.process.runner import SubprocessRunner
from children import QUICK, WORKLOADS, job_for, measured, run_child


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


PACED = WORKLOADS / "paced_loader.py"
BATCH = 8
PER_WORKER = 500.0  # samples per second
LOADERS = [(1, 2), (2, 2), (2, 8)]


@pytest.mark.parametrize(("workers", "prefetch"), LOADERS)
def test_the_rate_of_a_loader_is_found_though_its_queue_was_full(
    workers, prefetch, runner, tmp_path
):
    settings = {"batch_size": BATCH, "num_workers": workers, "prefetch_factor": prefetch}
    job = job_for(PACED, settings, task=Measure(MeasurePlan()))
    rate = measured(runner.run(job, tmp_path)).samples_per_second
    assert rate == pytest.approx(workers * PER_WORKER, rel=0.05)
