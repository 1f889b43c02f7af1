"""A study with a journal is whole again, whatever became of its database or of the journal."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from autotune.configuration.search_space import SearchSpace
from autotune.values.errors import StorageError
from covering import covers
from study_factories import CRASHED, HOLDS, OOM, finish, note, opened, repaired, tell

DRIFT_CHECK = {"trials": 4, "samples_per_second": 101.5}


def told(study):
    return [(t.number, t.config, t.verdict) for t in study.finished()]


def test_the_leading_process_is_known_from_the_storage_alone(
    nine: SearchSpace, url: str, tmp_path: Path
) -> None:
    study = opened(url, nine, tmp_path)
    for name, fact in (("leader", {"pid": 1}), ("closed", True)):
        note(tmp_path, name, fact)
    assert opened(url, nine, tmp_path).notes.leader is None
    assert not opened(url, nine, tmp_path).notes.is_closed
    before = (tmp_path / "results.jsonl").read_bytes()
    study.notes.leader = lease = study._mutex.lease
    study.notes.is_closed = True
    assert opened(url, nine, tmp_path).notes.leader == lease
    assert opened(url, nine, tmp_path).notes.is_closed
    assert (tmp_path / "results.jsonl").read_bytes() == before


def test_numbers_stay_the_same_where_trials_were_lost_between(
    nine: SearchSpace, url: str, tmp_path: Path
) -> None:
    study = opened(url, nine, tmp_path)
    tell(study, 80.0, HOLDS)
    study.lose(study.ask()[0], "the machine was away")
    late = study.ask()[0]
    tell(study, 90.0, HOLDS)
    finish(study, late, 85.0)  # after a higher number
    assert [number for number, _, _ in told(study)] == [0, 2, 3]
    (tmp_path / "study.db").unlink()
    again = opened(url, nine, tmp_path)
    assert told(again) == told(study)
    states = [trial.state.name for trial in again._study.trials]
    assert states == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert tell(again, 70.0, HOLDS) not in [config for _, config, _ in told(study)]


def test_a_trial_that_cannot_be_given_up_says_why_however_often_that_is_tried(
    nine: SearchSpace, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = opened(url, nine)
    number, _ = study.ask()

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(study._stored.storage, "set_trial_user_attr", fails)
    with pytest.raises(OSError, match="No space left"):
        study.lose(number, "the machine was away")
    study.lose(number, "interrupted")


def test_a_database_that_is_gone_is_made_from_the_journal(
    nine: SearchSpace, url: str, tmp_path: Path
) -> None:
    study = opened(url, nine, tmp_path)
    study.notes.numerics_checks = {"a": "1"}
    for value, margins in ((80.0, HOLDS), (90.0, OOM), (None, CRASHED)):
        tell(study, value, margins)
    stored = [trial.value for trial in study._study.trials]
    (tmp_path / "study.db").unlink()
    again = opened(url, nine, tmp_path)
    assert told(again) == told(study)
    assert [trial.value for trial in again._study.trials] == stored
    assert again.notes.numerics_checks == {"a": "1"}


@pytest.mark.parametrize("step", ["get_trials", "tell"], ids=["nothing told", "not finished"])
def test_a_trial_that_was_written_down_but_not_told_is_told_under_its_number(
    step: str, nine: SearchSpace, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = opened(url, nine, tmp_path)
    tell(study, 80.0, HOLDS)
    number, _ = study.ask()

    def dies(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as crash:
        crash.setattr(optuna.Study, step, dies)
        with pytest.raises(KeyboardInterrupt):
            finish(study, number, 90.0)
    states = [trial.state for trial in study._study.trials]
    assert states == [TrialState.COMPLETE, TrialState.RUNNING]
    again = opened(url, nine, tmp_path)
    assert [(number, verdict.value) for number, _, verdict in told(again)] == [(0, 80), (1, 90)]
    assert again.reap() == 0
    assert told(opened(url, nine, tmp_path)) == told(again), "told once"


def test_a_note_that_was_written_down_but_not_kept_is_kept(
    nine: SearchSpace, url: str, tmp_path: Path
) -> None:
    for times in (1, 2):
        note(tmp_path, "first_drift_checks", [DRIFT_CHECK] * times)
        checks = opened(url, nine, tmp_path).notes.drift_checks("")
        assert list(map(asdict, checks)) == [DRIFT_CHECK] * times


def test_a_journal_that_is_gone_is_made_from_the_database(
    nine: SearchSpace, url: str, tmp_path: Path
) -> None:
    study = opened(url, nine, tmp_path)
    study.notes.numerics_checks = {"a": "1"}
    tell(study, 80.0, HOLDS)
    (tmp_path / "results.jsonl").unlink()
    opened(url, nine, tmp_path)
    (tmp_path / "study.db").unlink()
    again = opened(url, nine, tmp_path)
    assert told(again) == told(study)
    assert again.notes.numerics_checks == {"a": "1"}


@covers("S2")
def test_repair_makes_the_database_anew_and_keeps_every_old_one(
    nine: SearchSpace, url: str, tmp_path: Path
) -> None:
    study = opened(url, nine, tmp_path)
    for value in (80.0, 90.0):
        tell(study, value, HOLDS)
    database = tmp_path / "study.db"
    for number in (1, 2):
        rubbish = f"rubbish {number}".encode() * 1000
        database.write_bytes(rubbish)
        backup = tmp_path / f"study.db.bak-{number}"
        assert repaired(tmp_path).splitlines() == [
            f"{database} was rebuilt from 2 finished trials.",
            f"The old file is {backup}.",
        ]
        assert backup.read_bytes() == rubbish
        assert told(opened(url, nine, tmp_path)) == told(study)
    assert (tmp_path / "study.db.bak-1").read_bytes() == b"rubbish 1" * 1000
    assert not (tmp_path / "study.db.rebuilt").exists()


@covers("S19")
def test_repair_takes_a_trial_whose_line_is_damaged_from_the_old_database(
    nine: SearchSpace, url: str, tmp_path: Path
) -> None:
    study = opened(url, nine, tmp_path)
    study.notes.numerics_checks = {"a": "1"}
    for value in (80.0, 90.0, 70.0):
        tell(study, value, HOLDS)
    journal = tmp_path / "results.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    damaged = [line.replace(b'"kind"', b'"k\0nd"') for line in lines[:-1]]
    journal.write_bytes(b"".join([*damaged, lines[-1]]))
    with pytest.raises(StorageError, match=r"line 1 is not readable.*autotune repair"):
        opened(url, nine, tmp_path)
    said = repaired(tmp_path)
    assert "rebuilt from 3 finished trials" in said
    assert f"{len(damaged)} unreadable lines were moved" in said
    (tmp_path / "study.db").unlink()  # the journal has them again, too
    again = opened(url, nine, tmp_path)
    assert told(again) == told(study)
    assert again.notes.numerics_checks == {"a": "1"}


def test_repair_takes_nothing_from_an_old_database_that_is_damaged(
    nine: SearchSpace, url: str, tmp_path: Path
) -> None:
    study = opened(url, nine, tmp_path)
    for value in (80.0, 90.0, 70.0):
        tell(study, value, HOLDS)
    with closing(sqlite3.connect(tmp_path / "study.db")) as database:
        database.execute("UPDATE trial_user_attributes SET value_json = '{' WHERE key = 'config'")
        database.commit()
    journal = tmp_path / "results.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:-1], b"\xff\n"]))
    assert "rebuilt from 2 finished trials" in repaired(tmp_path)
    assert told(opened(url, nine, tmp_path)) == told(study)[:2]


def test_repair_without_a_trial_changes_nothing(tmp_path: Path) -> None:
    database = tmp_path / "study.db"
    database.write_bytes(b"rubbish")
    with pytest.raises(StorageError, match="does not exist"):
        repaired(tmp_path)
    note(tmp_path, "n", 1)
    with pytest.raises(StorageError, match="holds no finished trial"):
        repaired(tmp_path)
    assert database.read_bytes() == b"rubbish"


def test_a_repaired_study_is_what_optuna_alone_reads(
    nine: SearchSpace, url: str, tmp_path: Path
) -> None:
    study = opened(url, nine, tmp_path)
    wanted = next(config for config in nine.configurations() if config["num_workers"])
    finish(study, study.ask(wanted)[0], 80.0)  # none idle
    (before,) = study._study.trials
    repaired(tmp_path)
    (after,) = optuna.load_study(study_name="s", storage=url).trials
    assert (after.params, after.distributions) == (before.params, before.distributions)
    assert after.constraints == before.constraints
    assert dict(after.user_attrs).items() <= dict(before.user_attrs).items()
