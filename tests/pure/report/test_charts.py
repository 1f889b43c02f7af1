"""Scales put values where they belong."""

import pytest

from autotune.report.html import Scale, round_values


def test_a_scale_puts_its_ends_and_its_middle_where_they_belong():
    scale = Scale(0.0, 10.0, 300.0, 100.0)
    assert [scale.at(value) for value in (0.0, 5.0, 10.0)] == [300.0, 200.0, 100.0]


def test_a_point_outside_stays_at_the_edge():
    scale = Scale(0.0, 1.0, 0.0, 50.0)
    assert (scale.at(-7.0), scale.at(7.0)) == (0.0, 50.0)


def test_a_scale_of_one_value_has_it_in_the_middle():
    assert Scale(3.0, 3.0, 0.0, 100.0).ticks(6, "x") == [(50.0, "3x")]


@pytest.mark.parametrize(
    ("low", "high", "values"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 2.1, [0.0, 0.5, 1.0, 1.5, 2.0]),
        (0.0, 100.0, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]),
        (-3.0, 4.0, [-2.0, 0.0, 2.0, 4.0]),
        (0.91, 1.13, [0.95, 1.0, 1.05, 1.1]),
        (0.0, 3e-5, [0.0, 1e-5, 2e-5, 3e-5]),
    ],
)
def test_ticks_are_round_and_few(low, high, values):
    assert round_values(low, high, 6) == pytest.approx(values)
