"""Values that were hardly tried are found, for a search that comes no further."""

import numpy as np
import pytest

from autotune.sampling.acquisition import Observations, best_row, times_tried, trials_without_gain
from autotune.searching.run.coverage import FEWEST, PATIENCE, has_settled, is_at_limit
from study_factories import CRASHED, HOLDS, trial


def seen(rates, feasible=None):
    rows = np.array([[0, 0], [1, 0], [1, 1], [1, 2]][: len(rates)], dtype=np.intp)
    held = feasible or [True] * len(rates)
    return Observations(
        rows, np.array(rates), held, [True] * len(rates), np.full(len(rates), np.nan)
    )


@pytest.mark.parametrize(
    ("rates", "without"),
    [
        ([100.0], 0),
        ([100.0, 120.0, 110.0, 119.0], 2),
        ([100.0, 100.5, 100.8], 2),
        ([100.0, 0.0, 0.0, 150.0], 0),
    ],
)
def test_a_gain_is_a_percent_more_than_the_best_so_far(rates, without):
    assert trials_without_gain(seen(rates)) == without


def test_an_infeasible_trial_is_no_gain_and_never_the_best():
    trials = seen([100.0, 300.0, 110.0], [True, False, True])
    assert trials_without_gain(trials) == 0
    assert best_row(trials).tolist() == [1, 1]
    assert best_row(seen([0.0, 50.0], [True, False])) is None


def test_the_value_that_differs_from_the_best_and_was_tried_least_is_counted():
    trials = seen([100.0, 120.0, 150.0, 140.0])
    rows = np.array([[0, 1], [1, 0], [1, 2], [1, 3], [1, 1], [0, 0]])
    assert times_tried(rows, np.array([1, 1]), trials).tolist() == [1, 2, 1, 0, 4, 1]


def trials(values, margins=HOLDS):
    return [trial(number, value, margins) for number, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "is_over"),
    [
        ([1.02**number for number in range(60)], False),  # it still gains
        ([100.0] * (FEWEST - 1), False),  # a start is no plateau
        ([100.0] * FEWEST, True),
        ([100.0] * FEWEST + [100.9] * 3, True),  # less than a percent is no gain
        ([100.0] * FEWEST + [110.0] + [100.0] * (PATIENCE - 1), False),
        ([100.0] * FEWEST + [110.0] + [100.0] * PATIENCE, True),
    ],
)
def test_a_search_without_a_gain_for_long_is_over(values, is_over):
    assert has_settled(trials(values)) is is_over
    crashed = trials([200.0] * 3, CRASHED)
    assert not is_over or has_settled([*trials(values), *crashed]), "no gain is infeasible"


@pytest.mark.parametrize(
    ("rate", "margins", "ends"),
    [(94.0, HOLDS, False), (96.0, HOLDS, True), (121.0, HOLDS, False), (100.0, CRASHED, False)],
)
def test_at_the_speed_of_computing_alone_nothing_is_left_to_win(rate, margins, ends):
    at_rate = trial(0, rate, margins, samples_per_second=rate)
    assert is_at_limit([at_rate], 100.0) == ends
    assert not is_at_limit([at_rate], None)
