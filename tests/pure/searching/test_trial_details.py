"""What a search stores of its trials and foretells from them: details and drift."""

import json
from dataclasses import replace

import pytest

from autotune.searching.run.search_run import details_of
from autotune.searching.trials.drift import drift
from autotune.study.facts import TrialDetails
from autotune.values.outcome import Crashed, Measured, OutOfMemory
from factories import measurement

TIMED = ["outcome", "seconds", "stored_measurement", "timing_seconds"]


def told(details, **known):
    """As the study loop completes them."""
    return replace(details, timing_seconds=2.0, training="own", **known)


def stored(details):
    return json.loads(json.dumps(details.as_attributes()))


def test_a_trial_is_stored_under_the_names_of_what_is_known():
    timed = stored(told(details_of(Measured(measurement()), 3.0), quality=0.9))
    shown = ["samples_per_second", "peak_memory_bytes", "quality", "training"]
    assert list(timed) == [*shown, "details"]
    assert list(timed["details"]) == TIMED
    failed = stored(told(details_of(Crashed("why"), 3.0)))
    assert list(failed) == ["training", "details"]
    assert list(failed["details"]) == ["outcome", "seconds", "timing_seconds"]
    foreseen = stored(told(details_of(OutOfMemory("host", "why", foreseen=True), 0.0)))
    assert foreseen["details"]["foreseen"] is True


def test_a_number_that_is_zero_is_kept():
    assert TrialDetails(seconds=0.0).as_attributes()["details"] == {"seconds": 0.0}


@pytest.mark.parametrize("outcome", [Measured(measurement()), Crashed("why")])
def test_a_trial_is_read_back_as_it_was_told(outcome):
    details = told(details_of(outcome, 3.0), quality=0.9)
    read = TrialDetails.of({**stored(details), "config": {}, "of another program": [1]})
    assert stored(read) == stored(details)
    assert read.measurement == (outcome.measurement if isinstance(outcome, Measured) else None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seconds", "1.5"),
        ("foreseen", 1),
        ("peak_memory_bytes", 1.5),
        ("stored_measurement", [1]),
        ("training", 7),
    ],
)
def test_another_type_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f" at {name}"):
        TrialDetails.of({"details": {name: value}})


def test_a_measurement_that_is_none_is_left_out():
    assert (
        TrialDetails.of({"details": {"stored_measurement": {"blocks": "many"}}}).measurement is None
    )


@pytest.mark.parametrize(("rate", "speed"), [(100.5, 1.0), (98.0, 1.0), (80.0, 0.8), (130.0, 1.3)])
def test_a_drift_counts_only_beyond_the_noise(rate, speed):
    assert drift([99.0, 100.0, 101.0], rate) == speed


def test_runs_that_differ_among_themselves_hide_a_drift():
    assert drift([80.0, 100.0, 120.0], 80.0) == 1.0


def test_a_baseline_that_could_not_be_timed_again_tells_of_no_drift():
    assert drift([99.0, 100.0, 101.0], 0.0) == 1.0
