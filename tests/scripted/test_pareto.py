"""Trials that no other beats in both throughput and memory, in each form of the report."""

from dataclasses import replace

import pytest

from factories import GIB
from reporting import report_of, trial
from stored_study import as_json, as_page, as_rows, stored
from study_factories import OVER_MEMORY


def taking(gib, number, rate, **settings):
    """A trial with this rate and this peak of its memory."""
    made = trial(number, rate, **settings)
    peak = None if gib is None else int(gib * GIB)
    return replace(made, details=replace(made.details, peak_memory_bytes=peak))


# Rates and memory: trial 2 is slower than 1 in more memory, 4 as fast as 3 in more.
TRIALS = [
    taking(2.0, 0, 100.0),
    taking(1.0, 1, 90.0, batch_size=8),
    taking(1.5, 2, 80.0, num_workers=2),
    taking(3.0, 3, 200.0, batch_size=32),
    taking(4.0, 4, 200.0, batch_size=64),
]


def numbers(*trials, **parts):
    return [one.number for one in report_of(trials, **parts).pareto_best]


def test_they_are_told_from_the_least_memory_to_the_fastest():
    assert numbers(*TRIALS) == [1, 0, 3]


def test_of_two_that_are_alike_one_is_told():
    assert numbers(TRIALS[0], taking(2.0, 1, 100.0, batch_size=32)) == [0]


@pytest.mark.parametrize(
    "other",
    [
        replace(taking(0.5, 5, 300.0, batch_size=8), verdict=trial(5, 300.0, OVER_MEMORY).verdict),
        taking(0.5, 5, None, batch_size=8),
        taking(None, 5, 300.0, batch_size=8),
    ],
    ids=["infeasible", "without a rate", "without its memory"],
)
def test_a_trial_that_cannot_be_the_answer_is_none_of_them(other):
    assert numbers(*TRIALS, other) == [1, 0, 3]


def test_a_candidate_that_was_refused_is_none_of_them():
    refused = {"seconds": 9.0, "candidates": {"3": {"refused": "not as accurate"}}}
    assert numbers(*TRIALS[:4], notes={"confirmation": refused}) == [1, 0]


def test_every_form_of_the_report_names_the_same(url):
    source = stored(url, TRIALS)
    assert as_json(source)["pareto_best"] == [1, 0, 3]
    marked = {row["trial"]: row["pareto_best"] for row in as_rows(source)}
    assert marked == {"0": "True", "1": "True", "2": "False", "3": "True", "4": "False"}
    words = " ".join(as_page(source).text.split())
    table = words.partition("The Pareto-best trials, as measured in the search")[2]
    assert table.index("batch_size=8") < table.index("your settings") < table.index("batch_size=32")


def test_one_trial_that_beats_all_others_is_no_choice(url):
    source = stored(url, [TRIALS[0], taking(1.0, 1, 150.0, batch_size=32)])
    words = " ".join(as_page(source).text.split())
    assert "Pareto-best" not in words
    assert "No feasible trial is faster than trial 1, and none takes less memory." in words
