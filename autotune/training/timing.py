"""Timed training: warm-up, then blocks of whole steps, each with its wait for data.

The device is waited for only at the edges of blocks and epochs: waiting after every step would hide
the overlap of host and device, which is just what num_workers and pin_memory change. Clock and
synchronisation are parameters, so that tests need neither a GPU nor a sleep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from autotune.intervals import relative_half_width
from autotune.job import MeasurePlan
from autotune.measurement import Block

Clock = Callable[[], float]
Synchronize = Callable[[], None]
Step = Callable[[Any], object]

# A warm-up step this many times slower than the fastest one is a stall (compilation, a search).
_STALL = 5.0
_MOST_WARMUP_STEPS = 500


class EmptyEpochError(Exception):
    """An epoch without a single full batch."""


class Batches:
    """Batches without end: one epoch after the other, with the cost of each boundary noted."""

    def __init__(self, loader: Iterable[Any], clock: Clock, synchronize: Synchronize) -> None:
        self._loader = loader
        self._clock = clock
        self._synchronize = synchronize
        self._iterator: Iterator[Any] = iter(loader)
        self._batches_in_epoch = 0
        self.epoch_batches: int | None = None
        """Batches in the last epoch that ended; None before one did."""
        self.boundary_seconds: list[float] = []
        self.wait_seconds = 0.0
        """Time spent waiting for batches so far, boundaries excluded."""

    def next(self) -> Any:
        """The next batch.

        Raises:
            EmptyEpochError: the loader gives no batch at all.
        """
        start = self._clock()
        try:
            batch = next(self._iterator)
        except StopIteration:
            # Ending an epoch stops the workers where they do not persist.
            return self._next_epoch(closing_seconds=self._clock() - start)
        self.wait_seconds += self._clock() - start
        self._batches_in_epoch += 1
        return batch

    def _next_epoch(self, closing_seconds: float) -> Any:
        self.epoch_batches, self._batches_in_epoch = self._batches_in_epoch, 1
        self._synchronize()
        start = self._clock()
        self._iterator = iter(self._loader)
        try:
            batch = next(self._iterator)
        except StopIteration:
            raise EmptyEpochError("the DataLoader gives no full batch") from None
        self.boundary_seconds.append(closing_seconds + self._clock() - start)
        return batch


@dataclass(frozen=True)
class Timer:
    """Runs steps on batches and times them."""

    step: Step
    batches: Batches
    clock: Clock
    synchronize: Synchronize

    def warm_up(self, plan: MeasurePlan, queued_batches: int) -> tuple[float, ...]:
        """Seconds of each untimed step.

        Goes on until enough steps in a row went by without a stall: a slow step lets the loader's
        workers fill their queue, and batches from that stock would make any loader look fast.
        """
        needed = plan.warmup_steps + queued_batches
        seconds: list[float] = []
        calm, start = 0, self.clock()
        while calm < needed and len(seconds) < _MOST_WARMUP_STEPS:
            seconds.append(self._time(1).seconds)
            calm = 0 if seconds[-1] > _STALL * min(seconds) else calm + 1
            if len(seconds) == 1:
                start = self.clock()
            elif self.clock() - start > plan.max_seconds:
                break
        return tuple(seconds)

    def time_blocks(
        self, plan: MeasurePlan, step_seconds: float, batch_size: int
    ) -> tuple[Block, ...]:
        """Blocks of equally many steps, until their interval is narrow or time is up."""
        steps = max(1, math.ceil(plan.block_seconds / step_seconds))
        blocks: list[Block] = []
        start = self.clock()
        for look in plan.looks:
            while len(blocks) < look:
                timed = self._time(steps)
                blocks.append(Block(timed.seconds, steps * batch_size, timed.wait_seconds))
            narrow = relative_half_width([block.seconds for block in blocks]) <= plan.precision
            if narrow or self.clock() - start > plan.max_seconds:
                break
        return tuple(blocks)

    def _time(self, steps: int) -> Block:
        boundaries, wait = len(self.batches.boundary_seconds), self.batches.wait_seconds
        self.synchronize()
        start = self.clock()
        for _ in range(steps):
            self.step(self.batches.next())
        self.synchronize()
        seconds = self.clock() - start - sum(self.batches.boundary_seconds[boundaries:])
        return Block(seconds, steps, self.batches.wait_seconds - wait)


def steady_step_seconds(warmup_step_seconds: tuple[float, ...]) -> float:
    """What a step takes once it is warm: the median of the later half of the warm-up."""
    return max(median(warmup_step_seconds[len(warmup_step_seconds) // 2 :]), 1e-9)
