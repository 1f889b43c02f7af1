"""A study that is continued by another process, and storages that cannot be used."""

import re
import sqlite3
import subprocess
from pathlib import Path
from types import SimpleNamespace

import optuna
import psutil
import pytest
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from sqlalchemy import create_engine, event, text

from autotune.searching.run.events import Warned
from autotune.study import storage as database
from autotune.study.facts import FORMAT
from autotune.values.errors import StorageError, StudyMismatchError, UsageError
from covering import covers
from databases import SHIPPED
from scripted_runner import ScriptedRunner, events_of, options_in, unstored_in
from study_factories import CRASHED, HOLDS, OOM, finish, opened, reported, tell

SYNCHRONOUS_EXTRA = 3
"""SQLite's number of the mode in which a power cut undoes no transaction."""


def test_a_second_study_on_the_same_database_reads_everything_back(nine, url):
    first = opened(url, nine)
    for value, margins in ((80.0, HOLDS), (90.0, OOM), (None, CRASHED)):
        tell(first, value, margins)
    again = opened(url, nine)
    for old, new in zip(first.finished(), again.finished(), strict=True):
        assert (old.number, old.config, old.verdict) == (new.number, new.config, new.verdict)
        assert old.details == new.details


def test_a_continued_study_does_not_repeat_what_an_earlier_run_measured(nine, url):
    proposed = []
    for _ in range(3):  # three runs that draw the same random numbers
        study = opened(url, nine)
        proposed += [tell(study, 1.0, HOLDS) for _ in range(3)]
    assert len(set(proposed)) == 9


@covers("R6")
def test_trials_that_a_dead_process_left_running_are_failed_and_come_again(nine, url):
    dead = opened(url, nine)
    left = {dead.ask()[1], dead.ask()[1]}
    study = opened(url, nine)
    assert study.take_back() == 2
    assert study.take_back() == 0
    there = optuna.load_study(study_name="s", storage=url).trials
    assert [trial.state for trial in there] == [TrialState.FAIL] * 2 + [TrialState.WAITING] * 2
    assert left == {tell(study, 1.0, HOLDS) for _ in range(2)}


@covers("R5")
def test_a_configuration_that_kills_its_process_twice_is_not_tried_again(nine, url):
    deadly = opened(url, nine).claim(9)[1]
    for _ in range(2):
        study = opened(url, nine)
        assert study.take_back() == 1
        claimed = study.claim(9)[1]
    assert claimed != deadly
    assert not study.is_worth_a_try(deadly)


