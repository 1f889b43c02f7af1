"""Sequential test of a candidate against the baseline: paired rounds in fresh processes.

The best of many noisy measurements looks better than it is, so best.yaml states no number from the
search. Nor does it from rounds that choose between candidates (`candidate_choice`): the rounds of a
test begin after them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
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
from autotune.values.measurement import Measurement
from autotune.values.outcome import describe
from autotune.values.statistics import student
from autotune.values.text import rounds_text, size

LOOKS = (6, 9, 12, 15, 17)
"""Numbers of rounds after which to decide."""
# Confidence at each look. By simulation it leaves 95 % over all of them, and less than 4 % for a
# candidate as fast as the baseline to win (tests/scripted/test_sequential_test.py).
_EACH_LOOK = 0.98
# Fewest rounds after which a candidate may be refused, and the standard errors by which it may be
# faster than they show.
_FEWEST, _OPTIMISM = 4, 1.5


def confidence(family: int) -> float:
    """Return the confidence at each look with `family` candidates tested in all (Bonferroni)."""
    return 1 - (1 - _EACH_LOOK) / family


def rounds_to_win(gain: float, noise: float) -> int:
    """Return the rounds after which a single candidate has probably won.

    Args:
        gain: logarithm of the candidate's speed-up over the baseline.
        noise: deviation of the logarithm of one timing.
    """

    def margin(rounds: int) -> float:
        return student((1 + _EACH_LOOK) / 2, rounds - 1) * noise * math.sqrt(2 / rounds)

    return next((rounds for rounds in LOOKS if gain > margin(rounds)), LOOKS[-1])


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a sequential test after a round."""

    comparison: PairedComparison
    """Paired comparison of the candidate, over the rounds that count so far."""
    failed: str = ""
    """Why the candidate or the baseline failed in this round; empty if neither did."""
    beaten: str = ""
    """Why the candidate can hardly win any more; empty if it can."""
    decides: bool = False
    """True if the candidate could win after this round."""
    void: str = ""
    """Disturbance of this round, which does not count and is repeated; empty if it counts."""

    @property
    def rounds(self) -> int:
        """Number of rounds that count so far."""
        return len(self.comparison.ratios)

    @property
    def is_won(self) -> bool:
        """True if the candidate is faster than the baseline."""
        return self.decides and self.comparison.is_faster

    @property
    def is_over(self) -> bool:
        """True if no further round follows."""
        return bool(self.failed or self.beaten) or self.is_won


def sequential_test(course: Course, candidate: Participant, family: int) -> Iterator[Standing]:
    """Run rounds until a candidate has won, failed or lost; yield the state after each.

    A round in which any timing was disturbed is void, whatever it shows, and is repeated: at most
    as often as rounds are planned, and while there is time. Then all rounds count. Each round has
    the next order of the schedule, so that orders are balanced whichever rounds count.

    Args:
        course: the setup of the rounds.
        candidate: the configuration to test.
        family: number of candidates tested so far, this one included, for the confidence.
    """
    comparison = PairedComparison(confidence=confidence(family))
    pair = (course.baseline, candidate)
    places = orders(len(pair), course.seed)
    repeats: Repeats[Results] = Repeats(LOOKS[-1], course.may_repeat)
    for number in count():
        results = play_round(course, [pair[place] for place in next(places)], number)
        if failed := fault_in(results, course, candidate):
            yield Standing(comparison, failed)
            return
        disturbance = disturbance_in(results)
        counting, last = repeats.admit(results, disturbance), len(comparison.ratios)
        if not counting:
            comparison = comparison.repeating(disturbance)
            yield Standing(comparison, void=disturbance)
            continue
        comparison = with_rounds(course, candidate, comparison, counting)
        decides = any(last < look <= len(comparison.ratios) for look in LOOKS)
        standing = Standing(comparison, "", _beaten(comparison), decides)
        yield standing
        if standing.is_over:
            return


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
    """Return why a candidate failed in a round; empty if it did not. A disturbance is no excuse."""
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
        return "never steady in a fresh process"
    if reference is not None and not isinstance(reference, Measurement):
        return f"your settings failed in the same round: {describe(reference)}"
    return ""


def _beaten(comparison: PairedComparison) -> str:
    """Return why a candidate can hardly win any more; empty if it can.

    It cannot if the rounds up to the last look would not show it faster, even if it is faster by
    1.5 standard errors than they show so far.
    """
    rounds = len(comparison.costs)
    if rounds >= LOOKS[-1]:
        can_win = comparison.is_faster
    else:
        can_win = rounds < _FEWEST or comparison.would_win(LOOKS[-1], _OPTIMISM)
    if can_win:
        return ""
    low, high = comparison.interval
    text = rounds_text(rounds, comparison.disturbed)
    verdict = "slower" if high < 1 else "not faster beyond the noise"
    times = f"{verdict}: {low:.3f} to {high:.3f} times as fast as your settings"
    return f"{times} ({text})" if comparison.disturbed else times
