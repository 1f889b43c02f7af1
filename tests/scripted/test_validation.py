"""A configuration that leads is validated before the study is told; others get a seed."""

import time
from dataclasses import replace
from types import SimpleNamespace

import optuna
import pytest

from autotune.configuration.constraints import Tolerance
from autotune.configuration.job import Probe
from autotune.configuration.training_config import TrainingConfig
from autotune.searching.run.events import (
    CandidateRefused,
    TrialEnded,
    TrialsEnded,
    TrialStarted,
)
from autotune.searching.search import search
from autotune.values.outcome import Measured, NonFinite
from scripted_runner import ScriptedRunner, agreeing, at, batch_of, events_of, options_in, trials_of

SPACE = "batch_size: [8, 32, 64]\nnum_workers: [0, 1]\n"
SCATTERED = (0.0, 0.017) * 3
"""Losses of quality by seed that six seeds do not decide, so that the trial is infeasible."""
BY_A_HAIR = (0.006, 0.0125, *4 * (0.004,))
"""Losses of which two are beyond what is allowed, six are undecided and twelve are accepted."""
FOR_NOTHING, FOR_HOURS = 0.0, 10_000.0
"""Seconds that a seed takes."""


def speed(config, phase):
    """Larger batches are faster, a worker helps a little."""
    return at(10 * batch_of(config) + float(config["num_workers"] or 0))


def runner_with(losses, seed_seconds=FOR_NOTHING):
    """Batches of 64 lose so much of the quality, seed by seed."""

    def quality(config, seed):
        return 0.9 - (losses[seed % len(losses)] if batch_of(config) == 64 else 0.0)

    return ScriptedRunner(speed, quality, seed_seconds=seed_seconds)


class FailingLater(ScriptedRunner):
    """Batches of 64 fail on any but the first seed."""

    def run(self, job, folder):
        outcome = super().run(job, folder)
        later = isinstance(job.task, Probe) and job.task.seeds[0] > 0
        large = later and TrainingConfig.of(job.config or {})["batch_size"] == 64
        return NonFinite("the loss is nan") if large else outcome


