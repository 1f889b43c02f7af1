"""Timed training: warm-up, then blocks of whole steps, each with its wait for data.

The device is waited for only at the edges of blocks and epochs: waiting after every step would hide
the overlap of host and device, which is just what num_workers and pin_memory change. Clock and
synchronisation are parameters, so that tests need neither a GPU nor a sleep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, TypeVar

from autotune.intervals import median_interval, relative_half_width
from autotune.job import MeasurePlan
from autotune.measurement import QUIET, Block, Noise
from autotune.training.batches import Batches, Clock, Synchronize

Step = Callable[[Any], object]
Result = TypeVar("Result")
Course = Generator[int, None, Result]
"""Yields numbers of steps for somebody to take, and goes on when they are taken. What times a loop
of ours and what times a script's own differ in nothing else."""

# A warm-up step this many times slower than the fastest one is a stall (compilation, a search).
_STALL = 5.0
_MOST_WARMUP_STEPS = 500
# Steps of less are told apart by chance alone.
_SHORTEST_STEP = 2e-4
# With fewer steps than this per worker, a block that starts between two bursts of batches differs
# much from one that starts before them.
_STEPS_PER_WORKER = 4
# Batches on hand go up and down by as many without meaning anything.
_STOCK_NOISE = 1
# Waiting for less than this share of the time, training is not held up by the loader.
_WAITS = 0.01
_MOST_VOID_BLOCKS = 8
# A first block is replaced by a longer one if it fills less than half of its seconds.
_TOO_SHORT = 2.0
_MOST_GROWTH = 10.0
# Three blocks that are all this much slower than the best trial's need no further look.
_HOPELESS = 1.5
_FEWEST_BLOCKS = 3
# How far the whole interval must lie behind the best trial's to be given up at a look.
_CLEARLY = 1.03


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The untimed first steps."""

    step_seconds: tuple[float, ...]
    calm_seconds: float
    """A step's mean seconds since the last stall."""
    steady: bool
    """Whether it went on for as long as it should; otherwise its time was up."""


