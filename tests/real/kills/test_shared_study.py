"""Several processes share a study: they open it, and tell what was taken for lost."""

import threading
import time
from contextlib import ExitStack

import optuna
import pytest

from autotune.study import storage
from covering import covers
from held import trials_in
from sharing import in_threads, opened
from study_factories import HOLDS, finish, tell


@pytest.fixture(params=["postgres_storage", "mysql_storage"])
def server_storage(request):
    """The URL of an empty database on each kind of server."""
    return request.getfixturevalue(request.param)


@covers("S8")
def test_many_processes_open_a_new_study_at_once(server_storage, nine):
    everybody = threading.Barrier(6)

    def opens():
        with opened(server_storage, nine) as study:
            claimed = study.claim(9)[1]
            everybody.wait()
            return claimed

    claimed = in_threads(*[opens] * 6)
    assert len(set(claimed)) == 6, claimed


def test_a_fact_may_be_longer_than_mysqls_own_text(server_storage, nine):
    with opened(server_storage, nine) as study:
        study._storage.set_study_user_attr(study._study_id, "diagnosis", "x" * 100_000)
        kept = study._storage.get_study_user_attrs(study._study_id)
    assert len(kept["diagnosis"]) == 100_000


def test_a_trial_that_another_process_told_is_read_and_counts(server_storage, nine):
    with opened(server_storage, nine) as first, opened(server_storage, nine) as second:
        told = tell(second, 70.0, HOLDS)
        assert first.claim(1) is None
        assert [trial.config for trial in first.finished()] == [told]


def test_a_trial_that_was_taken_for_lost_is_told_all_the_same(server_storage, nine):
    with opened(server_storage, nine) as first, opened(server_storage, nine) as second:
        number, config = first.claim(9)
        second._fail(number, "it was silent")
        assert finish(first, number, 50.0).config == config
        assert second.claim(9)[1] != config, "it is known"
    states = [trial.state.name for trial in trials_in(server_storage, "s")]
    assert states == ["FAIL", "COMPLETE", "RUNNING"]


def test_trials_that_were_taken_for_lost_and_are_told_at_once_get_numbers_of_their_own(
    server_storage, nine
):
    with ExitStack() as stack:
        studies = [stack.enter_context(opened(server_storage, nine)) for _ in range(6)]
        claimed = [study.claim(9) for study in studies]
        for number, _ in claimed:
            studies[0]._fail(number, "it was silent")
        everybody = threading.Barrier(6)

        def tells(place):
            everybody.wait()
            return finish(studies[place], claimed[place][0], 50.0).number

        numbers = in_threads(*[lambda place=place: tells(place) for place in range(6)])
    there = {trial.number: trial.user_attrs["config"] for trial in trials_in(server_storage, "s")}
    configs = [config.as_dict() for _, config in claimed]
    assert [there[number] for number in numbers] == configs, numbers


@pytest.fixture
def two(server_storage, nine, monkeypatch):
    """The same study in two processes, which give each other up after seconds."""
    monkeypatch.setattr(storage, "BEAT_SECONDS", 1)
    monkeypatch.setattr(storage, "GRACE_SECONDS", 3)
    with opened(server_storage, nine) as first, opened(server_storage, nine) as second:
        yield first, second


@covers("S10")
def test_trials_of_processes_that_are_silent_come_first_and_are_told_all_the_same(
    two, server_storage, monkeypatch
):
    """One beat before its host lost its power, and one died before its first heartbeat."""
    first, second = two
    monkeypatch.setattr(storage, "BEAT_SECONDS", 1000)
    claimed = first.claim(9)
    assert claimed is not None
    number, left = claimed
    optuna.load_study(study_name="s", storage=storage.existing(server_storage)).ask()
    assert second.others_run(), "not yet"
    time.sleep(4)
    assert not second.others_run()
    again = second.claim(9)
    assert again[1] == left
    assert finish(first, number, 50.0).config == left, "it only slept"
    states = [trial.state.name for trial in trials_in(server_storage, "s")]
    assert [states[0], *states[2:]] == ["FAIL", "RUNNING", "COMPLETE"]


@covers("S10")
def test_a_process_that_beats_keeps_its_trial_however_long_it_takes(two):
    first, second = two
    claimed = first.claim(9)
    time.sleep(5)
    assert second.others_run()
    other = second.claim(9)
    assert other[1] != claimed[1]
    assert finish(first, claimed[0], 50.0).number == claimed[0]
