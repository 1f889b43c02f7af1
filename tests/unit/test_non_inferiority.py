"""Accept, reject or undecided, from losses of quality over paired seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from autotune.values.statistics import Decision, bounds, decide, resolution

ALLOWED = 0.1


@pytest.mark.parametrize(
    ("losses", "decision"),
    [
        ((0.05,), "undecided"),  # one seed has no spread, however good it looks
        ((0.5,), "undecided"),
        ((0.51,), "reject"),  # five times what is allowed is no matter of seeds
        ((0.0, 0.0), "accept"),
        ((0.1, 0.1, 0.1), "accept"),  # exactly what is allowed, without any doubt
        ((0.11, 0.11), "reject"),
        ((0.02, 0.03), "accept"),
        ((0.0, 0.1), "undecided"),  # within on average, but two seeds that far apart prove nothing
        ((0.0, 0.02, 0.04), "accept"),
        ((0.2, 0.22, 0.24), "reject"),
        ((0.05, 0.1, 0.15), "undecided"),
        ((-0.2, -0.1, -0.15), "accept"),  # better than the baseline
        ((0.0, 0.0, 0.9), "undecided"),  # one outlier neither condemns nor passes
        ((0.0, 0.0, 0.9, 0.0, 0.0, 0.0), "undecided"),
        ((0.03, -0.02, 0.01, 0.0, 0.02, 0.15), "accept"),  # further seeds outweigh a bad one
    ],
    ids=str,
)
def test_a_sequence_of_losses_decides(losses: tuple[float, ...], decision: Decision) -> None:
    assert decide(losses, ALLOWED) == decision


def test_a_margin_of_zero_accepts_equal_qualities_and_refuses_any_loss() -> None:
    assert decide((0.0, 0.0, 0.0), 0.0) == "accept"
    assert decide((0.001,), 0.0) == "reject"


def test_a_single_seed_rejects_only_beyond_what_seeds_differ_by_anyway() -> None:
    assert decide((0.6,), ALLOWED) == "reject"
    assert decide((0.6,), ALLOWED, spread=0.2) == "undecided"
    assert decide((1.1,), ALLOWED, spread=0.2) == "reject"
    assert decide((0.6, 0.61, 0.6), ALLOWED, spread=0.2) == "reject", "pairs have their own spread"


@pytest.mark.parametrize("seeds", [2, 3, 4, 5, 6])
def test_the_bounds_are_one_sided_at_95_percent(seeds: int) -> None:
    losses = [0.1 * n for n in range(seeds)]
    mean, error = stats.tmean(losses), stats.sem(losses)
    quantile = stats.t.ppf(0.95, seeds - 1)
    low, high = bounds(losses)
    assert low == pytest.approx(mean - quantile * error, abs=1e-4)
    assert high == pytest.approx(mean + quantile * error, abs=1e-4)


def test_more_seeds_than_the_table_has_are_never_bounded_too_narrowly() -> None:
    losses = [0.1 * n for n in range(9)]
    _, high = bounds(losses)
    assert high > stats.tmean(losses) + stats.t.ppf(0.95, 8) * stats.sem(losses)


def test_one_seed_bounds_nothing() -> None:
    assert bounds((0.3,)) == (-math.inf, math.inf)


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
def test_the_resolution_is_the_step_between_qualities(qualities: list[float], step: float) -> None:
    assert resolution(qualities) == pytest.approx(step, rel=1e-6)


def test_the_step_of_an_accuracy_is_found_among_errors_of_float32() -> None:
    found = [float(np.float32(hits / 360)) for hits in (324, 81, 330, 210, 17, 355)]
    assert resolution(found) == pytest.approx(1 / 360, rel=1e-3)


def test_the_resolution_of_a_continuous_quality_is_negligible() -> None:
    assert resolution([2.349913, 2.336054, 2.335006, 2.161587, 2.105438, 2.149920]) < 0.001


def test_equal_losses_are_no_finer_than_the_resolution() -> None:
    """Each of two sides is rounded with a deviation of step/sqrt(12); 1.6449 is the quantile."""
    low, high = bounds((0.01, 0.01, 0.01), step=1 / 360)
    half = 1.6449 * (1 / 360) * math.sqrt(2 / 12) / math.sqrt(3)
    assert (low, high) == pytest.approx((0.01 - half, 0.01 + half))
    assert decide((0.0095,) * 3, 0.01) == "accept"
    assert decide((0.0095,) * 3, 0.01, step=1 / 360) == "undecided"


def test_losses_that_differ_by_more_are_not_widened_by_the_resolution() -> None:
    losses = (0.0, 0.1, 0.3)
    assert bounds(losses, step=0.01) == bounds(losses)
