"""Comparing two configurations, with timings that are known beforehand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autotune.config import TrainingConfig
from autotune.errors import AutotuneError, UsageError, WorkloadError
from autotune.job import Inspect, Job
from autotune.outcome import Crashed, Inspected, Lost, Rejected, TrialOutcome, UserError
from autotune.progress import comparison_line, comparison_result
from autotune.tuning.confirming.compare import ComparisonOptions, Side, compare, side_of
from autotune.tuning.confirming.rounds import Duel
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

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        if isinstance(job.task, Inspect):
            return self.inspected
        assert job.config is not None
        self.jobs.append(job)
        self.names.append(folder.name)
        return self.outcome(int(job.config["batch_size"] or 0))


def options(b: TrainingConfig | None = SMALL, rounds: int = 6) -> ComparisonOptions:
    return ComparisonOptions(
        Path("model.py"), Side("large.yaml", LARGE), Side("small.yaml", b), rounds
    )


def compared(runner: Timing, asked: ComparisonOptions, folder: Path) -> Duel:
    return list(compare(asked, runner, folder))[-1]


def test_the_ratio_is_that_of_a_over_b(tmp_path: Path) -> None:
    duel = compared(Timing(), options(), tmp_path)
    assert duel.ratio == pytest.approx(1.5)
    assert duel.is_faster


def test_without_b_the_workloads_own_settings_are_the_other_side(tmp_path: Path) -> None:
    runner = Timing()
    compared(runner, options(b=None), tmp_path)
    own = TrainingConfig.of(FACTS.baseline).resolved(cpu_machine())
    assert [job.config for job in runner.jobs].count(own.as_dict()) == 6


def test_both_take_turns_for_all_the_rounds(tmp_path: Path) -> None:
    runner = Timing()
    compared(runner, options(rounds=8), tmp_path)
    assert [job.host for job in runner.jobs] == [f"round {n}" for n in range(8) for _ in range(2)]
    firsts = [name.partition("-")[2] for name in runner.names[::2]]
    assert sorted(firsts) == ["a"] * 4 + ["b"] * 4
    assert len(runner.jobs) == 16, "nothing is decided before the last round"


def test_the_same_settings_on_both_sides_are_not_mixed_up(tmp_path: Path) -> None:
    duel = compared(Timing(), options(b=LARGE), tmp_path)
    assert duel.interval == pytest.approx((1, 1))
    assert not duel.is_faster


@pytest.mark.parametrize(("batch", "label"), [(64, "large.yaml"), (8, "small.yaml")])
def test_the_side_that_fails_is_named_with_its_log(batch: int, label: str, tmp_path: Path) -> None:
    failing = Timing(lambda b: Crashed("killed by SIGSEGV") if b == batch else at(100))
    with pytest.raises(WorkloadError, match=rf"{label}: killed by SIGSEGV\nWhole log: .*stderr"):
        compared(failing, options(), tmp_path)


def test_a_process_that_is_lost_twice_is_no_fault_of_the_workload(tmp_path: Path) -> None:
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
def test_what_cannot_be_inspected_is_not_timed(
    inspected: TrialOutcome, error: type[AutotuneError], tmp_path: Path
) -> None:
    runner = Timing(inspected=inspected)
    with pytest.raises(error):
        compared(runner, options(), tmp_path)
    assert runner.jobs == []


def test_a_side_is_the_configuration_of_a_file_or_the_workloads_own(tmp_path: Path) -> None:
    from autotune.best import write_best

    write_best(best_config(LARGE, SMALL), tmp_path / "best.yaml")
    assert side_of(tmp_path / "best.yaml") == Side(str(tmp_path / "best.yaml"), LARGE)
    assert side_of(None).config is None


def test_the_result_is_one_sentence_and_one_json_object(tmp_path: Path) -> None:
    duel = compared(Timing(), options(), tmp_path)
    sentence = comparison_line(options(), duel)
    assert sentence == "large.yaml is 1.50x small.yaml (1.50 to 1.50, 6 rounds)"
    result = json.loads(comparison_result(options(), duel))
    assert result["ratio"] == pytest.approx(1.5)
    assert (result["rounds"], len(result["ratios"])) == (6, 6)
    assert result["confirmed_faster"] is True
    assert result["a"]["samples_per_second"] == pytest.approx(150)
    assert result["b"]["settings"] == "small.yaml"
