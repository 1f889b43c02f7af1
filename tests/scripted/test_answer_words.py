"""Every output gives the same reason for keeping the user's settings."""

from pathlib import Path

import pytest

from autotune.configuration.answer_words import headline
from autotune.configuration.evidence import Searched
from autotune.configuration.training_config import TrainingConfig
from autotune.console.answer_lines import answer_lines
from autotune.production import Best
from autotune.searching.run.events import Answered
from factories import best_config, with_not_confirmed, with_not_proven
from reporting import OWN, trial
from stored_study import as_page, report, stored

BASELINE = TrainingConfig.of(OWN)
NONE = "of 19 configurations measured, none was faster beyond the noise."
NONE_AS_GOOD = (
    "of 19 configurations measured, none that trains as well was shown to be faster. "
    "1 faster one is not proven to train as well."
)
NOT_AGAIN = (
    "of 19 configurations measured, none was shown to be faster. "
    "1 that was faster in the trials could not be confirmed."
)
NEITHER = f"{NONE_AS_GOOD} 1 that was faster in the trials could not be confirmed."


def kept(measured=19):
    """The answer to keep the settings, after so many configurations."""
    best = best_config(BASELINE, BASELINE)
    searched = Searched(configurations=96, measured=measured, tried={}, never_varied=())
    evidence = best.evidence.model_copy(update={"searched": searched})
    return best.model_copy(update={"evidence": evidence})


@pytest.mark.parametrize(
    ("best", "reason"),
    [
        (kept(), NONE),
        (with_not_proven(kept()), NONE_AS_GOOD),
        (with_not_confirmed(kept()), NOT_AGAIN),
        (with_not_confirmed(with_not_proven(kept())), NEITHER),
    ],
)
def test_every_output_gives_the_same_reason(best, reason, url):
    first, capital = f"Keep your settings: {reason}", f"{reason[0].upper()}{reason[1:]}"
    source = stored(url, [trial(0)], best)
    assert answer_lines(Answered(best, Path("best.yaml")))[0] == first
    assert Best(best).explain().splitlines()[0] == first
    assert first in report(source)
    seen = as_page(source).text
    assert capital in seen
    assert "of 96 configurations" in seen


def test_the_headline_counts_what_was_measured():
    assert "of 1 configuration measured" in headline(kept(1))
    assert "no other configuration was measured" in headline(kept(0))
