"""Replayed searches with more time answer with no less."""

import sys
import time
from statistics import fmean

import pytest

from benchmarks.more_time import first_proposals, one_search

TABLE, SEEDS = "pendulum_ode", range(2)


@pytest.fixture(autouse=True)
def restored_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the search its clock back, which a replay replaces in every module."""
    for name, module in list(sys.modules.items()):
        if name.startswith("autotune.") and getattr(module, "time", None) is time:
            monkeypatch.setattr(module, "time", time)


def test_the_longer_of_two_budgets_is_worth_no_less() -> None:
    worth = {
        seconds: fmean(one_search(TABLE, "default", seconds, seed).share for seed in SEEDS)
        for seconds in (60.0, 240.0)
    }
    assert worth[240.0] >= worth[60.0]
    assert worth[240.0] > 0.5


def test_the_first_proposals_are_told_with_their_seconds() -> None:
    first, second = first_proposals("vision_loader", "quick", 360.0, seed=0)
    assert first.gain > 1
    assert first.mode == "no"
    assert 0 < first.seconds < 60
    assert second.changed > 0
