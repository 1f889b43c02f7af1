"""Ends a search in which nothing works any more, before it costs a night."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from autotune.errors import TooManyLostError
from autotune.knobs.base import Value
from autotune.tuning.storing.finished import FinishedTrial

_MOST_LOST_IN_A_ROW = 3


class Breaker:
    """Counts trials in a row that failed, or were lost to faults of the machine.

    Any trial that was measured begins the count anew. What was foreseen not to fit does not count:
    it was not run. The devices of one process share a breaker, each in a thread of its own.
    """

    def __init__(self, most_failures: int) -> None:
        self._lock = threading.Lock()
        self._most_failures = most_failures
        self._left_out: set[Value] = set()
        self._failed: list[str] = []
        self._lost: list[str] = []

    def finished(self, trial: FinishedTrial) -> None:
        """Count a trial that was told.

        Raises:
            TooManyLostError: so many failed in a row.
        """
        with self._lock:
            self._lost.clear()
            if trial.details.get("foreseen"):
                return
            if trial.details["outcome"] == "measured":
                self._failed.clear()
                return
            self._failed.append(trial.verdict.reason)
            failed = list(self._failed)
        if len(failed) >= self._most_failures:
            raise TooManyLostError(
                f"{len(failed)} trials in a row failed, and nothing in between worked:\n"
                + "\n".join(f"  {count} x {why}" for why, count in Counter(failed).most_common())
                + "\nLook at the logs of the last trials. None of them is run again: the same "
                "command goes on with others, --max-failures N lets more fail."
            )

    def lost(self, reason: str) -> None:
        """Count a trial that was lost.

        Raises:
            TooManyLostError: so many were lost in a row.
        """
        with self._lock:
            self._lost.append(reason)
            lost = len(self._lost)
        if lost >= _MOST_LOST_IN_A_ROW:
            raise TooManyLostError(
                f"{lost} trials in a row were lost. The last one: {reason}. "
                "Look at the logs of the last trials; the same command continues."
            )

    def leave_out(self, modes: Iterable[Value]) -> list[Value]:
        """Which of these ways to compile were not left out before; from now on they are."""
        with self._lock:
            new = [mode for mode in modes if mode not in self._left_out]
            self._left_out.update(new)
        return new
