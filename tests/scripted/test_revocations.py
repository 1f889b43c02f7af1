"""Trials that count no longer as accurate, though that is not what they were told."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import optuna
import optuna_dashboard
import pytest

from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.sampling.surrogate_sampler import Proposals
from autotune.study import storage as storages
from autotune.study.facts import Revocation
from autotune.study.shown import Shown
from autotune.values.errors import StorageError
from study_factories import HOLDS, OOM, finish, opened, reported, tell


@pytest.fixture
def told(nine: SearchSpace, url: str):
    """Three trials: two that were trained alike, of which one did not fit, and another."""
    study = opened(url, nine, sampler="auto")
    for value, margins, kind in [(3.0, HOLDS, "large"), (None, OOM, "large"), (2.0, HOLDS, "own")]:
        number, _ = study.ask()
        reason = "" if value else "memory"
        finish(study, number, value, margins, reason, training=kind)
    return study


def reasons(study) -> list[str]:
    return [trial.verdict.reason for trial in study.finished()]


def test_trials_that_train_alike_are_infeasible_after_a_revocation(told, url):
    told.revoke("large", Revocation(0.02, "accuracy: worse"))
    assert reasons(told) == ["accuracy: worse", "memory", ""]
    assert [trial.verdict.margins["accuracy"] for trial in told.finished()] == [0.02, 0.0, -0.01]
    assert [trial.verdict.feasible for trial in told.finished()] == [False, False, True]
    assert reported(url).incumbent.number == 2
    told.disconnect()


def test_a_study_that_is_opened_or_read_later_has_the_revocation(told, nine, url):
    told.revoke("large", Revocation(0.02, "accuracy: worse"))
    told.disconnect()
    again = opened(url, nine)
    assert reasons(again) == ["accuracy: worse", "memory", ""]
    again.disconnect()
    assert [t.verdict.reason for t in reported(url).trials] == reasons(again)


def test_a_reader_sees_what_was_found_out_of_the_accuracy_since(told, url):
    for training, qualities, margin in (("large", [0.5, 0.7], 0.02), ("own", [0.8], -0.25)):
        told.notes.qualities[training] = qualities
        told.notes.margins[training] = margin
    trials = reported(url).trials
    assert [trial.details.quality for trial in trials] == [0.6, None, 0.8]
    assert [trial.verdict.margins["accuracy"] for trial in trials] == [-0.01, 0.0, -0.25]
    assert all(trial.verdict.feasible for trial in trials[::2]), "only a revocation takes that back"
    told.disconnect()


def test_a_trial_that_was_never_judged_shows_nothing_that_others_were(nine, url):
    study = opened(url, nine, sampler="auto")
    number, _ = study.ask()
    finish(study, number, 3.0, {**HOLDS, "accuracy": 0.0}, training="own")
    study.notes.qualities["own"] = [0.8]
    study.notes.margins["own"] = -0.25
    (trial,) = reported(url).trials
    assert (trial.details.quality, trial.verdict.margins["accuracy"]) == (None, 0.0)
    study.disconnect()


def test_a_trial_told_after_the_revocation_is_infeasible_too(told, url):
    number, _ = told.ask()
    told.revoke("large", Revocation(0.02, "accuracy: worse"))
    trial = finish(told, number, 9.0, training="large")
    assert trial.verdict.reason == "accuracy: worse"
    assert [one.number for one in told.finished() if one.verdict.feasible] == [2]
    assert reported(url).incumbent.number == 2
    told.disconnect()


def test_a_single_trial_may_be_revoked(told):
    told.revoke("trial 2", Revocation(1.0, "accuracy: gradients differ"))
    assert reasons(told) == ["", "memory", "accuracy: gradients differ"]
    told.disconnect()


def test_a_dashboard_shows_the_revocation_while_the_search_goes_on(told, url):
    told.revoke("large", Revocation(0.02, "accuracy: worse"))
    storage = storages.existing(url, Shown)
    study_id = storage.get_study_id_from_name("s")
    trials = storage.get_all_trials(study_id)
    assert [list(trial.constraints.values())[1] for trial in trials] == [0.02, 0.0, -0.01]
    assert trials[0].user_attrs["reason"] == "accuracy: worse"
    assert storage.get_best_trial(study_id).number == 2
    assert max(trials, key=lambda trial: trial.value).number == 2, "by value alone"
    assert [trial.number for trial in storage.get_all_trials(study_id, states=())] == []
    assert best(url) == 0, "what was told stays until the search ends"
    storages.disconnect(storage)
    told.disconnect()


def test_optuna_alone_reads_the_revocation(told, url):
    told.revoke("large", Revocation(0.02, "accuracy: worse"))
    told.disconnect()
    study = optuna.load_study(study_name="s", storage=url)
    assert list(study.trials[0].constraints.values()) == [-0.5, 0.02, -1.0]
    assert study.best_trial.number == 2
    assert max(study.trials, key=lambda trial: trial.value).number == 2, "by value alone"
    assert study.trials[0].user_attrs["reason"] == "accuracy: worse"


def of_optuna(url: str, name: str = "s") -> optuna.Study:
    return optuna.load_study(study_name=name, storage=url)


def best(url: str) -> int:
    """The number of the trial that Optuna takes for the best."""
    return of_optuna(url).best_trial.number


def test_all_else_stays_as_it_was(told, url, nine):
    told.lose(told.ask()[0], "the machine was away")
    without = (c for c in nine.configurations() if (c["batch_size"], c["num_workers"]) == (32, 0))
    _, config = told.ask(next(without))
    other = optuna.create_study(study_name="other", storage=url)
    other.add_trial(optuna.trial.create_trial(value=1.0))
    finish(told, told.ask()[0], 1.0)  # after the other study's trial
    optuna_dashboard.save_note(of_optuna(url), "of the study")
    before, others = of_optuna(url).trials, other.trials
    told.revoke("own", Revocation(0.02, "accuracy: worse"))
    told.disconnect()
    after = of_optuna(url)
    assert [trial.state for trial in after.trials] == [trial.state for trial in before]
    for was, now in zip(before, after.trials, strict=True):
        if was.number == 2:
            continue  # it was revoked
        assert (now.number, now.params, now.user_attrs) == (was.number, was.params, was.user_attrs)
        assert (now.datetime_start, now.datetime_complete) == (
            was.datetime_start,
            was.datetime_complete,
        )
    assert after.metric_names == ["samples/s"]
    assert optuna_dashboard.get_note(after) == "of the study"
    assert of_optuna(url, "other").trials == others
    again = opened(url, nine)
    assert again.take_back() == 1, "what was running"
    assert again.claim(9)[1] == config
    again.disconnect()


def test_what_the_dashboard_shows_of_a_trial_stays_with_it(told, url, tmp_path):
    optuna.create_study(study_name="other", storage=url).add_trial(
        optuna.trial.create_trial(value=1.0)
    )
    tell(told, 1.0, HOLDS)

    def names(storage, study_id) -> list[str]:
        ids = [storage.get_trial_id_from_study_id_trial_number(study_id, n) for n in range(4)]
        return [f"dashboard:{ids[0]}:note_str:0", f"dashboard:artifacts:{ids[3]}:1-2"]

    storage, study_id = told._storage, told._study_id
    before = names(storage, study_id)
    for name in before:
        storage.set_study_system_attr(study_id, name, json.dumps(name))
    told.revoke("large", Revocation(0.02, "accuracy: worse"))
    told.disconnect()
    storage = optuna.storages.RDBStorage(url)
    study_id = storage.get_study_id_from_name("s")
    after, shown = names(storage, study_id), storage.get_study_system_attrs(study_id)
    assert after != before
    assert [json.loads(shown[name]) for name in after] == before
    assert not set(before) & set(shown)


@pytest.mark.parametrize("step", ["delete_study", "create_study", "add_trials"])
def test_killed_while_it_is_rebuilt_the_database_is_whole_and_the_next_run_rebuilds_it(
    step: str, told, url: str, nine: SearchSpace, tmp_path: Path, monkeypatch
) -> None:
    told.revoke("large", Revocation(0.02, "accuracy: worse"))

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as crash:
        crash.setattr(optuna.Study if step == "add_trials" else optuna, step, dies)
        with pytest.raises(KeyboardInterrupt):
            told.disconnect()
    assert len(of_optuna(url).trials) == 3
    assert best(url) == 0, "as it was told"
    again = opened(url, nine)
    assert reasons(again) == ["accuracy: worse", "memory", ""]
    assert best(url) == 2
    again.disconnect()
    assert [path.name for path in tmp_path.glob("*.new*")] == []


def test_a_database_that_others_hold_is_rebuilt_by_the_next_run(
    told, url: str, nine: SearchSpace, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(storages, "PATIENCE_SECONDS", 0.1)
    told.revoke("large", Revocation(0.02, "accuracy: worse"))
    with closing(sqlite3.connect(tmp_path / "study.db")) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM trials").fetchall()
        told.disconnect()
        with pytest.raises(StorageError, match="database is locked"):
            opened(url, nine)
    assert best(url) == 0, "as it was told"
    opened(url, nine).disconnect()
    assert best(url) == 2


def test_a_study_without_revocations_is_left_alone(told, tmp_path: Path) -> None:
    before = (tmp_path / "study.db").read_bytes()
    told.disconnect()
    assert (tmp_path / "study.db").read_bytes() == before


def test_a_database_that_was_deleted_is_not_made_by_a_study_that_closes(told, tmp_path) -> None:
    told.revoke("large", Revocation(0.02, "accuracy: worse"))
    (tmp_path / "study.db").unlink()
    told.disconnect()
    assert not (tmp_path / "study.db").exists()


def test_the_sampler_learns_that_it_is_not_feasible(told, monkeypatch):
    seen = []
    plain = Proposals._seen
    monkeypatch.setattr(Proposals, "_seen", lambda *a: seen.append(plain(*a)) or seen[-1])
    told.ask()
    told.revoke("large", Revocation(0.02, "accuracy: worse"))
    told.ask()
    told.disconnect()
    before, after = (found.feasible for found in seen)
    assert before[:3] == [True, False, True]
    assert after[:3] == [False, False, True]


def test_a_trial_of_another_kind_or_of_an_older_study_stays(told):
    number, config = told.ask()
    finish(told, number, 1.0)
    told.revoke("large", Revocation(0.02, "accuracy: worse"))
    assert told.finished()[-1].verdict.feasible
    assert isinstance(config, TrainingConfig)
    told.disconnect()
