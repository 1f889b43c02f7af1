"""The surrogate: what it learns from a few configurations about those that were not tried."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autotune.sampling.surrogate import Array, Indices, Surrogate, nominal, ordinal

SIZES = (4, 3, 2, 2)
KERNELS = [ordinal([0, 1, 2, 3]), nominal(3), nominal(2), nominal(2)]
PRIOR = np.array([0.4, 0.3, 0.2, 0.2])
ALL: Indices = np.array(list(itertools.product(*map(range, SIZES))), dtype=np.intp)
GAINS = [np.array([0.0, 0.3, 0.5, 0.4]), np.array([0.0, 0.4, -0.2]), np.array([0.0, 0.1])]


def truth(rows: Indices) -> Array:
    """Knobs that add their gains; the last one does nothing."""
    return np.asarray(sum(gain[rows[:, knob]] for knob, gain in enumerate(GAINS)))


def fitted(rows: Indices, values: Array) -> Surrogate:
    surrogate = Surrogate(KERNELS, PRIOR)
    surrogate.fit(rows, values - values.mean())
    return surrogate


def test_effects_that_add_up_are_known_from_a_quarter_of_the_space() -> None:
    rows = ALL[np.random.default_rng(0).permutation(len(ALL))[:12]]
    mean, _ = fitted(rows, truth(rows)).predict(ALL)
    assert np.corrcoef(mean, truth(ALL))[0, 1] > 0.9
    assert truth(ALL)[np.argmax(mean)] >= truth(ALL).max() - 0.1


def test_measured_configurations_are_less_uncertain_than_others() -> None:
    rows = ALL[:6]
    _, deviation = fitted(rows, truth(rows)).predict(ALL)
    assert deviation[:6].max() < deviation[6:].min()


def test_a_pair_that_pays_together_is_found_from_neighbours() -> None:
    both = (ALL[:, 2] == 1) & (ALL[:, 3] == 1)
    values = truth(ALL) + 0.8 * both
    kept = np.ones(len(ALL), dtype=bool)
    kept[::5] = False
    mean, _ = fitted(ALL[kept], values[kept]).predict(ALL[~kept])
    left = values[~kept] - values[kept].mean()
    assert np.abs(mean - left).max() < 0.15


def test_a_single_trial_is_enough_to_go_on() -> None:
    mean, deviation = fitted(ALL[:1], np.array([0.0])).predict(ALL)
    assert np.isfinite(mean).all()
    assert deviation.min() > 0


def test_the_same_configuration_measured_twice_is_no_fault() -> None:
    rows = ALL[[0, 0, 5]]
    mean, _ = fitted(rows, np.array([0.1, -0.1, 0.0])).predict(ALL)
    assert np.isfinite(mean).all()


@pytest.mark.parametrize(("near", "far"), [(1, 2), (2, 3), (1, 3)])
def test_values_on_a_line_are_alike_by_their_distance(near: int, far: int) -> None:
    kernel = ordinal([0, 1, 2, 3])
    assert kernel[0, 0] == 1 > kernel[0, near] > kernel[0, far] > 0
