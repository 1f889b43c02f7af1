"""Timed training: warm-up, then blocks of whole steps, each with its wait for data.

A training is measured alike whoever owns its loop: a model.py's, which is ours, or a script's.

The device is synchronised only at the edges of blocks and epochs. Waiting after every step would
hide the overlap of host and device, which num_workers and pin_memory are meant to improve. Clock
and synchronisation are those of the batches, so that tests need neither a GPU nor a sleep.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TypeVar

import torch

from autotune.configuration.job import MeasurePlan
from autotune.knobs.torch_private import on_compilation
from autotune.process.common.trial_folder import TrialFolder
from autotune.training import disturbance, memory
from autotune.training.batches import Batches, boundaries
from autotune.training.ranks import ALONE, Lap, World, slowest
from autotune.values import measurement
from autotune.values.outcome import Failure
from autotune.values.statistics import Part, ratio_interval, ratio_of

Result = TypeVar("Result")
StepRequests = Generator[int, None, Result]
"""Generator that yields numbers of training steps to take, resumes when they are taken, and returns
its result. `drive` takes the steps of a model.py; a script's own loop takes a script's."""

# A warm-up step this many times slower than the fastest one is a stall (compilation, a search).
_STALL = 5.0
_MOST_WARMUP_STEPS = 500
# Seconds; shorter steps differ only by chance.
_SHORTEST_STEP = 2e-4
# Below this many steps per worker a block gets a multiple of the workers as steps, since workers
# deliver batches in bursts: else a block's time depends on how many bursts it contains.
_STEPS_PER_WORKER = 4
# Batches by which the stock varies by chance.
_STOCK_NOISE = 1
# Share of the time; if training waits less than this, the loader keeps up with it.
_WAITS = 0.01
_MOST_VOID_BLOCKS = 8
# A first block is replaced by a longer one if it takes less than half of the planned seconds.
_TOO_SHORT = 2.0
_MOST_GROWTH = 10.0
# A trial is stopped early if its first three blocks are all this many times slower than the
# incumbent.
_HOPELESS = 1.5
_FEWEST_BLOCKS = 3
# Slow steps end their timing once it takes this many times as long as planned.
_OVERDUE = 2.0
# Rare slow steps may take a timing this many times as long as planned, until enough were seen. So
# may the samples of another timing.
_AT_MOST = 4.0
# At a check, a trial is stopped early if its whole interval is this many times slower than the
# incumbent.
_CLEARLY = 1.03


def drive(requests: StepRequests[Result], step: Callable[[], object]) -> Result:
    """Take the steps that a generator asks for, and return its result."""
    while True:
        try:
            steps = next(requests)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        for _ in range(steps):
            step()


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The untimed first steps."""

    step_seconds: tuple[float, ...]
    calm_seconds: float
    """Mean seconds of a step since the last stall."""
    samples: int
    """Samples of these steps."""


