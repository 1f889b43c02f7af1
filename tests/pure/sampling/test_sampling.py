"""The models behind proposals: encoding, Gaussian process, acquisition, posteriors."""

import itertools
import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from autotune.configuration.training_config import TrainingConfig
from autotune.sampling.acquisition import Posterior, Surrogate, expected_improvement, normal_below
from autotune.sampling.encoding import Encoding, nominal, ordinal, params_of
from factories import cpu_machine, narrowed, written


def test_expected_improvement_is_what_it_says():
    draws = np.random.default_rng(0).normal(1.0, 0.5, 400_000)
    (found,) = expected_improvement(np.array([1.0]), np.array([0.5]), 1.2)
    assert found == pytest.approx(np.maximum(0, draws - 1.2).mean(), rel=0.02)


def test_half_of_a_normal_variable_lies_below_its_mean():
    assert normal_below(np.array([0.0, 1.96])) == pytest.approx([0.5, 0.975], abs=1e-3)


SIZES = (4, 3, 2, 2)
KERNELS = [ordinal([0, 1, 2, 3]), nominal(3), nominal(2), nominal(2)]
PRIOR = np.array([0.4, 0.3, 0.2, 0.2])
ALL = np.array(list(itertools.product(*map(range, SIZES))), dtype=np.intp)
GAINS = [np.array([0.0, 0.3, 0.5, 0.4]), np.array([0.0, 0.4, -0.2]), np.array([0.0, 0.1])]


def truth(rows):
    """Knobs that add their gains; the last one does nothing."""
    return np.asarray(sum(gain[rows[:, knob]] for knob, gain in enumerate(GAINS)))


def fitted(rows, values):
    return Surrogate(KERNELS, PRIOR, rows, values - values.mean())


def test_effects_that_add_up_are_known_from_a_quarter_of_the_space():
    rows = ALL[np.random.default_rng(0).permutation(len(ALL))[:12]]
    mean, _ = fitted(rows, truth(rows)).predict(ALL)
    assert np.corrcoef(mean, truth(ALL))[0, 1] > 0.9
    assert truth(ALL)[np.argmax(mean)] >= truth(ALL).max() - 0.1


def test_measured_configurations_are_less_uncertain_than_others():
    rows = ALL[:6]
    _, deviation = fitted(rows, truth(rows)).predict(ALL)
    assert deviation[:6].max() < deviation[6:].min()


def test_a_pair_that_pays_together_is_found_from_neighbours():
    both = (ALL[:, 2] == 1) & (ALL[:, 3] == 1)
    values = truth(ALL) + 0.8 * both
    kept = np.ones(len(ALL), dtype=bool)
    kept[::5] = False
    mean, _ = fitted(ALL[kept], values[kept]).predict(ALL[~kept])
    left = values[~kept] - values[kept].mean()
    assert np.abs(mean - left).max() < 0.15


def test_a_single_trial_is_enough_to_go_on():
    mean, deviation = fitted(ALL[:1], np.array([0.0])).predict(ALL)
    assert np.isfinite(mean).all()
    assert deviation.min() > 0


def test_the_same_configuration_measured_twice_is_no_fault():
    rows = ALL[[0, 0, 5]]
    mean, _ = fitted(rows, np.array([0.1, -0.1, 0.0])).predict(ALL)
    assert np.isfinite(mean).all()


@pytest.mark.parametrize(("near", "far"), [(1, 2), (2, 3), (1, 3)])
def test_values_on_a_line_are_alike_by_their_distance(near, far):
    kernel = ordinal([0, 1, 2, 3])
    assert kernel[0, 0] == 1 > kernel[0, near] > kernel[0, far] > 0


SPACE = """\
batch_size: [8, 16, 32, 64]
num_workers: [0, 1, 2, 4]
prefetch_factor: [2, 4]
amp_dtype: [null, bfloat16]
channels_last: [false, true]
num_threads: [2, 1]
"""


@pytest.fixture
def space(tmp_path):
    return narrowed(written(tmp_path, SPACE), cpu_machine(), {"batch_size": 8})


def test_a_knob_that_means_nothing_has_a_value_of_its_own(space):
    code = Encoding(space)
    idle, busy = (
        space.within(TrainingConfig.of({})),
        space.within(TrainingConfig.of({"num_workers": 2})),
    )
    rows = code.rows([idle, busy])
    column = list(code.values).index("prefetch_factor")
    assert rows[0, column] != rows[1, column]
    assert params_of(idle, space.varied())["prefetch_factor"] in space.domains["prefetch_factor"]


@pytest.mark.parametrize(("paying", "ratios"), [(1, (1.0, 1.0, 1.0)), (2, (0.7, 1.0, 1.0))])
def test_threads_are_expected_to_gain_as_far_as_the_diagnosis_says(tmp_path, paying, ratios):
    """Half of two threads have 0.7 of the rate; those of more than the cores gain nothing."""
    space = narrowed(written(tmp_path, "num_threads: [1, 2, 4]\n"), cpu_machine(4), {})
    code = Encoding(replace(space, paying_threads=paying))
    configs = [TrainingConfig.of({"num_threads": count}) for count in (1, 2, 4)]
    rates = np.exp(code.expected(code.rows(configs)))
    assert rates / rates[1] == pytest.approx(ratios)


def test_every_row_is_every_configuration(space):
    code = Encoding(space)
    assert {code.config(row) for row in code.every_row} == set(space.configurations())
    assert len(code.every_row) == space.size


def test_drawn_rows_and_neighbours_are_configurations(space):
    code, whole = Encoding(space), set(space.configurations())
    drawn = code.some_rows(50, Random(0))
    assert {code.config(row) for row in drawn} <= whole
    own = code.config(drawn[0])
    assert {code.config(row) for row in code.neighbours(drawn[0])} - {own} == set(
        space.neighbours(own)
    )


def test_a_neighbour_with_workers_has_a_prefetch_factor_of_the_space(tmp_path):
    text = SPACE.replace("prefetch_factor: [2, 4]", "prefetch_factor: [4, 8]")
    space = narrowed(written(tmp_path, text), cpu_machine(), {"batch_size": 8})
    code = Encoding(space)
    (row,) = code.rows([space.within(TrainingConfig.of({"num_workers": 0}))])
    near = [code.config(neighbour) for neighbour in code.neighbours(row)]
    assert {config["prefetch_factor"] for config in near if config["num_workers"]} == {4}
    assert set(near) <= set(space.configurations())


def test_rows_of_configurations_lead_back_to_them(space):
    code, configs = Encoding(space), list(space.configurations())
    assert [code.config(row) for row in code.rows(configs)] == configs


def test_two_are_told_apart_beyond_two_deviations_of_their_difference():
    fastest = Posterior(0.3, 0.03)
    apart = 2 * math.hypot(0.03, 0.04)
    assert Posterior(0.29 - apart, 0.04).is_clearly_below(fastest)
    assert not Posterior(0.31 - apart, 0.04).is_clearly_below(fastest)
    assert not fastest.is_clearly_below(fastest)
