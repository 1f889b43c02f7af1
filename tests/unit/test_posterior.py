"""Posteriors of candidates follow from a search and from rounds."""

from __future__ import annotations

import math

import pytest

from autotune.comparison.candidate_choice import posteriors_after
from autotune.comparison.rounds import PairedComparison, Participant
from autotune.configuration.training_config import TrainingConfig
from autotune.sampling.acquisition import Posterior

BASELINE = TrainingConfig.of({})
FIRST = Participant("first", BASELINE)
SECOND = Participant("second", BASELINE)


def test_without_a_posterior_timings_are_all_there_is() -> None:
    found = Posterior(noise=0.1).after(0.3, timings=4)
    assert found.mean == pytest.approx(0.3)
    assert found.deviation == pytest.approx(0.05)


def test_timings_count_as_much_as_they_are_sure_beside_the_posterior() -> None:
    as_sure = Posterior(1.0, 0.05, noise=0.1).after(2.0, timings=4)
    assert as_sure.mean == pytest.approx(1.5)
    assert as_sure.deviation == pytest.approx(0.05 / math.sqrt(2))


def test_two_are_told_apart_beyond_two_deviations_of_their_difference() -> None:
    fastest = Posterior(0.3, 0.03)
    apart = 2 * math.hypot(0.03, 0.04)
    assert Posterior(0.29 - apart, 0.04).is_clearly_below(fastest)
    assert not Posterior(0.31 - apart, 0.04).is_clearly_below(fastest)
    assert not fastest.is_clearly_below(fastest)


def test_rates_of_a_search_and_ratios_of_rounds_have_no_origin_in_common() -> None:
    before = {FIRST: Posterior(7.0, 0.05, 0.1), SECOND: Posterior(7.2, 0.05, 0.1)}
    comparisons = {
        FIRST: PairedComparison(costs=((1.5, 1.0),) * 4),
        SECOND: PairedComparison(costs=((1.5, 1.0),) * 4),
    }
    now = posteriors_after(before, comparisons)
    assert now[SECOND].mean - now[FIRST].mean == pytest.approx(0.1), "half of what the search says"
    assert (now[SECOND].mean + now[FIRST].mean) / 2 == pytest.approx(math.log(1.5))


def test_a_candidate_that_the_search_did_not_time_is_judged_by_the_rounds() -> None:
    comparisons = {
        FIRST: PairedComparison(costs=((1.1, 1.0),) * 4),
        SECOND: PairedComparison(costs=((1.2, 1.0),) * 4),
    }
    now = posteriors_after({FIRST: Posterior(7.0, 0.05)}, comparisons)
    assert now[FIRST].mean == pytest.approx(math.log(1.1))
    assert now[SECOND].mean == pytest.approx(math.log(1.2))