@pytest.mark.parametrize("step", ["set_trial_system_attr", "set_trial_state_values"])
def test_a_trial_that_was_half_told_is_measured_again(step, nine, url, monkeypatch):
    study = opened(url, nine)
    tell(study, 80.0, HOLDS)
    number, config = study.ask()

    def dies(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as crash:
        crash.setattr(RDBStorage, step, dies)
        with pytest.raises(KeyboardInterrupt):
            finish(study, number, 90.0, quality=0.5)
    again = opened(url, nine)
    assert [trial.verdict.value for trial in again.finished()] == [80.0]
    assert again.take_back() == 1
    number, claimed = again.claim(9)
    assert claimed == config
    finish(again, number, 91.0)
    last = opened(url, nine).finished()[-1]
    assert (last.verdict.value, last.details.quality) == (91.0, None), "nothing of the half is left"


@covers("S2")
def test_a_study_is_backed_up_when_it_is_opened_and_restored_by_the_command_that_is_named(
    nine, url, tmp_path
):
    file = tmp_path / "study.db"
    first = opened(url, nine)
    tell(first, 80.0, HOLDS)
    tell(first, 90.0, HOLDS)
    first.disconnect()
    opened(url, nine).disconnect()
    for content in (None, b"rubbish" * 1000, file.read_bytes()[: file.stat().st_size // 2]):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(StorageError, match="restores it") as refused:
            opened(url, nine)
        assert (file.read_bytes() if file.exists() else None) == content, "left as it is"
        (command,) = re.findall("`(rm .*?)`", str(refused.value))
        subprocess.run(command, shell=True, check=True)
        again = opened(url, nine)
        assert [trial.verdict.value for trial in again.finished()] == [80.0, 90.0]
        again.disconnect()


@covers("R10")
def test_a_study_of_something_else_is_refused_with_every_difference(nine, url):
    opened(url, nine).check_identity({"a": 1, "b": [2], "c": "x"})
    with pytest.raises(StudyMismatchError) as caught:
        opened(url, nine).check_identity({"a": 1, "b": [3], "c": "y"})
    assert str(caught.value).splitlines() == [
        "study 's' was made for something else:",
        "  b: [2] in the study, [3] now",
        '  c: "x" in the study, "y" now',
        "Use --new-study or --study NAME to start another study.",
    ]


def test_of_facts_in_facts_only_those_that_differ_are_named_and_digests_are_not_shown(nine, url):
    script = {"arguments_sha256": "a" * 64, "metric": [None, True]}
    space = {"num_threads": [1, 2], "num_workers": [0, 1]}
    opened(url, nine).check_identity({"script": script, "domains": space})
    now = {
        "script": script | {"arguments_sha256": "b" * 64},
        "domains": space | {"num_workers": [0, 4]},
    }
    with pytest.raises(StudyMismatchError) as caught:
        opened(url, nine).check_identity(now)
    assert str(caught.value).splitlines()[1:-1] == [
        "  the script's arguments or maps: not those of the study",
        "  domains.num_workers: [0, 1] in the study, [0, 4] now",
    ]


@covers("R12")
def test_a_study_in_another_form_is_refused_and_left_as_it_is(nine, url, tmp_path):
    study = opened(url, nine)
    study.check_identity({"format": FORMAT + 1})
    study.disconnect()
    before = (tmp_path / "study.db").read_bytes()
    with pytest.raises(UsageError, match="another version of autotune"):
        reported(url)
    again = opened(url, nine)
    with pytest.raises(StudyMismatchError, match=f"format: {FORMAT + 1} in the study"):
        again.check_identity({"format": FORMAT})
    again.disconnect()
    assert (tmp_path / "study.db").read_bytes() == before


def test_a_study_with_another_direction_is_refused(nine, url):
    optuna.create_study(study_name="s", storage=url, direction="minimize")
    with pytest.raises(StudyMismatchError, match="another direction than throughput"):
        opened(url, nine)


@pytest.mark.parametrize("content", [None, "this is no database, however long it may be" * 9])
def test_a_storage_that_cannot_be_used_is_a_message(tmp_path, nine, content):
    path = tmp_path / "no such folder" / "study.db"
    if content is not None:
        path.parent.mkdir()
        path.write_text(content)
    helps = "Check that it exists" if content is None else "There is no backup of it yet"
    with pytest.raises(StorageError, match=rf"cannot be used: .* {helps}"):
        opened(f"sqlite:///{path}", nine)


HOSTILE = [
    {},
    {"config": 5, "value": 1.0, "reason": ""},
    {"config": {"batch_size": "../../x"}, "value": 1.0, "reason": ""},
    {"config": {}, "value": "1.0s", "reason": ""},
    {"config": {}, "value": [1.0], "reason": ""},
    {"config": {}, "value": 1.0},
]


@covers("X5")
@pytest.mark.parametrize("attributes", HOSTILE)
def test_trials_that_someone_else_told_are_data_and_refused(nine, url, attributes):
    foreign = optuna.create_study(study_name="s", storage=url, direction="maximize")
    margins = {"constraints": [-1.0, -1.0, -1.0]}
    trial = optuna.create_trial(value=1.0, user_attrs=attributes, system_attrs=margins)
    foreign.add_trial(trial)
    with pytest.raises(
        StudyMismatchError, match="trial 0 of the study was not written by this version"
    ):
        opened(url, nine)
    with pytest.raises(UsageError, match=r"'s' was not made by autotune"):
        reported(url)


@pytest.mark.parametrize("margins", [None, [-1.0], ["a", "b", "c"], 7, {"memory": -1.0}])
def test_constraints_that_someone_else_told_are_data_and_refused(nine, url, margins):
    foreign = optuna.create_study(study_name="s", storage=url, direction="maximize")
    told = {"config": {}, "value": 1.0, "reason": ""}
    system = {} if margins is None else {"constraints": margins}
    foreign.add_trial(optuna.create_trial(value=1.0, user_attrs=told, system_attrs=system))
    with pytest.raises(StudyMismatchError, match="not written by this version"):
        opened(url, nine)


@pytest.fixture
def reopened(nine, url, tmp_path):
    """Opens the study, which has a trial."""
    tell(opened(url, nine), 80.0, HOLDS)
    return lambda: opened(url, nine)


@covers("S1")
def test_a_database_that_is_locked_is_waited_for_and_then_refused(
    reopened, url, tmp_path, monkeypatch
):
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.2)
    study = reopened()
    number, config = study.ask()
    holder = sqlite3.connect(tmp_path / "study.db")
    holder.execute("BEGIN EXCLUSIVE")
    with (
        pytest.raises(StorageError, match="Another program holds it"),
        database.storage_errors(url),
    ):
        finish(study, number, 90.0)
    holder.rollback()
    holder.close()
    study.disconnect()
    again = reopened()
    assert [trial.verdict.value for trial in again.finished()] == [80.0], "the others are there"
    assert again.take_back() == 1
    assert again.claim(9)[1] == config


def test_a_transaction_is_synchronised_with_its_folder_as_nowhere_else_in_tests(url, monkeypatch):
    monkeypatch.setattr(database, "_survive_power_cuts", SHIPPED)
    engine = create_engine(url, **database.engine_arguments(url))
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA synchronous")).scalar() == SYNCHRONOUS_EXTRA
    engine.dispose()


@covers("S10")
def test_a_process_is_taken_for_dead_after_two_minutes_without_a_report_each_half_minute():
    assert (database.BEAT_SECONDS, database.GRACE_SECONDS) == (30, 120)


@covers("S5")
def test_a_trial_that_a_full_disk_refused_is_measured_when_there_is_space_again(
    reopened, url, tmp_path
):
    study = reopened()
    number, config = study.ask()
    engine = study._storage.engine
    engine.dispose()
    pages = (tmp_path / "study.db").stat().st_size // 4096

    @event.listens_for(engine, "connect")
    def limit(connection, _):
        connection.execute(f"PRAGMA max_page_count = {pages}")

    large = {"blocks": ["x" * 2000] * 20}
    refused = pytest.raises(StorageError, match=r"full \(\d.* free there\).*Free some space")
    with refused, database.storage_errors(url):
        finish(study, number, 90.0, stored_measurement=large)
    study.disconnect()
    again = reopened()
    assert [trial.verdict.value for trial in again.finished()] == [80.0], "the others are there"
    assert again.take_back() == 1
    assert again.claim(9)[1] == config


@pytest.mark.usefixtures("url")
def test_a_database_that_cannot_be_written_is_refused(nine, tmp_path):
    url = f"sqlite:///file:{tmp_path / 'study.db'}?mode=ro&uri=true"
    with pytest.raises(StorageError, match="check its permissions"), database.storage_errors(url):
        opened(url, nine)


@covers("S12")
def test_a_network_file_system_is_known_by_the_mount_that_a_path_is_on(tmp_path, monkeypatch):
    mounts = {"/": "ext4", str(tmp_path / "home"): "nfs4", str(tmp_path / "home" / "disk"): "xfs"}
    partitions = [SimpleNamespace(mountpoint=m, fstype=t) for m, t in mounts.items()]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: partitions)
    assert database.network_file_system(tmp_path / "home" / "me" / "study.db") == "nfs4"
    assert database.network_file_system(tmp_path / "home" / "disk" / "study.db") is None
    assert database.network_file_system(tmp_path / "study.db") is None


@covers("S12")
@pytest.mark.parametrize("storage", ["sqlite", None])
def test_a_search_warns_of_a_database_on_a_network_file_system(storage, tmp_path, monkeypatch):
    monkeypatch.setattr("autotune.searching.search.network_file_system", lambda path: "nfs4")
    options = (unstored_in if storage is None else options_in)(tmp_path, trials=2)
    events = events_of(options, ScriptedRunner())
    said = [event.warning for event in events if isinstance(event, Warned)]
    where = f"{tmp_path / 'study.db'} lies on nfs4"
    assert [where in one and "--storage" in one for one in said] == [True] * bool(storage)


@pytest.mark.parametrize("url", ["mssql://me:x@host/db", "oracle+oracledb://me:x@host/db"])
def test_a_database_that_was_never_tried_is_refused(url):
    with pytest.raises(UsageError, match=r"names .*, which is untested.*postgresql://") as refused:
        database.check_storage(url)
    assert ":x@" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///studies/a/study.db", Path("studies/a/study.db")),
        ("sqlite:////a.db", Path("/a.db")),
        *(("sqlite://", None), ("sqlite:///:memory:", None), ("postgresql://me@host/db", None)),
        (None, None),
    ],
)
def test_the_file_of_a_storage(url, path):
    assert database.file_of(url) == path
