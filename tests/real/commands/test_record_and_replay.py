"""A space is measured into a table, and searches against the table find what is in it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.configuration.job import Measure, MeasurePlan, Probe, Task
from autotune.configuration.script import ScriptOptions
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import SearchOptions
from autotune.context.search_context import survey
from autotune.searching.run.events import Answered, TrialEnded
from autotune.searching.search import search
from autotune.values.outcome import (
    Crashed,
    Diagnosed,
    Gated,
    Loading,
    Lost,
    Measured,
    ObservedLoss,
    Probed,
    TrialOutcome,
)
from benchmarks.recording import Recorded, recording
from benchmarks.replay import ReplayRunner
from benchmarks.table import Row, Table, read_table
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


def test_a_recording_that_was_stopped_goes_on(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = recorded(tmp_path / "whole")
    before = list(itertools.islice(recording(options(tmp_path / "parts"), scripted()), 11))
    after = recorded(tmp_path / "parts")
    table = read_table(tmp_path / "parts" / "table.jsonl")
    assert table.timed.keys() == read_table(tmp_path / "whole" / "table.jsonl").timed.keys()
    assert abs(len(before) + len(after) - len(whole)) <= 1, "one more run of the baseline at most"


def seeds_and_qualities(found: Mapping[str, Row]) -> dict[str, tuple[object, object]]:
    return {
        key: (row.task, row.outcome.qualities)
        for key, row in found.items()
        if isinstance(row.outcome, Probed)
    }


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


def test_a_script_is_recorded_and_replayed_as_a_model(tmp_path: Path) -> None:
    """Its first steps are its numerics check, and each of its seeds is a process."""
    loss = ObservedLoss("", LOSSES.losses, moves=LOSSES.moves)
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


def test_an_answer_that_the_table_lacks_is_lost_and_never_made_up(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    runner = ReplayRunner(table)
    other = TrainingConfig.of({"batch_size": 999})
    job = survey(options(tmp_path), runner).job(Measure(MeasurePlan()), other)
    assert isinstance(runner.run(job, tmp_path), Lost)
