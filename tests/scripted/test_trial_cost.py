"""A search that would spend its time on accuracy tries first what needs none."""

from dataclasses import replace

import pytest

from autotune.searching.run.events import TrialStarted
from autotune.values.outcome import Inspected, Measured
from factories import cpu_machine, measurement
from scripted_runner import (
    FACTS,
    ScriptedRunner,
    at,
    batch_of,
    events_of,
    left_out,
    trials_of,
    unstored_in,
)

SPACE = "batch_size: [8, 16, 32, 64, 128]\nnum_workers: [0, 1, 2, 4]\n"
TOO_DEAR = "compiling is expected to take more than a quarter of the time left"
HALF = "amp_dtype: [null, bfloat16]\nnum_threads: [2, 1]\n"


def speed(config, phase):
    """Larger batches, workers and bfloat16 pay."""
    half = 100.0 if config["amp_dtype"] else 0.0
    return at(100 + batch_of(config) + 10 * float(config["num_workers"] or 0) + half)


@pytest.mark.parametrize(("seed_seconds", "needs_a_seed"), [(0.0, True), (10_000.0, False)])
def test_the_first_trial_needs_no_seed_if_seeds_take_long(seed_seconds, needs_a_seed, tmp_path):
    runner = ScriptedRunner(speed, seed_seconds=seed_seconds)
    events = events_of(unstored_in(tmp_path, HALF, trials=2), runner)
    _, trial = trials_of(events)
    assert (trial.config["amp_dtype"] is not None) == needs_a_seed


@pytest.mark.parametrize(("trial_seconds", "compiles"), [(2.0, False), (20_000.0, True)])
def test_the_first_trial_compiles_only_if_that_is_a_small_share_of_its_seconds(
    trial_seconds, compiles, tmp_path
):
    def slow_to_start(config, phase):
        return Measured(replace(measurement(), start_seconds=trial_seconds))

    space = SPACE + "compile_mode: [null, default, max-autotune-no-cudagraphs]\n"
    events = events_of(unstored_in(tmp_path, space, trials=2), ScriptedRunner(slow_to_start))
    own, first = [trial.config for trial in trials_of(events)]
    assert (first["compile_mode"] is not None) == compiles
    assert first != own


@pytest.mark.parametrize(("tensors", "compiles"), [(10, True), (200, False)])
def test_a_large_model_is_not_compiled_where_little_time_is_left(tensors, compiles, tmp_path):
    """A quarter of the time left may go to a compilation: of 200 tensors it takes a minute."""
    facts = replace(FACTS, model_tensors=tensors)
    runner = ScriptedRunner(
        lambda config, phase: Measured(replace(measurement(), start_seconds=5.0)),
        inspected=Inspected(cpu_machine(), facts),
    )
    space = "compile_mode: [null, default]\nnum_threads: [2, 1]\nnum_workers: [0, 1, 2]\n"
    options = unstored_in(tmp_path, space, trials=6, time_budget_seconds=200.0)
    events = events_of(options, runner)
    tried = {event.config["compile_mode"] for event in events if isinstance(event, TrialStarted)}
    assert tried == ({None, "default"} if compiles else {None})
    assert left_out(events) == ([] if compiles else [f"compile_mode=default for now: {TOO_DEAR}"])


def test_a_kind_of_training_that_was_probed_is_cheap(tmp_path):
    runner = ScriptedRunner(speed, seed_seconds=10_000.0)
    events_of(unstored_in(tmp_path, SPACE, trials=6), runner)
    batches = runner.batches("trial")
    dear = [batch for at_, batch in enumerate(batches) if batch not in {8, *batches[:at_]}]
    assert len(dear) <= 3, "every other proposal at most, of five"
    assert len(set(batches) - {8}) < len([batch for batch in batches if batch != 8])
