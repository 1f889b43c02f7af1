"""A process that dies, or whose host loses its power, is given up by Optuna's heartbeats."""

from __future__ import annotations

import time
from collections.abc import Iterator

import optuna
import pytest

from autotune.configuration.search_space import SearchSpace
from autotune.study import storage
from autotune.study.study import TuningStudy
from covering import covers
from held import trials_in
from sharing import opened
from study_factories import finish


@pytest.fixture
def two(
    server_storage: str, nine: SearchSpace, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[TuningStudy, TuningStudy]]:
    """The same study in two processes, which give each other up after seconds."""
    monkeypatch.setattr(storage, "BEAT_SECONDS", 1)
    monkeypatch.setattr(storage, "GRACE_SECONDS", 3)
    with opened(server_storage, nine) as first, opened(server_storage, nine) as second:
        yield first, second


@covers("S10")
def test_trials_of_processes_that_are_silent_come_first_and_are_told_all_the_same(
    two: tuple[TuningStudy, TuningStudy], server_storage: str
) -> None:
    """One beat before its host lost its power, and one died before its first heartbeat."""
    first, second = two
    claimed = first.claim(9)
    assert claimed is not None
    number, left = claimed
    assert first._heart is not None
    first._heart.stop()
    optuna.load_study(study_name="s", storage=server_storage).ask()
    assert second.others_run(), "not yet"
    time.sleep(4)
    assert not second.others_run()
    again = second.claim(9)
    assert again is not None
    assert again[1] == left
    assert finish(first, number, 50.0).config == left, "it only slept"
    states = [trial.state.name for trial in trials_in(server_storage, "s")]
    assert [states[0], *states[2:]] == ["FAIL", "RUNNING", "COMPLETE"]


@covers("S10")
def test_a_process_that_beats_keeps_its_trial_however_long_it_takes(
    two: tuple[TuningStudy, TuningStudy],
) -> None:
    first, second = two
    claimed = first.claim(9)
    assert claimed is not None
    time.sleep(5)
    assert second.others_run()
    other = second.claim(9)
    assert other is not None
    assert other[1] != claimed[1]
    assert finish(first, claimed[0], 50.0).number == claimed[0]
