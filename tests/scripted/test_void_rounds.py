"""A disturbed round is void and repeated, as long as repeats are left."""

from collections import Counter
from dataclasses import replace

import pytest

from autotune.values.measurement import Noise
from autotune.values.outcome import Crashed
from factories import measurement
from scripted_rounds import ONE_CHANGE, TWO_CHANGES, ScriptedRounds


def disturbed(samples_per_second):
    """Measured beside another program."""
    run = measurement(samples_per_second)
    blocks = tuple(replace(block, noise=Noise(foreign=0.49)) for block in run.blocks)
    return replace(run, blocks=blocks)


@pytest.mark.parametrize(("disturbs", "is_void"), [("two", True), ("one", False)])
def test_a_round_is_void_where_the_candidate_was_disturbed(disturbs, is_void):
    """And counts where only a configuration that lacks a setting of it was."""

    def script(name, number):
        rate = {"baseline": 100.0, "two": 150.0, "one": 150.0}[name]
        return disturbed(rate) if (name, number) == (disturbs, 1) else measurement(rate)

    scripted = ScriptedRounds(script)
    assert scripted.hold(TWO_CHANGES, ONE_CHANGE)
    expected = [1, 1, 2, 3, 4] if is_void else [1, 2, 3, 4]
    assert [state.rounds for state in scripted.standings] == expected
    void = "other programs used 49 % of the cores" if is_void else ""
    assert scripted.standings[1].void == void
    assert scripted.comparison.ratios == pytest.approx((1.5,) * 4)


def test_void_rounds_come_back_where_no_repeat_is_left():
    """Seventeen repeats, then three calm rounds, and one that cannot be repeated."""

    def script(name, number):
        if name == "baseline":
            return measurement(100)
        return disturbed(160) if number < 17 or number == 20 else measurement(150)

    scripted = ScriptedRounds(script)
    assert scripted.hold(ONE_CHANGE)
    assert [standing.rounds for standing in scripted.standings] == [0] * 17 + [1, 2, 3, 21]
    comparison = scripted.comparison
    assert Counter(map("{:.1f}".format, comparison.ratios)) == {"1.6": 18, "1.5": 3}
    assert (comparison.disturbed, len(comparison.repeated)) == (18, 17)


def test_rounds_that_come_back_are_judged_as_many_as_they_are():
    """A few of eighteen rounds may be lost; with most of them there is no winner."""

    def of(*lost):
        def script(name, number):
            return disturbed(150 if name == "one" and number not in lost else 100)

        return ScriptedRounds(script).hold(ONE_CHANGE)

    assert of(3, 6, 9, 12)
    assert not of(*range(3, 18))


def test_beside_others_that_stay_everyone_comes_first_as_often():
    scripted = ScriptedRounds(lambda name, _: disturbed(150 if name == "one" else 100))
    assert scripted.hold(ONE_CHANGE)
    firsts = Counter(name for name, _ in scripted.asked[::2])
    assert firsts["one"] == firsts["baseline"] == 9


def test_a_candidate_that_fails_in_a_disturbed_round_has_failed():
    def script(name, number):
        return Crashed("killed by SIGSEGV") if name == "two" else disturbed(100)

    scripted = ScriptedRounds(script)
    assert not scripted.hold(TWO_CHANGES, ONE_CHANGE)
    assert scripted.standings[-1].fault == "killed by SIGSEGV"
    assert scripted.processes["two"] == 1
