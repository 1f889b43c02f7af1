"""A race: candidates and the baseline take turns in fresh processes, round by round.

The fastest of several is also the luckiest. So while several are left, rounds choose between them:
the clearly slower leave after each round, and all but the preferred one after a block of rounds, in
which each comes first, second and last equally often. Then the rounds of the remaining one are
counted from the beginning. They did not choose it, so they are evidence of its speed: a sequential
test decides at a few fixed numbers of rounds whether it is faster than the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Container, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from statistics import fmean

from autotune.comparison.rounds import (
    Course,
    PairedComparison,
    Participant,
    Repeats,
    Results,
    Samples,
    disturbance_in,
    orders,
    play_round,
)
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import knob_named
from autotune.sampling.acquisition import Posterior
from autotune.values.measurement import Measurement
from autotune.values.outcome import describe
from autotune.values.statistics import student
from autotune.values.text import rounds_text, size

ROUND_COUNTS = (6, 9, 12, 15, 17)
"""Numbers of rounds after which to decide."""
Field = Mapping[Participant, PairedComparison]
"""Candidates in a race, each with its rounds against the baseline so far."""
# Confidence at each test. By simulation it leaves 95 % over all of them, and less than 4 % for a
# candidate as fast as the baseline to win (tests/scripted/test_race.py).
_EACH_CONFIDENCE = 0.98
# Fewest rounds after which a candidate may be refused, and the standard errors by which it may be
# faster than they show.
_FEWEST, _OPTIMISM = 4, 1.5
# Fewest rounds before a candidate leaves for being slower than another.
_FEWEST_TO_CHOOSE = 2
# Candidates that differ by no more than this, as a logarithm, are equally fast.
_AS_FAST = 0.01


def confidence(family: int) -> float:
    """Return the confidence at each test with `family` candidates tested in all (Bonferroni)."""
    return 1 - (1 - _EACH_CONFIDENCE) / family


def rounds_to_win(gain: float, noise: float) -> int:
    """Return the rounds after which a single candidate has probably won.

    Args:
        gain: logarithm of the candidate's speed-up over the baseline.
        noise: deviation of the logarithm of one timing.
    """

    def margin(rounds: int) -> float:
        return student((1 + _EACH_CONFIDENCE) / 2, rounds - 1) * noise * math.sqrt(2 / rounds)

    return next((rounds for rounds in ROUND_COUNTS if gain > margin(rounds)), ROUND_COUNTS[-1])


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a race after a round."""

    comparisons: Field
    """The candidates that did not fail, over the rounds that count so far."""
    failed: Mapping[Participant, str]
    """Candidates that failed in this round, with the reason."""
    is_test: bool = False
    """True if these rounds test the only candidate; else they choose one."""
    slower: Mapping[Participant, Participant] = field(default_factory=dict)
    """Candidates that leave, each with the one that goes on instead."""
    beaten: str = ""
    """Why the tested candidate can hardly win any more; empty if it can."""
    decides: bool = False
    """True if the tested candidate could win after this round."""
    void: str = ""
    """Disturbance of this round, which does not count and is repeated; empty if it counts."""

    @property
    def rounds(self) -> int:
        """Number of rounds that count so far, of those that choose or of those that test."""
        return max((len(one.ratios) for one in self.comparisons.values()), default=0)

    @property
    def winner(self) -> Participant | None:
        """The candidate that these rounds show to be faster than the baseline; None if none."""
        if not self.decides:
            return None
        won = (one for one, comparison in self.comparisons.items() if comparison.is_faster)
        return next(won, None)


def race(course: Course, entrants: Sequence[Participant], family: int) -> Iterator[Standing]:
    """Run rounds until a candidate has won, or none is left; yield the state after each.

    A round in which any timing was disturbed is void, whatever it shows, and is repeated: at most
    as often as rounds are planned, and while there is time. Then all rounds count. Each round has
    the next order of the schedule, so that orders are balanced whichever rounds count.

    Args:
        course: the setup of the rounds.
        entrants: the candidates, one or more.
        family: number of candidates tested so far, the one to be tested included, for the
            confidence.
    """
    chosen, number = entrants[0], 0
    if len(entrants) > 1:
        # What only chooses is no evidence, so that its rounds need no hosts of their own.
        found, number = yield from _choose(replace(course, host_seconds=math.inf), entrants)
        if found is None:
            return
        chosen = found
    yield from _test(replace(course, samples=Samples()), chosen, number, family)


def _choose(
    course: Course, entrants: Sequence[Participant]
) -> Generator[Standing, None, tuple[Participant | None, int]]:
    """Run rounds until at most one candidate is left; return it and the number of rounds."""
    running: Field = {one: PairedComparison(seeds_to_loss=one.seeds_to_loss) for one in entrants}
    block = len(running) + 1
    places, repeats = orders(block, course.seed), Repeats[Results](block, course.may_repeat)
    for number in count():
        order = [(course.baseline, *running)[place] for place in next(places)]
        standing = _played(course, running, order, number, repeats)
        if not standing.void:
            is_last = standing.rounds >= block
            slower = set_aside(course.baseline, standing.comparisons, is_last)
            standing = replace(standing, slower=slower)
        yield standing
        left = _without(standing.comparisons, standing.slower)
        if len(left) < 2:  # noqa: PLR2004
            return next(iter(left), None), number + 1
        if len(left) < len(running):
            places = orders(len(left) + 1, course.seed + number + 1)
        running = left
    raise AssertionError("count() has no end")


