"""The worth of a proposal, from the mean and the spread of what is expected of it."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.sampling.acquisition import expected_improvement, normal_below


def test_expected_improvement_is_what_it_says() -> None:
    draws = np.random.default_rng(0).normal(1.0, 0.5, 400_000)
    (found,) = expected_improvement(np.array([1.0]), np.array([0.5]), 1.2)
    assert found == pytest.approx(np.maximum(0, draws - 1.2).mean(), rel=0.02)


def test_half_of_a_normal_variable_lies_below_its_mean() -> None:
    assert normal_below(np.array([0.0, 1.96])) == pytest.approx([0.5, 0.975], abs=1e-3)
