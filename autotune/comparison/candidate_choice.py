"""Choose between candidates after rounds, by posteriors from the search and from the rounds.

Rounds add to what all trials told of a candidate. Candidates that are about equally fast are told
apart by the number of settings to change and by memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from types import MappingProxyType

from autotune.comparison.rounds import PairedComparison, Participant
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import knob_named
from autotune.sampling.posterior import Posterior

Posteriors = Mapping[Participant, Posterior]
"""Posteriors of the candidates of a sequential test."""
NO_POSTERIORS: Posteriors = MappingProxyType({})
# Fewest rounds before a candidate is set aside for being slower than another.
_FEWEST_ROUNDS = 2
# Candidates that differ by no more than this, as a logarithm, are equally fast.
_AS_FAST = 0.01


def posteriors_after(
    before: Posteriors, comparisons: Mapping[Participant, PairedComparison]
) -> dict[Participant, Posterior]:
    """Return the posteriors of the candidates from search and rounds, with the baseline at 0."""
    shown = {one: math.log(comparison.ratio) for one, comparison in comparisons.items()}
    known = [one for one in comparisons if one in before]
    # The search measured rates, the rounds ratios; their means over all candidates are aligned.
    origin = _mean([shown[one] - before[one].mean for one in known])
    return {
        one: _moved(before.get(one, Posterior()), origin).after(shown[one], len(comparison.ratios))
        for one, comparison in comparisons.items()
    }


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


def _moved(posterior: Posterior, by: float) -> Posterior:
    return Posterior(posterior.mean + by, posterior.deviation, posterior.noise)


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0
