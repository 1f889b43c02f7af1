"""A report claims effects of settings only where trials show them."""

import re

import pytest

from autotune.configuration.training_config import TrainingConfig
from autotune.report.effects import comes_with
from factories import best_config
from reporting import OWN, trial
from stored_study import as_json, as_page, report, stored

BASELINE = TrainingConfig.of(OWN)
BOTH = {"amp_dtype": "bfloat16", "channels_last": True}


def tried_together(url, count):
    """A study in which bfloat16 with channels_last is twice as fast, and nothing else matters."""
    trials = [trial(0), trial(1, 200.0, **BOTH)]
    for n in range(2, count):
        changed = BOTH if n % 2 else {}
        rate = 100.0 + (n % 3) + (100.0 if changed else 0.0)
        fused = {"optimizer_impl": "fused"} if n % 4 > 1 else {}
        trials.append(trial(n, rate, batch_size=16 << n % 2, **fused, **changed))
    best = best_config(BASELINE.replace(**BOTH, optimizer_impl="fused", batch_size=32), BASELINE)
    return stored(url, trials, best)


def test_settings_that_were_always_tried_together_have_one_claim_in_every_form(url):
    source = tried_together(url, 8)
    told = {one["knob"]: one["effects"] for one in as_json(source)["effects"]}
    assert told["amp_dtype"][0]["together"] == {"channels_last": True}
    assert told["amp_dtype"][0]["ratio"] == pytest.approx(2.0, rel=0.1)
    assert told["optimizer_impl"][0]["together"] == {}
    assert "channels_last" not in told
    both = "amp_dtype=bfloat16 and channels_last=true (always tried together) are 1."
    assert both in report(source, "--explain")
    seen = as_page(source).text
    assert "with channels_last=true" in seen, "in the effects"
    assert "always tried with amp_dtype" in seen, "in the table of changes"


def test_an_effect_whose_interval_holds_1_is_not_told_apart_in_any_form(url):
    source = tried_together(url, 8)
    told = {one["knob"]: one["effects"][0] for one in as_json(source)["effects"]}
    low, high = told["optimizer_impl"]["interval"]
    assert low < 1 < high
    sentence = report(source, "--explain").partition("No effect shown for each alone: ")[2]
    assert "optimizer_impl=fused" in sentence.partition(".")[0]
    seen = as_page(source).text
    assert re.search(r"fused\s*no effect shown\s*[34]\b", seen)
    assert f"{low:.2f} to {high:.2f}" not in seen + sentence
    assert f"{told['optimizer_impl']['ratio']:.2f}\N{MULTIPLICATION SIGN}" not in seen


def test_a_value_that_comes_with_another_setting_does_not_wait_for_more_trials(url):
    workers = {"num_workers": 2, "persistent_workers": True}
    trials = [trial(n, 100.0 + 80 * (n % 2), **(workers if n % 2 else {})) for n in range(6)]
    source = stored(url, trials, best_config(BASELINE.replace(**workers), BASELINE))
    seen = as_page(source).text
    assert "comes with num_workers" in seen
    assert "too few trials to tell" not in seen
    both = [*trials, trial(6, 130.0, num_workers=2)]
    assert comes_with(trials, "persistent_workers", True) == "num_workers"
    assert comes_with(both, "persistent_workers", True) is None