@dataclass(frozen=True)
class Timer:
    """A timer of training steps that other code takes.

    `step_samples` of its methods are the samples of a step in each process.
    """

    batches: Batches
    noise: Callable[[], measurement.Noise] = lambda: measurement.QUIET
    """Function that returns the noise on the machine since its last call."""
    compilations: Callable[[], int] = lambda: 0
    """Function that returns the number of compilations begun plus those ended so far."""
    flags: set[str] = field(default_factory=set)
    """Remarks on the timing so far, see `Measurement.flags`."""
    world: World = ALONE
    """The processes that take the steps together; rank 0 decides for all."""
    sees_steps: bool = False
    """True if the clock shows when each step has ended, as on a CPU; else only blocks are timed."""
    log: measurement.StepLog = field(default_factory=measurement.StepLog)
    """Single steps of the blocks so far."""

    def together(self, requests: StepRequests[Result]) -> StepRequests[Result]:
        """Ask for the steps that rank 0's generator asks for, and return its result in each rank.

        `requests` is `warming_up` or `timing_blocks`; ranks other than rank 0 do not run theirs.
        """
        if self.world.rank == 0:
            result = yield from requests
            self.world.begins(0)
            return self.world.told(result)
        while steps := self.world.begins():
            lap = yield from self.lap(steps)
            noise = self.noise()
            self.world.shares(replace(lap, stopped=noise.stopped, gpu=noise.gpu))
        return self.world.told(None)  # type: ignore[return-value]

    def warming_up(self, plan: MeasurePlan, step_samples: float = 1) -> StepRequests[WarmUp]:
        """Ask for untimed steps until enough in a row went by without a stall.

        Workers fill their queue during a stall. So each stall restarts the count, and the steps
        have to use up a full queue as well. Fewer do once no batch is ready any more. Then steps
        follow up to `MeasurePlan.warmup_samples`.
        """
        seconds: list[float] = []
        busy: list[float] = []
        clock, calm = self.batches.clock, 0
        start = clock()
        while not self._is_steady(plan, calm):
            lap = yield from self._time(1)
            seconds.append(lap.seconds)
            busy.append(max(lap.seconds - lap.wait_seconds, 0.0))
            calm = _calm_steps(busy)
            if len(seconds) == 1:
                start = clock()
            elif clock() - start > plan.max_seconds or len(seconds) == _MOST_WARMUP_STEPS:
                self.flags.add("short_warm_up")
                break
        tail = seconds[-calm:] if calm else seconds[-1:]
        calm_seconds, each = max(fmean(tail), 1e-9), step_samples * self.world.size
        missing = math.ceil((plan.warmup_samples - len(seconds) * each) / each)
        if (more := min(missing, int(plan.max_seconds / calm_seconds))) > 0:
            lap = yield from self._time(more)
            seconds += [lap.seconds / more] * more
        self.noise()
        return WarmUp(tuple(seconds), calm_seconds, round(len(seconds) * each))

    def _is_steady(self, plan: MeasurePlan, calm: int) -> bool:
        if calm < plan.warmup_steps:
            return False
        ready = self.batches.ready()
        used_up = ready is not None and ready <= _STOCK_NOISE
        return used_up or calm >= plan.warmup_steps + self.batches.queued

    def timing_blocks(
        self, plan: MeasurePlan, step_seconds: float, step_samples: float
    ) -> StepRequests[tuple[measurement.Block, ...]]:
        """Ask for blocks of equally many steps until the interval of the mean is narrow enough.

        They end earlier if time is up or the trial is clearly slower than the incumbent. Disturbed
        blocks stay in the list; up to `MeasurePlan.most_disturbed` of them are timed again. Where
        steps are slow, as many steps are enough as the first check has blocks. Where a few steps
        take much of the time, there is more of it, until enough of these were seen.
        """
        steps, first = yield from self._first_block(plan, step_seconds, step_samples)
        blocks = [first]
        clock = self.batches.clock
        start = clock() - first.seconds
        for count in plan.block_counts:
            while _counted(blocks, plan) < count:
                passed = clock() - start
                slack = 1 if plan.block_samples is not None else _OVERDUE
                is_overdue = self._is_late(plan, blocks, passed / slack)
                if is_overdue and _tell_enough(blocks, steps, plan):
                    break
                blocks.append((yield from self._block(steps, step_samples)))
                if self._is_hopeless(plan, blocks):
                    return tuple(blocks)
            seen = self._step_times(blocks)
            if plan.least_samples or (seen is not None and seen.is_uneven):
                self.flags.add(measurement.UNEVEN)
            late = self._is_late(plan, blocks, clock() - start)
            if late or self._is_beaten(plan, blocks) or self._is_narrow(plan, blocks):
                break
        while not _saw_least(plan, blocks):
            if self._is_late(plan, blocks, clock() - start):
                break
            blocks.append((yield from self._block(steps, step_samples)))
        return tuple(blocks)

    def _is_late(
        self, plan: MeasurePlan, blocks: Sequence[measurement.Block], passed: float
    ) -> bool:
        """Return whether a timing that took `passed` seconds has no more time."""
        if plan.block_samples is not None:
            return passed > _AT_MOST * plan.max_seconds
        if passed <= plan.max_seconds or passed > _AT_MOST * plan.max_seconds:
            return passed > plan.max_seconds
        seen = self._step_times(blocks)
        return _saw_least(plan, blocks) and (seen is None or seen.shows_slow_steps)

    def _step_times(self, blocks: Sequence[measurement.Block]) -> measurement.StepTimes | None:
        """Return the seconds of single steps; where these are not known, of the blocks."""
        return self.log.times() or measurement.step_times(
            [(b.seconds, b.wait_seconds) for b in blocks]
        )

    def _first_block(
        self, plan: MeasurePlan, step_seconds: float, step_samples: float
    ) -> StepRequests[tuple[int, measurement.Block]]:
        """Find the number of steps of a block; return it with the first block.

        A first block that is much too short is replaced by a longer one: the warm-up's last steps
        may have been slower than the block's.
        """
        steps = self._steps(plan, step_seconds, step_samples)
        block = yield from self._block(steps, step_samples)
        if plan.block_samples is not None:
            return steps, block
        while (missing := plan.block_seconds / block.seconds) > _TOO_SHORT:
            steps = math.ceil(min(missing, _MOST_GROWTH) * steps)
            block = yield from self._block(steps, step_samples)
        return steps, block

    def _steps(self, plan: MeasurePlan, step_seconds: float, step_samples: float) -> int:
        if plan.block_samples is None:
            steps = max(1, math.ceil(plan.block_seconds / step_seconds))
        else:
            steps = max(1, round(plan.block_samples / (step_samples * self.world.size)))
        workers, each = self.batches.workers, self.batches.accumulation_steps
        if steps * each < _STEPS_PER_WORKER * workers:
            multiple = math.lcm(workers, each) // each
            steps = math.ceil(steps / multiple) * multiple
        return steps

    def _is_hopeless(self, plan: MeasurePlan, blocks: Sequence[measurement.Block]) -> bool:
        """Return True if even the first blocks are far slower than the incumbent."""
        calm = [block.seconds_per_sample for block in blocks if not block.is_disturbed]
        return len(blocks) == len(calm) == _FEWEST_BLOCKS and self._is_slower(
            plan, blocks, min(calm) / _HOPELESS
        )

    def _is_beaten(self, plan: MeasurePlan, blocks: Sequence[measurement.Block]) -> bool:
        """Return True if the faster end of the interval is clearly slower than the incumbent."""
        is_told = sum(not block.is_disturbed for block in blocks) >= plan.block_counts[0]
        optimistic, _ = ratio_interval(self._telling(blocks))
        return is_told and self._is_slower(plan, blocks, optimistic / _CLEARLY)

    def _is_slower(
        self, plan: MeasurePlan, blocks: Sequence[measurement.Block], seconds: float
    ) -> bool:
        """Return True, and flag it, if the seconds of a sample are more than the incumbent's."""
        incumbent = plan.incumbent_seconds_per_sample
        if incumbent is None or seconds <= incumbent or not _saw_least(plan, blocks):
            return False
        self.flags.add(measurement.STOPPED_EARLY)
        return True

    def _telling(self, blocks: Sequence[measurement.Block]) -> list[Part]:
        """Return the seconds and samples of the blocks that count."""
        counted = measurement.telling_blocks(tuple(blocks), self.flags)
        return [(block.seconds, block.counted_samples) for block in counted]

    def _is_narrow(self, plan: MeasurePlan, blocks: Sequence[measurement.Block]) -> bool:
        parts = self._telling(blocks)
        low, high = ratio_interval(parts)
        return high - low <= 2 * plan.precision * ratio_of(parts)

    def _block(self, steps: int, step_samples: float) -> StepRequests[measurement.Block]:
        """Time a block; one in which something was compiled or the clock jumped is repeated."""
        for _ in range(_MOST_VOID_BLOCKS):
            lap = yield from self._time(steps)
            noise = self.noise()
            if not lap.compilations and lap.seconds > 0:
                break
            self.flags.add("recompiled" if lap.compilations else "clock")
        else:
            self.flags.add(measurement.UNSTEADY)  # every repetition was void, too
        samples = max(1, round(lap.steps * step_samples))
        block = measurement.Block(
            seconds=max(lap.seconds, 1e-9),
            samples=samples,
            wait_seconds=lap.wait_seconds,
            stock_samples=min(samples - 1, round(lap.stock * step_samples)),
            has_boundary=lap.has_boundary,
            noise=replace(
                noise,
                stopped=noise.stopped + lap.stopped,
                gpu=", ".join(filter(None, (noise.gpu, lap.gpu))),
            ),
        )
        if not block.noise.stopped:
            self.log.keep(block.is_disturbed)
        return block

    def _time(self, steps: int) -> StepRequests[Lap]:
        """Time consecutive steps; all processes begin together, and the slowest one's time counts.

        Telling the others and meeting them is outside of the timed part.
        """
        self.world.begins(steps)
        lap = yield from self.lap(steps)
        return slowest(self.world.shares(lap))

    def lap(self, steps: int) -> StepRequests[Lap]:
        """Time consecutive steps of this process."""
        batches, clock = self.batches, self.batches.clock
        boundaries, wait = len(batches.boundary_seconds), batches.wait_seconds
        compilations, ready = self.compilations(), batches.ready()
        self.log.begin()
        batches.synchronize()
        start = clock()
        if self.sees_steps:
            yield from self._single_steps(steps)
        else:
            yield steps
        launched = clock() - start
        batches.synchronize()
        passed, ended = batches.boundary_seconds[boundaries:], clock()
        seconds = ended - start - sum(passed)
        if not self.sees_steps and steps == 1:
            self.log.add(seconds, batches.wait_seconds - wait)
        lap = Lap(
            seconds=seconds,
            steps=steps,
            launched_seconds=launched,
            ended=ended,
            wait_seconds=batches.wait_seconds - wait,
            boundary_seconds=sum(passed),
            has_boundary=bool(passed),
            compilations=self.compilations() - compilations,
        )
        return replace(lap, stock=self._from_stock(lap, ready, batches.ready()))

    def _from_stock(self, lap: Lap, ready: int | None, left: int | None) -> float:
        """Return the steps on batches from the stock beyond those loaded meanwhile.

        0 if the stock is unknown or an epoch ended in the lap. Workers deliver in bursts while
        training waits: a lap that ends before one has loaded more than it took, which is below 0.
        """
        if ready is None or left is None or lap.has_boundary:
            return 0
        drop, each = ready - left, self.batches.accumulation_steps
        waited = lap.wait_seconds > _WAITS * lap.seconds
        if drop < -self.batches.workers:
            return 0  # the queue fills up again; training could not have used these batches
        return min(drop, lap.steps * each - 1) / each if waited or drop > _STOCK_NOISE else 0

    def _single_steps(self, steps: int) -> StepRequests[None]:
        """Ask for steps one by one, and record the seconds of each without epoch boundaries."""
        batches, then = self.batches, self.batches.clock()
        for _ in range(steps):
            boundaries, wait = len(batches.boundary_seconds), batches.wait_seconds
            yield 1
            now = batches.clock()
            passed = sum(batches.boundary_seconds[boundaries:])
            self.log.add(now - then - passed, batches.wait_seconds - wait)
            then = now


