"""Values that were hardly tried are found, for a search that comes no further."""

import numpy as np
import pytest

from autotune.sampling.acquisition import Observations, best_row, times_tried, trials_without_gain


def seen(rates, feasible=None):
    rows = np.array([[0, 0], [1, 0], [1, 1], [1, 2]][: len(rates)], dtype=np.intp)
    held = feasible or [True] * len(rates)
    return Observations(
        *(rows, np.array(rates), np.array(held), np.ones(len(rates), dtype=bool)),
        np.full(len(rates), np.nan),
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
