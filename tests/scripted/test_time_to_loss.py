"""The time to a loss as the objective, on a quadratic problem whose best batch is known."""

import json
import sys
from dataclasses import replace

import click
import numpy as np
import optuna
import pytest

from autotune.calling.flag import Flag
from autotune.commands.common import objective
from autotune.comparison.rounds import PairedComparison
from autotune.configuration.best_config import read_best
from autotune.configuration.job import Probe
from autotune.configuration.script import ScriptOptions
from autotune.configuration.training_config import TrainingConfig
from autotune.console.lines import gain_text, plan_lines, verdict_text
from autotune.context.search_context import survey
from autotune.searching.run.events import Planned
from autotune.training.quality import probe
from autotune.training.training_setup import apply
from autotune.training.workload import load_workload
from autotune.values.errors import UsageError
from autotune.values.outcome import ObservedLoss, ScriptFlag, Surroundings
from autotune.values.statistics import LossCurve
from children import WORKLOADS
from command_line import command
from scripted_runner import (
    LOSSES,
    SEEN,
    ScriptedRunner,
    at,
    batch_of,
    events_of,
    options_in,
    trials_of,
)

SIZES = (8, 16, 32, 64, 128, 256, 512)
SPACE = f"batch_size: {list(SIZES)}\n"
OWN, SAMPLES = 256, 256 * 60
CURVATURES = np.geomspace(0.05, 1.0, 20)
RATE, NOISE = 0.4, 0.2


def losses_of(batch, seed):
    """Yield the loss that each step of SGD shows; a batch of one has gradients off by `NOISE`."""
    random = np.random.default_rng(seed)
    weights, deviation = np.ones(len(CURVATURES)), np.sqrt(NOISE * CURVATURES / batch)
    while True:
        loss = 0.5 * float(CURVATURES @ weights**2)
        yield loss * (1 + random.normal(0, 1) / np.sqrt(batch))
        gradient = CURVATURES * weights + deviation * random.normal(0, 1, len(weights))
        weights = weights - RATE * gradient


def expected_losses(batch):
    """The judge: the expected loss after each step, exactly."""
    squares = np.ones(len(CURVATURES))
    while True:
        yield 0.5 * float(CURVATURES @ squares)
        squares = (1 - RATE * CURVATURES) ** 2 * squares + RATE**2 * NOISE * CURVATURES / batch


def rate(batch):
    """Samples per second: a step takes as long as 64 samples beside its own."""
    return 1000 * batch / (64 + batch)


