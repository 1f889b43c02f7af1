"""An incumbent is validated with more seeds the longer the search relies on it."""

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import optuna
import pytest

from autotune.configuration.job import Job, Measure, Probe
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import SearchOptions
from autotune.searching.run.events import IncumbentRevoked, PhaseStarted, TrialEnded, TrialStarted
from autotune.searching.search import search
from autotune.study.archive import warm_start_from
from autotune.values.outcome import Measured, NonFinite, TrialOutcome
from scripted_runner import (
    ScriptedRunner,
    agreeing,
    at,
    batch_of,
    events_of,
    options_in,
)
from study_factories import reported

SPACE = "batch_size: [8, 32, 64]\nnum_workers: [0, 1]\n"
SCATTERED = (0.0, 0.017) * 3
"""Losses of quality by seed that six seeds do not decide, so that the trial is infeasible."""
BY_A_HAIR = (0.006, 0.0125, *4 * (0.004,))
"""Losses of which two are beyond what is allowed, six are undecided and twelve are accepted."""
FOR_NOTHING, FOR_HOURS = 0.0, 10_000.0
"""Seconds that a seed takes."""


def speed(config: TrainingConfig, phase: str) -> TrialOutcome:
    """Larger batches are faster, a worker helps a little."""
    return at(10 * batch_of(config) + float(config["num_workers"] or 0))


def runner_with(losses: tuple[float, ...], seed_seconds: float = FOR_NOTHING) -> ScriptedRunner:
    """Batches of 64 lose so much of the quality, seed by seed."""

    def quality(config, seed):
        return 0.9 - (losses[seed % len(losses)] if batch_of(config) == 64 else 0.0)

    return ScriptedRunner(speed, quality, seed_seconds=seed_seconds)


class FailingLater(ScriptedRunner):
    """Batches of 64 fail on any but the first seed."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        outcome = super().run(job, folder)
        later = isinstance(job.task, Probe) and job.task.seeds[0] > 0
        large = later and TrainingConfig.of(job.config or {})["batch_size"] == 64
        return NonFinite("the loss is nan") if large else outcome


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of the time budget, which shows `now`."""
    clock = SimpleNamespace(now=time.monotonic())
    monkeypatch.setattr(
        "autotune.context.budget_clock.time", SimpleNamespace(monotonic=lambda: clock.now)
    )
    return clock


def options_for(folder: Path, **changes) -> SearchOptions:
    """All six configurations."""
    return options_in(folder, **{"space": SPACE, "trials": 6, **changes})


def seeds_by_phase(options: SearchOptions, runner: ScriptedRunner) -> dict[str, list[int]]:
    """Seeds with which batches of 64 were probed, by the phase in which that was."""
    seeds: dict[str, list[int]] = {}
    phase, done = "", 0
    for event in search(options, runner):
        found = [s for batch, some in runner.probes()[done:] if batch == 64 for s in some]
        seeds.setdefault(phase, []).extend(found)
        done = len(runner.probes())
        if isinstance(event, PhaseStarted):
            phase = event.phase
    seeds.setdefault(phase, []).extend(
        s for batch, some in runner.probes()[done:] if batch == 64 for s in some
    )
    return seeds


def seeds_before(number: int, options: SearchOptions, runner: ScriptedRunner) -> list[int]:
    """Seeds with which batches of 64 were probed before the trial of that number began."""
    running = search(options, runner)
    for event in running:
        if isinstance(event, TrialStarted) and event.number == number:
            break
    running.close()
    return [seed for batch, some in runner.probes() if batch == 64 for seed in some]


def test_an_incumbent_has_one_seed_until_the_search_relied_on_it_for_long(tmp_path):
    options = options_for(tmp_path, warm_start=in_order(64))
    assert seeds_before(2, options, runner_with((0.001,) * 6, FOR_HOURS)) == [0]


def test_in_the_second_half_of_a_search_an_incumbent_is_validated_at_once(tmp_path):
    options = options_for(tmp_path, warm_start=in_order(64))
    assert seeds_before(3, options, runner_with((0.001,) * 6, FOR_HOURS)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("budget", "trial_seconds", "seeds"),
    [
        (4000.0, 2500.0, [0, 1, 2]),
        (4000.0, 0.0, [0]),
        # A seed takes more than a thirtieth of the time: none until it is paid for, or half is up.
        (2000.0, 0.0, []),
        (2000.0, 1200.0, [0, 1, 2]),
    ],
)
def test_in_the_second_half_of_the_time_too(budget, trial_seconds, seeds, tmp_path, clock):
    def quality(config, seed):
        clock.now += 100.0
        return 0.9

    def measure(config, phase):
        clock.now += trial_seconds if phase == "trial" else 0.0
        return speed(config, phase)

    runner = ScriptedRunner(measure, quality, seed_seconds=100.0)
    options = options_for(tmp_path, time_budget_seconds=budget, warm_start=in_order(64))
    assert seeds_before(2, options, runner) == seeds


