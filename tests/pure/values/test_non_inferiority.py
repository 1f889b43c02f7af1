"""Statistics of answers: intervals of seconds, and losses of quality that seeds decide."""

import math
from statistics import stdev

import numpy as np
import pytest
from scipy import stats

from autotune.values.statistics import (
    SEED_COUNTS,
    bounds,
    decide,
    may_accept,
    ratio_interval,
    ratio_of,
    resolution,
    student,
)
from benchmarks.rounds import row_of_equals

ALLOWED = 0.1


@pytest.mark.parametrize(
    ("losses", "decision"),
    [
        ((0.05,), "undecided"),  # one seed has no spread, however good it looks
        ((0.5,), "undecided"),
        ((0.51,), "reject"),  # five times what is allowed is no matter of seeds
        ((0.0, 0.0), "undecided"),  # the first look is at three
        ((0.1, 0.1, 0.1), "accept"),  # exactly what is allowed, without any doubt
        ((0.11, 0.11), "reject"),
        ((0.02, 0.03, 0.02), "accept"),
        ((0.02, 0.03, 0.02, 0.09), "accept"),  # between looks, what the last one decided stands
        ((0.0, 0.1), "undecided"),  # within on average, but two seeds that far apart prove nothing
        ((0.0, 0.02, 0.04), "accept"),
        ((0.01, 0.04, 0.07), "undecided"),  # 95 % of a single look; three looks share that
        ((0.2, 0.22, 0.24), "reject"),
        ((0.05, 0.1, 0.15), "undecided"),
        ((-0.2, -0.1, -0.15), "accept"),  # better than the baseline
        ((0.0, 0.0, 0.9), "undecided"),  # one outlier neither condemns nor passes
        ((0.0, 0.0, 0.9, 0.0, 0.0, 0.0), "undecided"),
        ((0.03, -0.02, 0.01, 0.0, 0.02, 0.15), "accept"),  # further seeds outweigh a bad one
    ],
    ids=str,
)
def test_a_sequence_of_losses_decides(losses, decision):
    assert decide(losses, ALLOWED) == decision


def test_a_margin_of_zero_accepts_equal_qualities_and_refuses_any_loss():
    assert decide((0.0, 0.0, 0.0), 0.0) == "accept"
    assert decide((0.001,), 0.0) == "reject"


@pytest.mark.parametrize("seeds", SEED_COUNTS)
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 5.0])
def test_seeds_after_a_rejecting_one_accept_only_if_they_gain(seeds, spread):
    drawn = np.random.default_rng(0).normal(0.0, spread, (200, seeds - 1))
    others = drawn - drawn.mean(axis=1, keepdims=True) - 0.5  # of what is allowed, on average
    for row in ALLOWED * others:
        assert decide((5.1 * ALLOWED, *row), ALLOWED) != "accept"


def test_seeds_after_a_rejecting_one_could_accept_if_they_gained_more():
    assert decide((5.1 * ALLOWED, *11 * (-0.6 * ALLOWED,)), ALLOWED) == "accept"


@pytest.mark.parametrize("seeds", [2, 3, 4, 5, 6])
def test_the_bounds_are_one_sided_at_95_percent(seeds):
    losses = [0.1 * n for n in range(seeds)]
    mean, error = stats.tmean(losses), stats.sem(losses)
    quantile = stats.t.ppf(0.95, seeds - 1)
    low, high = bounds(losses)
    assert low == pytest.approx(mean - quantile * error, abs=1e-4)
    assert high == pytest.approx(mean + quantile * error, abs=1e-4)


@pytest.mark.parametrize(
    ("qualities", "step"),
    [
        ([324 / 360, 326 / 360, 329 / 360], 1 / 360),
        ([320 / 360, 324 / 360, 330 / 360], 2 / 360),
        ([0.25, 0.25 + 1e-8], 0.0),  # rounding errors are no steps
        ([0.9, 0.9, 0.9], 0.0),
        ([], 0.0),
    ],
)
def test_the_resolution_is_the_step_between_qualities(qualities, step):
    assert resolution(qualities) == pytest.approx(step, rel=1e-6)


def test_the_step_of_an_accuracy_is_found_among_errors_of_float32():
    found = [float(np.float32(hits / 360)) for hits in (324, 81, 330, 210, 17, 355)]
    assert resolution(found) == pytest.approx(1 / 360, rel=1e-3)


def test_the_resolution_of_a_continuous_quality_is_negligible():
    assert resolution([2.349913, 2.336054, 2.335006, 2.161587, 2.105438, 2.149920]) < 0.001


def test_equal_losses_are_no_finer_than_the_resolution():
    """Each of two sides is rounded with a deviation of step/sqrt(12); by the normal's quantile."""
    low, high = bounds((0.01, 0.01, 0.01), step=1 / 360)
    half = stats.norm.ppf(0.95) * (1 / 360) * math.sqrt(2 / 12) / math.sqrt(3)
    assert (low, high) == pytest.approx((0.01 - half, 0.01 + half))
    assert decide((0.0095,) * 3, 0.01) == "accept"
    assert decide((0.0095,) * 3, 0.01, step=1 / 360) == "undecided"


def test_losses_that_differ_by_more_are_not_widened_by_the_resolution():
    losses = (0.0, 0.1, 0.3)
    assert bounds(losses, step=0.01) == bounds(losses)


def passed(losses, allowed):
    """Return the share of rows that some look accepts before a seed rejects them."""

    def is_accepted(row):
        for seeds in range(1, len(row) + 1):
            decision = decide(row[:seeds], allowed)
            if decision != "undecided":
                return decision == "accept"
        return False

    return float(np.mean([is_accepted(row) for row in losses.tolist()]))


def test_all_looks_together_pass_what_loses_just_what_is_allowed_in_5_percent_at_most():
    draws = np.random.default_rng(0).standard_normal((4000, SEED_COUNTS[-1]))
    error = math.sqrt(0.05 * 0.95 / len(draws))
    assert 0.03 < passed(ALLOWED + draws, ALLOWED) <= 0.05 + 2 * error
    assert passed(ALLOWED - 1.5 + draws, ALLOWED) > 0.95, "what is good enough passes"


@pytest.mark.parametrize(
    ("losses", "may"),
    [
        ((0.0, 0.0, 0.0, 0.0, 0.0, 0.2), True),  # six are at their bound of 0.12, twelve of 0.09
        ((0.0, 0.0, 0.0, 0.0, 0.2, 0.2), False),
        ((0.1, 0.1, 0.1, 0.1, 0.1, 0.11), False),
    ],
)
def test_further_seeds_may_accept_only_what_is_within_by_enough(losses, may):
    assert decide(losses, ALLOWED) == "undecided"
    assert may_accept(losses, ALLOWED) == may


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


@pytest.mark.parametrize("candidates", [2, 4, 8])
@pytest.mark.parametrize("speed", [1.0, 1.3])
def test_intervals_hold_the_truth_however_many_equals_there_were(candidates, speed):
    """By `python -m benchmarks.rounds`, 95 % or more of 1000 do."""
    *_, won, _, held, too_much = row_of_equals(candidates, speed, 200)
    assert float(str(held)) >= 93
    assert float(str(too_much)) < 1
    assert float(str(won)) < 7 if speed == 1 else float(str(won)) > 95
