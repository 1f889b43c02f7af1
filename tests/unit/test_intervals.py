"""The interval of a median from order statistics."""

from __future__ import annotations

from random import Random
from statistics import median

import pytest

from autotune.values.statistics import median_interval, relative_half_width


# Ranks from the table of the sign test, e.g. Conover, Practical Nonparametric Statistics, table A3.
@pytest.mark.parametrize(
    ("n", "rank"), [(6, 1), (9, 2), (12, 3), (17, 5), (25, 8), (52, 19)], ids=str
)
def test_the_interval_ends_at_the_tabled_rank_from_either_side(n: int, rank: int) -> None:
    assert median_interval(range(1, n + 1)) == (rank, n + 1 - rank)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_fewer_than_six_values_give_their_whole_range(n: int) -> None:
    assert median_interval(range(1, n + 1)) == (1, n)


def test_the_order_in_which_values_come_does_not_matter() -> None:
    assert median_interval([7, 1, 9, 3, 5, 8, 2, 6, 4]) == (2, 8)


def test_a_lower_confidence_gives_a_narrower_interval() -> None:
    # n=9: 2*P(Bin(9, 1/2) <= 2) = 0.18, so rank 3 holds at 80 % and does not at 95 %.
    assert median_interval(range(1, 10), confidence=0.8) == (3, 7)


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        median_interval([])


@pytest.mark.parametrize("n", [6, 9, 12, 17])
def test_the_interval_of_skewed_values_holds_the_true_median_at_least_as_often_as_it_says(
    n: int,
) -> None:
    random = Random(2024)
    # The median of exp(N(0, 1)) is 1; its mean is 1.65.
    intervals = [
        median_interval([random.lognormvariate(0, 1) for _ in range(n)]) for _ in range(3000)
    ]
    coverage = sum(low <= 1 <= high for low, high in intervals) / len(intervals)
    # Exact: 96.9, 96.1, 96.1 and 95.1 %; 3000 draws scatter by 0.4 %.
    assert coverage > 0.94
    assert coverage < 0.99


def test_relative_half_width_is_half_the_interval_over_the_median() -> None:
    values = [90, 95, 99, 100, 101, 105, 110]
    assert median(values) == 100
    assert relative_half_width(values) == pytest.approx((110 - 90) / 2 / 100)


def test_equal_values_have_no_width() -> None:
    assert relative_half_width([3.0] * 6) == 0
