"""The posterior of each candidate after rounds, which add to what all trials told of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from autotune.comparison.rounds import PairedComparison, Participant
from autotune.sampling.posterior import Posterior

Posteriors = Mapping[Participant, Posterior]
"""Posteriors of the candidates of a sequential test."""


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


def _moved(posterior: Posterior, by: float) -> Posterior:
    return Posterior(posterior.mean + by, posterior.deviation, posterior.noise)


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0
