"""Stopping rules: when the trials of a search are over, and for which reason."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.sampling.acquisition import GAIN
from autotune.searching.run.search_run import SearchRun
from autotune.study.finished import FinishedTrial

PATIENCE = 20
"""Consecutive trials without a gain after which a search ends."""
FEWEST = 30
"""Fewest trials before a search may end for lack of a gain."""
ENOUGH = 0.95
"""Share of the ceiling that is good enough; the rest is the noise of measuring it."""


TO_CONFIRM = "the time left is needed for the confirmation"
"""Reason for which trials end while the budget has time: a candidate needs it."""
_TIME_UP = "the time budget is spent"
_ALL_AFFORDABLE = "every configuration that compiles in time was tried"
FOR_LACK_OF_TIME = (_TIME_UP, TO_CONFIRM, _ALL_AFFORDABLE)
"""Reasons that mean lack of time: more could have been tried."""


def end_reason(search: SearchRun) -> str | None:
    """Return the reason why no further trial runs; None if there is one and time for it."""
    finished, time = search.study.finished(), search.time_budget
    if len(finished) >= search.context.trials:
        return f"all {search.context.trials} trials are done"
    if time.seconds_left() < time.trial_seconds():
        return TO_CONFIRM if time.candidate else _TIME_UP
    if search.context.may_settle and _has_settled_whole(search, finished):
        return f"no improvement of 1 % in {PATIENCE} trials"
    if is_at_limit(finished, search.ceiling):
        return f"{100 * ENOUGH:.0f} % of {search.ceiling:.1f}/s, which computing alone reaches"
    if not search.study.exhausted():
        return None
    return "nothing else is worth a trial" if not search.study.skipped_modes else _ALL_AFFORDABLE


def widen_when_due(search: SearchRun) -> None:
    """Open the whole space once the part with which the search begins has had its time.

    That is so after its trials or seconds, or without a gain in them.
    """
    study, beginning = search.study, search.context.space.beginning
    if study.widened_at is not None:
        return
    finished = study.finished()
    if (
        beginning is None
        or len(finished) >= beginning.trials
        or search.clock.elapsed >= beginning.seconds
        or has_settled(finished)
    ):
        study.widened_at = 0 if beginning is None else len(finished)


def _has_settled_whole(search: SearchRun, finished: Sequence[FinishedTrial]) -> bool:
    widened_at = search.study.widened_at
    return (
        widened_at is not None and len(finished) >= widened_at + PATIENCE and has_settled(finished)
    )


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
        ceiling: samples per second of computing alone; None if trials compute otherwise.
    """
    if ceiling is None:
        return False
    feasible = (trial for trial in finished if trial.verdict.feasible)
    rates = [trial.details.samples_per_second or 0.0 for trial in feasible]
    return ENOUGH * ceiling <= max(rates, default=0.0) <= ceiling


def _best(trials: Sequence[FinishedTrial]) -> float:
    return max((t.verdict.value or 0.0 for t in trials if t.verdict.feasible), default=0.0)
