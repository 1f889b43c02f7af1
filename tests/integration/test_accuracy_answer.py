"""What the answer says of its accuracy: over which seeds, by how much, and how fine that is."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.configuration.accuracy_evidence import AccuracyEvidence
from autotune.searching.run.events import Answered, Event, TrialEnded
from autotune.values.outcome import Inspected
from factories import cpu_machine
from scripted_runner import FACTS, ScriptedRunner, at, batch_of, events_of, options_in
from shown_events import lines_of

RATES = {8: 100, 16: 101, 32: 150, 64: 102, 128: 153}
OWN = (0.80, 0.81, 0.82, 0.90, 0.91, 0.92)
"""The baseline's quality, seed by seed."""


def losing(losses: dict[int, tuple[float, ...]]) -> ScriptedRunner:
    """A runner with which seed n of a batch size loses `losses[batch][n]`."""

    def quality(config, seed):
        return OWN[seed] - losses.get(batch_of(config), (0.0,) * 6)[seed]

    return ScriptedRunner(lambda config, phase: at(RATES[batch_of(config)]), quality)


def searched(folder: Path, losses: dict[int, tuple[float, ...]], **changes: Any) -> list[Event]:
    """The events of a search with such losses."""
    return events_of(options_in(folder, **changes), losing(losses))


def accuracy_of(events: list[Event]) -> AccuracyEvidence:
    assert isinstance(events[-1], Answered)
    return events[-1].best.constraints.accuracy


UNDECIDED = (0.0, 0.03, 0.0, 0.03, 0.0, 0.03)
"""Six seeds cannot tell this from a loss of a hundredth."""
SLIGHT = (0.002, 0.004, 0.003, 0.002, 0.004, 0.003)


def test_both_qualities_are_means_over_the_same_seeds(tmp_path):
    runner = losing({128: UNDECIDED, 32: SLIGHT})
    events = events_of(options_in(tmp_path), runner)
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
    # Student's t at 95 % with two degrees of freedom is 2.92, the deviation 0.001.
    assert (low, high) == pytest.approx((-0.003 - 0.001686, -0.003 + 0.001686), abs=1e-6)


def test_the_end_of_a_search_tells_the_difference_and_not_two_means_alone(tmp_path):
    events = searched(tmp_path, {32: SLIGHT, 128: (0.5,) * 6})
    told = "\n".join(lines_of(events))
    assert (
        "evaluate    0.81 -> 0.807, difference -0.003 (-0.00469 to -0.00131) over the same 3 seeds;"
        in told
    )


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


def test_a_stream_has_no_epoch_and_a_search_of_throughput_no_run(tmp_path):
    runner = losing({32: SLIGHT, 128: (0.5,) * 6})
    runner.inspected = Inspected(cpu_machine(), replace(FACTS, dataset_samples=None))
    accuracy = accuracy_of(events_of(options_in(tmp_path), runner))
    assert (accuracy.epochs, accuracy.share_of_run) == (None, None)
    assert "epoch" not in accuracy.probe_text


def test_a_trial_that_is_refused_says_its_quality_the_limit_and_the_seeds(tmp_path):
    events = searched(tmp_path, {128: (0.5,) * 6})
    reasons = [one.trial.verdict.reason for one in events if isinstance(one, TrialEnded)]
    (refused,) = [reason for reason in reasons if reason]
    assert re.fullmatch(
        r"accuracy: evaluate 0\.3 is 0\.49\d* below the limit 0\.7\d* \(1 seed\)", refused
    )
