"""Seconds of single training steps: a few slow ones may take most of the time."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

# A step this many times as long as the median step is slow.
_SLOW = 3.0
# Steps are uneven if their slow ones take this share of the time.
_UNEVEN = 0.2
# Slow steps that tell how often they come: their number is then known to about a half.
_SEEN_OFTEN = 4
FEWEST_STEPS = 6
"""Fewer steps do not show which of them are slow."""

# Steps that a log has room for: of the shortest ones those of all blocks of a trial.
_MOST_STEPS = 1 << 16

Step = tuple[float, float]
"""Seconds of a step, and those of them in which it waited for data."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Distribution of the seconds of the timed steps of one process, or of several."""

    count: int
    seconds: float
    """Sum over all steps."""
    median_seconds: float
    p99_seconds: float
    longest_seconds: float
    slow: int
    """Steps that took three times as long as the median step, or longer."""
    slow_seconds: float
    """Sum over these."""
    slow_wait_seconds: float
    """Part of `slow_seconds` in which training waited for data."""

    @property
    def is_uneven(self) -> bool:
        """Return True if slow steps take a fifth of the time or more."""
        return self.count >= FEWEST_STEPS and self.slow_seconds >= _UNEVEN * self.seconds

    @property
    def shows_slow_steps(self) -> bool:
        """Return True if the steps are even, or enough slow ones tell how often they come."""
        return not self.is_uneven or self.slow >= _SEEN_OFTEN

    @property
    def steps_to_time(self) -> int:
        """Return the steps among which enough slow ones are to be expected; 0 for even steps."""
        return round(_SEEN_OFTEN * self.count / self.slow) if self.is_uneven else 0


class StepLog:
    """Seconds of the steps of a timing.

    Its memory is taken at once, because memory that grows from block to block looks like a leak.
    """

    def __init__(self) -> None:
        self._seconds, self._waits = (array("d", bytes(8 * _MOST_STEPS)) for _ in range(2))
        self._disturbed = bytearray(_MOST_STEPS)
        self._count = self._kept = 0

    def begin(self) -> None:
        """Begin a block; the steps since the last one that was kept are dropped."""
        self._count = self._kept

    def add(self, seconds: float, waited: float) -> None:
        """Add a step of the block; a log that is full stays as it is."""
        if self._count < _MOST_STEPS:
            self._seconds[self._count], self._waits[self._count] = seconds, waited
            self._count += 1

    def keep(self, disturbed: bool) -> None:
        """Keep the steps of the block."""
        for step in range(self._kept, self._count):
            self._disturbed[step] = disturbed
        self._kept = self._count

    def times(self) -> StepTimes | None:
        """Return the distribution over undisturbed blocks, or over all if these have few steps."""
        steps = list(zip(self._seconds[: self._kept], self._waits, strict=False))
        calm = [step for step, bad in zip(steps, self._disturbed, strict=False) if not bad]
        return step_times(calm if len(calm) >= FEWEST_STEPS else steps)


def step_times(steps: Sequence[Step]) -> StepTimes | None:
    """Return the distribution of single steps; None without any."""
    if not steps:
        return None
    ordered = sorted(seconds for seconds, _ in steps)
    usual = median(ordered)
    slow = [step for step in steps if step[0] >= _SLOW * usual]
    return StepTimes(
        count=len(steps),
        seconds=sum(ordered),
        median_seconds=usual,
        p99_seconds=ordered[round(0.99 * (len(ordered) - 1))],
        longest_seconds=ordered[-1],
        slow=len(slow),
        slow_seconds=sum(seconds for seconds, _ in slow),
        slow_wait_seconds=sum(waited for _, waited in slow),
    )


def together(parts: Iterable[StepTimes | None]) -> StepTimes | None:
    """Return the distribution over several processes; None if none of them told its steps.

    Quantiles are the medians of the processes' own.
    """
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return StepTimes(
        count=sum(part.count for part in known),
        seconds=sum(part.seconds for part in known),
        median_seconds=median(part.median_seconds for part in known),
        p99_seconds=median(part.p99_seconds for part in known),
        longest_seconds=max(part.longest_seconds for part in known),
        slow=sum(part.slow for part in known),
        slow_seconds=sum(part.slow_seconds for part in known),
        slow_wait_seconds=sum(part.slow_wait_seconds for part in known),
    )


def uneven_text(steps: StepTimes | None) -> str | None:
    """Return a remark on uneven steps, with what may cause them; None if they are even."""
    if steps is None or not steps.is_uneven:
        return None
    share, of_time = steps.slow / steps.count, steps.slow_seconds / steps.seconds
    if steps.slow_wait_seconds > steps.slow_seconds / 2:
        cause = "they wait for data"
    else:
        cause = (
            "batches of other lengths or shapes, logging or checkpoints in the loop, or Python's "
            "garbage collector may cause that"
        )
    return (
        f"{100 * share:.2g} % of the steps take {100 * of_time:.0f} % of the time (median "
        f"{_time(steps.median_seconds)}, longest {_time(steps.longest_seconds)}): {cause}"
    )


def _time(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 1 else f"{1000 * seconds:.2g} ms"
