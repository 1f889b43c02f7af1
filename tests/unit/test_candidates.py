"""States of a candidate, from a trial to the result, and what later readers are told of it."""

from __future__ import annotations

import optuna
import pytest

from autotune.comparison.rounds import PairedComparison
from autotune.configuration.search_space import SearchSpace
from autotune.context.budget_clock import OUT_OF_TIME
from autotune.sampling.posterior import Posterior
from autotune.searching.confirmation.candidates import TOO_LATE, Candidate, State
from autotune.storage.note_types import CandidateLog
from autotune.study.study import TuningStudy
from factories import measurement
from tuning import HOLDS, THROUGHPUT, tell


@pytest.fixture
def pair(nine: SearchSpace) -> tuple[Candidate, Candidate]:
    """Two candidates, whose trials are the second and the third of a study."""
    study = TuningStudy(optuna.create_study(direction="maximize"), nine, THROUGHPUT)
    study.use_sampler("grid", seed=0)  # no configuration twice
    for value in (80.0, 90.0, 100.0):
        tell(study, value, HOLDS)
    first, second = (Candidate(trial, Posterior()) for trial in study.finished()[1:])
    return first, second


def rounds(*ratios: float) -> PairedComparison:
    run = measurement()
    found = PairedComparison(confidence=0.95)
    for ratio in ratios:
        found = found.after(run, run, ratio)
    return found


def test_a_candidate_that_was_set_aside_waits_for_another_test(pair) -> None:
    one, other = pair
    one.enter_test()
    told = one.add_round(rounds(1.25, 1.25), seconds_left=3.0)
    assert (told.config, told.ratios, told.eta_seconds) == (one.trial.config, (1.25, 1.25), 3.0)
    assert one.set_aside(other).other is other.trial
    assert one.state is State.WAITING
    assert one.log() == CandidateLog(
        ratios=(1.25, 1.25), ci95=(1.25, 1.25), set_aside_for=other.trial.number
    )
    one.enter_test()
    one.add_round(rounds(1.5), seconds_left=0.0)
    assert one.log() == CandidateLog(ratios=(1.5,), ci95=(1.5, 1.5)), "only the last test counts"


def test_a_refused_candidate_keeps_its_rounds_and_the_reason(pair) -> None:
    one, _ = pair
    one.enter_test()
    one.add_round(rounds(1.25), seconds_left=0.0)
    assert one.refuse("too much memory").reason == "too much memory"
    assert one.state is State.REFUSED
    assert one.log() == CandidateLog(ratios=(1.25,), ci95=(1.25, 1.25), refused="too much memory")


@pytest.mark.parametrize("reason", [TOO_LATE, f"your settings failed beside it: {OUT_OF_TIME}"])
def test_a_lack_of_time_decides_nothing(pair, reason: str) -> None:
    one, _ = pair
    one.refuse(reason)
    assert one.state is State.UNDECIDED


def test_the_result_has_the_evidence_of_its_rounds_and_seeds(pair) -> None:
    one, _ = pair
    one.qualities = (0.9, 0.91, 0.92)
    one.enter_test()
    one.add_round(rounds(1.25, 1.5, 1.25), seconds_left=0.0)
    won = one.confirm()
    assert (won.trial, won.qualities, won.speedup.rounds) == (one.trial, one.qualities, 3)
    assert one.state is State.CONFIRMED


def test_nothing_is_told_of_a_candidate_that_was_not_tested(pair) -> None:
    one, _ = pair
    one.drop()
    assert one.state is State.DROPPED
    assert one.log() is None
