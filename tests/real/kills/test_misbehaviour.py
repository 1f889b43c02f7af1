"""Workloads and machines that get in the way of a timing: survived, and said."""

from dataclasses import replace
from statistics import median

from autotune.configuration.job import Measure, MeasurePlan
from autotune.values.measurement import QUIET
from autotune.values.outcome import Measured, NotApplied, UserError
from children import WORKLOADS, job_for
from covering import covers

SLEPT_SECONDS = 0.002  # as in workloads/synchronises.py
PLAN = Measure(MeasurePlan(warmup_steps=5, block_seconds=0.1, looks=(6,), max_seconds=3.0))


def outcome_of(workload, runner, folder):
    return runner.run(job_for(WORKLOADS / f"{workload}.py", task=PLAN), folder)


@covers("T18")
def test_a_flag_that_is_changed_after_the_warm_up_is_noticed(runner, tmp_path):
    outcome = outcome_of("changes_flags_late", runner, tmp_path)
    assert outcome == NotApplied("cudnn_benchmark", "false", "true")


def test_a_sample_that_cannot_be_read_late_in_the_dataset_is_the_users(runner, tmp_path):
    outcome = outcome_of("late_damage", runner, tmp_path)
    assert isinstance(outcome, UserError)
    assert outcome.detail == "OSError: sample 1000 cannot be read"
    assert outcome.where.startswith(str(WORKLOADS / "late_damage.py"))


@covers("R14")
def test_a_trial_that_is_stopped_for_a_while_is_not_slower_for_it(runner, tmp_path):
    outcome = outcome_of("stops_itself", runner, tmp_path)
    assert isinstance(outcome, Measured)
    # Whatever else this machine does meanwhile is left out of account.
    blocks = [b if b.noise.stopped else replace(b, noise=QUIET) for b in outcome.measurement.blocks]
    run = replace(outcome.measurement, blocks=tuple(blocks))
    stopped = [block for block in run.blocks if block.noise.stopped]
    assert len(stopped) == 1
    assert not any(block.noise.stopped for block in run.telling_blocks)
    assert stopped[0].seconds > 3 * median(block.seconds for block in run.telling_blocks)


def test_a_workload_that_synchronises_itself_is_measured_with_what_that_costs(runner, tmp_path):
    outcome = outcome_of("synchronises", runner, tmp_path)
    assert isinstance(outcome, Measured)
    run = outcome.measurement
    assert len(run.telling_blocks) >= 6
    # Its 2 ms are slept in every step of eight samples, so none is shorter than that.
    fastest = min(block.seconds_per_sample for block in run.blocks)
    assert 8 * fastest >= SLEPT_SECONDS
