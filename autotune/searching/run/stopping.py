"""Stopping rules: no trial became better for long, or none can."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.sampling.acquisition import GAIN
from autotune.study.study import FinishedTrial

PATIENCE = 20
"""Consecutive trials without a gain after which a search ends."""
FEWEST = 30
"""Fewest trials before a search may end for lack of a gain."""
ENOUGH = 0.95
"""Share of the ceiling that is good enough; the rest is the noise of measuring it."""


def has_settled(finished: Sequence[FinishedTrial]) -> bool:
    """Return whether the best feasible value has not risen by a percent for `PATIENCE` trials."""
    if len(finished) < FEWEST:
        return False
    before, since = finished[:-PATIENCE], finished[-PATIENCE:]
    return _best(since) <= GAIN * _best(before)


def is_at_limit(finished: Sequence[FinishedTrial], ceiling: float | None) -> bool:
    """Return whether the best feasible trial is so near the ceiling that nothing is left to gain.

    A trial above the ceiling shows that it was measured too low; the result is then False.

    Args:
        finished: the trials so far.
        ceiling: samples per second that no configuration can exceed; None if not known.
    """
    if ceiling is None:
        return False
    feasible = (trial for trial in finished if trial.verdict.feasible)
    rates = [trial.details.samples_per_second or 0.0 for trial in feasible]
    return ENOUGH * ceiling <= max(rates, default=0.0) <= ceiling


def _best(trials: Sequence[FinishedTrial]) -> float:
    return max((t.verdict.value or 0.0 for t in trials if t.verdict.feasible), default=0.0)
