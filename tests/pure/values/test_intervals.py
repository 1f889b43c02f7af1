"""Intervals of a median from order statistics, and of a ratio of sums from a jackknife."""

import math
from statistics import stdev

import pytest
from scipy import stats

from autotune.values.statistics import ratio_interval, ratio_of, student

# Ranks from the table of the sign test, e.g. Conover, Practical Nonparametric Statistics, table A3.


def test_a_ratio_of_sums_weighs_each_part_by_its_length():
    assert ratio_of([(1.0, 10), (9.0, 30)]) == pytest.approx(10 / 40)


def test_the_interval_of_equal_parts_is_that_of_their_mean():
    """The jackknife of a mean is its standard error; on a log scale, up to small terms."""
    seconds = [9.0, 9.5, 10.0, 10.5, 11.0, 10.0]
    low, high = ratio_interval([(each, 10) for each in seconds])
    half = stats.t.ppf(0.975, 5) * stdev(seconds) / math.sqrt(6)
    assert (low, high) == pytest.approx(((10 - half) / 10, (10 + half) / 10), abs=0.005)


def test_an_interval_is_wider_with_more_confidence_and_that_of_one_part_has_no_width():
    parts = [(1.0, 1.0), (2.0, 1.0), (3.0, 1.0)]
    narrow, wide = ratio_interval(parts, 0.8), ratio_interval(parts, 0.99)
    assert wide[0] < narrow[0] < 2 < narrow[1] < wide[1]
    assert ratio_interval([(3.0, 2.0)]) == (1.5, 1.5)
    with pytest.raises(ValueError, match="at least one part"):
        ratio_interval([])


@pytest.mark.parametrize("freedom", [1, 2, 3, 5, 8, 16, 33])
@pytest.mark.parametrize("probability", [0.9, 0.975, 0.9875, 0.999])
def test_quantiles_are_those_of_students_t(probability, freedom):
    assert student(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom))
