"""Choose one of several candidates by rounds that they share, on top of what the trials told.

The fastest of several is also the luckiest, so these rounds are no evidence of how fast it is.
Candidates that are about equally fast are told apart by the number of settings to change and by
memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from statistics import fmean
from types import MappingProxyType

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
from autotune.comparison.sequential_test import fault_in, with_rounds
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import knob_named
from autotune.sampling.acquisition import Posterior

Posteriors = Mapping[Participant, Posterior]
"""Posteriors of the candidates of a sequential test."""
NO_POSTERIORS: Posteriors = MappingProxyType({})
# Fewest rounds before a candidate is set aside for being slower than another.
_FEWEST_ROUNDS = 2
# Candidates that differ by no more than this, as a logarithm, are equally fast.
_AS_FAST = 0.01


@dataclass(frozen=True, slots=True)
class Choosing:
    """State of a choice after a round."""

    comparisons: Mapping[Participant, PairedComparison]
    """Paired comparison with the baseline of each candidate that was timed in this round."""
    failed: Mapping[Participant, str]
    """Candidates that failed in this round, with the reason."""
    set_aside: Mapping[Participant, Participant]
    """Candidates that leave, each with the one that goes on instead."""
    void: str = ""
    """Disturbance of this round, which does not count and is repeated; empty if it counts."""

    @property
    def rounds(self) -> int:
        """Number of rounds that count so far."""
        return max((len(one.ratios) for one in self.comparisons.values()), default=0)


def choose(
    course: Course, candidates: Sequence[Participant], posteriors: Posteriors = NO_POSTERIORS
) -> Iterator[Choosing]:
    """Run rounds until at most one candidate is left; yield the state after each.

    The clearly slower leave after two rounds, and all but the preferred one after a block of
    rounds, in which everyone comes first, second and last equally often. Disturbed rounds are
    repeated, as many as a block has.

    Args:
        course: the setup of the rounds.
        candidates: the configurations to choose from, two or more.
        posteriors: posteriors from the search.
    """
    comparisons = {one: PairedComparison() for one in candidates}
    block = len(candidates) + 1
    places, repeats = orders(block, course.seed), Repeats[Results](block, course.may_repeat)
    for number in count():
        field = (course.baseline, *comparisons)
        results = play_round(course, [field[place] for place in next(places)], number)
        failed = {one: fault for one in comparisons if (fault := fault_in(results, course, one))}
        left = _without(comparisons, failed)
        disturbance = disturbance_in(results)
        counting = repeats.admit(results, disturbance)
        if left and not counting:
            yield Choosing(left, failed, {}, disturbance)
        else:
            left = {one: with_rounds(course, one, c, counting) for one, c in left.items()}
            is_last = any(len(comparison.ratios) >= block for comparison in left.values())
            aside = set_aside(course.baseline, left, posteriors, is_last)
            yield Choosing(left, failed, aside)
            left = _without(left, aside)
        if len(left) < 2:  # noqa: PLR2004
            return
        if len(left) < len(comparisons):
            places = orders(len(left) + 1, course.seed + number + 1)
        comparisons = left


def _without(
    comparisons: Mapping[Participant, PairedComparison], gone: Mapping[Participant, object]
) -> dict[Participant, PairedComparison]:
    return {one: comparison for one, comparison in comparisons.items() if one not in gone}


def posteriors_after(
    before: Posteriors, comparisons: Mapping[Participant, PairedComparison]
) -> dict[Participant, Posterior]:
    """Return the posteriors of the candidates from search and rounds, with the baseline at 0."""
    shown = {one: math.log(comparison.ratio) for one, comparison in comparisons.items()}
    # The search measured rates, the rounds ratios; their means over all candidates are aligned.
    apart = [shown[one] - before[one].mean for one in comparisons if one in before]
    origin = fmean(apart) if apart else 0.0
    after = {}
    for one, comparison in comparisons.items():
        known = before.get(one, Posterior())
        moved = replace(known, mean=known.mean + origin)
        after[one] = moved.after(shown[one], len(comparison.ratios))
    return after


def preferred(
    baseline: TrainingConfig,
    comparisons: Mapping[Participant, PairedComparison],
    posteriors: Posteriors = NO_POSTERIORS,
) -> Participant:
    """Return the preferred candidate among those within one percent of the fastest.

    The fewest changes to the baseline decide, then the least memory, then the highest speed.
    """
    now = posteriors_after(posteriors, comparisons)
    most = max(posterior.mean for posterior in now.values())
    tied = [one for one, posterior in now.items() if posterior.mean >= most - _AS_FAST]
    return min(
        tied,
        key=lambda one: (
            changes(one.config, baseline),
            comparisons[one].peak_memory_bytes,
            -now[one].mean,
        ),
    )


def changes(config: TrainingConfig, baseline: TrainingConfig) -> int:
    """Return the number of settings to change; one that only follows from another is none."""
    changed = config.differences(baseline)
    followers = {
        name
        for name, value in changed.items()
        if (knob := knob_named(name)).needs in changed and value in (knob.default, knob.idle)
    }
    return len(changed) - len(followers)


def set_aside(
    baseline: Participant,
    comparisons: Mapping[Participant, PairedComparison],
    posteriors: Posteriors,
    sift: bool,
) -> dict[Participant, Participant]:
    """Return the candidates to set aside, each with the one that goes on instead.

    These are the clearly slower ones, and with `sift` all but the preferred one.
    """
    if len(comparisons) < 2:  # noqa: PLR2004
        return {}
    if sift:
        best = preferred(baseline.config, comparisons, posteriors)
        return {one: best for one in comparisons if one != best}
    if min(len(comparison.ratios) for comparison in comparisons.values()) < _FEWEST_ROUNDS:
        return {}
    now = posteriors_after(posteriors, comparisons)
    fastest = max(now, key=lambda one: now[one].mean)
    return {one: fastest for one in comparisons if now[one].is_clearly_below(now[fastest])}
