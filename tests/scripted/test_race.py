"""A race tests a candidate and what its settings give, from timings that are known beforehand."""

import math
from random import Random
from statistics import fmean

import pytest

from autotune.comparison.race import ROUND_COUNTS, confidence, rounds_to_win, settings_to_change
from autotune.comparison.rounds import PairedComparison, Participant
from autotune.values.outcome import Crashed
from factories import measurement
from scripted_rounds import BASELINE, ONE_CHANGE, TWO_CHANGES, ScriptedRounds, steady


@pytest.mark.parametrize(("noise", "rounds"), [(0.05, 6), (0.09, 9), (0.12, 12)])
def test_a_small_gain_among_noise_takes_more_rounds(noise, rounds):
    assert rounds_to_win(0.15, noise) == rounds
    assert rounds_to_win(2.0, noise) == 4
    random = Random(0)
    costs = [
        (math.exp(random.gauss(0.15, noise)), math.exp(random.gauss(0.0, noise)))
        for _ in range(10_000)
    ]
    won = sum(
        PairedComparison(costs=tuple(costs[n : n + rounds]), confidence=confidence(1)).is_faster
        for n in range(0, 9_900, rounds)
    )
    assert won / len(range(0, 9_900, rounds)) > 0.4
    assert rounds_to_win(0.15, 0.2) == ROUND_COUNTS[-1], "there are no more"


def test_more_candidates_make_wider_intervals():
    costs = tuple((1.0 + n / 100, 1.0) for n in range(6))
    found = [PairedComparison(costs=costs, confidence=confidence(n)).interval for n in (1, 2, 4)]
    assert found[0][0] > found[1][0] > found[2][0]
    assert confidence(1) == 0.98
    assert confidence(4) == pytest.approx(1 - 0.02 / 16)


def test_one_that_is_always_faster_wins_in_the_fewest_rounds():
    scripted = ScriptedRounds(steady(one=120))
    assert scripted.hold(ONE_CHANGE)
    assert scripted.processes == {"baseline": 4, "one": 4}
    assert scripted.comparison.ratio == pytest.approx(1.2)


def test_a_round_against_it_takes_further_rounds():
    scripted = ScriptedRounds(
        lambda name, n: measurement(
            90 if (name, n) == ("one", 2) else 120 if name == "one" else 100
        )
    )
    assert scripted.hold(ONE_CHANGE)
    assert scripted.processes["one"] == 9
    assert scripted.comparison.is_faster


def test_a_candidate_that_can_no_longer_win_is_not_timed_further():
    scripted = ScriptedRounds(steady(one=100))
    assert not scripted.hold(ONE_CHANGE)
    assert scripted.processes["one"] == 4
    assert "not faster beyond the noise" in scripted.standings[-1].beaten


def test_one_slow_batch_in_a_few_rounds_counts_for_what_it_takes():
    """In most rounds the candidate is 1.2 times as fast; over all of them it takes longer."""

    def script(name, number):
        one = 20 if number % 4 == 1 else 120
        return measurement(one if name == "one" else 100)

    scripted = ScriptedRounds(script)
    assert not scripted.hold(ONE_CHANGE)
    assert scripted.comparison.ratio < 1


def test_a_gain_is_found_among_processes_that_differ_as_much():
    random = Random(0)
    scripted = ScriptedRounds(
        lambda name, n: measurement(100 * random.gauss(1.15 if name == "one" else 1.0, 0.13))
    )
    won = sum(scripted.hold(ONE_CHANGE) for _ in range(300))
    assert won / 300 > 0.6


def test_the_interval_of_a_later_test_is_wider():
    scripted = ScriptedRounds(steady(two=150))
    assert scripted.hold(TWO_CHANGES, family=2)
    assert scripted.comparison.confidence == pytest.approx(0.995)


WITHOUT_MUCH = Participant("much", BASELINE.replace(channels_last=True))
WITHOUT_LITTLE = Participant("little", ONE_CHANGE.config)
"""Without the batch size, and without the memory format, of the one with two changes."""


def test_settings_are_left_out_in_the_same_rounds_until_they_are_shown_to_pay():
    scripted = ScriptedRounds(steady(two=160, much=101, little=160))
    assert scripted.hold(TWO_CHANGES, WITHOUT_MUCH, WITHOUT_LITTLE)
    assert scripted.processes == {"baseline": 4, "two": 4, "little": 4, "much": 3}
    much, little = scripted.without["much"], scripted.without["little"]
    assert much.gain.ratio == pytest.approx(1.6 / 1.01)
    assert (much.is_over, much.is_enough) == (True, False)
    assert (little.gain.ratio, little.own.ratio) == (pytest.approx(1.0), pytest.approx(1.6))
    assert (little.is_over, little.is_enough) == (False, True)


def test_what_is_no_faster_than_the_baseline_is_never_enough():
    """Without a setting, noisy processes seem as fast at times, and rarely are so surely."""
    random = Random(5)

    def script(name, number):
        speed = {"two": 1.3, "much": 1.2}.get(name, 1.0)
        spread = 0.2 if name == "much" else 0.01
        return measurement(100 * speed * random.lognormvariate(0, spread))

    enough = []
    for _ in range(50):
        scripted = ScriptedRounds(script)
        scripted.hold(TWO_CHANGES, WITHOUT_MUCH)
        if (found := scripted.without["much"]).is_enough:
            enough.append(found.own.is_faster)
    assert enough
    assert all(enough)