@pytest.mark.parametrize(("loss", "seeds"), [(0.03, 1), (0.012, 2)])
def test_one_seed_that_is_far_off_is_enough_if_seeds_take_long(loss, seeds, tmp_path, clock):
    def quality(config, seed):
        clock.now += 100.0
        own = 0.9 + 0.0005 * seed  # the resolution of the quality
        return own - (loss if batch_of(config) == 64 else 0.0)

    def measure(config, phase):
        clock.now += 300.0 if phase == "trial" else 0.0
        return speed(config, phase)

    runner = ScriptedRunner(measure, quality, seed_seconds=100.0)
    options = options_for(tmp_path, time_budget_seconds=2900.0, warm_start=in_order(64))
    events = events_of(options, runner)
    assert any(isinstance(event, IncumbentRevoked) for event in events)
    assert sum(len(some) for batch, some in runner.probes() if batch == 64) == seeds
    assert batch_of(TrainingConfig.of(events[-1].best.config)) == 32


def test_an_incumbent_that_lasts_is_validated_in_the_search(tmp_path):
    losses = (0.0, 0.009, 0.004, 0.003, 0.003, 0.002)
    seeds = seeds_by_phase(options_for(tmp_path), runner_with(losses))
    assert seeds["search"] == [0, 1, 2, 3, 4, 5], "until a look decides"
    assert seeds["confirmation"] == []


def test_an_incumbent_in_doubt_is_revoked_with_all_that_train_alike(tmp_path):
    runner = runner_with(SCATTERED)
    options = options_for(tmp_path)
    events = events_of(options, runner)
    (lost,) = [event for event in events if isinstance(event, IncumbentRevoked)]
    assert batch_of(lost.trial.config) == 64
    assert "inconclusive" in lost.reason
    assert batch_of(lost.best.config) != 64
    later = [e for e in events[events.index(lost) :] if isinstance(e, TrialEnded)]
    assert all(batch_of(e.best.config) != 64 for e in later)
    trials = reported(options.study.storage).trials
    feasible = {batch_of(t.config) for t in trials if t.verdict.feasible}
    assert feasible == {8, 32}
    reasons = {t.verdict.reason for t in trials if batch_of(t.config) == 64}
    assert all("inconclusive" in reason for reason in reasons)
    assert events[-1].best.config["batch_size"] == 32


def test_two_seeds_that_speak_against_it_are_not_enough(tmp_path):
    events = events_of(options_for(tmp_path), runner_with(BY_A_HAIR))
    assert not any(isinstance(event, IncumbentRevoked) for event in events)
    assert events[-1].best.config["batch_size"] == 64


@pytest.mark.parametrize(("last", "size", "seeds"), [(10.0, 64, 12), (2500.0, 32, 3)])
def test_seeds_of_the_last_look_are_drawn_where_the_budget_has_them(
    last, size, seeds, tmp_path, clock
):
    """After the trials, 240 s of seeds would show that batches of 64 are accurate."""
    plain = runner_with(BY_A_HAIR, seed_seconds=20.0)

    def quality(config, seed):
        clock.now += 20.0
        return plain.quality(config, seed)

    def measure(config, phase):
        is_last = phase == "trial" and len(runner.batches("trial")) == 5
        clock.now += last if is_last else 10.0 if phase == "trial" else 0.0
        return speed(config, phase)

    runner = ScriptedRunner(measure, quality, seed_seconds=20.0)
    options = options_for(tmp_path, time_budget_seconds=3000.0, warm_start=in_order(64, 32))
    best = events_of(options, runner)[-1].best
    assert (best.config["batch_size"], best.constraints.accuracy.seeds) == (size, seeds)
    unproven = [(one.changed["batch_size"], one.seeds) for one in best.evidence.not_proven]
    assert unproven == ([] if size == 64 else [(64, 6)])


def test_time_that_a_candidate_needs_goes_to_trials_once_it_is_refused(tmp_path, clock):
    """Batches of 64 pass their first seed, and half of the budget is kept to confirm them."""

    def quality(config, seed):
        clock.now += 50.0
        return 0.9

    def measure(config, phase):
        clock.now += 20.0 if phase == "trial" else 0.0
        return at(640.0 if batch_of(config) == 64 else 80.0)

    options = options_for(
        tmp_path,
        space=f"batch_size: [{', '.join(map(str, range(8, 60, 4)))}, 64]\n",
        trials=14,
        time_budget_seconds=600.0,
        warm_start=in_order(64),
    )
    events = events_of(options, FailingLater(measure, quality, seed_seconds=50.0))
    lost = [event for event in events if isinstance(event, IncumbentRevoked)]
    assert {batch_of(event.trial.config) for event in lost} == {64}
    later = [e for e in events[events.index(lost[-1]) :] if isinstance(e, TrialEnded)]
    assert len(later) > 1, "in the time that was kept for it"
    assert events[-1].best.config["batch_size"] == 8


def test_the_file_of_the_best_so_far_follows(tmp_path):
    options = options_for(tmp_path)
    so_far = tmp_path / "best-so-far.yaml"
    for event in search(options, runner_with(SCATTERED)):
        if isinstance(event, IncumbentRevoked):
            written = so_far.read_text() if so_far.exists() else "trial: 0\n"
            assert f"trial: {event.best.number}\n" in written
            return
    pytest.fail("nobody lost the lead")