class CompileClock:
    """A counter of the seconds between the start and end events of torch.compile's compilations.

    It counts those of the user's own code, too, and costs nothing where nothing is compiled.
    """

    def __init__(self) -> None:
        self.events = 0
        """Number of compilations started plus those ended so far."""
        self.seconds = 0.0
        on_compilation(
            start=lambda: self._note(-time.perf_counter()),
            end=lambda: self._note(time.perf_counter()),
        )

    def _note(self, signed_now: float) -> None:
        self.events += 1
        self.seconds += signed_now


def synchronize(device: torch.device) -> None:
    """Wait until an accelerator has done its work; returns at once on a CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def timer_on(batches: Batches, device: torch.device, world: World) -> Timer:
    """Return a timer of steps on the batches that watches for disturbances."""
    return Timer(
        batches,
        noise=disturbance.watch(device, time.perf_counter, world.launcher),
        world=world,
        sees_steps=device.type == "cpu",
    )


@dataclass(frozen=True)
class TimedTraining:
    """One training that is to be timed."""

    batches: Batches
    device: torch.device
    world: World
    folder: TrialFolder
    compiler: CompileClock
    fault: Callable[[], Failure | None]
    """Function that returns why a timing does not count for the settings; None if it does."""
    take_worst: Callable[[], measurement.LengthCount | None] = lambda: None
    """Function that takes a step on the longest samples, if it can, and returns among how many."""

    def measuring(self, plan: MeasurePlan) -> StepRequests[measurement.Measurement | Failure]:
        """Ask for steps to warm up and to time, and return what was measured.

        Seconds of starting and building are not known here.
        """
        batches, world, peak = self.batches, self.world, memory.PeakWatch(self.device)
        timer = timer_on(batches, self.device, world)
        watch = timer.noise

        def noise() -> measurement.Noise:
            peak.look()  # before the watch, so that it is no noise of the next block
            return replace(watch(), memory_bytes=peak.in_use)

        timer = replace(timer, noise=noise, compilations=lambda: self.compiler.events)
        self.folder.enter_phase("warm-up")
        each = self._step_samples()
        warm_up = yield from timer.together(timer.warming_up(plan, each))
        if (fault := self.fault()) is not None:
            return fault
        self.folder.enter_phase("measure")
        each = self._step_samples()
        peak.begin_blocks()
        timing = timer.timing_blocks(plan, warm_up.calm_seconds, each)
        blocks = yield from timer.together(timing)
        if (fault := self.fault()) is not None:
            return fault
        blocks = _of_samples(blocks, self._step_samples() / each)
        return self._measurement(timer, warm_up, blocks, peak)

    def _measurement(
        self,
        timer: Timer,
        warm_up: WarmUp,
        blocks: tuple[measurement.Block, ...],
        peak: memory.PeakWatch,
    ) -> measurement.Measurement:
        """Return what was measured, after a step on the longest samples."""
        batches, world = self.batches, self.world
        retries, epochs = peak.retries, world.shares(batches.epoch_samples)
        longest_among = self.take_worst()
        peak.look()
        between = boundaries(batches, measurement.seconds_per_sample(blocks) * world.size)
        epoch_samples = None if None in epochs else sum(filter(None, epochs))
        if batches.workers and epoch_samples is None:
            timer.flags.add(measurement.NO_BOUNDARY)
        return measurement.Measurement(
            blocks=blocks,
            boundary_seconds=tuple(map(max, zip(*world.shares(between), strict=False))),
            epoch_samples=epoch_samples,
            warmup_step_seconds=warm_up.step_seconds,
            steady_step_seconds=warm_up.calm_seconds,
            warmup_samples=warm_up.samples,
            steps=timer.log.times(),
            compile_seconds=self.compiler.seconds,
            start_seconds=0.0,
            build_seconds=0.0,
            peak_memory_bytes=memory.peak_of_all(world, self.device, peak.bytes),
            device_memory=memory.device_memory(self.device),
            longest_among=longest_among,
            allocator_retries=max(world.shares(retries)),
            flags=tuple(sorted(timer.flags)),
        )

    def _step_samples(self) -> float:
        """Return the samples of an optimizer step in each process, their mean over all."""
        return fmean(self.world.shares(self.batches.samples_per_step)) or 1.0


def _of_samples(
    blocks: tuple[measurement.Block, ...], more: float
) -> tuple[measurement.Block, ...]:
    """Return blocks whose steps had `more` times as many samples as was known before."""
    counts = [max(1, round(more * block.samples)) for block in blocks]
    return tuple(
        replace(block, samples=n, stock_samples=min(n - 1, round(more * block.stock_samples)))
        for block, n in zip(blocks, counts, strict=True)
    )


def _calm_steps(busy: Sequence[float]) -> int:
    """Return the number of steps since the last stall, given the seconds of each one's own work.

    The first step, too, may be a stall. If steps took no time, the clock jumped.
    """
    fastest = max(min((each for each in busy if each > 0), default=math.inf), _SHORTEST_STEP)
    return next(
        (count for count, each in enumerate(reversed(busy)) if each > _STALL * fastest), len(busy)
    )


def _counted(blocks: Sequence[measurement.Block], plan: MeasurePlan) -> int:
    """Return the blocks that count towards a check; the first disturbed ones do not."""
    disturbed = sum(block.is_disturbed for block in blocks)
    return len(blocks) - min(disturbed, plan.most_disturbed)


def _tell_enough(blocks: Sequence[measurement.Block], steps: int, plan: MeasurePlan) -> bool:
    """Return True if blocks of so many slow steps are enough, or too many of them disturbed."""
    calm = sum(not block.is_disturbed for block in blocks)
    has_enough = calm >= _FEWEST_BLOCKS or len(blocks) >= 2 * _FEWEST_BLOCKS
    return has_enough and steps * len(blocks) >= plan.block_counts[0]


def _saw_least(plan: MeasurePlan, blocks: Sequence[measurement.Block]) -> bool:
    """Return True if the undisturbed blocks have the least number of samples."""
    calm = (block.samples for block in blocks if not block.is_disturbed)
    return sum(calm) >= plan.least_samples
