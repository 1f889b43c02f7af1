"""A setting's effect is told apart from others'."""

from random import Random

import pytest

from autotune.configuration.training_config import TrainingConfig
from autotune.report.effects import effects_of
from reporting import OWN, trial
from study_factories import CRASHED

BASELINE = TrainingConfig.of(OWN)


def found(trials):
    return {(effect.knob, effect.value): effect for effect in effects_of(trials, BASELINE)}


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
    half, last = effects["amp_dtype", "bfloat16"], effects["channels_last", True]
    batch = effects["batch_size", 64]
    assert half.ratio == pytest.approx(1.6, rel=0.05)
    assert last.ratio == pytest.approx(1.1, rel=0.05)
    assert batch.ratio == pytest.approx(0.5, rel=0.05)
    assert half.trials == 4


def test_the_interval_holds_the_factor_and_widens_with_noise():
    quiet, noisy = (found(factorial(noise))["amp_dtype", "bfloat16"] for noise in (0.0, 0.3))
    assert quiet.interval[0] < 1.6 < quiet.interval[1]
    widths = [effect.interval[1] / effect.interval[0] for effect in (quiet, noisy)]
    assert widths[0] < widths[1]


def test_the_most_influential_knob_comes_first():
    order = [effect.knob for effect in effects_of(factorial(), BASELINE)]
    assert order[2] == "channels_last"
    assert set(order) == {"amp_dtype", "batch_size", "channels_last"}


def test_an_effect_is_not_credited_to_what_always_came_with_it():
    """persistent_workers means nothing without workers, and was on wherever there were any."""
    trials = [trial(n, 100.0) for n in range(3)]
    workers = {"num_workers": 2, "persistent_workers": True}
    trials += [trial(3 + n, 200.0, **workers) for n in range(3)]
    assert set(found(trials)) == {("num_workers", 2)}


def always_together():
    """bfloat16 and channels_last, in the same trials, give 2 times; optimizer_impl nothing."""
    trials = []
    for number in range(8):
        both = {"amp_dtype": "bfloat16", "channels_last": True} if number % 2 else {}
        rate = 200.0 if both else 100.0
        fused = number in {2, 3}
        trials.append(trial(number, rate, optimizer_impl="fused" if fused else None, **both))
    return trials


def test_nothing_is_claimed_of_values_that_were_always_tried_together():
    effects = found(always_together())
    assert set(effects) == {("optimizer_impl", "fused")}
    assert not effects["optimizer_impl", "fused"].is_significant, "nor of others in their place"


def test_one_trial_with_one_of_two_values_tells_their_effects_apart():
    effects = found([*always_together(), trial(8, 200.0, amp_dtype="bfloat16")])
    assert effects["amp_dtype", "bfloat16"].ratio > effects["channels_last", True].ratio


def test_a_value_is_compared_with_the_user_s_only_if_that_was_measured():
    silent = trial(0, None, CRASHED)
    others = [trial(n, 100.0 * (n % 2 + 1), batch_size=32 << n % 2) for n in range(1, 9)]
    assert found([silent, *others]) == {}
    assert ("batch_size", 64) in found([trial(0, 90.0), *others])


def test_significant_effects_come_before_others():
    told = effects_of([trial(8, 100.1, optimizer_impl="fused"), *factorial()], BASELINE)
    assert [one.is_significant for one in told] == [True, True, True, False]
    assert told[-1].knob == "optimizer_impl"


def test_trials_without_a_rate_and_few_trials_tell_nothing():
    silent = [trial(n, None, CRASHED, amp_dtype="bfloat16") for n in range(9)]
    assert effects_of([trial(0), *silent], BASELINE) == ()
    assert effects_of(factorial()[:3], BASELINE) == ()
    assert effects_of([trial(n) for n in range(9)], BASELINE) == ()
