"""Length of an accuracy probe: the samples that it trains on, and the seconds that it takes."""

from __future__ import annotations

import math

from autotune.context.search_context import SearchContext
from autotune.study.study import TuningStudy

_SECONDS = 6.0
"""Seconds that the baseline trains in a probe.

Shorter probes judge the first updates only, in which larger batches always look worse.
"""
_FEWEST_SECONDS = 3.0
# Largest share of a short time budget for one seed: a result takes six seeds or more.
_SHARE = 1 / 40
_FEWEST_BASELINE_STEPS = 30
_MOST_SECONDS = 60.0
# Largest share of a time budget for one seed of a script whose loss falls late.
_LATE_SHARE = 1 / 15


def probe_seconds(context: SearchContext) -> float:
    """Return the approximate seconds that the baseline trains in a probe."""
    seen = context.observed
    if seen is None or not seen.samples_per_second:
        return _usual_seconds(context)
    until = _fell_after(context) / seen.samples_per_second
    return max(_usual_seconds(context), min(until, _most_late(context)))


def _usual_seconds(context: SearchContext) -> float:
    if context.time_budget_seconds is None:
        return _SECONDS
    return min(_SECONDS, max(_FEWEST_SECONDS, _SHARE * context.time_budget_seconds))


def seed_seconds(context: SearchContext, study: TuningStudy) -> float:
    """Return the seconds of an accuracy seed of the baseline, or an estimate before the first."""
    known = study.notes.seed_seconds
    return probe_seconds(context) if known is None else known


def probe_samples(context: SearchContext, samples_per_second: float) -> int:
    """Return the samples that every probe trains on: some seconds of the baseline's training.

    A script trains until its loss had fallen when it was observed, if the time budget has room.
    The number is a multiple of all effective batches if that fits, or else of the largest one or
    of the baseline's. Those that do not divide it end with a smaller batch.
    """
    baseline_batch = context.baseline.effective_batch
    enough = _FEWEST_BASELINE_STEPS * baseline_batch
    affordable = math.ceil(_MOST_SECONDS * samples_per_second)
    wanted = max(
        math.ceil(_usual_seconds(context) * samples_per_second),
        min(enough, affordable),
        min(_fell_after(context), math.ceil(_most_late(context) * samples_per_second)),
    )
    sizes = context.space.effective_batches
    fitting = [unit for unit in (math.lcm(*sizes), max(sizes)) if unit <= wanted]
    unit = fitting[0] if fitting else baseline_batch
    return math.ceil(wanted / unit) * unit


def _most_late(context: SearchContext) -> float:
    """Return the most seconds of a seed whose loss falls late."""
    return min(_MOST_SECONDS, _LATE_SHARE * (context.time_budget_seconds or math.inf))


def _fell_after(context: SearchContext) -> int:
    """Return the samples after which the loss of an observed script had fallen; 0 if unknown."""
    loss = None if context.observed is None else context.observed.loss
    return (loss and loss.fell_after) or 0
