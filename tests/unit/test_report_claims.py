"""A report claims effects of settings only where trials show them."""

from __future__ import annotations

import pytest

from autotune.configuration.training_config import TrainingConfig
from factories import best_config
from reporting import OWN, Page, trial
from stored_study import as_json, as_page, report, stored

BASELINE = TrainingConfig.of(OWN)
BOTH = {"amp_dtype": "bfloat16", "channels_last": True}


def tried_together(url: str, count: int) -> str:
    """A study in which bfloat16 with channels_last is twice as fast, and nothing else matters."""
    trials = [trial(0), trial(1, 200.0, **BOTH)]
    for n in range(2, count):
        changed = BOTH if n % 2 else {}
        rate = 100.0 + (n % 3) + (100.0 if changed else 0.0)
        trials.append(trial(n, rate, fused_optimizer=n % 4 > 1, batch_size=16 << n % 2, **changed))
    best = best_config(BASELINE.replace(**BOTH, fused_optimizer=True, batch_size=32), BASELINE)
    return stored(url, trials, best)


def test_settings_that_were_always_tried_together_have_one_claim_in_every_form(url: str) -> None:
    source = tried_together(url, 8)
    told = {one["knob"]: one["effects"] for one in as_json(source)["effects"]}
    assert told["amp_dtype"][0]["together"] == {"channels_last": True}
    assert told["amp_dtype"][0]["ratio"] == pytest.approx(2.0, rel=0.1)
    assert told["fused_optimizer"][0]["together"] == {}
    assert "channels_last" not in told
    both = "amp_dtype=bfloat16 and channels_last=true (always tried together) make 1."
    assert both in report(source, "--explain")
    seen = as_page(source).text
    assert "with channels_last=true" in seen, "in the diagram"
    assert "always tried with amp_dtype" in seen, "in the table of changes"


def test_an_effect_whose_interval_holds_1_is_not_told_apart_in_any_form(url: str) -> None:
    source = tried_together(url, 8)
    told = {one["knob"]: one["effects"][0] for one in as_json(source)["effects"]}
    low, high = told["fused_optimizer"]["interval"]
    assert low < 1 < high
    sentence = report(source, "--explain").partition("Not told apart from no change: ")[2]
    assert "fused_optimizer=true" in sentence.partition(".")[0]
    seen = as_page(source).text
    assert "not told apart, 3 trials" in seen or "not told apart, 4 trials" in seen
    assert f"{low:.2f} to {high:.2f}" not in seen + sentence
    assert f"{told['fused_optimizer']['ratio']:.2f}x  (" not in seen


@pytest.mark.parametrize("count", [11, 12])
def test_importances_and_a_diagram_of_two_settings_need_twelve_trials(url: str, count: int) -> None:
    source = tried_together(url, count)
    seen = report(source, "--html", "-")
    assert ("PED-ANOVA" in seen) == (count == 12)
    assert ("The fastest feasible trial of each combination" in seen) == (count == 12)
    assert ("This needs twelve trials at least" in seen) == (count == 11)
    assert bool(as_json(source)["importances"]) == (count == 12)


def test_knobs_that_always_vary_together_share_one_importance(url: str) -> None:
    changes = [(16, 0), (32, 1), (16, 1), (32, 0)] * 3
    trials = [
        trial(n, 10.0 * size + n, batch_size=size, channels_last=size != 16, num_threads=1 + half)
        for n, (size, half) in enumerate(changes)
    ]
    source = stored(url, trials)
    told = as_json(source)
    assert set(told["importances"]) == {"batch_size", "num_threads"}
    assert told["importances_together"] == {"batch_size": ["channels_last"]}
    assert "batch_size, channels_last" in Page(report(source, "--html", "-")).text
