"""Measure one training, whoever owns its loop: a model.py's, which is ours, or a script's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

import torch

from autotune.configuration.job import MeasurePlan
from autotune.process.common.trial_folder import TrialFolder
from autotune.training import disturbance, memory
from autotune.training.batches import Batches, Clock, boundaries
from autotune.training.ranks.world import World
from autotune.training.timing import CompileClock, StepRequests, Timer, WarmUp, synchronize
from autotune.values.measurement import (
    NO_BOUNDARY,
    Block,
    LengthCount,
    Measurement,
    Noise,
    seconds_per_sample,
)
from autotune.values.outcome import Failure


def timer_on(batches: Batches, device: torch.device, world: World) -> Timer:
    """Return a timer of steps on the batches that watches for disturbances."""
    return Timer(
        batches,
        time.perf_counter,
        lambda: synchronize(device),
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
    clock: Clock = time.perf_counter
    """Seconds, which may stand still while a script does not train."""
    take_worst: Callable[[], LengthCount | None] = lambda: None
    """Function that takes a step on the longest samples, if it can, and returns among how many."""

    def measuring(self, plan: MeasurePlan) -> StepRequests[Measurement | Failure]:
        """Ask for steps to warm up and to time, and return what was measured.

        Seconds of starting and building are not known here.
        """
        batches, world, peak = self.batches, self.world, memory.PeakWatch(self.device)
        timer = timer_on(batches, self.device, world)
        watch = timer.noise

        def noise() -> Noise:
            peak.look()  # before the watch, so that it is no noise of the next block
            return replace(watch(), memory_bytes=peak.in_use)

        timer = replace(
            timer, clock=self.clock, noise=noise, compilations=lambda: self.compiler.events
        )
        self.folder.enter_phase("warm-up")
        each = self._step_samples()
        warm_up = yield from timer.together(timer.warming_up(plan, each))
        if (fault := self.fault()) is not None:
            return fault
        self.folder.enter_phase("measure")
        each = self._step_samples()
        peak.begin_blocks()
        batches.count_anew()
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
        blocks: tuple[Block, ...],
        peak: memory.PeakWatch,
    ) -> Measurement:
        """Return what was measured, after a step on the longest samples."""
        batches, world = self.batches, self.world
        retries, epochs = peak.retries, world.shares(batches.epoch_samples)
        longest_among = self.take_worst()
        peak.look()
        between = boundaries(batches, seconds_per_sample(blocks) * world.size)
        epoch_samples = None if None in epochs else sum(filter(None, epochs))
        if batches.workers and epoch_samples is None:
            timer.flags.add(NO_BOUNDARY)
        return Measurement(
            blocks=blocks,
            boundary_seconds=world.slowest(between),
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


def _of_samples(blocks: tuple[Block, ...], more: float) -> tuple[Block, ...]:
    """Return blocks whose steps had `more` times as many samples as was known before."""
    counts = [max(1, round(more * block.samples)) for block in blocks]
    return tuple(
        replace(block, samples=n, stock_samples=min(n - 1, round(more * block.stock_samples)))
        for block, n in zip(blocks, counts, strict=True)
    )
