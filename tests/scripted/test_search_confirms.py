"""A search that cannot tell its best trials apart confirms one, for a stated objective."""

import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import optuna
import pytest

from autotune.searching.run.events import Answered, CandidateRefused, RoundEnded
from autotune.searching.search import search
from autotune.values.errors import NotSearchedEnoughError, UsageError
from autotune.values.measurement import Block
from autotune.values.outcome import Crashed, Measured
from factories import measurement
from scripted_runner import (
    FACTS,
    ScriptedRunner,
    at,
    batch_of,
    changed,
    events_of,
    options_in,
    unstored_in,
)

COMPILING = "batch_size: [8]\ncompile_mode: [null, default]\n"


def scattered(samples_per_second):
    """Measured with blocks that differ by a tenth to either side."""
    factors = (0.9, 0.95, 1.0, 1.0, 1.05, 1.1)
    blocks = tuple(Block(32 / (samples_per_second * f), 32, 0.0) for f in factors)
    return Measured(replace(measurement(samples_per_second), blocks=blocks))


def two_lead(config, phase):
    """In the search, 64 and 128 cannot be told apart, and all others are slow."""
    rates = {8: 100, 16: 101, 32: 102, 64: 150, 128: 153}
    rate = rates[batch_of(config)]
    return scattered(rate) if phase == "trial" else at(rate)


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]


def test_of_candidates_that_the_search_cannot_tell_apart_one_is_tested(tmp_path):
    runner = ScriptedRunner(two_lead)
    events = events_of(unstored_in(tmp_path), runner)
    assert sorted(runner.batches("confirmation")) == [8] * 4 + [128] * 4
    assert events[-1].best.config["batch_size"] == 128


def test_the_next_candidate_is_tried_where_the_first_fails(tmp_path):
    def fails_late(config, phase):
        late = phase == "confirmation" and batch_of(config) == 128
        if late and len(runner.batches("confirmation")) > 4:
            return Crashed("killed by SIGSEGV")
        return two_lead(config, phase)

    runner = ScriptedRunner(fails_late)
    events = events_of(unstored_in(tmp_path), runner)
    (refused,) = of_kind(events, CandidateRefused)
    assert "SIGSEGV" in refused.reason
    assert events[-1].best.config["batch_size"] == 64


@pytest.mark.parametrize(("over_at", "ends_at"), [(4, 4), (5, 5), (6, 6), (7, 7), (9, 9)])
def test_a_confirmation_ends_within_a_round_of_the_end_of_the_time(
    over_at, ends_at, tmp_path, monkeypatch
):
    clock = SimpleNamespace(now=time.monotonic())
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("autotune.process.stop.time", clock)

    def measure(config, phase):
        if phase != "confirmation" or batch_of(config) == 8:
            return at(10.0 * batch_of(config))
        rounds = sum(batch != 8 for batch in runner.batches("confirmation"))
        clock.now += 1000.0 if rounds == over_at else 0.0
        return at(70.0 if rounds == 3 else 160.0)

    runner = ScriptedRunner(measure)
    options = unstored_in(tmp_path, "batch_size: [8, 16]\n", trials=2, time_budget_seconds=900.0)
    ratios = 0
    with nullcontext() if ends_at > 5 else pytest.raises(NotSearchedEnoughError):
        for event in search(options, runner):
            ratios = len(event.ratios) if isinstance(event, RoundEnded) else ratios
        assert event.best.keeps_baseline == (ends_at < 9)
    assert ratios == ends_at


def test_short_of_time_only_the_fastest_is_tested(tmp_path):
    options = options_in(tmp_path)
    events_of(options, ScriptedRunner(two_lead))  # leaves five trials for a run in no time
    study = optuna.load_study(study_name="scripted", storage=options.study.storage)
    study.set_user_attr("answer", None)
    runner = ScriptedRunner(two_lead)
    events = events_of(changed(options, time_budget_seconds=30.0), runner)
    assert set(runner.batches("confirmation")) == {8, 128}
    assert isinstance(events[-1], Answered)


def test_with_time_a_test_goes_on_to_its_second_look(tmp_path):
    def loses_once(config, phase):
        first = phase == "confirmation" and len(runner.batches("confirmation")) <= 2
        return at(90 if first and batch_of(config) == 16 else 100 + batch_of(config))

    options = options_in(tmp_path, "batch_size: [8, 16]\n")
    events_of(options, ScriptedRunner(lambda config, phase: at(100 + batch_of(config))))
    study = optuna.load_study(study_name="scripted", storage=options.study.storage)
    study.set_user_attr("answer", None)
    runner = ScriptedRunner(loses_once)
    events = events_of(changed(options, time_budget_seconds=1e6), runner)
    assert len(runner.batches("confirmation")) > 2 * 6
    assert not events[-1].best.keeps_baseline


def compiling(config, phase):
    """Twice as fast when compiled, which takes 50 s in the first process alone."""
    if config["compile_mode"] is None:
        return at(100)
    first = phase == "trial"
    steps = (50.1 if first else 1.1, 0.1)
    run = replace(measurement(200), warmup_step_seconds=steps, compile_seconds=steps[0] - 0.1)
    return Measured(run)


def compiled_answer(folder, **changes):
    events = events_of(unstored_in(folder, COMPILING, **changes), ScriptedRunner(compiling))
    return events[-1].best


def test_the_process_that_compiled_tells_the_cost_of_compiling(tmp_path):
    evidence = compiled_answer(tmp_path).evidence
    assert evidence.compile_seconds == 50
    assert evidence.speedup.ratio == 2
    # 50 s against 0.4 s until the first steady step, and 5 ms less for each sample after it.
    assert evidence.break_even_samples == round((50 - 0.4) / (1 / 100 - 1 / 200))
    assert evidence.predicted_run is None


@pytest.mark.parametrize("run", [{"run_samples": 100_000}, {"run_epochs": 10}])
def test_for_a_long_run_compiling_pays_and_the_speedup_is_that_of_the_run(tmp_path, run):
    best = compiled_answer(tmp_path, **run)
    assert best.config["compile_mode"] == "default"
    evidence = best.evidence
    assert evidence.objective == "run_time"
    assert evidence.predicted_run.samples == 100_000
    # From the first process to the first step takes 0.9 and 50.5 s, beside starting, which is the
    # same for all: what the inspection took, next to nothing here.
    assert evidence.predicted_run.baseline_seconds == pytest.approx(0.9 + 1000, abs=0.2)
    assert evidence.predicted_run.best_seconds == pytest.approx(50.5 + 500, abs=0.2)
    assert evidence.speedup.ratio == pytest.approx(1000.9 / 550.5, rel=1e-3)


def test_for_a_short_run_compiling_does_not_pay(tmp_path):
    runner = ScriptedRunner(compiling)
    events = events_of(unstored_in(tmp_path, COMPILING, run_samples=5_000), runner)
    assert events[-1].best.keeps_baseline
    assert runner.batches("confirmation") == []


def test_a_dataset_without_a_length_has_no_epochs_to_count(tmp_path):
    runner = ScriptedRunner(compiling)
    endless = replace(FACTS, dataset_samples=None)
    runner.inspected = replace(runner.inspected, workload=endless)
    with pytest.raises(UsageError, match="--target-samples"):
        events_of(unstored_in(tmp_path, run_epochs=3), runner)
