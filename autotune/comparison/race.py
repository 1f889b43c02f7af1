"""A race: a candidate and the baseline take turns in fresh processes, round by round.

The fastest of several trials is also the luckiest. No trial counts in a race, so that its rounds
are evidence of the speed: a sequential test decides at a few fixed numbers of rounds whether the
candidate is faster than the baseline. Configurations that lack some of its settings run in the same
rounds. They show what these give, and one that is about as fast may become the result instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from autotune.comparison.rounds import (
    Course,
    PairedComparison,
    Participant,
    Repeats,
    Results,
    disturbance_in,
    orders,
    play_round,
)
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import knob_named
from autotune.values.measurement import Measurement
from autotune.values.outcome import describe
from autotune.values.statistics import student
from autotune.values.text import rounds_text, size

EARLY = 4
"""Number of rounds after which a large speed-up may win."""
ROUND_COUNTS = (6, 9, 12, 15, 17)
"""Numbers of rounds after which to decide."""
# Confidence at each test, and at the early one. By simulation they leave 95 % over all of them, and
# less than 4 % for a candidate as fast as the baseline to win (tests/scripted/test_race.py).
_EACH_CONFIDENCE, _EARLY_CONFIDENCE = 0.98, 0.996
# Fewest rounds after which a candidate may be refused, and the standard errors by which it may be
# faster than they show.
_FEWEST, _OPTIMISM = 4, 1.5
# Rounds after which settings that gained this much are left out no more.
_ROUNDS_WITHOUT, _LITTLE = 3, 1.03
# Settings that gained less, and not at this two-sided confidence, do not pay. To lose some that pay
# is worse than to keep some that do not.
_PAYS = 0.8
# By simulation it leaves 95 % for the interval of a gain (benchmarks/rounds.py).
_GAIN_CONFIDENCE = 0.97


def confidence(family: int, each: float = _EACH_CONFIDENCE) -> float:
    """Return the confidence at a test with `family` candidates tested in all.

    The errors of however many candidates add up to 1.7 times that of the first.
    """
    return 1 - (1 - each) / family**2


def rounds_to_win(gain: float, noise: float) -> int:
    """Return the rounds after which a single candidate has probably won.

    `gain` is the logarithm of its speed-up, `noise` the deviation of that of one timing.
    """

    def margin(rounds: int, each: float = _EACH_CONFIDENCE) -> float:
        return student((1 + each) / 2, rounds - 1) * noise * math.sqrt(2 / rounds)

    if gain > margin(EARLY, _EARLY_CONFIDENCE):
        return EARLY
    return next((rounds for rounds in ROUND_COUNTS if gain > margin(rounds)), ROUND_COUNTS[-1])


@dataclass(frozen=True, slots=True)
class Without:
    """A configuration that lacks settings of the candidate, over its rounds."""

    own: PairedComparison
    """Its comparison with the baseline."""
    gain: PairedComparison
    """Comparison of the candidate with it, which shows what the settings give."""
    fault: str = ""
    """Reason why it could not be timed; empty if it could."""

    @property
    def is_over(self) -> bool:
        """True if it is known what the settings give, or they cannot be left out."""
        is_shown = len(self.gain.costs) >= _ROUNDS_WITHOUT and self.gain.ratio >= _LITTLE
        return bool(self.fault) or is_shown

    @property
    def is_enough(self) -> bool:
        """True if it is faster than the baseline, and the settings do not pay beyond the noise."""
        if self.fault or not self.gain.costs or self.gain.ratio >= _LITTLE:
            return False
        return self.own.is_faster and replace(self.gain, confidence=_PAYS).interval[0] <= 1


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a race after a round."""

    comparison: PairedComparison
    """The candidate against the baseline, over the rounds that count so far."""
    without: Mapping[Participant, Without] = field(default_factory=dict)
    """Configurations that lack settings of the candidate."""
    fault: str = ""
    """Reason why the candidate failed in this round; empty if it did not."""
    beaten: str = ""
    """Reason why the candidate can hardly win any more; empty if it can."""
    has_won: bool = False
    """True if the rounds show that the candidate is faster than the baseline."""
    void: str = ""
    """Disturbance of this round, which does not count and is repeated; empty if it counts."""

    @property
    def rounds(self) -> int:
        """Number of rounds that count so far."""
        return len(self.comparison.costs)


