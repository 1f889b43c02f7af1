"""The accuracy that the answer tells: over which seeds, by how much, and how fine that is."""

import re
from dataclasses import replace

import pytest

from autotune.configuration.job import Probe
from autotune.process.stop import OUT_OF_TIME
from autotune.searching.run.events import TrialEnded
from autotune.values.outcome import Inspected, Lost
from factories import cpu_machine
from scripted_runner import FACTS, ScriptedRunner, at, batch_of, events_of, unstored_in
from shown_search import lines_of

RATES = {8: 100, 16: 101, 32: 150, 64: 102, 128: 153}
OWN = (0.80, 0.81, 0.82, 0.90, 0.91, 0.92)
"""The baseline's quality, seed by seed."""


def losing(losses):
    """A runner with which seed n of a batch size loses `losses[batch][n]`."""

    def quality(config, seed):
        return OWN[seed % 6] - losses.get(batch_of(config), (0.0,) * 6)[seed % 6]

    return ScriptedRunner(lambda config, phase: at(RATES[batch_of(config)]), quality)


def searched(folder, losses, **changes):
    """The events of a search with such losses."""
    return events_of(unstored_in(folder, **changes), losing(losses))


def accuracy_of(events):
    return events[-1].best.constraints.accuracy


UNDECIDED = (0.0, 0.03, 0.0, 0.03, 0.0, 0.03)
"""Six seeds cannot tell this from a loss of a hundredth."""
SLIGHT = (0.002, 0.004, 0.003, 0.002, 0.004, 0.003)


def test_both_qualities_are_means_over_the_same_seeds(tmp_path):
    runner = losing({128: UNDECIDED, 32: SLIGHT})
    events = events_of(unstored_in(tmp_path), runner)
    accuracy = accuracy_of(events)
    assert sum(len(seeds) for batch, seeds in runner.probes() if batch == 8) == 6
    assert events[-1].best.config["batch_size"] == 32
    assert accuracy.seeds == 3
    assert accuracy.baseline == pytest.approx(0.81)
    assert accuracy.best == pytest.approx(0.807)


def test_the_difference_is_the_mean_of_the_paired_ones_with_its_interval(tmp_path):
    accuracy = accuracy_of(searched(tmp_path, {32: SLIGHT, 128: (0.5,) * 6}))
    assert accuracy.difference == pytest.approx(-0.003)
    low, high = accuracy.difference_ci90
    # Student's t at 98 %, for each look, with two degrees of freedom is 4.8487; deviation 0.001.
    assert (low, high) == pytest.approx((-0.003 - 0.002799, -0.003 + 0.002799), abs=1e-6)


def test_settings_that_are_kept_differ_by_nothing_and_were_not_trained_twice(tmp_path):
    accuracy = accuracy_of(searched(tmp_path, dict.fromkeys((16, 32, 64, 128), (0.5,) * 6)))
    assert (accuracy.difference, accuracy.difference_ci90) == (0.0, None)
    assert accuracy.baseline == accuracy.best


def test_the_probe_says_its_share_of_an_epoch_and_of_the_run(tmp_path):
    asked = {"accuracy_samples": 640, "run_samples": 50_000}
    accuracy = accuracy_of(searched(tmp_path, {32: SLIGHT, 128: (0.5,) * 6}, **asked))
    assert FACTS.dataset_samples == 10_000
    assert (accuracy.samples, accuracy.epochs) == (640, 0.064)
    assert accuracy.share_of_run == 0.0128
    low, high = accuracy.difference_ci90
    assert accuracy.smallest_shown == pytest.approx((high - low) / 2, abs=1e-6)


def test_seeds_that_lose_equally_are_no_finer_than_the_steps_of_the_quality(tmp_path):
    accuracy = accuracy_of(searched(tmp_path, {32: (0.005,) * 6, 128: (0.5,) * 6}))
    # Steps of 0.005: a deviation of 0.005/sqrt(6), times 2.0537/sqrt(3).
    assert accuracy.smallest_shown == pytest.approx(0.002420, abs=1e-6)
    assert accuracy.probe_text.endswith("difference: 0.0024")


def test_a_quality_that_never_moves_does_not_say_how_fine_it_is(tmp_path):
    runner = losing({})
    runner.quality = lambda config, seed: 0.9 if batch_of(config) != 64 else 0.5
    accuracy = accuracy_of(events_of(unstored_in(tmp_path), runner))
    assert accuracy.smallest_shown == 0
    assert "the same with every seed" in accuracy.probe_text


