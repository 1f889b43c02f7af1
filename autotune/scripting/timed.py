"""Time a script's training with the timer of a model.py; the script's own loop takes the steps."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Subset

from autotune.configuration.job import MeasurePlan
from autotune.knobs.base import spelled
from autotune.process.common.trial_folder import TrialFolder
from autotune.scripting.batch_stream import BatchStream
from autotune.scripting.interpose import Interposition
from autotune.training import disturbance, memory
from autotune.training.batches import first_samples, has_long_epochs, length_of, probe_boundary
from autotune.training.ranks.world import World
from autotune.training.timing import CompileClock, StepRequests, Timer, WarmUp, synchronize
from autotune.values.measurement import Block, Measurement, RankShare, seconds_per_sample
from autotune.values.outcome import Failure, Measured, NonFinite, NotApplied, TrialOutcome


@dataclass(frozen=True)
class Stopwatch:
    """A stopwatch for the training of one script."""

    interposition: Interposition
    stream: BatchStream
    compiler: CompileClock
    folder: TrialFolder
    start_seconds: float
    """Seconds from process start until the script imported torch."""
    begun: float
    """Monotonic clock at that moment."""

    def timing(self, plan: MeasurePlan, world: World) -> StepRequests[TrialOutcome]:
        """Warm up, time blocks, and return the measurement or the fault that was found."""
        build_seconds = max(0.0, time.monotonic() - self.begun - self.compiler.seconds)
        peak = memory.PeakWatch(self.interposition.observed.device)
        timer = self._timer(peak, world)
        self.folder.enter_phase("warm-up")
        warming = timer.warming_up(plan.in_steps(self._samples_per_step(world)))
        warm_up = yield from timer.together(warming)
        blocks: tuple[Block, ...] = ()
        fault = self._fault()
        if fault is None:
            self.folder.enter_phase("measure")
            plan = plan.in_steps(self._samples_per_step(world))
            peak.begin_blocks()
            self.stream.count_anew()
            waited = self.stream.wait_seconds
            timing = timer.timing_blocks(plan, warm_up.calm_seconds, 1)
            blocks = yield from timer.together(timing)
            waited = self.stream.wait_seconds - waited
            fault = self._fault()
        if fault is not None:
            return fault
        measured = self._measurement(timer, warm_up, blocks, peak)
        shares = () if world.is_alone else tuple(world.shares(RankShare(waited, peak.bytes)))
        return Measured(replace(measured, build_seconds=build_seconds, ranks=shares))

    def _measurement(
        self,
        timer: Timer,
        warm_up: WarmUp,
        blocks: tuple[Block, ...],
        peak: memory.PeakWatch,
    ) -> Measurement:
        device, world = self.interposition.observed.device, timer.world
        each = self._samples_per_step(world)
        # They were timed in steps.
        samples = [max(1, round(each * block.samples)) for block in blocks]
        blocks = tuple(
            replace(block, samples=n, stock_samples=min(n - 1, round(each * block.stock_samples)))
            for block, n in zip(blocks, samples, strict=True)
        )
        epochs = world.shares(self.stream.epoch_samples)
        pace = seconds_per_sample(blocks) * world.size
        return Measurement(
            blocks=blocks,
            boundary_seconds=world.slowest(self._boundaries(pace)),
            epoch_samples=None if None in epochs else sum(filter(None, epochs)),
            warmup_step_seconds=warm_up.step_seconds,
            steady_step_seconds=warm_up.calm_seconds,
            warmup_samples=round(warm_up.samples * each),
            steps=timer.log.times(),
            compile_seconds=self.compiler.seconds,
            start_seconds=self.start_seconds,
            build_seconds=0.0,
            peak_memory_bytes=memory.peak_of_all(world, device, peak.bytes),
            device_memory=memory.device_memory(device),
            allocator_retries=max(world.shares(peak.retries)),
            flags=tuple(sorted(timer.flags)),
        )

    def _timer(self, peak: memory.PeakWatch, world: World) -> Timer:
        device = self.interposition.observed.device
        return Timer(
            step=lambda _: None,
            batches=self.stream,
            clock=self.stream.clock,
            synchronize=lambda: synchronize(device),
            noise=memory.between_blocks(
                disturbance.watch(device, time.perf_counter, world.launcher), peak
            ),
            compilations=lambda: self.compiler.events,
            world=world,
            sees_steps=device.type == "cpu",
        )

    def _samples_per_step(self, world: World) -> float:
        """Return the samples of an optimizer step in each process, their mean over all."""
        return fmean(world.shares(self.stream.samples_per_step)) or 1.0

    def _boundaries(self, seconds_per_sample: float) -> tuple[float, ...]:
        """Return the boundaries that were timed, or measure one if no epoch ended.

        `seconds_per_sample` are those of this process.
        """
        observed, loader = tuple(self.stream.boundary_seconds), self.stream.loader
        if observed or loader is None or not (self.stream.is_fed and loader.num_workers):
            return observed
        epoch = self.stream.epoch_samples
        if epoch is None or has_long_epochs(epoch * seconds_per_sample):
            return ()
        self.stream.close()
        return _probed_boundary(loader)

    def _fault(self) -> Failure | None:
        """Return a setting that is not in force or a parameter that is not finite; None if fine."""
        self.interposition.observed.batches_per_step = self.stream.accumulation_steps
        if not self.stream.is_fed:
            self.interposition.observed.batch_size = self.stream.calls.size
        overridden = self.interposition.overridden()
        for name, reason in self.interposition.failed.items():
            return NotApplied(name, spelled(self.interposition.config[name]), reason)
        for name, (wanted, found) in overridden.items():
            return NotApplied(name, spelled(wanted), spelled(found))
        parameters = self.interposition.observed.parameters
        if not all(bool(torch.isfinite(p).all()) for p in parameters):
            return NonFinite("a parameter of the model became NaN or infinite")
        return None


def _probed_boundary(loader: DataLoader[Any]) -> tuple[float, ...]:
    """Measure the seconds between two short epochs; empty for streams and samplers."""
    samples = length_of(loader.dataset)
    if loader.batch_size is None or isinstance(loader.dataset, IterableDataset) or not samples:
        return ()
    size = min(loader.batch_size, samples)
    short = DataLoader(
        Subset(loader.dataset, first_samples(loader.dataset, size, loader.num_workers)),
        batch_size=size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )
    return probe_boundary(short, time.perf_counter, lambda: None)