@dataclass(frozen=True)
class Timer:
    """Times steps on batches, which it takes itself unless it is asked for a course."""

    step: Step
    batches: Batches
    clock: Clock
    synchronize: Synchronize
    noise: Callable[[], Noise] = lambda: QUIET
    """What disturbed the machine since it was last asked."""
    compilations: Callable[[], int] = lambda: 0
    """How many compilations have begun or ended so far."""
    flags: set[str] = field(default_factory=set)
    """What was remarkable, see `Measurement.flags`."""

    def warm_up(self, plan: MeasurePlan) -> WarmUp:
        """`warming_up`, with the steps taken."""
        return self._take(self.warming_up(plan))

    def time_blocks(
        self, plan: MeasurePlan, step_seconds: float, batch_size: int
    ) -> tuple[Block, ...]:
        """`timing_blocks`, with the steps taken."""
        return self._take(self.timing_blocks(plan, step_seconds, batch_size))

    def _take(self, course: Course[Result]) -> Result:
        """Take the steps that a course asks for; what it returns."""
        while True:
            try:
                steps = next(course)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            for _ in range(steps):
                self.step(self.batches.next())

    def warming_up(self, plan: MeasurePlan) -> Course[WarmUp]:
        """Untimed steps, until enough in a row went by without a stall.

        A stall lets the workers fill their queue, so the count begins again with each, and includes
        what can lie ready. It is shorter where nothing lies ready any more.
        """
        seconds: list[float] = []
        calm, fastest, start = 0, math.inf, self.clock()
        while not self._is_steady(plan, calm):
            block = yield from self._time(1)
            seconds.append(block.seconds)
            busy = block.seconds - block.wait_seconds
            if busy > 0:  # else the clock jumped
                fastest = min(fastest, max(busy, _SHORTEST_STEP))
            calm = 0 if busy > _STALL * fastest else calm + 1
            if len(seconds) == 1:
                start = self.clock()
            elif self.clock() - start > plan.max_seconds or len(seconds) == _MOST_WARMUP_STEPS:
                self.flags.add("short_warm_up")
                break
        self.noise()
        tail = seconds[-calm:] if calm else seconds[-1:]
        return WarmUp(tuple(seconds), max(fmean(tail), 1e-9), "short_warm_up" not in self.flags)

    def _is_steady(self, plan: MeasurePlan, calm: int) -> bool:
        if calm < plan.warmup_steps:
            return False
        ready = self.batches.ready()
        used_up = ready is not None and ready <= _STOCK_NOISE
        return used_up or calm >= plan.warmup_steps + self.batches.queued

    def timing_blocks(
        self, plan: MeasurePlan, step_seconds: float, batch_size: int
    ) -> Course[tuple[Block, ...]]:
        """Blocks of equally many steps, until their interval is narrow or time is up.

        A disturbed block stays in the list, marked, and another one is timed in its place, for as
        long as the plan's patience lasts.
        """
        steps, first = yield from self._first_block(plan, step_seconds, batch_size)
        blocks = [first]
        start = self.clock() - first.seconds
        for look in plan.looks:
            while _counted(blocks, plan) < look:
                blocks.append((yield from self._block(steps, batch_size)))
                if self._is_hopeless(plan, blocks):
                    return tuple(blocks)
            late = self.clock() - start > plan.max_seconds
            if late or self._is_beaten(plan, blocks) or _is_narrow(plan, blocks):
                break
        return tuple(blocks)

    def _first_block(
        self, plan: MeasurePlan, step_seconds: float, batch_size: int
    ) -> Course[tuple[int, Block]]:
        """How many steps a block has, and the first one.

        The warm-up's last steps may have been quicker than those that come when the stock is gone,
        so a block that turns out much too short makes way for a longer one.
        """
        steps = self._steps(plan, step_seconds)
        block = yield from self._block(steps, batch_size)
        while (missing := plan.block_seconds / block.seconds) > _TOO_SHORT:
            steps = math.ceil(min(missing, _MOST_GROWTH) * steps)
            block = yield from self._block(steps, batch_size)
        return steps, block

    def _steps(self, plan: MeasurePlan, step_seconds: float) -> int:
        steps = max(1, math.ceil(plan.block_seconds / step_seconds))
        workers = self.batches.workers
        if steps < _STEPS_PER_WORKER * workers:
            steps = math.ceil(steps / workers) * workers
        return steps

    def _is_hopeless(self, plan: MeasurePlan, blocks: Sequence[Block]) -> bool:
        """Whether even the first blocks say that the trial cannot reach the best one."""
        if plan.incumbent_seconds_per_sample is None or len(blocks) != _FEWEST_BLOCKS:
            return False
        bound = _HOPELESS * plan.incumbent_seconds_per_sample
        beaten = all(b.seconds_per_sample > bound and not b.is_disturbed for b in blocks)
        if beaten:
            self.flags.add("raced")
        return beaten

    def _is_beaten(self, plan: MeasurePlan, blocks: Sequence[Block]) -> bool:
        """Whether the optimistic end of the interval is clearly slower than the best trial."""
        if plan.incumbent_seconds_per_sample is None:
            return False
        if sum(not block.is_disturbed for block in blocks) < plan.looks[0]:
            return False
        optimistic, _ = median_interval(_telling(blocks))
        beaten = optimistic > _CLEARLY * plan.incumbent_seconds_per_sample
        if beaten:
            self.flags.add("raced")
        return beaten

    def _block(self, steps: int, batch_size: int) -> Course[Block]:
        """One block during which nothing was compiled; such a block is void."""
        for _ in range(_MOST_VOID_BLOCKS):
            compilations, ready = self.compilations(), self.batches.ready()
            block = yield from self._time(steps)
            left, noise = self.batches.ready(), self.noise()
            compiled = self.compilations() != compilations
            if not compiled and block.seconds > 0:
                break
            self.flags.add("recompiled" if compiled else "clock")
        else:
            self.flags.add("unsteady")  # again and again
        return replace(
            block,
            seconds=max(block.seconds, 1e-9),
            samples=steps * batch_size,
            stock_samples=_from_stock(block, ready, left, self.batches.workers) * batch_size,
            noise=noise,
        )

    def _time(self, steps: int) -> Course[Block]:
        """A block whose samples are its steps."""
        boundaries, wait = len(self.batches.boundary_seconds), self.batches.wait_seconds
        self.synchronize()
        start = self.clock()
        yield steps
        self.synchronize()
        passed = self.batches.boundary_seconds[boundaries:]
        seconds = self.clock() - start - sum(passed)
        waited = self.batches.wait_seconds - wait
        return Block(seconds, steps, waited, has_boundary=bool(passed))


def _from_stock(block: Block, ready: int | None, left: int | None, workers: int) -> int:
    """Batches that training took and that nobody loaded meanwhile.

    Known only where loading went on all the time. Where training waits, workers deliver in bursts,
    and a block that ends before one has loaded more than it took: fewer than none came from stock.
    """
    if ready is None or left is None or block.has_boundary:
        return 0
    drop = ready - left
    waited = block.wait_seconds > _WAITS * block.seconds
    if drop < -workers:
        return 0  # the queue fills again, which is no loading that training could have used
    return min(drop, block.samples - 1) if waited or drop > _STOCK_NOISE else 0


def _counted(blocks: Sequence[Block], plan: MeasurePlan) -> int:
    """Blocks that count towards a look: disturbed ones only once patience has run out."""
    disturbed = sum(block.is_disturbed for block in blocks)
    return len(blocks) - min(disturbed, plan.most_disturbed)


def _telling(blocks: Sequence[Block]) -> list[float]:
    """Seconds per sample of the undisturbed blocks, or of all where there is none."""
    calm = [block.seconds_per_sample for block in blocks if not block.is_disturbed]
    return calm or [block.seconds_per_sample for block in blocks]


def _is_narrow(plan: MeasurePlan, blocks: Sequence[Block]) -> bool:
    return relative_half_width(_telling(blocks)) <= plan.precision
