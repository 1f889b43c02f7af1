"""Replayed searches with more time answer with no less."""

import sys
import time
from statistics import fmean

import pytest

from benchmarks.more_time import first_proposals, one_search
from benchmarks.worth import falls, rows

TABLE, SEEDS = "vision_loader", range(2)


@pytest.fixture(autouse=True)
def restored_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the search its clock back, which a replay replaces in every module."""
    for name, module in list(sys.modules.items()):
        if name.startswith("autotune.") and getattr(module, "time", None) is time:
            monkeypatch.setattr(module, "time", time)


def test_more_time_and_a_larger_space_are_worth_no_less() -> None:
    worth = {
        (space, seconds): fmean(one_search(TABLE, space, seconds, seed).share for seed in SEEDS)
        for space, seconds in [("default", 60.0), ("default", 240.0), ("full", 240.0)]
    }
    assert worth["default", 240.0] > 1.5 * worth["default", 60.0]
    assert worth["full", 240.0] == worth["default", 240.0], "the same search for so long"


def test_the_space_of_a_recorded_table_begins_as_the_shipped_one() -> None:
    found = [one_search("tabular_mlp", space, 120.0, 0) for space in ("default", "full")]
    assert found[0] == found[1]


def test_falls_are_told_beyond_their_error_over_the_same_seeds() -> None:
    shares = {60: (50.0, 60.0, 70.0), 120: (48.0, 57.0, 68.0), 240: (60.0, 40.0, 74.0)}
    worths = {(TABLE, "quick", at): dict(enumerate(found)) for at, found in shares.items()}
    assert list(falls(worths)) == [f"{TABLE}, quick, 60 to 120 s: -2.3 ± 0.3"]
    assert list(rows(worths))[-1][:3] == [TABLE, "quick", "60.0 ± 5.8"]


def test_the_first_proposals_are_told_with_their_seconds() -> None:
    first, second = first_proposals("vision_loader", "quick", 360.0, seed=0)
    assert first.gain > 1
    assert first.mode == "no"
    assert 0 < first.seconds < 60
    assert second.changed > 0
