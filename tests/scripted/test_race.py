"""A race chooses a candidate and tests it, from timings that are known beforehand."""

import math
from dataclasses import replace
from random import Random
from statistics import fmean

import pytest

from autotune.comparison.race import ROUND_COUNTS, changes, confidence, preferred, rounds_to_win
from autotune.comparison.rounds import PairedComparison, Participant
from autotune.configuration.job import SEARCH_HOST
from autotune.sampling.acquisition import Posterior
from autotune.values.outcome import Crashed
from factories import GIB, measurement
from scripted_rounds import BASELINE, ONE_CHANGE, THREE_CHANGES, TWO_CHANGES, ScriptedRounds, steady


@pytest.mark.parametrize(("noise", "rounds"), [(0.05, 6), (0.09, 9), (0.12, 12), (0.2, 17)])
def test_a_small_gain_among_noise_takes_more_rounds(noise, rounds):
    assert rounds_to_win(0.15, noise) == rounds
    assert rounds_to_win(1.0, noise) == 6
    random = Random(0)
    costs = [
        (math.exp(random.gauss(0.15, noise)), math.exp(random.gauss(0.0, noise)))
        for _ in range(10_000)
    ]
    won = sum(
        PairedComparison(costs=tuple(costs[n : n + rounds]), confidence=confidence(1)).is_faster
        for n in range(0, 9_900, rounds)
    )
    assert won / len(range(0, 9_900, rounds)) > 0.4 or rounds == ROUND_COUNTS[-1]


def test_more_candidates_make_wider_intervals():
    costs = tuple((1.0 + n / 100, 1.0) for n in range(6))
    found = [PairedComparison(costs=costs, confidence=confidence(n)).interval for n in (1, 2, 4)]
    assert found[0][0] > found[1][0] > found[2][0]
    assert confidence(1) == 0.98
    assert confidence(4) == pytest.approx(1 - 0.02 / 4)


def test_one_that_is_always_faster_wins_in_the_fewest_rounds():
    scripted = ScriptedRounds(steady(one=120))
    assert scripted.hold(ONE_CHANGE) == ONE_CHANGE
    assert scripted.processes == {"baseline": 6, "one": 6}
    assert scripted.comparison.ratio == pytest.approx(1.2)


def test_a_round_against_it_takes_further_rounds():
    scripted = ScriptedRounds(
        lambda name, n: measurement(
            90 if (name, n) == ("one", 2) else 120 if name == "one" else 100
        )
    )
    assert scripted.hold(ONE_CHANGE) == ONE_CHANGE
    assert scripted.processes["one"] == 9
    assert scripted.comparison.is_faster


def test_a_candidate_that_can_no_longer_win_is_not_timed_further():
    scripted = ScriptedRounds(steady(one=100))
    assert scripted.hold(ONE_CHANGE) is None
    assert scripted.processes["one"] == 4
    assert "not faster beyond the noise" in scripted.refused["one"]


def test_one_slow_batch_in_a_few_rounds_counts_for_what_it_takes():
    """In most rounds the candidate is 1.2 times as fast; over all of them it takes longer."""

    def script(name, number):
        one = 20 if number % 4 == 1 else 120
        return measurement(one if name == "one" else 100)

    scripted = ScriptedRounds(script)
    assert scripted.hold(ONE_CHANGE) is None
    assert scripted.comparison.ratio < 1


def test_a_gain_is_found_among_processes_that_differ_as_much():
    random = Random(0)
    scripted = ScriptedRounds(
        lambda name, n: measurement(100 * random.gauss(1.15 if name == "one" else 1.0, 0.13))
    )
    won = sum(scripted.hold(ONE_CHANGE) is not None for _ in range(300))
    assert won / 300 > 0.6


def test_the_interval_of_a_later_test_is_wider():
    scripted = ScriptedRounds(steady(two=150))
    assert scripted.hold(TWO_CHANGES, family=2) == TWO_CHANGES
    assert scripted.comparison.confidence == pytest.approx(0.99)


def test_only_rounds_that_are_evidence_have_hosts_of_their_own():
    scripted = ScriptedRounds(steady(one=150, two=110))
    scripted.hold(ONE_CHANGE, TWO_CHANGES)
    tests = [f"round {number}" for number in range(2, 8) for _ in range(2)]
    assert scripted.hosts == [SEARCH_HOST] * 6 + tests


def test_rounds_that_choose_one_of_several_are_no_evidence_for_it():
    """The one is lucky in the rounds that choose it, and no faster than the baseline in truth."""

    def script(name, number):
        lucky = name == "one" and number < 3
        return measurement(120 if lucky else 119 if name == "three" else 100)

    scripted = ScriptedRounds(script)
    assert scripted.hold(ONE_CHANGE, THREE_CHANGES) is None
    assert scripted.set_aside == {"three": "one"}
    assert scripted.choices[-1].comparisons[ONE_CHANGE].ratios == pytest.approx((1.2,) * 3)
    assert scripted.comparison.ratios == (1.0,) * 4


def test_one_of_several_equals_is_said_to_be_as_fast_as_it_is():
    """If the rounds that choose the fastest counted for it, 1.7 % too much would be said."""
    random, told = Random(2), []
    for _ in range(300):
        scripted = ScriptedRounds(
            lambda name, _: measurement(
                100 * random.lognormvariate(0.0 if name == "baseline" else 0.4, 0.05)
            )
        )
        assert scripted.hold(ONE_CHANGE, TWO_CHANGES, THREE_CHANGES) is not None
        told.append(scripted.comparison.ratio)
    assert math.log(fmean(told)) == pytest.approx(0.4, abs=0.006)


