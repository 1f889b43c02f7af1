"""What becomes known of the accuracy of trials after the study was told."""

import pytest

from study_factories import HOLDS, OOM, finish, opened, reported


@pytest.fixture
def told(nine, url):
    """Three trials: two that were trained alike, of which one did not fit, and another."""
    study = opened(url, nine, sampler="auto")
    for value, margins, kind in [(3.0, HOLDS, "large"), (None, OOM, "large"), (2.0, HOLDS, "own")]:
        number, _ = study.ask()
        reason = "" if value else "memory"
        finish(study, number, value, margins, reason, training=kind)
    return study


def test_a_reader_sees_what_was_found_out_of_the_accuracy_since(told, url):
    for training, qualities in (("large", [0.5, 0.7]), ("own", [0.8])):
        told.notes.qualities[training] = qualities
    trials = reported(url).trials
    assert [trial.details.quality for trial in trials] == [0.6, None, 0.8]
    assert [trial.verdict.margins["accuracy"] for trial in trials] == [-0.01, 0.0, -0.01], "as told"
    told.disconnect()


def test_a_trial_that_was_never_judged_shows_nothing_that_others_were(nine, url):
    study = opened(url, nine, sampler="auto")
    number, _ = study.ask()
    finish(study, number, 3.0, {**HOLDS, "accuracy": 0.0}, training="own")
    study.notes.qualities["own"] = [0.8]
    (trial,) = reported(url).trials
    assert (trial.details.quality, trial.verdict.margins["accuracy"]) == (None, 0.0)
    study.disconnect()