def _test(course: Course, candidate: Participant, first: int, family: int) -> Iterator[Standing]:
    """Run rounds, numbered from `first`, until the candidate has won, failed or lost."""
    seeds = candidate.seeds_to_loss
    running: Field = {candidate: PairedComparison((), (), (), seeds, confidence(family))}
    pair = (course.baseline, candidate)
    places = orders(len(pair), course.seed + first)
    repeats = Repeats[Results](ROUND_COUNTS[-1], course.may_repeat)
    for number in count(first):
        last = len(running[candidate].ratios)
        order = [pair[place] for place in next(places)]
        standing = replace(_played(course, running, order, number, repeats), is_test=True)
        if not (standing.failed or standing.void):
            decides = any(last < count <= standing.rounds for count in ROUND_COUNTS)
            beaten = _beaten(standing.comparisons[candidate])
            standing = replace(standing, decides=decides, beaten=beaten)
        yield standing
        if standing.failed or standing.beaten or standing.winner:
            return
        running = standing.comparisons


def _played(
    course: Course,
    running: Field,
    order: Sequence[Participant],
    number: int,
    repeats: Repeats[Results],
) -> Standing:
    """Run a round in this order, and return the state after it."""
    results = play_round(course, order, number)
    failed = {one: fault for one in running if (fault := fault_in(results, course, one))}
    left, disturbance = _without(running, failed), disturbance_in(results)
    counting = repeats.admit(results, disturbance)
    if not counting:
        repeating = {one: comparison.repeating(disturbance) for one, comparison in left.items()}
        return Standing(repeating, failed, void=disturbance)
    after = {one: with_rounds(course, one, known, counting) for one, known in left.items()}
    return Standing(after, failed)


def _without(running: Field, gone: Container[Participant]) -> Field:
    return {one: comparison for one, comparison in running.items() if one not in gone}


def with_rounds(
    course: Course, candidate: Participant, comparison: PairedComparison, rounds: list[Results]
) -> PairedComparison:
    """Return the paired comparison with further rounds added."""
    for results in rounds:
        timed, reference = results[candidate.name], results[course.baseline.name]
        assert isinstance(timed, Measurement)
        assert isinstance(reference, Measurement)
        costs = course.costs(candidate.config, timed, reference)
        comparison = comparison.after(reference, timed, costs)
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
        return "memory: the allocator had to free cached memory in a fresh process, at its limit"
    if timed is not None and not timed.can_win:
        return "speed never steady in a fresh process"
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
    return f"{times} ({text})" if comparison.disturbed else times


def set_aside(
    baseline: Participant, running: Field, is_last: bool
) -> dict[Participant, Participant]:
    """Return the candidates to set aside, each with the one that goes on instead.

    These are the clearly slower ones, and after the last round all but the preferred one.
    """
    if len(running) < 2:  # noqa: PLR2004
        return {}
    if is_last:
        best = preferred(baseline.config, running)
        return {one: best for one in running if one != best}
    if min(len(comparison.ratios) for comparison in running.values()) < _FEWEST_TO_CHOOSE:
        return {}
    now = posteriors_after(running)
    fastest = max(now, key=lambda one: now[one].mean)
    return {one: fastest for one in running if now[one].is_clearly_below(now[fastest])}


def posteriors_after(running: Field) -> dict[Participant, Posterior]:
    """Return the posteriors of the candidates from trials and rounds, with the baseline at 0."""
    shown = {one: math.log(comparison.ratio) for one, comparison in running.items()}
    # The trials measured rates, the rounds ratios; their means over all candidates are aligned.
    timed = [one for one in running if math.isfinite(one.posterior.deviation)]
    apart = [shown[one] - one.posterior.mean for one in timed]
    origin = fmean(apart) if apart else 0.0
    after = {}
    for one, comparison in running.items():
        moved = replace(one.posterior, mean=one.posterior.mean + origin)
        after[one] = moved.after(shown[one], len(comparison.ratios))
    return after


def preferred(baseline: TrainingConfig, running: Field) -> Participant:
    """Return the preferred candidate among those within one percent of the fastest.

    The fewest changes to the baseline decide, then the least memory, then the highest speed.
    """
    now = posteriors_after(running)
    most = max(posterior.mean for posterior in now.values())
    tied = [one for one, posterior in now.items() if posterior.mean >= most - _AS_FAST]
    return min(
        tied,
        key=lambda one: (
            changes(one.config, baseline),
            running[one].peak_memory_bytes,
            -now[one].mean,
        ),
    )


def changes(config: TrainingConfig, baseline: TrainingConfig) -> int:
    """Return the number of settings to change; one that follows from another does not count."""
    changed = config.differences(baseline)
    followers = {
        name
        for name, value in changed.items()
        if (knob := knob_named(name)).needs in changed and value in (knob.default, knob.idle)
    }
    return len(changed) - len(followers)
