"""Commands as a person gives them: `worker`, `--new-study`, `--fresh-data`."""

import pytest

from autotune.values.errors import FilesChangedError, StudyMismatchError
from autotune.values.outcome import Inspected
from children import WORKLOADS
from command_line import command, told
from covering import covers
from factories import cpu_machine
from scripted_runner import (
    FACTS,
    ScriptedRunner,
    at,
    batch_of,
    changed,
    events_of,
    unstored_in,
)

USAGE, STORAGE = 2, 5


@pytest.mark.parametrize(
    ("storage", "said"),
    [("sqlite:///study.db", "database server"), ("postgresql://x:1/y", "a worker has one device")],
)
def test_a_worker_needs_a_server_and_takes_one_device(storage, said, tmp_path):
    devices = () if "sqlite" in storage else ("--device", "cuda:0,cuda:1")
    flags = ("--storage", storage, "--model", WORKLOADS / "plain.py", *devices)
    done = told(tmp_path, "worker", "mine", *flags)
    assert done.code == USAGE
    assert said in done.err
    assert not (tmp_path / "study.db").exists()


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
    flags = () if out is None else ("--out", out)
    done = command("search", WORKLOADS / "plain.py", "--new-study", *flags)
    assert done.code == 0, done.err
    assert [options.study.name for options in tried] == ["plain", "plain-2", "plain-3"]
    assert tried[-1].study.storage == "sqlite:///studies/plain-3/study.db"
    assert str(tried[-1].study.out) == (out or "studies/plain-3/best.yaml")


def dear(is_shared):
    """Larger batches train faster, and the dataset takes a minute."""
    return ScriptedRunner(
        measure=lambda config, phase: at(100 + batch_of(config)),
        inspected=Inspected(cpu_machine(), FACTS, dataset_seconds=60.0, is_shared=is_shared),
    )


def hosts_of_rounds(runner):
    together = zip(runner.jobs, runner.asked, strict=True)
    return {job.host for job, asked in together if asked.phase == "confirmation"}


def test_the_rounds_of_a_search_share_a_dear_dataset(tmp_path):
    events_of(unstored_in(tmp_path), runner := dear(is_shared=True))
    assert hosts_of_rounds(runner) == {"search"}


def test_rounds_have_hosts_of_their_own_where_these_build_nothing(tmp_path):
    events_of(unstored_in(tmp_path), runner := dear(is_shared=False))
    assert len(hosts_of_rounds(runner)) > 1


@pytest.mark.parametrize("fresh_data", [True, False])
def test_each_job_says_whether_its_process_builds_the_dataset(fresh_data, tmp_path):
    options = changed(unstored_in(tmp_path), fresh_data=fresh_data)
    events_of(options, runner := dear(is_shared=not fresh_data))
    assert {job.fresh_data for job in runner.jobs} == {fresh_data}


def test_the_flag_of_the_command_reaches_the_search(monkeypatch):
    found = []
    drive = "autotune.commands.search.execute_search"
    monkeypatch.setattr(drive, lambda options, *_: found.append(options) or True)
    for flags in ([], ["--fresh-data"]):
        assert command("search", WORKLOADS / "plain.py", *flags).code == 0
    assert [options.workload.fresh_data for options in found] == [False, True]
