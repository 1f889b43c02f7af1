"""`autotune repair`, `worker` and `--new-study` as a person gives them."""

import re
import shlex

import click.testing
import pytest

from autotune.cli import cli
from autotune.storage.mutex import study_lock
from autotune.values.errors import FilesChangedError, StorageError, StudyMismatchError
from children import WORKLOADS, autotune
from command_line import command
from covering import covers
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in

USAGE, STORAGE = 2, 5


@covers("S2")
def test_repair_makes_the_database_anew_and_says_what_it_did(tmp_path):
    folder = tmp_path / "studies" / "mine"
    folder.mkdir(parents=True)
    events_of(options_in(folder), ScriptedRunner(lambda config, phase: at(10 * batch_of(config))))
    (folder / "study.db").write_bytes(b"rubbish")
    with (folder / "results.jsonl").open("a") as file:
        file.write("torn\n")
    done = autotune(tmp_path, "repair", "mine")
    assert done.returncode == 0, done.stderr
    assert "rebuilt from 5 finished trials" in done.stderr
    assert "study.db.bak-1" in done.stderr
    assert "1 unreadable lines were moved" in done.stderr
    resumed = ScriptedRunner()
    events_of(options_in(folder), resumed)
    assert [asked.phase for asked in resumed.asked] == ["inspection"], "the answer is known, too"


def test_repair_makes_a_database_that_lies_elsewhere_as_the_search_advised(tmp_path):
    folder = tmp_path / "studies" / "mine"
    folder.mkdir(parents=True)
    database = tmp_path / "my.db"
    options = options_in(folder, storage=f"sqlite:///{database}")
    events_of(options, ScriptedRunner(lambda config, phase: at(10 * batch_of(config))))
    database.write_bytes(b"rubbish" * 999)
    with pytest.raises(StorageError) as refused:
        events_of(options, ScriptedRunner())
    advised = shlex.split(re.search("`autotune (.*?)`", str(refused.value))[1])
    assert advised == ["repair", "NAME", "--storage", f"sqlite:///{database}"]
    advised[1] = "mine"
    with study_lock(tmp_path):
        assert autotune(tmp_path, *advised).returncode == STORAGE, "a search may use it"
    done = autotune(tmp_path, *advised)
    assert done.returncode == 0, done.stderr
    assert "my.db.bak-1" in done.stderr
    assert not (folder / "study.db").exists()
    resumed = ScriptedRunner()
    events_of(options, resumed)
    assert [asked.phase for asked in resumed.asked] == ["inspection"]


def test_repair_takes_a_database_beside_its_journal(tmp_path):
    events_of(options_in(tmp_path), ScriptedRunner())
    database, text = tmp_path / "study.db", (tmp_path / "space.yaml")
    for study in ("study.db", f"sqlite:///{database}"):
        database.write_bytes(b"rubbish" * 999)
        with pytest.raises(StorageError, match=f"`autotune repair sqlite:///{database}`"):
            events_of(options_in(tmp_path), ScriptedRunner())
        done = autotune(tmp_path, "repair", study)
        assert done.returncode == 0, done.stderr
    before = text.read_bytes()
    for study in (text.name, "postgresql://db/autotune", "sqlite:///nowhere/study.db"):
        assert autotune(tmp_path, "repair", study).returncode == USAGE
    assert text.read_bytes() == before
    assert not (tmp_path / "nowhere").exists()


def test_repair_of_nothing_changes_nothing(tmp_path):
    assert autotune(tmp_path, "repair", "mine").returncode == USAGE
    (tmp_path / "studies" / "mine").mkdir(parents=True)
    done = autotune(tmp_path, "repair", "mine")
    assert done.returncode == STORAGE
    assert "results.jsonl does not exist" in done.stderr


def test_a_worker_needs_a_server(tmp_path):
    flags = ("--storage", "sqlite:///study.db", "--model", WORKLOADS / "plain.py")
    done = autotune(tmp_path, "worker", "mine", *flags)
    assert done.returncode == USAGE
    assert "PostgreSQL" in done.stderr
    assert not (tmp_path / "study.db").exists()


def test_a_worker_takes_one_device(tmp_path):
    flags = ("--storage", "postgresql://127.0.0.1:1/none", "--model", WORKLOADS / "plain.py")
    done = autotune(tmp_path, "worker", "mine", *flags, "--device", "cuda:0,cuda:1")
    assert done.returncode == USAGE
    assert "a worker has one device" in done.stderr


@covers("R18")
def test_a_file_that_is_edited_during_the_search_begins_no_other_study(monkeypatch):
    def drive(*_):
        raise FilesChangedError("model.py changed during the search")

    monkeypatch.setattr("autotune.commands.execute.execute_search", drive)
    done = command("search", WORKLOADS / "plain.py", "--new-study")
    assert done.code == 6
    assert "model.py changed during the search" in done.err


@covers("R10")
@pytest.mark.parametrize("out", [None, "own.yaml"])
def test_a_new_study_is_the_first_name_that_is_free_or_of_the_same(out, tmp_path, monkeypatch):
    tried = []

    def drive(options, *_):
        tried.append(options)
        if len(tried) < 3:
            raise StudyMismatchError("something else")
        return True

    monkeypatch.setattr("autotune.commands.execute.execute_search", drive)
    arguments = ["search", str(WORKLOADS / "plain.py"), "--new-study"]
    arguments += [] if out is None else ["--out", out]
    done = click.testing.CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert [options.study.name for options in tried] == ["plain", "plain-2", "plain-3"]
    assert all(options.study.new_study for options in tried)
    assert tried[-1].study.storage == "sqlite:///studies/plain-3/study.db"
    assert str(tried[-1].study.out) == (out or "studies/plain-3/best.yaml")
