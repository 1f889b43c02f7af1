"""Replayed searches with more time answer with no less."""

import sys
import time
from statistics import fmean

import pytest

from benchmarks.more_time import one_search

TABLE, SEEDS = "vision_loader", range(2)


@pytest.fixture(autouse=True)
def restored_clock(monkeypatch):
    """Give the search its clock back, which a replay replaces in every module."""
    for name, module in list(sys.modules.items()):
        if name.startswith("autotune.") and getattr(module, "time", None) is time:
            monkeypatch.setattr(module, "time", time)


def test_more_time_and_a_larger_space_are_worth_no_less():
    worth = {
        (space, seconds): fmean(one_search(TABLE, space, seconds, seed).share for seed in SEEDS)
        for space, seconds in [("default", 60.0), ("default", 240.0), ("full", 240.0)]
    }
    assert worth["default", 240.0] > 1.5 * worth["default", 60.0]
    assert worth["full", 240.0] == worth["default", 240.0], "the same search for so long"


def test_the_space_of_a_recorded_table_begins_as_the_shipped_one():
    found = [one_search("tabular_mlp", space, 120.0, 0) for space in ("default", "full")]
    assert found[0] == found[1]
