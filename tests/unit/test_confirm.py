"""Which candidate wins a contest, with timings that are known beforehand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from autotune.config import TrainingConfig
from autotune.intervals import CONFIDENCE, median_interval
from autotune.measurement import Measurement
from autotune.outcome import Crashed, Failure
from autotune.tuning.confirming.belief import Belief, Beliefs
from autotune.tuning.confirming.confirm import (
    Standing,
    changes,
    contest,
    looks,
    preferred,
    rounds_to_win,
)
from autotune.tuning.confirming.rounds import Contestant, Course, Duel
from factories import GIB, measurement

BASELINE = TrainingConfig.of({"batch_size": 8})
OWN = Contestant("baseline", BASELINE)
ONE_CHANGE = Contestant("one", BASELINE.replace(batch_size=64))
TWO_CHANGES = Contestant("two", BASELINE.replace(batch_size=64, channels_last=True))
THREE_CHANGES = Contestant(
    "three", BASELINE.replace(batch_size=64, channels_last=True, amp_dtype="bfloat16")
)

Script = Callable[[str, int], Measurement | Failure]
"""What a contestant shows in a round."""


@dataclass
class Stage:
    """A contest after a script, with what was asked of whom."""

    script: Script
    memory_limit_bytes: int | None = None
    asked: list[tuple[str, int]] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)

    def hold(
        self, *candidates: Contestant, family: int | None = None, beliefs: Beliefs | None = None
    ) -> Contestant | None:
        """The winner."""
        course = Course(
            self._time,
            lambda _, run: run.samples_per_second,
            OWN,
            Path("confirm"),
            memory_limit_bytes=self.memory_limit_bytes,
        )
        self.standings = list(contest(course, candidates, family or len(candidates), beliefs or {}))
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
    assert stage.standings[-1].duels[ONE_CHANGE].ratio == pytest.approx(1.2)


def test_one_round_against_it_costs_three_more() -> None:
    stage = Stage(
        lambda name, n: measurement(
            90 if (name, n) == ("one", 2) else 120 if name == "one" else 100
        )
    )
    assert stage.hold(ONE_CHANGE) == ONE_CHANGE
    assert stage.processes["one"] == 9
    assert stage.standings[-1].duels[ONE_CHANGE].is_faster


def test_a_candidate_that_can_no_longer_win_is_not_timed_further() -> None:
    stage = Stage(steady(one=100))
    assert stage.hold(ONE_CHANGE) is None
    assert stage.processes["one"] == 2
    assert "not faster beyond the noise" in stage.refused["one"]


@pytest.mark.parametrize(
    ("lost", "rounds", "wins"),
    [((1, 4), 12, True), ((1, 4, 7), 8, False), ((1, 2), 3, False), ((0, 3), 4, False)],
)
def test_of_twelve_rounds_two_may_be_lost_but_not_half_of_those_so_far(
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
    duel = stage.standings[-1].duels[TWO_CHANGES]
    assert duel.confidence == pytest.approx(0.975)


def test_the_clearly_slower_leave_after_two_rounds() -> None:
    stage = Stage(steady(one=150, two=110, three=120))
    assert stage.hold(ONE_CHANGE, TWO_CHANGES, THREE_CHANGES) == ONE_CHANGE
    assert stage.processes == {"baseline": 7, "one": 7, "two": 2, "three": 2}
    assert stage.set_aside == {"two": "one", "three": "one"}


def test_of_the_equally_fast_the_one_with_the_fewest_changes_goes_on() -> None:
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


def test_what_the_search_tells_decides_where_rounds_do_not() -> None:
    """By the rounds alone, the one is a little faster; all trials say that the other is."""
    stage = Stage(steady(one=150, three=148))
    told = {ONE_CHANGE: Belief(5.0, 0.01, noise=0.1), THREE_CHANGES: Belief(5.1, 0.01, noise=0.1)}
    assert stage.hold(ONE_CHANGE, THREE_CHANGES, beliefs=told) == THREE_CHANGES


def test_what_the_search_tells_makes_nobody_faster_than_the_baseline() -> None:
    stage = Stage(steady(one=99))
    assert stage.hold(ONE_CHANGE, beliefs={ONE_CHANGE: Belief(9.0, 0.001)}) is None


def duel_of(peak_bytes: int, *ratios: float) -> Duel:
    run, own = measurement(100, peak_bytes), measurement(100)
    return Duel((own,) * len(ratios), (run,) * len(ratios), ratios)


def test_with_equally_many_changes_less_memory_decides() -> None:
    other = Contestant("other", BASELINE.replace(batch_size=32))
    duels = {
        ONE_CHANGE: duel_of(2 * GIB, 1.5, 1.4, 1.6),
        other: duel_of(GIB, 1.4, 1.49, 1.5),
    }
    assert preferred(BASELINE, duels) == other
    assert preferred(BASELINE, {ONE_CHANGE: duels[ONE_CHANGE]}) == ONE_CHANGE


def test_a_setting_that_only_follows_from_another_is_no_change() -> None:
    assert changes(BASELINE, BASELINE) == 0
    with_workers = BASELINE.replace(num_workers=2)
    assert with_workers["prefetch_factor"] != BASELINE["prefetch_factor"]
    assert changes(with_workers, BASELINE) == 1
    assert changes(BASELINE, with_workers) == 1
    assert changes(with_workers.replace(prefetch_factor=4), BASELINE) == 2


def test_who_fails_leaves_and_the_others_go_on() -> None:
    def script(name: str, number: int) -> Measurement | Failure:
        if name == "two":
            return Crashed("killed by SIGSEGV")
        return steady(one=150)(name, number)

    stage = Stage(script)
    assert stage.hold(TWO_CHANGES, ONE_CHANGE) == ONE_CHANGE
    assert stage.refused == {"two": "killed by SIGSEGV"}


def test_who_passes_the_memory_limit_leaves() -> None:
    def script(name: str, number: int) -> Measurement:
        peak = 3 * GIB if name == "one" and number == 3 else GIB
        return measurement(150 if name == "one" else 100, peak)

    stage = Stage(script, memory_limit_bytes=2 * GIB)
    assert stage.hold(ONE_CHANGE) is None
    assert "over the limit" in stage.refused["one"]


def test_where_the_baseline_fails_nobody_is_blamed_for_it() -> None:
    def script(name: str, number: int) -> Measurement | Failure:
        return Crashed("killed by SIGKILL") if name == "baseline" else measurement(150)

    stage = Stage(script)
    assert stage.hold(ONE_CHANGE, TWO_CHANGES) is None
    assert set(stage.refused.values()) == {"your settings failed beside it: killed by SIGKILL"}


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
