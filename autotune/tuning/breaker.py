"""Ends a search in which nothing works any more, before it costs a night."""

from __future__ import annotations

from collections import Counter

from autotune.errors import TooManyLostError
from autotune.tuning.storing.finished import FinishedTrial

_MOST_LOST_IN_A_ROW = 3


class Breaker:
    """Counts trials in a row that failed, or were lost to faults of the machine.

    Any trial that was measured begins the count anew. What was foreseen not to fit does not count:
    it was not run.
    """

    def __init__(self, most_failures: int) -> None:
        self._most_failures = most_failures
        self._failed: list[str] = []
        self._lost: list[str] = []

    def finished(self, trial: FinishedTrial) -> None:
        """Count a trial that was told.

        Raises:
            TooManyLostError: so many failed in a row.
        """
        self._lost.clear()
        if trial.details.get("foreseen"):
            return
        if trial.details["outcome"] == "measured":
            self._failed.clear()
            return
        self._failed.append(trial.verdict.reason)
        if len(self._failed) >= self._most_failures:
            reasons = Counter(self._failed).most_common()
            raise TooManyLostError(
                f"{len(self._failed)} trials in a row failed, and nothing in between worked:\n"
                + "\n".join(f"  {count} x {reason}" for reason, count in reasons)
                + "\nLook at the logs of the last trials. None of them is run again: the same "
                "command goes on with others, --max-failures N lets more fail."
            )

    def lost(self, reason: str) -> None:
        """Count a trial that was lost.

        Raises:
            TooManyLostError: so many were lost in a row.
        """
        self._lost.append(reason)
        if len(self._lost) >= _MOST_LOST_IN_A_ROW:
            raise TooManyLostError(
                f"{len(self._lost)} trials in a row were lost. The last one: {reason}. "
                "Look at the logs of the last trials; the same command continues."
            )
