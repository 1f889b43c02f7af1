"""When a search in which nothing works ends, and when it does not."""

from __future__ import annotations

import pytest

from autotune.configuration.constraints import Verdict
from autotune.configuration.training_config import TrainingConfig
from autotune.searching.trials.breaker import Breaker
from autotune.storage.finished_trial import FinishedTrial
from autotune.storage.trial_details import TrialDetails
from autotune.values.errors import TooManyLostError
from tuning import CRASHED, HOLDS, OOM

CONFIG = TrainingConfig.of({})


def trial(outcome: str, reason: str = "", foreseen: bool = False) -> FinishedTrial:
    margins = {"measured": HOLDS, "out_of_memory": OOM}.get(outcome, CRASHED)
    verdict = Verdict(1.0 if outcome == "measured" else None, margins, reason)
    return FinishedTrial(1, CONFIG, verdict, TrialDetails(outcome=outcome, foreseen=foreseen))


def test_so_many_failures_in_a_row_end_the_search_with_reasons_and_counts() -> None:
    breaker = Breaker(3)
    breaker.finished(trial("crashed", "killed by SIGSEGV"))
    breaker.finished(trial("out_of_memory", "out of host memory"))
    with pytest.raises(TooManyLostError) as caught:
        breaker.finished(trial("crashed", "killed by SIGSEGV"))
    assert caught.value.exit_code == 7
    assert "  2 x killed by SIGSEGV\n  1 x out of host memory\n" in str(caught.value)
    assert "--max-failures" in str(caught.value)


def test_whatever_was_measured_begins_the_count_anew() -> None:
    breaker = Breaker(2)
    for _ in range(5):
        breaker.finished(trial("out_of_memory"))
        breaker.finished(trial("measured"))


def test_what_was_foreseen_does_not_count() -> None:
    breaker = Breaker(2)
    for _ in range(5):
        breaker.finished(trial("out_of_memory", foreseen=True))
    breaker.finished(trial("crashed"))


def test_lost_trials_are_counted_on_their_own() -> None:
    breaker = Breaker(8)
    breaker.lost("disk full")
    breaker.lost("disk full")
    breaker.finished(trial("crashed"))
    breaker.lost("disk full")
    breaker.lost("disk full")
    with pytest.raises(TooManyLostError, match="disk full"):
        breaker.lost("disk full")
