"""The limits in best.yaml: each stage alone at its settings, and its use of the arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.configuration.best_config import BestConfig, read_best
from autotune.configuration.job import FindLimits
from autotune.configuration.training_config import TrainingConfig
from autotune.processes.runner import SubprocessRunner
from autotune.searching.search import search
from autotune.values.outcome import Lost, TrialOutcome
from autotune.values.stages import SpeedLimits
from children import WORKLOADS
from factories import cpu_machine, in_turns
from hurried_runner import HurriedRunner
from scripted_runner import ScriptedRunner, at, batch_of, changed, events_of, options_in

ARITHMETIC = {"flops_per_sample": 1e6, "number_format": "float32"}


def in_proportion(config: TrainingConfig, phase: str) -> TrialOutcome:
    return at(100.0 * batch_of(config) / 8)


def answer_of(folder: Path, runner: ScriptedRunner, trials: int = 5) -> BestConfig:
    events_of(options_in(folder, trials=trials), runner)
    return read_best(folder / "best.yaml")


def tasks(runner: ScriptedRunner) -> list[FindLimits]:
    return [job.task for job in runner.jobs if isinstance(job.task, FindLimits)]


def test_a_stage_that_was_timed_slower_than_training_is_left_out(tmp_path: Path) -> None:
    slower = ScriptedRunner(in_proportion, limits=lambda task: in_turns((0.9,) * 6))
    limits = answer_of(tmp_path, slower).evidence.limits
    assert limits is not None
    assert limits.compute is None
    assert limits.loader == 16_000


def test_where_the_stages_cannot_be_timed_there_are_no_limits(tmp_path: Path) -> None:
    lost = ScriptedRunner(in_proportion, limits=lambda task: Lost("the process died"))
    assert answer_of(tmp_path, lost).evidence.limits is None


def test_the_rate_of_products_is_measured_once_for_a_study(tmp_path: Path) -> None:
    def limits(task: FindLimits) -> SpeedLimits:
        known = "float32" in task.known_formats
        return in_turns(**ARITHMETIC, matmul_flops_per_second=None if known else 4e9)

    first = ScriptedRunner(in_proportion, limits=limits)
    found = answer_of(tmp_path, first, trials=4).evidence.limits
    assert found is not None
    assert found.matmul_flops_per_second == 4e9
    again = ScriptedRunner(in_proportion, limits=limits)
    continued = answer_of(tmp_path, again, trials=5).evidence.limits
    assert continued is not None
    assert continued.matmul_flops_per_second == 4e9
    assert [task.known_formats for task in (*tasks(first), *tasks(again))] == [(), ("float32",)]
    threads = cpu_machine().default_num_threads
    assert {task.machine_threads for task in (*tasks(first), *tasks(again))} == {threads}


@pytest.mark.slow
def test_a_search_states_each_stage_alone_with_its_interval(tmp_path: Path) -> None:
    options = changed(
        options_in(tmp_path, "batch_size: [8, 16, 32, 64]\n", storage=None, trials=4),
        model_path=WORKLOADS / "plain.py",
    )
    with SubprocessRunner(tmp_path / "inductor") as runner:
        list(search(options, HurriedRunner(runner, one_host=True)))
    limits = read_best(tmp_path / "best.yaml").evidence.limits
    assert limits is not None
    for rate, interval in (
        (limits.compute, limits.compute_ci95),
        (limits.loader, limits.loader_ci95),
    ):
        assert (rate is None) == (interval is None)
        assert rate is None or interval[0] <= rate <= interval[1]
    # Where others disturb it, a stage alone may be timed slower than training: hardly both.
    assert limits.compute is not None or limits.loader is not None
    assert limits.number_format == "float32"
    assert limits.flops_per_sample == 64
    assert limits.matmul_flops_per_second is not None
    assert limits.mfu is not None
    assert 0 < limits.mfu < 1
