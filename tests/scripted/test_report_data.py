"""What a report is made of: trials, answer and claims, whatever state a study is in."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.configuration.best_config import write_best
from autotune.configuration.evidence import NOT_MEASURED, UNCHANGED
from autotune.production import Best
from autotune.searching.run.events import Answered
from autotune.values.errors import StudyMismatchError
from factories import GIB, best_config
from reporting import Page, report_of, trial
from shown_search import lines_of
from stored_study import (
    BASELINE,
    TRIALS,
    answered,
    as_json,
    as_page,
    as_rows,
    confirmed,
    lost,
    read,
    report,
    running,
    stored,
)
from study_factories import CRASHED, HOLDS, OOM, OVER_MEMORY

SMALL = BASELINE.replace(batch_size=32)


def data_of(*others, number=1, **notes):
    """A study whose trial 1 was confirmed at 1.5 times."""
    return report_of([*TRIALS, *others], confirmed(number), notes=notes)


def test_each_trial_stands_for_one_thing():
    data = data_of(
        trial(2, 90.0),
        trial(3, None, OOM, batch_size=64),
        trial(4, 200.0, {**HOLDS, "accuracy": 0.2}, batch_size=32),
        trial(5, None, CRASHED, batch_size=8),
        trial(6, 300.0, batch_size=128),
        confirmation={"seconds": 9.0, "candidates": {"6": {"refused": "accuracy"}}},
    )
    standings = [data.standing(one) for one in data.trials]
    measured = ["baseline", "answer", "feasible"]
    assert standings == [*measured, "memory", "accuracy", "failed", "refused"]


def test_rates_are_compared_with_the_baseline():
    data = data_of()
    assert data.ratio(data.trials[1]) == pytest.approx(1.6)
    assert data.ratio_interval(data.trials[1]) == pytest.approx((1.6, 1.6))
    assert data.answer is data.trials[1]


def test_an_answer_of_another_trial_marks_none():
    assert data_of(number=7).answer is None


def test_finished_lost_and_running_trials_are_read_from_a_storage(url):
    told = as_json(
        stored(
            url,
            [trial(0), lost(1, "disk full", SMALL), running(2, SMALL)],
        )
    )
    assert [(one["number"], one["config"]) for one in told["trials"]] == [(0, BASELINE.as_dict())]
    unfinished = [(one["number"], one["state"], one["reason"]) for one in told["open_trials"]]
    assert [one["config"]["batch_size"] for one in told["open_trials"]] == [32, 32]
    assert unfinished == [(1, "lost", "disk full"), (2, "running", "")]
    assert "\nNo result yet" in report(url)


def test_reading_changes_nothing(url, tmp_path):
    stored(url, [trial(0)])
    before = (tmp_path / "study.db").read_bytes()
    for flags in ([], ["--html", "-"]):
        report(url, *flags)
    assert (tmp_path / "study.db").read_bytes() == before


def test_without_a_study_the_answer_beside_it_is_read(tmp_path):
    best = confirmed()
    write_best(best, tmp_path / "recorded_best.yaml")
    for named in (tmp_path, tmp_path / "recorded_best.yaml"):
        data = read(named)
        assert data.best == best
        assert "which has no trials" in data.remarks[0]


def test_an_answer_that_trials_came_after_says_so(url):
    best = confirmed(0)
    stored(url, [trial(0, 80.0)], best)
    stored(url, [trial(1, 90.0), trial(2, 95.0)])
    data = read(url)
    assert data.best == best
    assert "confirmed after 1 trials; 2 came later" in data.remarks[0]


def unmeasured():
    """The answer of a search in which nothing could change the quality."""
    best = best_config(BASELINE.replace(num_workers=2), BASELINE)
    nothing = {"baseline": 0.0, "best": 0.0, "tolerance": 0.0, "margin": 0.0, "samples": 0}
    told = {"metric": UNCHANGED, "evidence": "exact", "needs_full_run": False, **nothing}
    accuracy = best.constraints.accuracy.model_copy(update=told)
    constraints = best.constraints.model_copy(update={"accuracy": accuracy})
    return best.model_copy(update={"constraints": constraints})


# What people read of an answer, wherever they do; best.yaml itself is for programs.
PLACES = {
    "terminal": lambda url, best: report(url),
    "page": lambda url, best: (
        Page(report(url, "--html", "-").partition('aria-labelledby="yaml"')[0]).text
    ),
    "end of a search": lambda url, best: "\n".join(lines_of([Answered(best, Path("best.yaml"))])),
    "production": lambda url, best: Best(best).explain(),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_quality_that_nothing_could_change_is_said_not_to_be_measured(place, url):
    trials = [trial(0), trial(1, 150.0, num_workers=2)]
    text = PLACES[place](stored(url, trials, unmeasured()), unmeasured())
    assert NOT_MEASURED in text
    assert UNCHANGED not in text
    assert "seeds" not in text


@pytest.mark.parametrize("place", PLACES)
def test_a_quality_that_was_measured_is_told(place, url):
    best = best_config(BASELINE.replace(num_workers=2), BASELINE)
    trials = [trial(0), trial(1, 150.0, num_workers=2)]
    measured = PLACES[place](stored(url, trials, best), best)
    assert NOT_MEASURED not in measured
    assert "evaluate" in measured
    assert "difference 0.01 (0.004 to 0.016) over the same 3 seeds" in measured
    assert best.constraints.accuracy.probe_text in measured


CONFIRMED_RATES = best_config(BASELINE.replace(num_workers=2), BASELINE)


@pytest.mark.parametrize(
    ("epochs", "said"), [(0.3, "0.3 of an epoch"), (1.02, "1 epoch"), (4.6, "4.6 epochs")]
)
def test_the_length_of_probes_is_told_in_epochs(epochs, said):
    accuracy = CONFIRMED_RATES.constraints.accuracy.model_copy(update={"epochs": epochs})
    assert f"({said}, " in accuracy.probe_text


@pytest.mark.parametrize("place", ["terminal", "page", "end of a search"])
@pytest.mark.parametrize("rounds", [0, 9])
def test_the_throughput_of_kept_settings_is_of_the_rounds_if_there_were_any(place, rounds, url):
    best = best_config(BASELINE, BASELINE)
    speedup = best.evidence.speedup.model_copy(update={"rounds": rounds})
    best = best.model_copy(
        update={"evidence": best.evidence.model_copy(update={"speedup": speedup})}
    )
    said = PLACES[place](stored(url, [trial(0)], best), best)
    assert ("in the confirmation" in said) == (rounds > 0)
    assert rounds or "in the search" in said


LATER = {"batch_size": 32}
STATES = {
    "nothing": stored,
    "only the baseline": lambda url: stored(url, [trial(0)]),
    "a baseline that is infeasible": lambda url: stored(url, [trial(0, None, OOM, "too large")]),
    "only infeasible trials": lambda url: stored(
        url, [trial(0, 90.0, OVER_MEMORY), trial(1, None, CRASHED, "died", **LATER)]
    ),
    "lost and running": lambda url: stored(
        url,
        [
            trial(0),
            trial(1, 120.0, **LATER),
            lost(2, "interrupted", BASELINE),
            running(3),
        ],
    ),
    "no details": lambda url: stored(
        url,
        [
            replace(one, details=type(one.details)())
            for one in (trial(0), trial(1, None, CRASHED, batch_size=8))
        ],
    ),
    "keep your settings": lambda url: stored(url, [trial(0)], best_config(BASELINE, BASELINE)),
    "an answer": answered,
}


def assert_every_output_is_there(source):
    written = [report(source, *flags) for flags in (["--html", "-"], ["--csv", "-"], [])]
    assert all(written)
    assert "None" not in written[-1]
    assert as_json(source)["schema_version"] == 1


@pytest.mark.parametrize("state", STATES)
def test_every_output_is_there_whatever_state_a_study_is_in(state, url):
    assert_every_output_is_there(STATES[state](url))


def test_every_output_is_there_of_an_answer_alone(tmp_path):
    write_best(confirmed(), tmp_path / "best.yaml")
    assert_every_output_is_there(tmp_path / "best.yaml")


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("nothing", "No result yet: no trial has ended."),
        ("only the baseline", "No result yet: only your own settings were measured."),
        (
            "only infeasible trials",
            "No result: every trial was rejected, your own settings included.",
        ),
        ("lost and running", "trial 1 is the fastest of 2, 1.20x your settings."),
        ("keep your settings", "Keep your settings: nothing was faster beyond the noise."),
        ("an answer", "1.50x faster than your settings (1.45 to 1.55, 6 rounds): amp_dtype="),
    ],
)
def test_the_headline_says_how_far_the_search_is(state, sentence, url):
    source = STATES[state](url)
    assert sentence in report(source)


@pytest.mark.parametrize("damaged", [{"diagnosis": {"what": "is this"}}, {"identity": []}])
def test_a_study_that_is_damaged_is_refused_with_what_is_wrong(damaged, url):
    (name,) = damaged
    with pytest.raises(StudyMismatchError, match=f"the study's fact '{name}' is not what"):
        read(answered(url, **damaged))


def taking(gib, number, rate, **settings):
    """A trial with this rate and this peak of its memory."""
    made = trial(number, rate, **settings)
    peak = None if gib is None else int(gib * GIB)
    return replace(made, details=replace(made.details, peak_memory_bytes=peak))


# Rates and memory: trial 2 is slower than 1 in more memory, 4 as fast as 3 in more.
CHOICES = [
    taking(2.0, 0, 100.0),
    taking(1.0, 1, 90.0, batch_size=8),
    taking(1.5, 2, 80.0, num_workers=2),
    taking(3.0, 3, 200.0, batch_size=32),
    taking(4.0, 4, 200.0, batch_size=64),
]


def numbers(*trials, **parts):
    return [one.number for one in report_of(trials, **parts).pareto_best]


def test_of_two_that_are_alike_one_is_told():
    assert numbers(CHOICES[0], taking(2.0, 1, 100.0, batch_size=32)) == [0]


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
    assert numbers(*CHOICES, other) == [1, 0, 3]


def test_a_candidate_that_was_refused_is_none_of_them():
    refused = {"seconds": 9.0, "candidates": {"3": {"refused": "not as accurate"}}}
    assert numbers(*CHOICES[:4], notes={"confirmation": refused}) == [1, 0]


def test_every_form_of_the_report_names_the_same(url):
    source = stored(url, CHOICES)
    assert as_json(source)["pareto_best"] == [1, 0, 3]
    marked = {row["trial"]: row["pareto_best"] for row in as_rows(source)}
    assert marked == {"0": "True", "1": "True", "2": "False", "3": "True", "4": "False"}
    words = " ".join(as_page(source).text.split())
    table = words.partition("The Pareto-best trials, as measured in the search")[2]
    assert table.index("batch_size=8") < table.index("your settings") < table.index("batch_size=32")


def test_one_trial_that_beats_all_others_is_no_choice(url):
    source = stored(url, [CHOICES[0], taking(1.0, 1, 150.0, batch_size=32)])
    words = " ".join(as_page(source).text.split())
    assert "Pareto-best" not in words
    assert "No allowed trial is faster than trial 1, and none takes less memory." in words
