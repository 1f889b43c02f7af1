"""Every output of a report is there, whatever state the study is in."""

from dataclasses import replace

import pytest

from autotune.configuration.best_config import write_best
from autotune.values.errors import StudyMismatchError
from factories import best_config
from reporting import trial
from stored_study import (
    BASELINE,
    answered,
    as_json,
    confirmed,
    lost,
    read,
    report,
    running,
    stored,
)
from study_factories import CRASHED, OOM, OVER_MEMORY

LATER = {"batch_size": 32}
STATES = {
    "nothing": stored,
    "only the baseline": lambda url: stored(url, [trial(0)]),
    "a baseline that is infeasible": lambda url: stored(url, [trial(0, None, OOM, "too large")]),
    "only infeasible trials": lambda url: stored(
        url, [trial(0, 90.0, OVER_MEMORY), trial(1, None, CRASHED, "died", **LATER)]
    ),
    "lost and running": lambda url: stored(
        url, [trial(0), trial(1, 120.0, **LATER), lost(2, "interrupted", BASELINE), running(3)]
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
        ("only infeasible trials", "No result: no trial is feasible, not even your own settings."),
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