@pytest.mark.parametrize("sampler", ["TPESampler", "RandomSampler"])
def test_other_samplers_are_told_what_is_validated(sampler, tmp_path):
    options = options_for(tmp_path, sampler=sampler)
    events = events_of(options, runner_with(SCATTERED, FOR_HOURS))
    assert not any(isinstance(event, IncumbentRevoked) for event in events)
    ended = [event for event in events if isinstance(event, TrialEnded)]
    refused = [e.trial for e in ended if batch_of(e.trial.config) == 64]
    assert all(0 < trial.verdict.margins["accuracy"] < 0.02 for trial in refused)
    assert all(batch_of(event.best.config) != 64 for event in ended)


def test_a_continued_search_knows_what_was_revoked(tmp_path):
    options = options_for(tmp_path)
    for event in search(options, runner_with(SCATTERED)):
        if isinstance(event, IncumbentRevoked):
            break
    again = events_of(options, runner_with(SCATTERED))
    ended = [event for event in again if isinstance(event, TrialEnded)]
    assert all(batch_of(event.best.config) != 64 for event in ended)
    assert again[-1].best.config["batch_size"] == 32


class RacingRunner(ScriptedRunner):
    """Gives up what is slower than the best so far, as trials do."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        outcome = super().run(job, folder)
        if not isinstance(job.task, Measure) or not isinstance(outcome, Measured):
            return outcome
        run, best = outcome.measurement, job.task.plan.incumbent_seconds_per_sample
        slower = best is not None and run.samples_per_second < 0.9 / best
        return Measured(replace(run, flags=(*run.flags, "stopped_early"))) if slower else outcome


def in_order(*batch_sizes: int) -> tuple[TrainingConfig, ...]:
    return tuple(TrainingConfig.of({"batch_size": size}) for size in batch_sizes)


@pytest.mark.parametrize("seed_seconds", [FOR_NOTHING, 2.0, FOR_HOURS])
def test_a_trial_stopped_early_beside_a_revoked_incumbent_may_be_the_answer(seed_seconds, tmp_path):
    plain = runner_with(SCATTERED, seed_seconds)
    runner = RacingRunner(plain.measure, plain.quality, seed_seconds=seed_seconds)
    options = options_for(tmp_path, warm_start=in_order(64, 32))
    assert events_of(options, runner)[-1].best.config["batch_size"] == 32


def test_a_gate_that_is_not_passed_speaks_against_its_own_trial_alone(tmp_path):
    def measure(config, phase):
        fused = 100 if config["optimizer_impl"] and batch_of(config) == 8 else 0
        rate = 640 if batch_of(config) == 64 else 100 + 50 * float(config["num_workers"] or 0)
        return at(rate + fused)

    def gate(config):
        return agreeing(update_error=1.0) if config["optimizer_impl"] else agreeing()

    space = "batch_size: [8, 64]\nnum_workers: [0, 1]\noptimizer_impl: [null, fused]\n"
    wanted = ({"batch_size": 64}, {"batch_size": 8, "optimizer_impl": "fused"}, {"num_workers": 1})
    options = options_for(
        tmp_path,
        space=space,
        trials=8,
        warm_start=tuple(TrainingConfig.of({"batch_size": 8, **one}) for one in wanted),
    )
    runner = runner_with(SCATTERED, seed_seconds=0.7)
    runner.measure, runner.gate = measure, gate
    events = events_of(options, runner)
    answer = events[-1].best.config
    assert (answer["batch_size"], answer["num_workers"]) == (8, 1)
    assert not answer["optimizer_impl"]


def test_an_incumbent_whose_further_seed_fails_is_revoked(tmp_path):
    plain = runner_with((0.006,) * 6)
    runner = FailingLater(plain.measure, plain.quality, seed_seconds=FOR_NOTHING)
    events = events_of(options_for(tmp_path), runner)
    lost = [event for event in events if isinstance(event, IncumbentRevoked)]
    assert {batch_of(event.trial.config) for event in lost} == {64}
    assert all("the loss is nan" in event.reason for event in lost)
    assert events[-1].best.config["batch_size"] == 32
    assert len([s for batch, s in runner.probes() if batch == 64]) <= 1 + 2, "once for each trial"


def test_an_incumbent_pays_for_its_seeds_with_later_trials(tmp_path):
    options = options_for(tmp_path, warm_start=in_order(64))
    seeds = seeds_before(2, options, runner_with((0.001,) * 6, seed_seconds=0.1))
    assert seeds == [0], "it led no trial but itself"


def test_a_warm_start_and_optuna_know_what_was_revoked(tmp_path):
    options = options_for(tmp_path)
    events_of(options, runner_with(SCATTERED))
    before = warm_start_from(options.study.storage)
    assert 64 not in map(batch_of, before)
    study = optuna.load_study(study_name="scripted", storage=options.study.storage)
    assert study.best_trial.params["batch_size"] == 32
