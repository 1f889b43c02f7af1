"""Every place that tells an answer says what was measured of it, and where."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from answered_study import BASELINE, answered, explained
from autotune.configuration.best_config import BestConfig
from autotune.configuration.evidence import NOT_MEASURED, UNCHANGED
from autotune.production import Best
from autotune.searching.run.events import Answered
from autotune.study.facts import as_json as note_as_json
from factories import best_config
from reporting import STAGES, Page, trial
from shown_events import lines_of
from stored_study import as_page, report, stored


def unmeasured() -> BestConfig:
    """The answer of a search in which nothing could change the quality."""
    best = best_config(BASELINE.replace(num_workers=2), BASELINE)
    nothing = {"baseline": 0.0, "best": 0.0, "tolerance": 0.0, "margin": 0.0, "samples": 0}
    told = {"metric": UNCHANGED, "evidence": "exact", "needs_full_run": False, **nothing}
    accuracy = best.constraints.accuracy.model_copy(update=told)
    constraints = best.constraints.model_copy(update={"accuracy": accuracy})
    return best.model_copy(update={"constraints": constraints})


# What people read of an answer, wherever they do; best.yaml itself is for programs.
PLACES: dict[str, Callable[[str, BestConfig], str]] = {
    "terminal": lambda url, best: report(url),
    "sentences": lambda url, best: explained(url),
    "page": lambda url, best: (
        Page(report(url, "--html", "-").partition('aria-labelledby="yaml"')[0]).text
    ),
    "end of a search": lambda url, best: "\n".join(lines_of([Answered(best, Path("best.yaml"))])),
    "production": lambda url, best: Best(best).explain(),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_quality_that_nothing_could_change_is_said_not_to_be_measured(
    place: str, url: str
) -> None:
    trials = [trial(0), trial(1, 150.0, num_workers=2)]
    text = PLACES[place](stored(url, trials, unmeasured()), unmeasured())
    assert NOT_MEASURED in text
    assert UNCHANGED not in text
    assert "seeds" not in text


@pytest.mark.parametrize("place", PLACES)
def test_a_quality_that_was_measured_is_told(place: str, url: str) -> None:
    best = best_config(BASELINE.replace(num_workers=2), BASELINE)
    trials = [trial(0), trial(1, 150.0, num_workers=2)]
    measured = PLACES[place](stored(url, trials, best), best)
    assert NOT_MEASURED not in measured
    assert "evaluate" in measured
    assert "difference 0.01 (0.004 to 0.016) over the same 3 seeds" in measured
    assert best.constraints.accuracy.probe_text in measured


def test_what_differs_by_rounding_alone_is_said_not_to_be_probed() -> None:
    best = judged(best_config(BASELINE.replace(num_workers=2), BASELINE), evidence="gate")
    for place in ("end of a search", "production"):
        assert "not probed" in PLACES[place]("", best)


def judged(best: BestConfig, **told: Any) -> BestConfig:
    """The same answer, of which no seed was trained."""
    untrained = {"difference": 0.0, "difference_ci90": None, "smallest_shown": None}
    accuracy = best.constraints.accuracy.model_copy(update={**untrained, **told})
    constraints = best.constraints.model_copy(update={"accuracy": accuracy})
    return best.model_copy(update={"constraints": constraints})


CONFIRMED_RATES = best_config(BASELINE.replace(num_workers=2), BASELINE)


@pytest.mark.parametrize(
    ("epochs", "said"), [(0.3, "0.3 of an epoch"), (1.02, "1 epoch"), (4.6, "4.6 epochs")]
)
def test_the_length_of_probes_is_told_in_epochs(epochs: float, said: str) -> None:
    accuracy = CONFIRMED_RATES.constraints.accuracy.model_copy(update={"epochs": epochs})
    assert f"({said}, " in accuracy.probe_text


@pytest.mark.parametrize("place", ["terminal", "end of a search", "production"])
def test_a_confirmed_throughput_says_so_wherever_it_stands(place: str, url: str) -> None:
    """The factory's answer: 150 samples/s, where the user's settings reach 100."""
    trials = [trial(0), trial(1, 150.0, num_workers=2)]
    lines = PLACES[place](stored(url, trials, CONFIRMED_RATES), CONFIRMED_RATES).splitlines()
    (line,) = [one for one in lines if re.search(r"\b100\b.*\b150\b", one)]
    assert "samples/s in the confirmation" in line


def test_the_page_says_which_throughputs_were_confirmed(url: str) -> None:
    trials = [trial(0), trial(1, 150.0, num_workers=2)]
    source = stored(url, trials, CONFIRMED_RATES, diagnosis=note_as_json(STAGES))
    said = as_page(source).text
    assert re.search(r"150 samples/s\s*yours 100, in the confirmation", said)
    assert said.count("training, in the confirmation") == 2, "in the diagram of the stages"


@pytest.mark.parametrize("place", ["terminal", "page", "end of a search"])
@pytest.mark.parametrize("rounds", [0, 9])
def test_the_throughput_of_kept_settings_is_of_the_rounds_if_there_were_any(
    place: str, rounds: int, url: str
) -> None:
    best = best_config(BASELINE, BASELINE)
    speedup = best.evidence.speedup.model_copy(update={"rounds": rounds})
    best = best.model_copy(
        update={"evidence": best.evidence.model_copy(update={"speedup": speedup})}
    )
    said = PLACES[place](stored(url, [trial(0)], best), best)
    assert ("in the confirmation" in said) == (rounds > 0)
    assert rounds or "in the search" in said


def test_rates_of_trials_say_that_they_are_of_the_search(url: str) -> None:
    source = answered(url)
    assert "\n\nIn the search:\ntrial" in report(source)
    page = report(source, "--html", "-")
    assert "2 trials, as measured in the search" in page
    assert "100.0 samples/s in the search" in page, "where the mouse points at a trial"
