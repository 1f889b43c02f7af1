"""A process that dies, or whose host loses its power, is given up by Optuna's heartbeats."""

import time

import optuna
import pytest

from autotune.study import storage
from covering import covers
from held import trials_in
from sharing import opened
from study_factories import finish


@pytest.fixture
def two(server_storage, nine, monkeypatch):
    """The same study in two processes, which give each other up after seconds."""
    monkeypatch.setattr(storage, "BEAT_SECONDS", 1)
    monkeypatch.setattr(storage, "GRACE_SECONDS", 3)
    with opened(server_storage, nine) as first, opened(server_storage, nine) as second:
        yield first, second


@covers("S10")
def test_trials_of_processes_that_are_silent_come_first_and_are_told_all_the_same(
    two, server_storage
):
    """One beat before its host lost its power, and one died before its first heartbeat."""
    first, second = two
    claimed = first.claim(9)
    assert claimed is not None
    number, left = claimed
    first._heart.stop()
    optuna.load_study(study_name="s", storage=server_storage).ask()
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
