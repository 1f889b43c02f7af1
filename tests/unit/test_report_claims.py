"""A report claims effects of settings only where trials show them."""

from __future__ import annotations

import pytest

from autotune.configuration.training_config import TrainingConfig
from autotune.report.effects import comes_with
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
        fused = {"optimizer_impl": "fused"} if n % 4 > 1 else {}
        trials.append(trial(n, rate, batch_size=16 << n % 2, **fused, **changed))
    best = best_config(BASELINE.replace(**BOTH, optimizer_impl="fused", batch_size=32), BASELINE)
    return stored(url, trials, best)


def test_settings_that_were_always_tried_together_have_one_claim_in_every_form(url: str) -> None:
    source = tried_together(url, 8)
    told = {one["knob"]: one["effects"] for one in as_json(source)["effects"]}
    assert told["amp_dtype"][0]["together"] == {"channels_last": True}
    assert told["amp_dtype"][0]["ratio"] == pytest.approx(2.0, rel=0.1)
    assert told["optimizer_impl"][0]["together"] == {}
    assert "channels_last" not in told
    both = "amp_dtype=bfloat16 and channels_last=true (always tried together) make 1."
    assert both in report(source, "--explain")
    seen = as_page(source).text
    assert "with channels_last=true" in seen, "in the diagram"
    assert "always tried with amp_dtype" in seen, "in the table of changes"


def test_an_effect_whose_interval_holds_1_is_not_told_apart_in_any_form(url: str) -> None:
    source = tried_together(url, 8)
    told = {one["knob"]: one["effects"][0] for one in as_json(source)["effects"]}
    low, high = told["optimizer_impl"]["interval"]
    assert low < 1 < high
    sentence = report(source, "--explain").partition("Not told apart from no change: ")[2]
    assert "optimizer_impl=fused" in sentence.partition(".")[0]
    seen = as_page(source).text
    assert "not told apart, 3 trials" in seen or "not told apart, 4 trials" in seen
    assert f"{low:.2f} to {high:.2f}" not in seen + sentence
    assert f"{told['optimizer_impl']['ratio']:.2f}x  (" not in seen


@pytest.mark.parametrize("count", [11, 12])
def test_importances_and_a_diagram_of_two_settings_need_twelve_trials(url: str, count: int) -> None:
    rates = (100.0, 200.0, 160.0, 320.0)
    trials = [
        trial(n, rates[n % 4] + n / 9, channels_last=n % 2 > 0, num_threads=2 - n // 2 % 2)
        for n in range(count)
    ]
    source = stored(url, trials)
    seen = report(source, "--html", "-")
    assert ("PED-ANOVA" in seen) == (count == 12)
    assert ("The fastest feasible trial of each combination" in seen) == (count == 12)
    assert ("This needs twelve trials at least" in seen) == (count == 11)
    assert bool(as_json(source)["importances"]) == (count == 12)


def test_a_diagram_of_two_settings_shows_none_that_is_not_told_apart(url: str) -> None:
    trials = [
        trial(n, 200.0 - n % 3 if n % 2 else 100.0, channels_last=n % 2 > 0, num_threads=1 + n // 6)
        for n in range(12)
    ]
    source = stored(url, trials)
    told = {one["knob"]: one["effects"][0]["interval"] for one in as_json(source)["effects"]}
    assert told["channels_last"][0] > 1
    assert told["num_threads"][0] < 1 < told["num_threads"][1]
    seen = as_page(source).text
    assert "The fastest feasible trial of each combination" not in seen
    assert "two settings that they tell apart" in seen
    assert "may be chance" not in seen


def test_importances_where_no_setting_is_told_apart_may_be_chance(url: str) -> None:
    rates = (100.0, 90.0, 110.0, 95.0, 105.0)
    trials = [trial(n, rates[n % 5], channels_last=n % 2 > 0) for n in range(20)]
    source = stored(url, trials)
    assert as_json(source)["importances"]
    assert "No setting is told apart above, so these shares may be chance." in as_page(source).text


def test_a_value_that_comes_with_another_setting_does_not_wait_for_more_trials(url: str) -> None:
    workers = {"num_workers": 2, "persistent_workers": True}
    trials = [trial(n, 100.0 + 80 * (n % 2), **(workers if n % 2 else {})) for n in range(6)]
    source = stored(url, trials, best_config(BASELINE.replace(**workers), BASELINE))
    seen = as_page(source).text
    assert "comes with num_workers" in seen
    assert "too few trials to tell" not in seen
    both = [*trials, trial(6, 130.0, num_workers=2)]
    assert comes_with(trials, "persistent_workers", True) == "num_workers"
    assert comes_with(both, "persistent_workers", True) is None


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
