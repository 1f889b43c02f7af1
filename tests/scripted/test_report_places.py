"""Every place that tells an answer says what was measured of it, and where."""

from pathlib import Path

import pytest

from autotune.configuration.evidence import NOT_MEASURED, UNCHANGED
from autotune.production import Best
from autotune.searching.run.events import Answered
from factories import best_config
from reporting import Page, trial
from shown_search import lines_of
from stored_study import BASELINE, report, stored


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