def true_seconds():
    """The judge's seconds until the loss of the user's settings, for each batch that reaches it."""
    loss = dict(zip(range(SAMPLES // OWN + 1), expected_losses(OWN), strict=False))[SAMPLES // OWN]
    found = {}
    for batch in SIZES:
        steps = zip(range(2 * SAMPLES // batch), expected_losses(batch), strict=False)
        step = next((step for step, value in steps if value <= loss), None)
        if step is not None:
            found[batch] = step * batch / rate(batch)
    return found


def short_training(job, outcome):
    """What a short training of the quadratic problem tells in place of a scripted outcome."""
    task = job.task
    if not isinstance(task, Probe):
        return outcome
    batch, reached = batch_of(TrainingConfig.of(job.config)), []
    for seed in task.seeds:
        curve = LossCurve(task.samples, task.most, task.reach)
        for _, loss in zip(range(curve.samples // batch), losses_of(batch, seed), strict=False):
            curve.add(batch, loss)
            if curve.has_reached:
                break
        reached.append(curve.reached)
    return replace(outcome, reached=tuple(reached))


def runner_of(measure=lambda config, phase: at(rate(batch_of(config)))):
    return ScriptedRunner(measure=measure, instead=short_training)


def options(folder, space=SPACE, **changes):
    usual = {
        "objective": "time-to-loss",
        "accuracy_samples": SAMPLES,
        "baseline": {"batch_size": OWN},
        "trials": len(SIZES),
    }
    return options_in(folder, space, **{**usual, **changes})


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """The events of a search, its folder, and its runner."""
    folder, runner = tmp_path_factory.mktemp("searched"), runner_of()
    return events_of(options(folder), runner), folder, runner


def test_the_emitted_batch_is_next_to_the_best_and_the_claim_holds(searched):
    judged, best = true_seconds(), read_best(searched[1] / "best.yaml")
    emitted = batch_of(best.training_config)
    assert 1 / 2 <= emitted / min(judged, key=judged.__getitem__) <= 2
    low, high = best.evidence.speedup.ci95
    assert low <= judged[OWN] / judged[emitted] <= high < 2 * low
    told = best.evidence.time_to_loss
    assert told.baseline_seconds == pytest.approx(judged[OWN], rel=0.1)
    assert told.best_seconds == pytest.approx(judged[emitted], rel=0.15)
    assert told.seeds >= 5
    assert best.evidence.break_even_samples is None
    # The throughput fell, and is told.
    assert best.evidence.best.samples_per_second == pytest.approx(rate(emitted), rel=0.01)
    assert told.throughput_ci95[1] < 1


def test_a_batch_that_never_reaches_the_loss_is_infeasible_by_its_accuracy(searched):
    trials = {batch_of(trial.config): trial for trial in trials_of(searched[0])}
    assert 8 not in true_seconds()
    assert trials[8].verdict.margins["accuracy"] > 0
    assert "not reached in 30720 samples" in trials[8].verdict.reason


def test_a_trial_that_was_not_trained_to_the_loss_says_that_its_seconds_are_assumed(searched):
    trials = trials_of(searched[0])
    guessed = [t for t in trials if t.verdict.feasible and t.details.quality is None]
    assert 0 < len(guessed) < len(trials)
    said = [t for t in trials if "seconds to it are assumed" in verdict_text(t)]
    assert said == guessed == [t for t in trials if t.details.assumed_samples]
    assert [t for t in trials if gain_text(t, trials[0]).strip().startswith("~")] == guessed
    value = guessed[0].verdict.value
    assert guessed[0].details.assumed_samples / rate(batch_of(guessed[0].config)) == (
        pytest.approx(1 / value, rel=0.01)
    )
    assert command("report", searched[1]).out.count("seconds to it are assumed") == len(guessed)
    told = json.loads(command("report", searched[1], "--json", "-").out)["trials"]
    assert [one["number"] for one in told if one["assumed_samples"]] == [t.number for t in guessed]


def test_optuna_sees_seconds_that_it_minimises(searched):
    study = optuna.load_study(study_name="scripted", storage=f"sqlite:///{searched[1]}/study.db")
    assert study.direction == optuna.study.StudyDirection.MINIMIZE
    assert study.metric_names == ["seconds to loss"]
    assert study.trials[0].value == pytest.approx(true_seconds()[OWN], rel=0.1)
    assert study.best_trial.value < study.trials[0].value / 2


def test_the_plan_says_what_is_minimised(searched):
    planned = next(event for event in searched[0] if isinstance(event, Planned))
    assert any("time until the training loss" in line for line in plan_lines(planned.context))


def test_settings_that_preserve_results_need_no_seeds(tmp_path):
    def measure(config, phase):
        return at(100 * (1 + int(config["num_workers"])))

    runner = runner_of(measure)
    events_of(options(tmp_path, "num_workers: [0, 1, 2]\n", trials=3), runner)
    best = read_best(tmp_path / "best.yaml")
    assert best.config["num_workers"] == 2
    assert best.evidence.speedup.ratio == pytest.approx(3)
    assert best.evidence.time_to_loss.samples_ci95 is None
    assert runner.probes() == [(OWN, (0,))]


def test_a_loss_may_be_given(tmp_path):
    events_of(options(tmp_path, objective="time-to-loss=0.02"), runner_of())
    told = read_best(tmp_path / "best.yaml").evidence.time_to_loss
    assert told.loss == 0.02
    assert told.baseline_samples < 0.9 * SAMPLES


def test_a_loss_that_the_users_settings_do_not_reach_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"time-to-loss=0\.001: your settings do not reach this"):
        events_of(options(tmp_path, objective="time-to-loss=0.001"), runner_of())


def test_a_loss_that_does_not_fall_is_refused(tmp_path):
    for seed in range(200):
        curve, random = LossCurve(SAMPLES, 2 * SAMPLES, None), np.random.default_rng(seed)
        for step in range(SAMPLES // OWN):
            curve.add(OWN, 1 + 2 * (step < 3) + random.normal(0, 0.05))
        assert not curve.reached[2]

    def flat(job, outcome):
        reached = (curve.reached,) if isinstance(job.task, Probe) else None
        return outcome if reached is None else replace(outcome, reached=reached)

    for _ in range(2):  # resumed as well
        runner = ScriptedRunner(measure=lambda config, phase: at(100), instead=flat)
        with pytest.raises(UsageError, match="barely falls in the second half"):
            events_of(options(tmp_path), runner)


@pytest.mark.parametrize("kept", [1, 2, 3, 4, 5, 7, 10])
def test_a_search_killed_between_two_notes_of_a_seed_claims_the_same(
    tmp_path, searched, monkeypatch, kept
):
    write, noted = optuna.Study.set_user_attr, []

    def cut_short(study, name, value):
        noted.append(name) if "loss" in name or "seeds" in name else None
        if len(noted) == kept + 1:
            raise KeyboardInterrupt
        write(study, name, value)

    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "set_user_attr", cut_short)
        with pytest.raises(KeyboardInterrupt):
            events_of(options(tmp_path), runner_of())
    events_of(options(tmp_path), runner_of())
    once, resumed = (read_best(folder / "best.yaml") for folder in (searched[1], tmp_path))
    assert resumed.evidence.time_to_loss.seeds >= 5
    assert resumed.evidence.time_to_loss.loss == once.evidence.time_to_loss.loss


def test_one_objective_at_a_time(tmp_path):
    with pytest.raises(UsageError, match="give only one"):
        events_of(options(tmp_path, run_samples=1000), runner_of())


def test_the_curve_of_a_faster_training_is_the_same_in_fewer_samples():
    def samples_to_a_tenth(samples_to_a_half):
        curve = LossCurve(1000, 2000, 0.1)
        for sample in range(1, 2001):
            curve.add(1, 1 / (1 + sample / samples_to_a_half))
        return curve.reached[0]

    assert samples_to_a_tenth(40) / samples_to_a_tenth(20) == pytest.approx(2, rel=0.01)


def test_the_interval_of_a_claim_holds_what_both_ratios_are_uncertain_of():
    random, held = np.random.default_rng(0), 0
    for _ in range(400):
        costs, seeds = (
            tuple((ratio * float(np.exp(random.normal(0, spread))), 1.0) for _ in range(count))
            for ratio, spread, count in ((1.5, 0.05, 9), (0.8, 0.1, 6))
        )
        low, high = PairedComparison(costs=costs, seeds_to_loss=seeds).interval
        held += low <= 1.5 * 0.8 <= high
    assert held / 400 >= 0.93


def short_training_of_a_model(**changes):
    """The samples of a short training of the workload in plain.py, and what it reached."""
    workload = load_workload(WORKLOADS / "plain.py")
    dataset = workload.build_dataset()
    config = TrainingConfig.of({"num_threads": 1, "batch_size": 32})
    setup, taken = apply(config, workload, "cpu", 0, dataset), []
    setup.model.register_forward_pre_hook(lambda model, given: taken.append(model.training))
    task = Probe(640, (0,), most=1280, **changes)
    _, reached = probe(setup, dataset, task, lambda phase: None)
    return 32 * sum(taken), *reached[:2]


def test_a_short_training_ends_when_its_loss_is_reached(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "plain", None)
    own, samples, loss = short_training_of_a_model()
    assert samples <= own == 640
    sooner, samples, reached = short_training_of_a_model(reach=1.1 * loss)
    assert samples <= sooner < 640
    assert reached <= 1.1 * loss
    assert short_training_of_a_model(reach=-1.0)[:2] == (1280, 1280)


def test_a_script_that_prints_its_metric_is_refused(tmp_path):
    script = ScriptOptions((), metric="accuracy (.*)")
    runner = ScriptedRunner(observed=SEEN)
    with pytest.raises(UsageError, match=r"--metric-regex is given\. Leave one of the two out"):
        events_of(options_in(tmp_path, script=script, objective="time-to-loss"), runner)
    assert not runner.jobs, "refused at once"


@pytest.mark.parametrize(("name", "advises"), [("time-to-loss", False), ("throughput", True)])
def test_a_metric_is_advised_only_where_the_objective_takes_one(tmp_path, name, advises):
    flags = ScriptFlag(("--batch-size",), 16), ScriptFlag(("--layers",), 2)
    loss = ObservedLoss("", LOSSES.losses, moves=LOSSES.moves)
    seen = replace(SEEN, loss=loss, surroundings=Surroundings(flags))
    larger = replace(LOSSES, losses=tuple(3 * loss for loss in LOSSES.losses))
    runner = ScriptedRunner(observed=seen, first_steps=lambda config: larger)
    own = "flags:\n  --layers: {values: [2, 3], effect: statistics}\n"
    space = f"batch_size: [16, 64]\namp_dtype: [null, bfloat16]\n{own}"
    script = ScriptOptions((), (Flag("batch_size", "--batch-size"),))
    notes = survey(options_in(tmp_path, space, script=script, objective=name), runner).space.notes
    for said in ("not a per-sample mean", "the training loss cannot compare that"):
        (note,) = [note for note in notes if said in note]
        assert ("--metric-regex" in note) is advises


@pytest.mark.parametrize("value", ["", "low", "1e999"])
def test_a_loss_that_is_no_number_is_refused(value):
    with pytest.raises(click.BadParameter, match="is not an objective"):
        objective(f"time-to-loss={value}")


@pytest.mark.parametrize("text", ["speed", "throughput=1"])
def test_another_objective_is_refused_with_an_example(text):
    with pytest.raises(click.BadParameter, match="write throughput, time-to-loss or"):
        objective(text)