@pytest.fixture
def clock(monkeypatch):
    """The clock of the time budget, which shows `now`."""
    clock = SimpleNamespace(now=time.monotonic())
    monkeypatch.setattr("autotune.process.stop.time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def options_for(folder, **changes):
    """All six configurations."""
    return options_in(folder, **{"space": SPACE, "trials": 6, **changes})


def seeds_before(number, options, runner, size=64):
    """Seeds with which batches of that size were probed before the trial of that number began."""
    running = search(options, runner)
    for event in running:
        if isinstance(event, TrialsEnded):
            break
        if isinstance(event, TrialStarted) and event.number == number:
            break
    running.close()
    return [seed for batch, some in runner.probes() if batch == size for seed in some]


def in_order(*batch_sizes):
    return tuple(TrainingConfig.of({"batch_size": size}) for size in batch_sizes)


def of_64(events):
    """The finished trials with batches of 64."""
    return [trial for trial in trials_of(events) if batch_of(trial.config) == 64]


@pytest.mark.parametrize(
    ("losses", "seeds"),
    [((0.001,), 3), ((0.0, 0.009, 0.004, 0.003, 0.003, 0.002), 6), ((0.02,), 2), ((0.05,), 1)],
)
def test_a_leader_has_seeds_until_a_look_decides(losses, seeds, tmp_path):
    options = options_for(tmp_path, warm_start=in_order(64))
    assert seeds_before(2, options, runner_with(losses, FOR_HOURS)) == list(range(seeds))


@pytest.mark.parametrize(("trial_seconds", "seeds"), [(100.0, [0, 1, 2]), (10.0, [0])])
def test_but_one_while_further_ones_take_longer_than_the_trials_have(
    trial_seconds, seeds, tmp_path, clock
):
    """Two more seeds of each side take 80 s; only the baseline was measured before."""

    def quality(config, seed):
        clock.now += 20.0
        return 0.9

    def measure(config, phase):
        clock.now += trial_seconds
        run = speed(config, phase).measurement
        return Measured(replace(run, start_seconds=trial_seconds))

    runner = ScriptedRunner(measure, quality, seed_seconds=20.0)
    options = options_for(tmp_path, time_budget_seconds=4000.0, warm_start=in_order(64))
    assert seeds_before(2, options, runner) == seeds


def test_what_does_not_lead_has_one_seed(tmp_path):
    def quality(config, seed):
        return 0.9 - (0.001 * seed if batch_of(config) == 32 else 0.0)

    def alike(config, phase):
        return at({8: 80.0, 32: 640.0, 64: 640.0}[batch_of(config)])

    runner = ScriptedRunner(alike, quality)
    options = options_for(tmp_path, warm_start=in_order(64, 32))
    assert seeds_before(3, options, runner, size=32) == [0]


def test_further_seeds_refuse_in_the_confirmation_what_had_one_among_the_trials(tmp_path):
    def quality(config, seed):
        return 0.9 - (0.05 if batch_of(config) == 32 and seed else 0.0)

    def first_alike(config, phase):
        rates = {8: 80.0, 32: 640.0, 64: 70.0 if phase == "confirmation" else 640.0}
        return at(rates[batch_of(config)])

    options = options_for(tmp_path, warm_start=in_order(64, 32))
    events = events_of(options, ScriptedRunner(first_alike, quality))
    trials = trials_of(events)
    assert all(trial.verdict.feasible for trial in trials)
    reasons = [event.reason for event in events if isinstance(event, CandidateRefused)]
    assert any(reason.startswith("evaluate is ") for reason in reasons), reasons
    assert events[-1].best.keeps_baseline


@pytest.mark.parametrize("sampler", ["auto", "TPESampler", "RandomSampler"])
def test_a_leader_in_doubt_is_told_as_infeasible(sampler, tmp_path):
    options = options_for(tmp_path, sampler=sampler)
    events = events_of(options, runner_with(SCATTERED, FOR_HOURS))
    (refused,) = of_64(events)  # what trains alike is not tried
    assert 0 < refused.verdict.margins["accuracy"] < 0.02
    assert "inconclusive" in refused.verdict.reason
    ended = [event for event in events if isinstance(event, TrialEnded)]
    assert all(batch_of(event.best.config) != 64 for event in ended)
    assert events[-1].best.config["batch_size"] == 32


def test_optuna_alone_and_the_next_run_know_of_it(tmp_path):
    options = options_for(tmp_path)
    for event in search(options, runner_with(SCATTERED)):
        if isinstance(event, TrialEnded) and not event.trial.verdict.feasible:
            break
    assert not of_64(events_of(options, runner_with(SCATTERED)))
    study = optuna.load_study(study_name="scripted", storage=options.study.storage)
    assert study.best_trial.params["batch_size"] == 32
    by_value = max(study.trials, key=lambda trial: trial.value)
    assert by_value.number == study.best_trial.number, "as the dashboard looks for it"


def test_two_seeds_that_speak_against_it_are_not_enough(tmp_path):
    events = events_of(options_for(tmp_path), runner_with(BY_A_HAIR))
    assert all(trial.verdict.feasible for trial in of_64(events))
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


def test_a_leader_whose_further_seed_fails_is_infeasible_alone(tmp_path):
    plain = runner_with((0.006,) * 6)
    runner = FailingLater(plain.measure, plain.quality, seed_seconds=FOR_NOTHING)
    events = events_of(options_for(tmp_path), runner)
    refused = of_64(events)
    assert len(refused) == 2
    assert all("the loss is nan" in trial.verdict.reason for trial in refused)
    assert events[-1].best.config["batch_size"] == 32


def test_scattered_seeds_do_not_speak_against_what_trains_as_the_baseline(tmp_path):
    scatter = (0.5, 0.9, 0.7, 0.2, 0.9, 0.8)

    def quality(config, seed):
        larger = 0.2 * (-1) ** seed if batch_of(config) > 8 else 0.0
        return scatter[seed % 6] + larger

    def speed(config, phase):
        return at(100.0 * (1.5 if config["num_workers"] else 1.0) * batch_of(config) ** 0.5)

    options = options_for(
        tmp_path, accuracy_tolerance=Tolerance(0.0, relative=False), warm_start=in_order(64)
    )
    *_, last = search(options, ScriptedRunner(speed, quality))
    assert last.best.config["num_workers"] == 1, last.best
    assert last.best.evidence.speedup.ratio == pytest.approx(1.5)