def test_a_stream_has_no_epoch_and_a_search_of_throughput_no_run(tmp_path):
    runner = losing({32: SLIGHT, 128: (0.5,) * 6})
    runner.inspected = Inspected(cpu_machine(), replace(FACTS, dataset_samples=None))
    accuracy = accuracy_of(events_of(unstored_in(tmp_path), runner))
    assert (accuracy.epochs, accuracy.share_of_run) == (None, None)
    assert "epoch" not in accuracy.probe_text


def test_a_trial_that_is_refused_says_its_quality_the_limit_and_the_seeds(tmp_path):
    events = searched(tmp_path, {128: (0.5,) * 6})
    reasons = [one.trial.verdict.reason for one in events if isinstance(one, TrialEnded)]
    (refused,) = [reason for reason in reasons if reason]
    assert re.fullmatch(r"evaluate is 0\.3, minimum 0\.7\d* \(1 seed\)", refused)


LOSS = replace(FACTS, has_evaluate=False)


def loss_of(losses, untrained):
    """A runner of a workload whose quality is a held-out loss, 0.088 with the user's settings."""

    def quality(config, seed):
        return 0.088 + losses.get(batch_of(config), 0.0) + 0.0005 * seed

    rates = lambda config, phase: at(RATES[batch_of(config)])  # noqa: E731
    return ScriptedRunner(
        rates, quality, inspected=Inspected(cpu_machine(), LOSS), untrained=untrained
    )


def test_of_a_loss_a_percent_of_what_training_gained_is_allowed(tmp_path):
    runner = loss_of({128: 0.05, 32: 0.03}, untrained=4.0885)
    accuracy = accuracy_of(events_of(unstored_in(tmp_path), runner))
    assert accuracy.best == pytest.approx(0.1185), "0.03 worse, of 0.04 allowed"
    assert accuracy.tolerance == pytest.approx(0.040005)
    assert (
        accuracy.allowed
        == "1 % of what training gained (held_out_loss 4.088 before, 0.088 after, with seed 0)"
    )
    asked = [job.task for job in runner.jobs if isinstance(job.task, Probe)]
    assert [task.untrained for task in asked].count(True) == 1, "once, for the baseline's first"


def test_a_probe_in_which_training_gained_nothing_is_said_to_allow_nothing(tmp_path):
    events = events_of(unstored_in(tmp_path), loss_of(dict.fromkeys((16, 32, 64), 0.03), 0.08))
    accuracy = accuracy_of(events)
    assert accuracy.tolerance == 0
    assert "a short training gained nothing" in accuracy.allowed_text
    (told,) = [line for line in lines_of(events) if line.startswith("warning: a short training")]
    assert "--accuracy-samples" in told


def test_a_floor_that_binds_is_among_what_is_allowed(tmp_path):
    losses = {32: SLIGHT, 128: (0.5,) * 6}
    accuracy = accuracy_of(searched(tmp_path, losses, min_accuracy=0.805))
    assert accuracy.allowed == "1 % of your evaluate, and at least 0.805"


SCATTERING = (0.0, 0.03, -0.03, 0.03, -0.03, 0.03)
"""As good as the baseline on average, but six pairs differ too much to show it."""


def test_what_six_seeds_leave_undecided_is_named_with_value_limit_and_seeds(tmp_path):
    events = searched(tmp_path, {128: SCATTERING, 32: SLIGHT})
    best = events[-1].best
    assert best.config["batch_size"] == 32
    (missed,) = best.evidence.not_proven
    assert (missed.changed, missed.seeds) == ({"batch_size": 128}, 6)
    assert missed.quality == pytest.approx(sum(OWN) / 6 - 0.005, abs=1e-6)
    assert missed.limit == pytest.approx(sum(OWN) / 6 - 0.0081, abs=1e-6)
    assert missed.bound < missed.limit < missed.quality
    lines = lines_of(events)
    (told,) = [line for line in lines if line.startswith("  not proven ")]
    assert all(f"{number:.6g}" in told for number in (missed.quality, missed.bound, missed.limit))
    assert any(line.startswith("  to decide   --accuracy-tolerance") for line in lines)


def test_seeds_that_the_baseline_has_not_had_yet_are_left_out(tmp_path):
    """The time budget ends whenever the baseline is to train with a fourth seed."""

    def instead(job, outcome):
        own = isinstance(job.task, Probe) and job.config["batch_size"] == 8
        return Lost(OUT_OF_TIME) if own and max(job.task.seeds) > 2 else outcome

    runner = replace(losing({128: SCATTERING, 32: SLIGHT}), instead=instead)
    best = events_of(unstored_in(tmp_path), runner)[-1].best
    assert sum(len(seeds) for batch, seeds in runner.probes() if batch == 128) > 3
    assert best.config["batch_size"] == 32
    (missed,) = best.evidence.not_proven
    assert (missed.changed, missed.seeds) == ({"batch_size": 128}, 3)
