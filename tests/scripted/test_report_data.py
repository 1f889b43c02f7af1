"""A report reads a study in any state."""

import pytest

from autotune.configuration.best_config import write_best
from reporting import report_of, trial
from stored_study import BASELINE, TRIALS, as_json, confirmed, lost, read, report, running, stored
from study_factories import CRASHED, HOLDS, OOM

SMALL = BASELINE.replace(batch_size=32)


def answered(*others, number=1, **notes):
    """A study whose trial 1 was confirmed at 1.5 times."""
    return report_of([*TRIALS, *others], confirmed(number), notes=notes)


def test_each_trial_stands_for_one_thing():
    data = answered(
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
    data = answered()
    assert data.ratio(data.trials[1]) == pytest.approx(1.6)
    assert data.ratio_interval(data.trials[1]) == pytest.approx((1.6, 1.6))
    assert data.answer is data.trials[1]


def test_an_answer_of_another_trial_marks_none():
    assert answered(number=7).answer is None


def test_finished_lost_and_running_trials_are_read_from_a_storage(url):
    told = as_json(stored(url, [trial(0), lost(1, "disk full", SMALL), running(2, SMALL)]))
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