def test_a_configuration_that_fails_without_a_setting_ends_no_race():
    def script(name, number):
        if name == "much" and number:
            return Crashed("killed by SIGSEGV")
        return steady(two=150, much=150)(name, number)

    scripted = ScriptedRounds(script)
    assert scripted.hold(TWO_CHANGES, WITHOUT_MUCH)
    assert scripted.processes == {"baseline": 4, "two": 4, "much": 2}
    assert scripted.without["much"].fault == "killed by SIGSEGV"
    assert not scripted.without["much"].is_enough


def test_every_order_is_balanced_while_settings_are_left_out():
    scripted = ScriptedRounds(steady(two=150, much=150, little=150))
    scripted.hold(TWO_CHANGES, WITHOUT_MUCH, WITHOUT_LITTLE)
    block = [name for name, number in scripted.asked if number < 4]
    places = [block[start : start + 4] for start in range(0, 16, 4)]
    for place in range(4):
        assert len({order[place] for order in places}) == 4


def test_of_four_equals_something_is_called_faster_as_seldom():
    """Where the first one loses, the next one races; four hundred searches show it to 1 %."""
    random, named = Random(12), 0
    for _ in range(400):
        for family in (1, 2, 3, 4):
            scripted = ScriptedRounds(lambda *_: measurement(100 * random.lognormvariate(0, 0.03)))
            if scripted.hold(ONE_CHANGE, family=family):
                named += 1
                break
    assert named / 400 < 0.055


@pytest.mark.parametrize("candidates", [2, 4, 8])
def test_intervals_hold_the_truth_however_many_equals_there_were(candidates):
    """The luckiest trial races first and, where it loses, the next; 400 tests show it to 1.1 %."""
    random, held = Random(2), 0
    for _ in range(400):
        for family in range(1, min(candidates, 4) + 1):
            scripted = ScriptedRounds(
                lambda name, _: measurement(
                    100 * random.lognormvariate(0.0 if name == "baseline" else 0.05, 0.05)
                )
            )
            if scripted.hold(ONE_CHANGE, family=family):
                break
        low, high = scripted.comparison.interval
        held += low <= math.exp(0.05) <= high
    assert held / 400 >= 0.93


@pytest.mark.parametrize("gain", [0.0, 0.02, 0.05])
def test_intervals_hold_the_truth_of_what_lacks_a_setting_in_the_end(gain):
    random, held, told = Random(4), 0, 0
    speeds = {"baseline": 0.0, "two": 0.3 + gain, "little": 0.3}
    for _ in range(400):
        scripted = ScriptedRounds(
            lambda name, _: measurement(100 * random.lognormvariate(speeds[name], 0.05))
        )
        if not scripted.hold(TWO_CHANGES, WITHOUT_LITTLE):
            continue
        found = scripted.without["little"]
        shown = found.own if found.is_enough else scripted.comparison
        low, high = shown.interval
        told += 1
        held += low <= math.exp(0.3 if found.is_enough else 0.3 + gain) <= high
    assert told > 390
    assert held / told >= 0.95


def test_a_setting_that_only_follows_from_another_is_no_change():
    assert settings_to_change(BASELINE, BASELINE) == []
    with_workers = BASELINE.replace(num_workers=2)
    assert with_workers["prefetch_factor"] != BASELINE["prefetch_factor"]
    assert settings_to_change(with_workers, BASELINE) == ["num_workers"]
    assert settings_to_change(BASELINE, with_workers) == ["num_workers"]
    more = with_workers.replace(prefetch_factor=4)
    assert settings_to_change(more, BASELINE) == ["num_workers", "prefetch_factor"]


@pytest.mark.parametrize("number", [0, 1])
def test_one_that_fails_alone_ends_the_test_whoever_came_first(number):
    def script(name, now):
        fails = name == "one" and now == number
        return Crashed("killed by SIGSEGV") if fails else steady(one=150)(name, now)

    scripted = ScriptedRounds(script)
    assert not scripted.hold(ONE_CHANGE)
    assert scripted.standings[-1].fault == "killed by SIGSEGV"


def test_no_candidate_is_blamed_for_a_failure_of_the_baseline():
    def script(name, number):
        return Crashed("killed by SIGKILL") if name == "baseline" else measurement(150)

    scripted = ScriptedRounds(script)
    assert not scripted.hold(ONE_CHANGE, WITHOUT_MUCH)
    failed = "your settings failed in the same round: killed by SIGKILL"
    assert scripted.standings[-1].fault == failed


def test_among_equals_something_is_called_faster_as_seldom_as_is_said():
    """Six hundred tests show it to 0.9 %."""
    random, named = Random(11), 0
    for _ in range(600):
        scripted = ScriptedRounds(lambda *_: measurement(100 * random.lognormvariate(0, 0.03)))
        named += scripted.hold(ONE_CHANGE)
    assert named / 600 < 0.055


def log_normal(random):
    return random.lognormvariate(0, 1)


def a_tenth_is_slow(random):
    return (10 if random.random() < 0.1 else 1) * random.lognormvariate(0, 0.1)


def bursts(random):
    return (20 if random.random() < 0.02 else 1) * random.lognormvariate(0, 0.1)


@pytest.mark.parametrize("step", [log_normal, a_tenth_is_slow, bursts])
@pytest.mark.parametrize("speed", [1.0, 1.6])
def test_intervals_hold_the_true_ratio_of_means(step, speed):
    """A round times 24 steps of each side, and processes differ by 2 %."""
    random, held, tests = Random(3), 0, 400

    def script(name, _):
        seconds = fmean(step(random) for _ in range(24)) * random.lognormvariate(0, 0.02)
        return measurement((speed if name == "one" else 1.0) / seconds)

    for _ in range(tests):
        scripted = ScriptedRounds(script)
        scripted.hold(ONE_CHANGE)
        low, high = scripted.comparison.interval
        held += low <= speed <= high
    assert held / tests >= 0.93
