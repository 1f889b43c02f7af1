"""Repeats of disturbed timings, which are void as long as repeats are left.

Only the disturbance decides, before any rate is looked at: repeating timings that look slow would
favour the lucky. When no repeat is left, all timings count, the void ones too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from autotune.values.measurement import Measurement, disturbance_of
from autotune.values.outcome import Measured, TrialOutcome

T = TypeVar("T")


@dataclass
class Repeats(Generic[T]):
    """Number of repeats left, and the void timings so far."""

    left: int
    may_start: Callable[[], bool] = lambda: True
    """Function that returns True while there is time for a repeat."""
    _void: list[T] = field(default_factory=list)

    def admit(self, timed: T, disturbance: str) -> list[T]:
        """Return the timings that count from now on; empty if this one is to be repeated.

        A disturbed timing that cannot be repeated counts, with all that were void before it.

        Args:
            timed: the timing, or several that were taken together.
            disturbance: text from `autotune.values.measurement.disturbance_of`; empty if
                undisturbed.
        """
        if not disturbance:
            return [timed]
        if self.left > 0 and self.may_start():
            self.left -= 1
            self._void.append(timed)
            return []
        void, self._void = self._void, []
        return [*void, timed]


def timed_calmly(
    time: Callable[[str], TrialOutcome], may_start: Callable[[], bool]
) -> list[Measurement]:
    """Time something once, and once more if that was disturbed; both count if both were.

    Args:
        time: takes a timing; its argument is a suffix for the name of the folder.
        may_start: returns True while there is time for a repeat.

    Returns:
        The timings that count; none if one of them failed.
    """
    repeats: Repeats[Measurement] = Repeats(1, may_start)
    for attempt in count():
        outcome = time("-repeated" if attempt else "")
        if not isinstance(outcome, Measured):
            break
        run = outcome.measurement
        if counting := repeats.admit(run, disturbance_of([run])):
            return counting
    return []
