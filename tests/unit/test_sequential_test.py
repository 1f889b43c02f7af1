"""A sequential test chooses a candidate, from timings that are known beforehand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from autotune.comparison.candidate_choice import Posteriors, changes, preferred
from autotune.comparison.rounds import Course, PairedComparison, Participant
from autotune.comparison.sequential_test import (
    Standing,
    looks,
    rounds_to_win,
    sequential_test,
)
from autotune.configuration.training_config import TrainingConfig
from autotune.sampling.posterior import Posterior
from autotune.values.measurement import Measurement, Noise
from autotune.values.outcome import Crashed, Failure
from autotune.values.statistics import CONFIDENCE, median_interval
from factories import GIB, measurement

BASELINE = TrainingConfig.of({"batch_size": 8})
OWN = Participant("baseline", BASELINE)
ONE_CHANGE = Participant("one", BASELINE.replace(batch_size=64))
TWO_CHANGES = Participant("two", BASELINE.replace(batch_size=64, channels_last=True))
THREE_CHANGES = Participant(
    "three", BASELINE.replace(batch_size=64, channels_last=True, amp_dtype="bfloat16")
)

Script = Callable[[str, int], Measurement | Failure]
"""Rates that a participant shows in a round."""


@dataclass
class Stage:
    """A contest after a script, with what was asked of whom."""

    script: Script
    memory_limit_bytes: int | None = None
    asked: list[tuple[str, int]] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)

    def hold(
        self,
        *candidates: Participant,
        family: int | None = None,
        posteriors: Posteriors | None = None,
    ) -> Participant | None:
        """The winner."""
        course = Course(
            self._time,
            lambda _, run: run.samples_per_second,
            OWN,
            Path("confirm"),
            memory_limit_bytes=self.memory_limit_bytes,
        )
        self.standings = list(
            sequential_test(course, candidates, family or len(candidates), posteriors or {})
        )
        return self.standings[-1].winner

    @property
    def refused(self) -> dict[str, str]:
        return {one.name: why for s in self.standings for one, why in s.refused.items()}

    @property
    def set_aside(self) -> dict[str, str]:
        return {one.name: by.name for s in self.standings for one, by in s.set_aside.items()}

    @property
    def processes(self) -> dict[str, int]:
        return Counter(name for name, _ in self.asked)

    def _time(
        self, config: TrainingConfig, folder: Path, host: str | None
    ) -> Measurement | Failure:
        number, _, name = folder.name.partition("-")
        self.asked.append((name, int(number)))
        return self.script(name, int(number))


def steady(**rates: float) -> Script:
    """Everyone always shows the same; the baseline 100 samples/s."""
    return lambda name, number: measurement({"baseline": 100.0, **rates}[name])


@pytest.mark.parametrize(
    ("family", "rounds"),
    [(1, (6, 9, 12)), (2, (7, 10, 13)), (3, (7, 11, 14)), (4, (8, 11, 15))],
)
def test_more_candidates_need_more_rounds(family: int, rounds: tuple[int, ...]) -> None:
    assert looks(family) == rounds
    confidence = 1 - (1 - CONFIDENCE) / family
    for losses, look in enumerate(rounds):
        assert median_interval(range(look), confidence) == (losses, look - 1 - losses)
    first = rounds[0]
    assert 2 / 2 ** (first - 1) > 1 - confidence, "one round less would not be enough"


@pytest.mark.parametrize(("noise", "rounds"), [(0.05, 6), (0.1, 9), (0.2, 12)])
def test_a_small_gain_among_noise_takes_more_rounds(noise: float, rounds: int) -> None:
    assert rounds_to_win(0.15, noise) == rounds
    assert rounds_to_win(1.0, noise) == 6
    random = Random(0)
    lost = sum(random.gauss(0.15, noise) < random.gauss(0.0, noise) for _ in range(10_000)) / 10_000
    assert rounds * lost <= looks(1).index(rounds) + 0.6 or rounds == looks(1)[-1]


def test_one_that_is_always_faster_wins_in_the_fewest_rounds() -> None:
    stage = Stage(steady(one=120))
    assert stage.hold(ONE_CHANGE) == ONE_CHANGE
    assert stage.processes == {"baseline": 6, "one": 6}
    assert stage.standings[-1].comparisons[ONE_CHANGE].ratio == pytest.approx(1.2)


def test_one_round_against_it_costs_three_more() -> None:
    stage = Stage(
        lambda name, n: measurement(
            90 if (name, n) == ("one", 2) else 120 if name == "one" else 100
        )
    )
    assert stage.hold(ONE_CHANGE) == ONE_CHANGE
    assert stage.processes["one"] == 9
    assert stage.standings[-1].comparisons[ONE_CHANGE].is_faster


def test_a_candidate_that_can_no_longer_win_is_not_timed_further() -> None:
    stage = Stage(steady(one=100))
    assert stage.hold(ONE_CHANGE) is None
    assert stage.processes["one"] == 2
    assert "not faster beyond the noise" in stage.refused["one"]


@pytest.mark.parametrize(
    ("lost", "rounds", "wins"),
    [((1, 4), 12, True), ((1, 4, 7), 8, False), ((1, 2), 3, False), ((0, 3), 4, False)],
)
def test_two_of_twelve_rounds_may_be_lost_but_not_half_of_those_so_far(
    lost: tuple[int, ...], rounds: int, wins: bool
) -> None:
    def script(name: str, number: int) -> Measurement:
        return measurement(120 if name == "one" and number not in lost else 100)

    stage = Stage(script)
    assert stage.hold(ONE_CHANGE) == (ONE_CHANGE if wins else None)
    assert stage.processes["one"] == rounds


def test_the_interval_of_one_of_several_holds_for_all_of_them_together() -> None:
    stage = Stage(steady(one=120, two=150))
    assert stage.hold(ONE_CHANGE, TWO_CHANGES) == TWO_CHANGES
    assert stage.processes["two"] == 7, "six rounds are not enough for one of two"
    comparison = stage.standings[-1].comparisons[TWO_CHANGES]
    assert comparison.confidence == pytest.approx(0.975)


def test_the_clearly_slower_leave_after_two_rounds() -> None:
    stage = Stage(steady(one=150, two=110, three=120))
    assert stage.hold(ONE_CHANGE, TWO_CHANGES, THREE_CHANGES) == ONE_CHANGE
    assert stage.processes == {"baseline": 7, "one": 7, "two": 2, "three": 2}
    assert stage.set_aside == {"two": "one", "three": "one"}


def test_the_one_of_equally_fast_candidates_with_the_fewest_changes_goes_on() -> None:
    def script(name: str, number: int) -> Measurement:
        """Now one, now the other is ahead; the one with more changes more often."""
        rates = {"baseline": 100.0, "one": 150.0, "three": 149.0 if number == 1 else 151.0}
        return measurement(rates[name])

    stage = Stage(script)
    assert stage.hold(THREE_CHANGES, ONE_CHANGE) == ONE_CHANGE
    assert stage.set_aside == {"three": "one"}
    assert stage.processes["three"] == 3, "one block of rounds for two candidates and the baseline"


def test_one_that_is_faster_by_more_than_a_percent_needs_no_fewer_changes() -> None:
    stage = Stage(steady(one=150, three=152))
    assert stage.hold(THREE_CHANGES, ONE_CHANGE) == THREE_CHANGES


def test_timings_of_the_search_decide_where_rounds_do_not() -> None:
    """By the rounds alone, the one is a little faster; all trials say that the other is."""
    stage = Stage(steady(one=150, three=148))
    told = {
        ONE_CHANGE: Posterior(5.0, 0.01, noise=0.1),
        THREE_CHANGES: Posterior(5.1, 0.01, noise=0.1),
    }
    assert stage.hold(ONE_CHANGE, THREE_CHANGES, posteriors=told) == THREE_CHANGES


def test_timings_of_the_search_make_no_candidate_faster_than_the_baseline() -> None:
    stage = Stage(steady(one=99))
    assert stage.hold(ONE_CHANGE, posteriors={ONE_CHANGE: Posterior(9.0, 0.001)}) is None


def comparison_of(peak_bytes: int, *ratios: float) -> PairedComparison:
    run, own = measurement(100, peak_bytes), measurement(100)
    return PairedComparison((own,) * len(ratios), (run,) * len(ratios), ratios)


def test_with_equally_many_changes_less_memory_decides() -> None:
    other = Participant("other", BASELINE.replace(batch_size=32))
    comparisons = {
        ONE_CHANGE: comparison_of(2 * GIB, 1.5, 1.4, 1.6),
        other: comparison_of(GIB, 1.4, 1.49, 1.5),
    }
    assert preferred(BASELINE, comparisons) == other
    assert preferred(BASELINE, {ONE_CHANGE: comparisons[ONE_CHANGE]}) == ONE_CHANGE


def test_a_setting_that_only_follows_from_another_is_no_change() -> None:
    assert changes(BASELINE, BASELINE) == 0
    with_workers = BASELINE.replace(num_workers=2)
    assert with_workers["prefetch_factor"] != BASELINE["prefetch_factor"]
    assert changes(with_workers, BASELINE) == 1
    assert changes(BASELINE, with_workers) == 1
    assert changes(with_workers.replace(prefetch_factor=4), BASELINE) == 2


def test_a_candidate_that_fails_leaves_and_the_others_go_on() -> None:
    def script(name: str, number: int) -> Measurement | Failure:
        if name == "two":
            return Crashed("killed by SIGSEGV")
        return steady(one=150)(name, number)

    stage = Stage(script)
    assert stage.hold(TWO_CHANGES, ONE_CHANGE) == ONE_CHANGE
    assert stage.refused == {"two": "killed by SIGSEGV"}


@pytest.mark.parametrize("number", [0, 1])
def test_one_that_fails_alone_ends_the_test_whoever_came_first(number: int) -> None:
    def script(name: str, now: int) -> Measurement | Failure:
        fails = name == "one" and now == number
        return Crashed("killed by SIGSEGV") if fails else steady(one=150)(name, now)

    stage = Stage(script)
    assert stage.hold(ONE_CHANGE) is None
    assert stage.refused == {"one": "killed by SIGSEGV"}


def test_a_candidate_that_passes_the_memory_limit_leaves() -> None:
    def script(name: str, number: int) -> Measurement:
        peak = 3 * GIB if name == "one" and number == 3 else GIB
        return measurement(150 if name == "one" else 100, peak)

    stage = Stage(script, memory_limit_bytes=2 * GIB)
    assert stage.hold(ONE_CHANGE) is None
    assert "over the limit" in stage.refused["one"]


def test_no_candidate_is_blamed_for_a_failure_of_the_baseline() -> None:
    def script(name: str, number: int) -> Measurement | Failure:
        return Crashed("killed by SIGKILL") if name == "baseline" else measurement(150)

    stage = Stage(script)
    assert stage.hold(ONE_CHANGE, TWO_CHANGES) is None
    assert set(stage.refused.values()) == {
        "your settings failed in the same round: killed by SIGKILL"
    }


def disturbed(samples_per_second: float) -> Measurement:
    """Measured beside another program."""
    run = measurement(samples_per_second)
    blocks = tuple(replace(block, noise=Noise(foreign=0.49)) for block in run.blocks)
    return replace(run, blocks=blocks)


def test_a_round_is_void_for_all_where_one_of_them_was_disturbed() -> None:
    def script(name: str, number: int) -> Measurement:
        rate = {"baseline": 100.0, "one": 150.0, "three": 120.0}[name]
        return disturbed(0.1 * rate) if (name, number) == ("three", 1) else measurement(rate)

    stage = Stage(script)
    assert stage.hold(ONE_CHANGE, THREE_CHANGES) == ONE_CHANGE
    assert [standing.rounds for standing in stage.standings][:3] == [1, 1, 2]
    assert stage.standings[1].void == "other programs used 49 % of the cores"
    assert stage.standings[-1].comparisons[ONE_CHANGE].ratios == pytest.approx((1.5,) * 7)
    assert stage.set_aside == {"three": "one"}


def test_void_rounds_come_back_where_no_repeat_is_left() -> None:
    """Twelve repeats, then four calm rounds, and one that cannot be repeated."""

    def script(name: str, number: int) -> Measurement:
        if name == "baseline":
            return measurement(100)
        return disturbed(160) if number < 12 or number == 16 else measurement(150)

    stage = Stage(script)
    assert stage.hold(ONE_CHANGE) == ONE_CHANGE
    assert [standing.rounds for standing in stage.standings] == [0] * 12 + [1, 2, 3, 4, 17]
    comparison = stage.standings[-1].comparisons[ONE_CHANGE]
    assert Counter(map("{:.1f}".format, comparison.ratios)) == {"1.6": 13, "1.5": 4}
    assert (comparison.disturbed, len(comparison.repeated)) == (13, 12)


def test_rounds_that_come_back_are_judged_as_many_as_they_are() -> None:
    """Two of thirteen rounds may be lost, as the interval says; with three there is none."""

    def of(*lost: int) -> Participant | None:
        def script(name: str, number: int) -> Measurement:
            return disturbed(150 if name == "one" and number not in lost else 100)

        return Stage(script).hold(ONE_CHANGE)

    assert of(3, 9) == ONE_CHANGE
    assert of(3, 6, 9) is None


def test_beside_others_that_stay_everyone_comes_first_as_often() -> None:
    stage = Stage(lambda name, _: disturbed(150 if name == "one" else 100))
    assert stage.hold(ONE_CHANGE) == ONE_CHANGE
    firsts = Counter(name for name, _ in stage.asked[::2])
    assert abs(firsts["one"] - firsts["baseline"]) == 1
    assert sum(firsts.values()) == 13


def test_a_candidate_that_fails_in_a_disturbed_round_leaves_and_it_is_repeated() -> None:
    def script(name: str, number: int) -> Measurement | Failure:
        if name == "two":
            return Crashed("killed by SIGSEGV")
        rate = 150 if name == "one" else 100
        return disturbed(rate) if number == 0 else measurement(rate)

    stage = Stage(script)
    assert stage.hold(TWO_CHANGES, ONE_CHANGE) == ONE_CHANGE
    assert stage.refused == {"two": "killed by SIGSEGV"}
    assert stage.processes == {"baseline": 8, "one": 8, "two": 1}


def test_every_order_within_a_block_is_balanced_until_somebody_leaves() -> None:
    stage = Stage(steady(one=150, two=151, three=152))
    stage.hold(ONE_CHANGE, TWO_CHANGES, THREE_CHANGES)
    block = [name for name, number in stage.asked if number < 4]
    places = [block[start : start + 4] for start in range(0, 16, 4)]
    for place in range(4):
        assert len({order[place] for order in places}) == 4


def test_among_equals_something_is_called_faster_as_seldom_as_is_said() -> None:
    random, named = Random(11), 0
    for _ in range(600):
        stage = Stage(lambda *_: measurement(100 * random.lognormvariate(0, 0.03)))
        named += stage.hold(ONE_CHANGE, TWO_CHANGES, THREE_CHANGES) is not None
    assert named / 600 < 0.05
