"""Trials that count no longer as accurate, though that is not what they were told."""

import optuna
import pytest

from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from study_factories import HOLDS, OOM, finish, opened, reported


@pytest.fixture
def told(nine: SearchSpace, url: str):
    """Three trials: two that were trained alike, of which one did not fit, and another."""
    study = opened(url, nine, sampler="auto")
    for value, margins, kind in [(3.0, HOLDS, "large"), (None, OOM, "large"), (2.0, HOLDS, "own")]:
        number, _ = study.ask()
        reason = "" if value else "memory"
        finish(study, number, value, margins, reason, training_equivalent=kind)
    return study


def reasons(study) -> list[str]:
    return [trial.verdict.reason for trial in study.finished()]


def test_trials_that_train_alike_are_infeasible_after_a_revocation(told, url):
    told.revoke("large", 0.02, "accuracy: worse")
    assert reasons(told) == ["accuracy: worse", "memory", ""]
    assert [trial.verdict.margins["accuracy"] for trial in told.finished()] == [0.02, 0.0, -0.01]
    assert [trial.verdict.feasible for trial in told.finished()] == [False, False, True]
    assert reported(url).incumbent.number == 2
    told.disconnect()


def test_a_study_that_is_opened_or_read_later_has_the_revocation(told, nine, url):
    told.revoke("large", 0.02, "accuracy: worse")
    told.disconnect()
    again = opened(url, nine)
    again.reap()
    assert reasons(again) == ["accuracy: worse", "memory", ""]
    again.disconnect()
    assert [t.verdict.reason for t in reported(url).trials] == reasons(again)


def test_a_reader_sees_what_was_found_out_of_the_accuracy_since(told, url):
    told.notes.qualities = {"large": [0.5, 0.7], "own": [0.8]}
    told.notes.margins = {"large": 0.02, "own": -0.25}
    trials = reported(url).trials
    assert [trial.details.quality for trial in trials] == [0.6, None, 0.8]
    assert [trial.verdict.margins["accuracy"] for trial in trials] == [-0.01, 0.0, -0.25]
    assert all(trial.verdict.feasible for trial in trials[::2]), "only a revocation takes that back"
    told.disconnect()


def test_a_trial_that_was_never_judged_shows_nothing_that_others_were(nine, url):
    study = opened(url, nine, sampler="auto")
    number, _ = study.ask()
    finish(study, number, 3.0, {**HOLDS, "accuracy": 0.0}, training_equivalent="own")
    study.notes.set_qualities("own", [0.8])
    study.notes.set_margin("own", -0.25)
    (trial,) = reported(url).trials
    assert (trial.details.quality, trial.verdict.margins["accuracy"]) == (None, 0.0)
    study.disconnect()


def test_a_trial_told_after_the_revocation_is_infeasible_too(told, url):
    number, _ = told.ask()
    told.revoke("large", 0.02, "accuracy: worse")
    trial = finish(told, number, 9.0, training_equivalent="large")
    assert trial.verdict.reason == "accuracy: worse"
    assert [one.number for one in told.finished() if one.verdict.feasible] == [2]
    assert reported(url).incumbent.number == 2
    told.disconnect()


def test_a_single_trial_may_be_revoked(told):
    told.revoke("trial 2", 1.0, "accuracy: gradients differ")
    assert reasons(told) == ["", "memory", "accuracy: gradients differ"]
    told.disconnect()


def test_optuna_alone_reads_the_revocation(told, url):
    told.revoke("large", 0.02, "accuracy: worse")
    told.disconnect()
    study = optuna.load_study(study_name="s", storage=url)
    assert list(study.trials[0].constraints.values()) == [-0.5, 0.02, -1.0]
    assert study.best_trial.number == 2
    assert max(study.trials, key=lambda trial: trial.value).number == 2, "by value alone"


def test_the_sampler_learns_that_it_is_not_feasible(told, monkeypatch):
    seen = []
    sampler = told._study.sampler
    plain = sampler._seen
    monkeypatch.setattr(sampler, "_seen", lambda *a: seen.append(plain(*a)) or seen[-1])
    told.ask()
    told.revoke("large", 0.02, "accuracy: worse")
    told.ask()
    told.disconnect()
    before, after = (found.feasible for found in seen)
    assert before[:3] == [True, False, True]
    assert after[:3] == [False, False, True]


def test_a_trial_of_another_kind_or_of_an_older_study_stays(told):
    number, config = told.ask()
    finish(told, number, 1.0)
    told.revoke("large", 0.02, "accuracy: worse")
    assert told.finished()[-1].verdict.feasible
    assert isinstance(config, TrainingConfig)
    told.disconnect()
