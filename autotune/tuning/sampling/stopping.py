"""When further trials are not worth their time: nothing becomes better, or nothing can."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.tuning.sampling.coverage import GAIN
from autotune.tuning.storing.study import FinishedTrial

PATIENCE = 20
"""Trials in a row without a gain after which a search ends."""
FEWEST = 30
"""Trials before which no search ends for that."""
ENOUGH = 0.95
"""Of the speed of light: the rest is the noise of measuring it."""


def has_settled(finished: Sequence[FinishedTrial]) -> bool:
    """Whether the best feasible value has not risen by a percent for `PATIENCE` trials."""
    if len(finished) < FEWEST:
        return False
    before, since = finished[:-PATIENCE], finished[-PATIENCE:]
    return _best(since) <= GAIN * _best(before)


def is_at_limit(finished: Sequence[FinishedTrial], ceiling: float | None) -> bool:
    """Whether the best feasible trial is so near to the ceiling that nothing is left to win.

    One that exceeds it shows that the ceiling was measured too low, and says nothing.
    """
    if ceiling is None:
        return False
    feasible = (trial for trial in finished if trial.verdict.feasible)
    rates = [trial.details.get("samples_per_second") or 0.0 for trial in feasible]
    return ENOUGH * ceiling <= max(rates, default=0.0) <= ceiling


def _best(trials: Sequence[FinishedTrial]) -> float:
    return max((t.verdict.value or 0.0 for t in trials if t.verdict.feasible), default=0.0)
