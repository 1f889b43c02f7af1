"""A search ends when nothing has become better for a while, and not before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from autotune.searching.run.coverage import FEWEST, PATIENCE, has_settled, is_at_limit
from study_factories import CRASHED, HOLDS, trial


def trials(values: Sequence[float], margins: dict[str, float] = HOLDS):
    return [trial(number, value, margins) for number, value in enumerate(values)]


def test_a_search_that_still_gains_goes_on() -> None:
    assert not has_settled(trials([1.02**number for number in range(60)]))


def test_a_search_without_gain_for_long_is_over() -> None:
    assert has_settled(trials([100.0] * FEWEST))


def test_a_start_is_no_plateau() -> None:
    assert not has_settled(trials([100.0] * (FEWEST - 1)))


def test_patience_begins_anew_with_every_gain() -> None:
    values = [100.0] * FEWEST + [110.0]
    assert not has_settled(trials([*values, *[100.0] * (PATIENCE - 1)]))
    assert has_settled(trials([*values, *[100.0] * PATIENCE]))


def test_less_than_a_percent_is_no_gain() -> None:
    assert has_settled(trials([100.0] * FEWEST + [100.9] * 3))


def test_an_infeasible_trial_is_no_gain() -> None:
    crashed = trials([200.0] * 3, CRASHED)
    assert has_settled([*trials([100.0] * FEWEST), *crashed])


@pytest.mark.parametrize(("rate", "ends"), [(94.0, False), (96.0, True), (121.0, False)])
def test_at_the_speed_of_computing_alone_nothing_is_left_to_win(rate: float, ends: bool) -> None:
    at_rate = trial(0, rate, samples_per_second=rate)
    assert is_at_limit([at_rate], 100.0) == ends
    assert not is_at_limit([at_rate], None)


def test_an_infeasible_trial_reaches_no_limit() -> None:
    assert not is_at_limit([trial(0, 100.0, CRASHED, samples_per_second=100.0)], 100.0)
