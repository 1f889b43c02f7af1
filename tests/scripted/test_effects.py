"""A setting's effect is told apart from others'."""

from random import Random

import pytest

from autotune.configuration.training_config import TrainingConfig
from autotune.report.effects import in_order, knob_effects
from reporting import OWN, trial
from study_factories import CRASHED

BASELINE = TrainingConfig.of(OWN)


def found(trials):
    return {effect.knob: effect for effect in knob_effects(trials, BASELINE)}


def factorial(noise=0.0):
    """bfloat16 gives 1.6 times, channels_last 1.1, batches of 64 half; most of the fast ones."""
    random, trials = Random(1), []
    for half in (None, "bfloat16"):
        for last in (False, True):
            for batch in (16, 64):
                rate = 100.0 * (1.6 if half else 1) * (1.1 if last else 1) * (batch == 64 or 2) / 2
                rate *= 2.0 ** random.gauss(0, noise)
                settings = {"amp_dtype": half, "channels_last": last, "batch_size": batch}
                trials.append(trial(len(trials), rate, **settings))
    return trials


def test_factors_of_settings_are_told_apart():
    effects = found(factorial())
    half, last = effects["amp_dtype"].of("bfloat16"), effects["channels_last"].of(True)
    batch = effects["batch_size"].of(64)
    assert half.ratio == pytest.approx(1.6, rel=0.05)
    assert last.ratio == pytest.approx(1.1, rel=0.05)
    assert batch.ratio == pytest.approx(0.5, rel=0.05)
    assert half.trials == 4


def test_the_interval_holds_the_factor_and_widens_with_noise():
    quiet, noisy = (found(factorial(noise))["amp_dtype"].of("bfloat16") for noise in (0.0, 0.3))
    assert noisy is not None
    assert quiet.interval[0] < 1.6 < quiet.interval[1]
    widths = [effect.interval[1] / effect.interval[0] for effect in (quiet, noisy)]
    assert widths[0] < widths[1]


def test_the_most_influential_knob_comes_first():
    order = [effect.knob for effect in knob_effects(factorial(), BASELINE)]
    assert order[2] == "channels_last"
    assert set(order) == {"amp_dtype", "batch_size", "channels_last"}


def test_an_effect_is_not_credited_to_what_always_came_with_it():
    """persistent_workers means nothing without workers, and was on wherever there were any."""
    trials = [trial(n, 100.0) for n in range(3)]
    workers = {"num_workers": 2, "persistent_workers": True}
    trials += [trial(3 + n, 200.0, **workers) for n in range(3)]
    assert set(found(trials)) == {"num_workers"}


def test_a_knob_that_means_nothing_for_the_user_is_compared_with_its_default():
    trials = [trial(0), trial(1, 150.0, num_workers=2)]
    trials += [trial(2, 165.0, num_workers=2, prefetch_factor=8)] * 3
    effects = found(trials)
    assert effects["prefetch_factor"].reference == 2
    assert not effects["prefetch_factor"].is_own
    assert effects["num_workers"].is_own
    assert [effect.value for effect in effects["prefetch_factor"].effects] == [8]


def always_together():
    """bfloat16 and channels_last, in the same trials, give 2 times; optimizer_impl nothing."""
    trials = []
    for number in range(8):
        both = {"amp_dtype": "bfloat16", "channels_last": True} if number % 2 else {}
        rate = 200.0 if both else 100.0
        fused = number in {2, 3}
        trials.append(trial(number, rate, optimizer_impl="fused" if fused else None, **both))
    return trials


def test_values_that_were_always_tried_together_have_one_effect():
    effects = found(always_together())
    assert set(effects) == {"amp_dtype", "optimizer_impl"}
    both = effects["amp_dtype"].of("bfloat16")
    assert both.together == {"channels_last": True}
    assert both.ratio == pytest.approx(2.0, rel=0.05), "of both, not the root of it for each"
    assert both.is_significant
    alone = effects["optimizer_impl"].of("fused")
    assert not alone.together
    assert not alone.is_significant


def test_one_trial_with_one_of_two_values_tells_their_effects_apart():
    effects = found([*always_together(), trial(8, 200.0, amp_dtype="bfloat16")])
    half, last = effects["amp_dtype"].of("bfloat16"), effects["channels_last"].of(True)
    assert not half.together
    assert half.ratio > last.ratio


def test_knobs_that_are_told_apart_come_before_those_that_are_not():
    noisy = [trial(8, 60.0, batch_size=8), trial(9, 190.0, batch_size=8)]
    order = [(one.knob, one.is_significant) for one in knob_effects(always_together(), BASELINE)]
    assert order == [("amp_dtype", True), ("optimizer_impl", False)]
    told = [one.is_significant for one in knob_effects([*always_together(), *noisy], BASELINE)]
    assert told == sorted(told, reverse=True)


def test_trials_without_a_rate_and_few_trials_tell_nothing():
    silent = [trial(n, None, CRASHED, amp_dtype="bfloat16") for n in range(9)]
    assert knob_effects([trial(0), *silent], BASELINE) == ()
    assert knob_effects(factorial()[:3], BASELINE) == ()
    assert knob_effects([trial(n) for n in range(9)], BASELINE) == ()


def test_values_stand_in_an_order_that_people_expect():
    assert in_order({8, None, 2, 16}) == (None, 2, 8, 16)
    assert in_order({True, False}) == (False, True)
    assert in_order({"high", None, "highest"}) == (None, "high", "highest")
