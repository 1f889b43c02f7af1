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

from autotune.comparison.repeats import Repeats
from autotune.comparison.rounds import (
    Course,
    PairedComparison,
    Participant,
    Results,
    disturbance_in,
    orders,
    play_round,
)
from autotune.values.measurement import Measurement
from autotune.values.outcome import describe
from autotune.values.statistics import CONFIDENCE
from autotune.values.text import rounds_text, size

# Rounds that a winner may have lost at the last look; earlier looks allow fewer. One that is as
# fast as the baseline passes one of the looks with a chance of 4.7 %; with another look, of 5.
_MOST_LOSSES = 4
# Rounds that a candidate may lose while it won no more: two of the first four are often chance.
_EVEN_LOSSES = 2


def looks(family: int) -> tuple[int, ...]:
    """Return the numbers of rounds after which to decide, with `family` candidates tested in all.

    At the first look, the interval of the median is the range of the ratios. At each further one,
    it drops one more extreme on either side. Each number is the fewest rounds for which
    that interval has the confidence, shared by all candidates (Bonferroni).
    """
    allowed = (1 - CONFIDENCE) / family
    return tuple(_fewest(losses, allowed) for losses in range(_MOST_LOSSES + 1))


def _fewest(losses: int, allowed: float) -> int:
    """Return the fewest rounds in which `losses` or fewer lost ones have a chance of `allowed`.

    The chance is two-sided, under the sign test's hypothesis that both are equally fast.
    """
    return next(n for n in range(1, 100) if 2 * _ways(n, losses) / 2**n <= allowed)


def _ways(rounds: int, losses: int) -> int:
    return sum(math.comb(rounds, lost) for lost in range(losses + 1))


LOOKS = looks(1)
"""Numbers of rounds after which to decide, with a single candidate."""


def rounds_to_win(gain: float, noise: float) -> int:
    """Return the rounds after which a single candidate has probably won.

    Args:
        gain: logarithm of the candidate's speed-up over the baseline.
        noise: deviation of the logarithm of one timing.
    """
    lost = 0.5 * math.erfc(gain / (2 * noise))
    enough = (rounds for most, rounds in enumerate(LOOKS) if rounds * lost <= most + 0.5)
    return next(enough, LOOKS[-1])


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
    comparison = PairedComparison(confidence=1 - (1 - CONFIDENCE) / family)
    decisions, pair = looks(family), (course.baseline, candidate)
    places = orders(len(pair), course.seed)
    repeats: Repeats[Results] = Repeats(decisions[-1], course.may_repeat)
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
        decides = any(last < look <= len(comparison.ratios) for look in decisions)
        standing = Standing(comparison, "", _beaten(comparison, decisions[-1]), decides)
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
        ratio = course.ratio(candidate.config, timed, reference)
        comparison = comparison.after(reference, timed, ratio)
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


def _beaten(comparison: PairedComparison, planned: int) -> str:
    """Return why a candidate can hardly win any more; empty if it can.

    After the last look, it is that it is not faster.
    """
    is_over = len(comparison.ratios) >= planned
    is_lost = comparison.losses > _MOST_LOSSES or _is_even(comparison)
    if comparison.is_faster if is_over else not is_lost:
        return ""
    low, high = comparison.interval
    rounds = rounds_text(len(comparison.ratios), comparison.disturbed)
    verdict = "slower" if high < 1 else "not faster beyond the noise"
    times = f"{verdict}: {low:.3f} to {high:.3f} times as fast as your settings"
    return f"{times} ({rounds})" if comparison.disturbed else times


def _is_even(comparison: PairedComparison) -> bool:
    """Return whether three rounds or more were lost, and no more were won."""
    return comparison.losses > _EVEN_LOSSES and 2 * comparison.losses >= len(comparison.ratios)
