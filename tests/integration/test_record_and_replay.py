"""A space is measured into a table, and searches against the table find what is in it."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from autotune.configuration.job import Measure, MeasurePlan, Probe, Task
from autotune.configuration.script import ScriptOptions
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import SearchOptions
from autotune.context.search_context import survey
from autotune.searching.run.events import Answered, TrialEnded
from autotune.searching.search import search
from autotune.values.errors import TooManyLostError, UsageError, WorkloadError
from autotune.values.outcome import (
    Crashed,
    Gated,
    Inspected,
    Lost,
    Measured,
    Probed,
    TrialOutcome,
)
from autotune.values.script_losses import ObservedLoss
from autotune.values.stages import Diagnosed, Loading
from benchmarks.recording import Recorded, recording
from benchmarks.replay import ReplayRunner
from benchmarks.table import Row, Table, probed, read_table, write_table
from scripted_runner import LOSSES, ScriptedRunner, at, batch_of, changed, options_in
from seen_script import SEEN

SPACE = """\
batch_size: [8, 16, 32]
num_workers: [0, 2]
amp_dtype: [null, bfloat16]
channels_last: [false, true]
"""
# Nothing follows from it.
STAGES = Diagnosed(
    batch_size=8,
    compute_seconds=0.1,
    double_compute_seconds=0.11,
    transfer_seconds=0.0,
    loading=(Loading(0, 0.1),),
    optimizer_seconds=0.02,
)
RATES = {8: 100.0, 16: 170.0, 32: 290.0}


def law(config: TrainingConfig, phase: str) -> TrialOutcome:
    """Large batches are fast, bfloat16 is faster, and both with workers crash."""
    half, workers = config["amp_dtype"] is not None, bool(config["num_workers"])
    if half and workers and batch_of(config) == 32:
        return Crashed("killed by SIGSEGV")
    return at(RATES[batch_of(config)] * (1.5 if half else 1.0) * (0.9 if workers else 1.0))


def scripted(measure: Callable[[TrainingConfig, Any], TrialOutcome] = law) -> ScriptedRunner:
    return ScriptedRunner(measure, diagnosed=STAGES)


def recorded(
    folder: Path, runner: ScriptedRunner | None = None, repeats: int = 1
) -> list[Recorded]:
    return list(recording(options(folder), runner or scripted(), repeats))


def options(folder: Path) -> SearchOptions:
    return options_in(folder, SPACE, out=folder / "table.jsonl")


def table_in(folder: Path) -> Table:
    recorded(folder)
    return read_table(folder / "table.jsonl")


def test_every_configuration_is_in_the_table(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    context = survey(options(tmp_path), ScriptedRunner(law))
    assert table.timed.keys() == set(context.space.configurations())
    best = context.baseline.replace(batch_size=32, amp_dtype="bfloat16")
    assert table.rate(best) == pytest.approx(435.0)
    assert table.rate(best.replace(num_workers=2)) is None, "it crashed"


def test_a_configuration_of_the_table_is_not_measured_again(tmp_path: Path) -> None:
    first = recorded(tmp_path)
    assert [one.done for one in first] == list(range(2, first[-1].total + 1)), "after the stages"
    again = scripted()
    assert recorded(tmp_path, again) == []
    assert {asked.phase for asked in again.asked} == {"inspection"}


def test_a_recording_that_was_stopped_goes_on(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = recorded(tmp_path / "whole")
    before = list(itertools.islice(recording(options(tmp_path / "parts"), scripted()), 11))
    after = recorded(tmp_path / "parts")
    table = read_table(tmp_path / "parts" / "table.jsonl")
    assert table.timed.keys() == read_table(tmp_path / "whole" / "table.jsonl").timed.keys()
    assert abs(len(before) + len(after) - len(whole)) <= 1, "one more run of the baseline at most"


def test_a_second_pass_measures_everything_once_more(tmp_path: Path) -> None:
    recorded(tmp_path)
    recorded(tmp_path, repeats=2)
    counts = map(len, read_table(tmp_path / "table.jsonl").timed.values())
    assert min(counts) == 2


def test_seeds_that_a_table_lacks_are_added(tmp_path: Path) -> None:
    whole = table_in(tmp_path)
    assert {row.task.seeds for row in probes(whole)} == {tuple(range(12))}
    earlier = [with_fewer_seeds(row, 3) for row in whole.answers]
    path = tmp_path / "table.jsonl"
    path.unlink()
    write_table(replace(whole, answers=tuple(earlier)), path)
    added = [one.answer.task for one in recorded(tmp_path)]
    assert {task.seeds for task in added if isinstance(task, Probe)} == {tuple(range(3, 12))}
    assert len(added) == len(whole.probed)
    now = read_table(path).probed
    assert seeds_and_qualities(now) == seeds_and_qualities(whole.probed)


def test_further_seeds_take_no_longer_than_those_that_were_disturbed_less(tmp_path: Path) -> None:
    whole = table_in(tmp_path)
    key, row = next(iter(whole.probed.items()))
    first = replace(with_fewer_seeds(row, 3), seconds=6.0)
    assert isinstance(first.task, Probe)
    more = replace(first, task=replace(first.task, seeds=(3, 4, 5)), seconds=60.0)
    assert probed([first, more])[key].seconds == probed([more, first])[key].seconds == 12.0


def seeds_and_qualities(found: Mapping[str, Row]) -> dict[str, tuple[object, object]]:
    return {
        key: (row.task, row.outcome.qualities)
        for key, row in found.items()
        if isinstance(row.outcome, Probed)
    }


def test_each_seed_has_as_long_as_a_trial(tmp_path: Path) -> None:
    runner = scripted()
    recorded(tmp_path, runner)
    timeout = options(tmp_path).budget.trial_timeout_seconds
    assert {j.deadline_seconds for j in runner.jobs if isinstance(j.task, Probe)} == {12 * timeout}
    assert {j.deadline_seconds for j in runner.jobs if isinstance(j.task, Measure)} == {timeout}


def probes(table: Table) -> list[Row]:
    return list(table.probed.values())


def with_fewer_seeds(row: Row, seeds: int) -> Row:
    if not isinstance(row.task, Probe) or not isinstance(row.outcome, Probed):
        return row
    task = replace(row.task, seeds=row.task.seeds[:seeds])
    share = seeds / len(row.task.seeds)
    outcome = Probed(row.outcome.qualities[:seeds], share * row.outcome.seconds)
    return replace(row, task=task, outcome=outcome)


def test_a_lost_answer_is_asked_for_the_next_time(tmp_path: Path) -> None:
    failing = iter([*[None] * 10, Lost("no process"), *[None] * 1000])
    recorded(tmp_path, scripted(lambda config, phase: next(failing) or law(config, phase)))
    assert [one.answer.task.kind for one in recorded(tmp_path)] == ["measure"] * 2


def test_a_recording_ends_when_answer_after_answer_is_lost(tmp_path: Path) -> None:
    with pytest.raises(TooManyLostError, match="5 answers in a row were lost"):
        recorded(tmp_path, scripted(lambda config, phase: Lost("no process")))
    assert recorded(tmp_path), "and goes on the next time"


def test_a_table_of_another_model_is_not_continued(tmp_path: Path) -> None:
    recorded(tmp_path)
    (tmp_path / "model.py").write_text("# trains otherwise\n")
    with pytest.raises(UsageError, match="another model_sha256"):
        recorded(tmp_path)


@pytest.mark.parametrize("pages", [3, 3_000_000])
def test_only_a_machine_with_the_same_memory_but_for_some_pages_goes_on(
    pages: int, tmp_path: Path
) -> None:
    recorded(tmp_path)
    again = scripted()
    assert isinstance(again.inspected, Inspected)
    machine = again.inspected.machine
    more = replace(machine.host, memory_bytes=machine.host.memory_bytes + 4096 * pages)
    again.inspected = replace(again.inspected, machine=replace(machine, host=more))
    if pages == 3:
        assert recorded(tmp_path, again) == []
        return
    with pytest.raises(UsageError, match="another machine, memory_limit_bytes"):
        recorded(tmp_path, again)


def test_a_replay_takes_as_long_as_its_blocks_and_samples(tmp_path: Path) -> None:
    found = table_in(tmp_path)
    table = Table(found.header, tuple(replace(row, seconds=20.0) for row in found.answers))
    context = survey(options(tmp_path), ScriptedRunner(law))

    def seconds(task: Task) -> float:
        runner = ReplayRunner(table)
        runner.run(context.job(task, context.baseline), tmp_path)
        return runner.seconds

    usual = seconds(Measure(MeasurePlan()))
    short = seconds(Measure(MeasurePlan(block_seconds=MeasurePlan().block_seconds / 5)))
    outcome = table.timed[context.baseline][0].outcome
    assert isinstance(outcome, Measured)
    timed = sum(block.seconds for block in outcome.measurement.blocks)
    assert 0.7 * timed < usual - short <= 0.8 * timed, "of whole steps"
    whole = next(row.task for row in table.answers if isinstance(row.task, Probe))
    half = replace(whole, samples=whole.samples // 2)
    assert (seconds(whole), seconds(half)) == (20.0, pytest.approx(10.0))


def test_a_table_is_made_in_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    wanted = changed(options(tmp_path), out=tmp_path / "new" / "table.jsonl")
    assert next(recording(wanted, scripted()))


def test_a_script_is_recorded_and_replayed_as_a_model(tmp_path: Path) -> None:
    """Its first steps are its numerics check, and each of its seeds is a process."""
    loss = ObservedLoss("", LOSSES.losses, reach=LOSSES.reach)
    qualities = tuple(1.0 + 0.1 * math.sin(seed) for seed in range(12))
    runner = ScriptedRunner(
        lambda config, phase: at(100.0 if config["amp_dtype"] is None else 150.0),
        lambda config, seed: qualities[seed],
        observed=replace(SEEN, loss=loss, stages=STAGES),
        untrained=3.0,
    )
    space = "amp_dtype: [null, bfloat16]\nnum_workers: [0, 2]\n"
    wanted = options_in(tmp_path, space, out=tmp_path / "table.jsonl", script=ScriptOptions(()))
    found = list(recording(wanted, runner))
    assert [one.done for one in found] == list(range(2, found[-1].total + 1)), "after the stages"
    assert {seeds for _, seeds in runner.probes()} == {(seed,) for seed in range(12)}
    table = read_table(tmp_path / "table.jsonl")
    assert table.untrained == 3.0
    assert {found for _, found in seeds_and_qualities(table.probed).values()} == {qualities}
    assert sum(isinstance(row.outcome, Gated) for row in table.answers) == 1
    (tmp_path / "replay").mkdir()
    model = options_in(tmp_path / "replay", space, storage=None, trials=4)
    *_, last = search(model, ReplayRunner(table))
    assert isinstance(last, Answered)
    assert last.best.config["amp_dtype"] == "bfloat16"
    assert list(recording(wanted, runner)) == []


def test_own_settings_that_fail_end_the_recording(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="your own settings: killed"):
        recorded(tmp_path, scripted(lambda config, phase: Crashed("killed by SIGABRT")))


def test_a_space_without_end_is_refused(tmp_path: Path) -> None:
    wide = options_in(
        tmp_path,
        SPACE + "num_threads: [1, 2]\nprefetch_factor: {low: 1, high: 64}\n"
        "persistent_workers: [false, true]\noptimizer_impl: [null, fused]\n"
        "compile_mode: [null, default, max-autotune-no-cudagraphs]\n"
        "omp_wait_policy: [null, passive, active]\n",
    )
    with pytest.raises(UsageError, match="too many to measure"):
        list(recording(wide, ScriptedRunner(law)))


def test_a_search_against_the_table_finds_its_best(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    wanted = changed(options(tmp_path), out=tmp_path / "best.yaml", storage=None, trials=23)
    events = list(search(wanted, ReplayRunner(table)))
    assert isinstance(events[-1], Answered)
    config = TrainingConfig.of(events[-1].best.config)
    assert (batch_of(config), config["amp_dtype"], config["num_workers"]) == (32, "bfloat16", 0)
    crashed = [e for e in events if isinstance(e, TrialEnded) and not e.trial.verdict.feasible]
    assert crashed, "what crashes is in the study as infeasible"


def test_the_same_seed_replays_the_same_search(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.__dict__["process_noise"] = 0.1
    wanted = changed(options(tmp_path), storage=None, trials=6)
    values = [
        [
            e.trial.verdict.value
            for e in search(wanted, ReplayRunner(table, seed))
            if isinstance(e, TrialEnded)
        ]
        for seed in (1, 1, 2)
    ]
    assert values[0] == values[1] != values[2]


def test_a_replay_varies_as_processes_do(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.__dict__["process_noise"] = 0.1
    runner = ReplayRunner(table)
    job = survey(options(tmp_path), runner).job(Measure(MeasurePlan()), table.baseline)
    runs = [runner.run(job, tmp_path) for _ in range(200)]
    rates = [run.measurement.samples_per_second for run in runs if isinstance(run, Measured)]
    assert stdev(map(math.log, rates)) == pytest.approx(0.1, rel=0.2)


def test_an_answer_that_the_table_lacks_is_lost_and_never_made_up(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    runner = ReplayRunner(table)
    other = TrainingConfig.of({"batch_size": 999})
    job = survey(options(tmp_path), runner).job(Measure(MeasurePlan()), other)
    assert isinstance(runner.run(job, tmp_path), Lost)


def test_a_replayed_timing_takes_less_than_a_thousandth_of_the_measured_one(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    runner = ReplayRunner(table)
    job = survey(options(tmp_path), runner).job(Measure(MeasurePlan()), table.baseline)
    runner.run(job, tmp_path)
    start = time.perf_counter()
    for _ in range(100):
        runner.run(job, tmp_path)
    seconds = (time.perf_counter() - start) / 100
    timed = sum(block.seconds for block in at(100).measurement.blocks)
    assert 1000 * seconds < timed
