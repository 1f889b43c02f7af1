"""Comparing two configurations, with timings that are known beforehand."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest
from scipy import stats

from autotune.comparison.compare import ComparisonOptions, Side, compare, side_of, still_holds
from autotune.comparison.rounds import PairedComparison
from autotune.configuration.best_config import write_best
from autotune.configuration.job import Inspect, Job
from autotune.configuration.training_config import TrainingConfig
from autotune.values.errors import AutotuneError, UsageError, WorkloadError
from autotune.values.outcome import Crashed, Inspected, Lost, Rejected, TrialOutcome, UserError
from factories import best_config, cpu_machine
from scripted_runner import FACTS, at

SMALL, LARGE = (TrainingConfig.of({"batch_size": size}) for size in (8, 64))


@dataclass
class Timing:
    """A runner that times by a function of the batch size, and remembers jobs and folders."""

    outcome: Callable[[int], TrialOutcome] = lambda batch: at(100 if batch == 8 else 150)
    inspected: TrialOutcome = field(default_factory=lambda: Inspected(cpu_machine(), FACTS))
    jobs: list[Job] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def run(self, job, folder):
        if isinstance(job.task, Inspect):
            return self.inspected
        assert job.config is not None
        self.jobs.append(job)
        self.names.append(folder.name)
        return self.outcome(int(job.config["batch_size"] or 0))


def options(b=SMALL, rounds=6):
    return ComparisonOptions(
        Path("model.py"), Side("large.yaml", LARGE), Side("small.yaml", b), rounds
    )


def compared(runner, asked, folder):
    return list(compare(asked, runner, folder))[-1]


def test_without_b_the_workloads_own_settings_are_the_other_side(tmp_path):
    runner = Timing()
    compared(runner, options(b=None), tmp_path)
    own = TrainingConfig.of(FACTS.baseline).resolved(cpu_machine())
    assert [job.config for job in runner.jobs].count(own.as_dict()) == 6


def test_both_take_turns_for_all_the_rounds(tmp_path):
    runner = Timing()
    compared(runner, options(rounds=8), tmp_path)
    assert [job.host for job in runner.jobs] == [f"round {n}" for n in range(8) for _ in range(2)]
    firsts = [name.partition("-")[2] for name in runner.names[::2]]
    assert sorted(firsts) == ["a"] * 4 + ["b"] * 4
    assert len(runner.jobs) == 16, "nothing is decided before the last round"


def test_each_process_builds_its_dataset_where_that_is_asked_for(tmp_path):
    compared(runner := Timing(), options(), tmp_path)
    assert not any(job.fresh_data for job in runner.jobs)
    compared(runner := Timing(), replace(options(), fresh_data=True), tmp_path)
    assert all(job.fresh_data for job in runner.jobs)


def test_the_same_settings_on_both_sides_are_not_mixed_up(tmp_path):
    comparison = compared(Timing(), options(b=LARGE), tmp_path)
    assert comparison.interval == pytest.approx((1, 1))
    assert not comparison.is_faster


@pytest.mark.parametrize(("batch", "label"), [(64, "large.yaml"), (8, "small.yaml")])
def test_the_side_that_fails_is_named_with_its_log(batch, label, tmp_path):
    failing = Timing(lambda b: Crashed("killed by SIGSEGV") if b == batch else at(100))
    with pytest.raises(WorkloadError, match=rf"{label}: killed by SIGSEGV\nWhole log: .*stderr"):
        compared(failing, options(), tmp_path)


def test_a_process_that_is_lost_twice_is_no_fault_of_the_workload(tmp_path):
    with pytest.raises(AutotuneError, match="disk full") as raised:
        compared(Timing(lambda _: Lost("disk full")), options(), tmp_path)
    assert raised.value.exit_code == 1


@pytest.mark.parametrize(
    ("inspected", "error"),
    [
        (Rejected("--device cuda:9 is not there"), UsageError),
        (UserError("ImportError: no", "model.py:1"), WorkloadError),
    ],
)
def test_a_workload_that_cannot_be_inspected_is_not_timed(inspected, error, tmp_path):
    runner = Timing(inspected=inspected)
    with pytest.raises(error):
        compared(runner, options(), tmp_path)
    assert runner.jobs == []


def test_a_side_is_the_configuration_of_a_file_or_the_workloads_own(tmp_path):
    write_best(best_config(LARGE, SMALL), tmp_path / "best.yaml")
    assert side_of(tmp_path / "best.yaml") == Side(str(tmp_path / "best.yaml"), LARGE, (1.45, 1.55))
    assert side_of(None).config is None
    write_best(best_config(SMALL, SMALL), tmp_path / "best.yaml")
    assert side_of(tmp_path / "best.yaml").confirmed is None, "kept settings promise no speed-up"


def rounds_of(*ratios):
    """A comparison of which only the ratios matter."""
    return PairedComparison(costs=tuple((ratio, 1.0) for ratio in ratios))


def rounds_between(low, high):
    """A comparison of twenty rounds with about this interval."""
    away = math.log(high / low) / 2 * math.sqrt(19) / float(stats.t.ppf(0.975, 19))
    middle = math.sqrt(low * high)
    return rounds_of(*[middle * (1 + away), middle * (1 - away)] * 10)


@pytest.mark.parametrize(
    ("low", "high", "confirmed", "holds"),
    [
        (1.40, 1.80, (1.33, 2.00), True),  # as it was
        (1.30, 1.34, (1.33, 2.00), True),  # less, but it may be the same
        (2.10, 2.30, (1.33, 2.00), True),  # more
        (1.10, 1.30, (1.33, 2.00), False),  # faster still, but not as it was
        (0.80, 1.40, (1.33, 2.00), False),  # nothing is left that could be shown
        (0.99, 1.90, (1.33, 2.00), True),  # a noisy day
        (0.99, 1.06, (1.01, 1.07), True),  # too small to be shown again in few rounds
        (0.97, 1.03, (1.01, 1.07), False),
        (0.80, 0.95, (1.01, 1.07), False),  # slower
        (0.97, 1.03, None, True),  # no speed-up was stated
        (0.90, 1.01, None, True),
        (0.80, 0.95, None, False),  # but that it is not slower
    ],
)
def test_a_confirmed_speed_up_holds_until_the_rounds_say_otherwise(low, high, confirmed, holds):
    comparison = rounds_between(low, high)
    assert comparison.interval == pytest.approx((low, high), rel=0.02)
    assert still_holds(comparison, confirmed) is holds


def noisy(speedup, random):
    """Nine rounds on a machine whose timings differ by some 8 % from one to the next."""
    return rounds_of(*(speedup * math.exp(random.gauss(0, 0.08)) for _ in range(9)))


def alarms(then, now):
    """Return how often a job fails where what was confirmed as `then` times as fast is `now`."""
    random, failed, confirmed = Random(0), 0, 0
    while confirmed < 1000:
        comparison = noisy(then, random)
        if comparison.is_faster:  # else there would be no answer
            confirmed += 1
            failed += not still_holds(noisy(now, random), comparison.interval)
    return failed / confirmed


def test_noise_seldom_fails_a_job_and_a_loss_mostly_does():
    assert alarms(1.5, 1.5) < 0.01
    assert alarms(1.2, 1.2) < 0.01
    assert alarms(1.05, 1.05) < 0.3, "what was barely confirmed was partly luck"
    assert alarms(1.5, 1.0) > 0.99
    assert alarms(1.5, 1.2) > 0.9
    assert alarms(1.2, 1.0) > 0.9
