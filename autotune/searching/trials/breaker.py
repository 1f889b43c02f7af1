"""A circuit breaker, which ends a search in which trial after trial fails."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from autotune.study.finished import FinishedTrial
from autotune.values.errors import TooManyLostError

_MOST_LOST_IN_A_ROW = 3


class Breaker:
    """Count consecutive trials that failed, or were lost to faults of the machine.

    A measured trial resets both counts. Running out of memory is no failure: it shows the limit.
    The threads of a process, one per device, share one breaker.
    """

    def __init__(self, most_failures: int) -> None:
        self._lock = threading.Lock()
        self._most_failures = most_failures
        self._left_out: set[str] = set()
        self._failed: list[str] = []
        self._lost: list[str] = []

    def finished(self, trial: FinishedTrial) -> None:
        """Count a finished trial.

        Raises:
            TooManyLostError: `most_failures` trials failed in a row.
        """
        with self._lock:
            self._lost.clear()
            if trial.details.outcome == "out_of_memory":
                return
            if trial.details.outcome == "measured":
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
            TooManyLostError: three trials were lost in a row.
        """
        with self._lock:
            self._lost.append(reason)
            lost = len(self._lost)
        if lost >= _MOST_LOST_IN_A_ROW:
            raise TooManyLostError(
                f"{lost} trials in a row were lost. The last one: {reason}. "
                "Look at the logs of the last trials; the same command continues."
            )

    def leave_out(self, values: Iterable[str]) -> list[str]:
        """Return those of `values` that are new, and remember them as left out."""
        with self._lock:
            new = [value for value in values if value not in self._left_out]
            self._left_out.update(new)
        return new