def race(
    course: Course, candidate: Participant, family: int, lacking: Sequence[Participant] = ()
) -> Iterator[Standing]:
    """Run rounds until the candidate has won, failed or lost; yield the state after each.

    A round in which the candidate or the baseline was disturbed is void, whatever it shows, and is
    repeated: at most as often as rounds are planned, and while there is time. Then all rounds
    count. Each round has the next order of the schedule, so that orders are balanced whichever
    rounds count.

    `family` counts the candidates tested so far, this one included; those `lacking` settings of the
    candidate run with it.
    """
    comparison = PairedComparison((), (), (), candidate.seeds_to_loss, confidence(family))
    # Either it or one that lacks settings may be the result.
    own = PairedComparison(confidence=confidence(family + 1))
    unknown = Without(own, PairedComparison(confidence=_GAIN_CONFIDENCE))
    now = Standing(comparison, dict.fromkeys(lacking, unknown))
    repeats = Repeats[Results](ROUND_COUNTS[-1], course.may_repeat)
    timed: list[Participant] = []
    for number in count():
        left = [one for one, without in now.without.items() if not without.is_over]
        if timed != [course.baseline, candidate, *left]:
            timed = [course.baseline, candidate, *left]
            places = orders(len(timed), course.seed + number)
        before, order = now.rounds, [timed[place] for place in next(places)]
        results = play_round(course, order, number)
        now = _after_round(course, candidate, now, results, repeats)
        if not (now.fault or now.void):
            tests = [count for count in (EARLY, *ROUND_COUNTS) if before < count <= now.rounds]
            sure = confidence(family, _EARLY_CONFIDENCE if tests == [EARLY] else _EACH_CONFIDENCE)
            has_won = bool(tests) and replace(now.comparison, confidence=sure).is_faster
            now = replace(now, has_won=has_won, beaten=_beaten(now.comparison))
        yield now
        if now.fault or now.beaten or now.has_won:
            return


def _after_round(
    course: Course,
    candidate: Participant,
    before: Standing,
    results: Results,
    repeats: Repeats[Results],
) -> Standing:
    """Return the state after a round with these results."""
    if fault := fault_in(results, course, candidate):
        return Standing(before.comparison, before.without, fault)
    sides = (course.baseline.name, candidate.name)
    disturbance = disturbance_in({name: results[name] for name in sides})
    counting = repeats.admit(results, disturbance)
    if not counting:
        return Standing(before.comparison.repeating(disturbance), before.without, void=disturbance)
    without = {
        one: _after_rounds_without(course, candidate, one, known, counting)
        for one, known in before.without.items()
    }
    return Standing(with_rounds(course, candidate, before.comparison, counting), without)


def _after_rounds_without(
    course: Course, candidate: Participant, one: Participant, known: Without, rounds: list[Results]
) -> Without:
    """Return what is known of a configuration that lacks settings, as far as rounds timed it."""
    timed = [results for results in rounds if one.name in results]
    if fault := next(filter(None, (fault_in(results, course, one) for results in timed)), ""):
        return replace(known, fault=fault)
    own = with_rounds(course, one, known.own, timed)
    gain = with_rounds(course, candidate, known.gain, timed, reference=one)
    return replace(known, own=own, gain=gain)


def with_rounds(
    course: Course,
    candidate: Participant,
    comparison: PairedComparison,
    rounds: list[Results],
    reference: Participant | None = None,
) -> PairedComparison:
    """Return the paired comparison with further rounds added; None refers to the baseline."""
    reference = reference or course.baseline
    for results in rounds:
        timed, own = results[candidate.name], results[reference.name]
        assert isinstance(timed, Measurement)
        assert isinstance(own, Measurement)
        costs = course.seconds(reference.config, own), course.seconds(candidate.config, timed)
        comparison = comparison.after(own, timed, costs)
    return comparison


def fault_in(results: Results, course: Course, candidate: Participant) -> str:
    """Return why a candidate failed in a round, disturbed or not; empty if it did not."""
    timed, reference = results.get(candidate.name), results.get(course.baseline.name)
    limit = course.memory_limit_bytes
    if timed is not None and not isinstance(timed, Measurement):
        return describe(timed)
    if timed is not None and limit is not None and timed.peak_memory_bytes > limit:
        peak = size(timed.peak_memory_bytes)
        return f"memory: {peak} in a fresh process is over the limit {size(limit)}"
    if timed is not None and timed.allocator_retries:
        return "memory: at the limit in a fresh process, torch had to free its cache"
    if timed is not None and not timed.can_win:
        return "its speed never settled in a fresh process"
    if reference is not None and not isinstance(reference, Measurement):
        return f"your settings failed in the same round: {describe(reference)}"
    return ""


def _beaten(comparison: PairedComparison) -> str:
    """Return why a candidate can hardly win any more; empty if it can.

    It cannot if the rounds up to the last test would not show it faster, even if it is faster by
    1.5 standard errors than they show so far.
    """
    rounds = len(comparison.costs)
    if rounds >= ROUND_COUNTS[-1]:
        can_win = comparison.is_faster
    else:
        can_win = rounds < _FEWEST or comparison.would_win(ROUND_COUNTS[-1], _OPTIMISM)
    if can_win:
        return ""
    low, high = comparison.interval
    text = rounds_text(rounds, comparison.disturbed)
    verdict = "slower" if high < 1 else "not faster beyond the noise"
    times = f"{verdict}: {low:.3f} to {high:.3f} times as fast as your settings"
    if comparison.seeds_to_loss:
        times += " to the loss"
    return f"{times} ({text})" if comparison.disturbed else times


def settings_to_change(config: TrainingConfig, baseline: TrainingConfig) -> list[str]:
    """Return the names of the settings to change, except those that follow from another."""
    changed = config.differences(baseline)
    followers = {
        name
        for name, value in changed.items()
        if (knob := knob_named(name)).needs in changed and value in (knob.default, knob.idle)
    }
    return [name for name in changed if name not in followers]
