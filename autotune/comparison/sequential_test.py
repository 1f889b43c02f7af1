"""Sequential test of candidates against the baseline: paired rounds in fresh processes.

The best of many noisy measurements looks better than it is, so best.yaml states no number from the
search. Candidates that the search could not tell apart share a first block of rounds, which chooses
one of them. The rounds that test it begin after that: what chose it favoured the lucky.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from autotune.comparison.candidate_choice import NO_POSTERIORS, Posteriors, set_aside
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
from autotune.values.outcome import Failure, describe
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

    comparisons: Mapping[Participant, PairedComparison]
    """Paired comparison of each candidate that was timed in this round."""
    refused: Mapping[Participant, str]
    """Candidates that cannot be the result, with the reason.

    Those that failed in this round have no comparison in it.
    """
    set_aside: Mapping[Participant, Participant]
    """Fallback candidates, each with the one that goes on instead."""
    winner: Participant | None = None
    decides: bool = False
    """True if a candidate could win after this round."""
    void: str = ""
    """Disturbance of this round, which does not count and is repeated; empty if it counts."""

    @property
    def rounds(self) -> int:
        """Number of rounds that count so far."""
        return max((len(comparison.ratios) for comparison in self.comparisons.values()), default=0)


def sequential_test(
    course: Course,
    candidates: Sequence[Participant],
    family: int,
    posteriors: Posteriors = NO_POSTERIORS,
) -> Iterator[Standing]:
    """Run rounds until a candidate has won or none is left; yield the state after each.

    A round in which any timing was disturbed is void, whatever it shows, and is repeated: at most
    as often as rounds are planned, and while there is time. Then all rounds count. Each round has
    the next order of the schedule, so that orders are balanced whichever rounds count.

    Args:
        course: the setup of the rounds.
        candidates: the configurations to test.
        family: number of candidates tested so far, the chosen one included, for the confidence.
        posteriors: posteriors from the search, which order candidates; only the rounds decide.
    """
    confidence = 1 - (1 - CONFIDENCE) / family
    comparisons = {one: PairedComparison(confidence=confidence) for one in candidates}
    decisions, block = looks(family), len(candidates) + 1
    places = orders(block, course.seed)
    rounds, repeats = 0, Repeats[Results](decisions[-1], course.may_repeat)
    for number in count():
        before, last, field = len(comparisons), rounds, (course.baseline, *comparisons)
        results = play_round(course, [field[place] for place in next(places)], number)
        refused = _faults(course, comparisons, results)
        comparisons = _without(comparisons, refused)
        disturbance = disturbance_in(results)
        counting = repeats.admit(results, disturbance)
        rounds += len(counting)
        if comparisons and not counting:
            comparisons = {one: c.repeating(disturbance) for one, c in comparisons.items()}
            yield Standing(comparisons, refused, {}, void=disturbance)
        else:
            played = comparisons = _with_rounds(course, comparisons, counting)
            refused |= _beaten(comparisons, decisions[-1])
            left = _without(comparisons, refused)
            aside = set_aside(course.baseline, left, posteriors, last < block <= rounds)
            comparisons = _without(left, aside)
            decides = before == 1 and any(last < look <= rounds for look in decisions)
            winner = next((one for one, c in comparisons.items() if decides and c.is_faster), None)
            yield Standing(played, refused, aside, winner, decides)
            if winner is not None or not comparisons:
                return
        if len(comparisons) < before:
            places = orders(len(comparisons) + 1, course.seed + number + 1)
            if len(comparisons) == 1:
                comparisons = {one: c.chosen() for one, c in comparisons.items()}
                rounds, repeats = 0, Repeats[Results](decisions[-1], course.may_repeat)


def _faults(
    course: Course, comparisons: Mapping[Participant, PairedComparison], results: Results
) -> dict[Participant, str]:
    """Return the candidates that failed in a round, with the reason; a disturbance is no excuse."""
    reference = results.get(course.baseline.name)
    faults = {one: _fault(course, results.get(one.name), reference) for one in comparisons}
    return {one: fault for one, fault in faults.items() if fault}


def _with_rounds(
    course: Course, comparisons: Mapping[Participant, PairedComparison], rounds: Sequence[Results]
) -> dict[Participant, PairedComparison]:
    """Return the paired comparisons with further rounds added."""
    played = dict(comparisons)
    for results in rounds:
        for one in comparisons:
            timed, reference = results[one.name], results[course.baseline.name]
            assert isinstance(timed, Measurement)
            assert isinstance(reference, Measurement)
            ratio = course.ratio(one.config, timed, reference)
            played[one] = played[one].after(reference, timed, ratio)
    return played


def _fault(
    course: Course, timed: Measurement | Failure | None, reference: Measurement | Failure | None
) -> str:
    """Return why a candidate failed in a round; empty if it did not."""
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


def _beaten(
    comparisons: Mapping[Participant, PairedComparison], planned: int
) -> dict[Participant, str]:
    """Return the candidates that can hardly win any more, with the reason.

    At the last look, these are all that are not faster.
    """
    beaten = {}
    for candidate, comparison in comparisons.items():
        is_over = len(comparison.ratios) >= planned
        is_lost = comparison.losses > _MOST_LOSSES or _is_even(comparison)
        if not comparison.is_faster if is_over else is_lost:
            low, high = comparison.interval
            rounds = rounds_text(len(comparison.ratios), comparison.disturbed)
            verdict = "slower" if high < 1 else "not faster beyond the noise"
            beaten[candidate] = (
                f"{verdict}: {low:.3f} to {high:.3f} times as fast as your settings"
                f"{f' ({rounds})' if comparison.disturbed else ''}"
            )
    return beaten


def _is_even(comparison: PairedComparison) -> bool:
    """Return whether three rounds or more were lost, and no more were won."""
    return comparison.losses > _EVEN_LOSSES and 2 * comparison.losses >= len(comparison.ratios)


def _without(
    comparisons: Mapping[Participant, PairedComparison], gone: Mapping[Participant, object]
) -> dict[Participant, PairedComparison]:
    return {one: comparison for one, comparison in comparisons.items() if one not in gone}
