"""A report claims effects of settings only where trials show them."""

import re

from autotune.configuration.training_config import TrainingConfig
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


def test_of_settings_that_were_always_tried_together_nothing_is_claimed_in_any_form(url):
    source = tried_together(url, 8)
    told = {one["knob"] for one in as_json(source)["effects"]}
    assert told == {"batch_size", "optimizer_impl"}
    assert "amp_dtype=bfloat16 is" not in report(source)
    seen = as_page(source).text
    assert seen.count("not estimated") == 2, "in the table of changes"


def test_an_effect_whose_interval_holds_1_is_not_told_apart_in_any_form(url):
    source = tried_together(url, 8)
    told = {one["knob"]: one for one in as_json(source)["effects"]}
    low, high = told["optimizer_impl"]["interval"]
    assert low < 1 < high
    assert "optimizer_impl=fused is" not in report(source)
    seen = as_page(source).text
    assert re.search(r"fused\s*no effect shown\s*[34]\b", seen)
    assert f"{low:.2f} to {high:.2f}" not in seen
    assert f"{told['optimizer_impl']['ratio']:.2f}\N{MULTIPLICATION SIGN}" not in seen
