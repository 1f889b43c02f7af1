"""A search in which nothing works ends; one in which something works goes on."""

import threading

import pytest

from autotune.searching.trials.trials import Breaker
from autotune.values.errors import TooManyLostError
from study_factories import CRASHED, HOLDS, OOM, trial

MARGINS = {"measured": HOLDS, "out_of_memory": OOM, "crashed": CRASHED}
THREADS, TRIALS = 4, 50


def ended(outcome, reason="", foreseen=False):
    value = 1.0 if outcome == "measured" else None
    return trial(1, value, MARGINS[outcome], reason, outcome=outcome, foreseen=foreseen)


def test_a_measured_trial_begins_the_count_anew():
    breaker = Breaker(2)
    for _ in range(5):
        breaker.finished(ended("crashed", "first"))
        breaker.finished(ended("measured"))
    breaker.finished(ended("crashed", "last but one"))
    with pytest.raises(TooManyLostError, match="2 trials in a row") as caught:
        breaker.finished(ended("crashed", "last"))
    assert "first" not in str(caught.value)


@pytest.mark.parametrize("foreseen", [True, False])
def test_running_out_of_memory_neither_counts_nor_begins_the_count_anew(foreseen):
    breaker = Breaker(2)
    for _ in range(5):
        breaker.finished(ended("out_of_memory", "too large", foreseen))
    breaker.finished(ended("crashed", "first"))
    breaker.finished(ended("out_of_memory", "too large", foreseen))
    with pytest.raises(TooManyLostError, match="2 trials in a row") as caught:
        breaker.finished(ended("crashed", "second"))
    assert "too large" not in str(caught.value)


def test_lost_trials_are_counted_on_their_own():
    breaker = Breaker(8)
    breaker.lost("disk full")
    breaker.lost("disk full")
    breaker.finished(ended("crashed"))
    breaker.lost("disk full")
    breaker.lost("disk full")
    with pytest.raises(TooManyLostError, match="disk full"):
        breaker.lost("disk full")


@pytest.mark.usefixtures("restless")
def test_each_trial_of_several_threads_is_counted_once():
    breaker, failed = Breaker(THREADS * TRIALS), []

    def fail():
        for _ in range(TRIALS):
            try:
                breaker.finished(ended("crashed", "x"))
            except TooManyLostError as error:
                failed.append(error)

    threads = [threading.Thread(target=fail) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 1
