"""A machine counts as faster or slower than it was only beyond the noise."""

import pytest

from autotune.searching.trials.drift import drift


@pytest.mark.parametrize(("rate", "speed"), [(100.5, 1.0), (98.0, 1.0), (80.0, 0.8), (130.0, 1.3)])
def test_a_drift_counts_only_beyond_the_noise(rate, speed):
    assert drift([99.0, 100.0, 101.0], rate) == speed


def test_runs_that_differ_among_themselves_hide_a_drift():
    assert drift([80.0, 100.0, 120.0], 80.0) == 1.0


def test_a_baseline_that_could_not_be_timed_again_tells_of_no_drift():
    assert drift([99.0, 100.0, 101.0], 0.0) == 1.0