def test_the_clearly_slower_leave_after_two_rounds():
    scripted = ScriptedRounds(steady(one=150, two=110, three=120))
    assert scripted.hold(ONE_CHANGE, TWO_CHANGES, THREE_CHANGES) == ONE_CHANGE
    assert scripted.processes == {"baseline": 8, "one": 8, "two": 2, "three": 2}
    assert scripted.set_aside == {"two": "one", "three": "one"}


def test_the_one_of_equally_fast_candidates_with_the_fewest_changes_goes_on():
    def script(name, number):
        """Now one, now the other is ahead; the one with more changes more often."""
        rates = {"baseline": 100.0, "one": 150.0, "three": 149.0 if number == 1 else 151.0}
        return measurement(rates[name])

    scripted = ScriptedRounds(script)
    assert scripted.hold(THREE_CHANGES, ONE_CHANGE) == ONE_CHANGE
    assert scripted.set_aside == {"three": "one"}
    assert scripted.processes["three"] == 3, "one block of rounds for two and the baseline"


def test_one_that_is_faster_by_more_than_a_percent_needs_no_fewer_changes():
    scripted = ScriptedRounds(steady(one=150, three=152))
    assert scripted.hold(THREE_CHANGES, ONE_CHANGE) == THREE_CHANGES


def test_timings_of_the_search_decide_where_rounds_do_not():
    """By the rounds alone, the one is a little faster; all trials say that the other is."""
    scripted = ScriptedRounds(steady(one=150, three=148))
    one = replace(ONE_CHANGE, posterior=Posterior(5.0, 0.01, noise=0.1))
    three = replace(THREE_CHANGES, posterior=Posterior(5.1, 0.01, noise=0.1))
    assert scripted.hold(one, three) == THREE_CHANGES


def test_timings_of_the_search_make_no_candidate_faster_than_the_baseline():
    scripted = ScriptedRounds(steady(one=99))
    assert scripted.hold(replace(ONE_CHANGE, posterior=Posterior(9.0, 0.001))) is None


def comparison_of(peak_bytes, *ratios):
    run, own = measurement(100, peak_bytes), measurement(100)
    costs = tuple((ratio, 1.0) for ratio in ratios)
    return PairedComparison((own,) * len(ratios), (run,) * len(ratios), costs)


def test_with_equally_many_changes_less_memory_decides():
    other = Participant("other", BASELINE.replace(batch_size=32))
    comparisons = {
        ONE_CHANGE: comparison_of(2 * GIB, 1.5, 1.4, 1.6),
        other: comparison_of(GIB, 1.4, 1.54, 1.55),
    }
    assert preferred(BASELINE, comparisons) == other
    assert preferred(BASELINE, {ONE_CHANGE: comparisons[ONE_CHANGE]}) == ONE_CHANGE


def test_a_setting_that_only_follows_from_another_is_no_change():
    assert changes(BASELINE, BASELINE) == 0
    with_workers = BASELINE.replace(num_workers=2)
    assert with_workers["prefetch_factor"] != BASELINE["prefetch_factor"]
    assert changes(with_workers, BASELINE) == 1
    assert changes(BASELINE, with_workers) == 1
    assert changes(with_workers.replace(prefetch_factor=4), BASELINE) == 2


def test_a_candidate_that_fails_leaves_and_the_others_go_on():
    def script(name, number):
        if name == "two":
            return Crashed("killed by SIGSEGV")
        return steady(one=150)(name, number)

    scripted = ScriptedRounds(script)
    assert scripted.hold(TWO_CHANGES, ONE_CHANGE) == ONE_CHANGE
    assert scripted.refused == {"two": "killed by SIGSEGV"}


@pytest.mark.parametrize("number", [0, 1])
def test_one_that_fails_alone_ends_the_test_whoever_came_first(number):
    def script(name, now):
        fails = name == "one" and now == number
        return Crashed("killed by SIGSEGV") if fails else steady(one=150)(name, now)

    scripted = ScriptedRounds(script)
    assert scripted.hold(ONE_CHANGE) is None
    assert scripted.refused == {"one": "killed by SIGSEGV"}


def test_no_candidate_is_blamed_for_a_failure_of_the_baseline():
    def script(name, number):
        return Crashed("killed by SIGKILL") if name == "baseline" else measurement(150)

    scripted = ScriptedRounds(script)
    assert scripted.hold(ONE_CHANGE, TWO_CHANGES) is None
    assert set(scripted.refused.values()) == {
        "your settings failed in the same round: killed by SIGKILL"
    }


def test_every_order_within_a_block_is_balanced_until_somebody_leaves():
    scripted = ScriptedRounds(steady(one=150, two=151, three=152))
    scripted.hold(ONE_CHANGE, TWO_CHANGES, THREE_CHANGES)
    block = [name for name, number in scripted.asked if number < 4]
    places = [block[start : start + 4] for start in range(0, 16, 4)]
    for place in range(4):
        assert len({order[place] for order in places}) == 4


@pytest.mark.parametrize("candidates", [(ONE_CHANGE,), (ONE_CHANGE, TWO_CHANGES, THREE_CHANGES)])
def test_among_equals_something_is_called_faster_as_seldom_as_is_said(candidates):
    """Six hundred tests show it to 0.9 %."""
    random, named = Random(11), 0
    for _ in range(600):
        scripted = ScriptedRounds(lambda *_: measurement(100 * random.lognormvariate(0, 0.03)))
        named += scripted.hold(*candidates) is not None
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
