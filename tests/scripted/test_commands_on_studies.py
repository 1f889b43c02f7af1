"""`autotune worker` and `--new-study` as a person gives them."""

import click.testing
import pytest

from autotune.cli import cli
from autotune.values.errors import FilesChangedError, StudyMismatchError
from children import WORKLOADS
from command_line import command, told
from covering import covers

USAGE, STORAGE = 2, 5


def test_a_worker_needs_a_server(tmp_path):
    flags = ("--storage", "sqlite:///study.db", "--model", WORKLOADS / "plain.py")
    done = told(tmp_path, "worker", "mine", *flags)
    assert done.code == USAGE
    assert "PostgreSQL" in done.err
    assert not (tmp_path / "study.db").exists()


def test_a_worker_takes_one_device(tmp_path):
    flags = ("--storage", "postgresql://127.0.0.1:1/none", "--model", WORKLOADS / "plain.py")
    done = told(tmp_path, "worker", "mine", *flags, "--device", "cuda:0,cuda:1")
    assert done.code == USAGE
    assert "a worker has one device" in done.err


@covers("R18")
def test_a_file_that_is_edited_during_the_search_begins_no_other_study(monkeypatch):
    def drive(*_):
        raise FilesChangedError("model.py changed during the search")

    monkeypatch.setattr("autotune.commands.search.execute_search", drive)
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

    monkeypatch.setattr("autotune.commands.search.execute_search", drive)
    arguments = ["search", str(WORKLOADS / "plain.py"), "--new-study"]
    arguments += [] if out is None else ["--out", out]
    done = click.testing.CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert [options.study.name for options in tried] == ["plain", "plain-2", "plain-3"]
    assert tried[-1].study.storage == "sqlite:///studies/plain-3/study.db"
    assert str(tried[-1].study.out) == (out or "studies/plain-3/best.yaml")
