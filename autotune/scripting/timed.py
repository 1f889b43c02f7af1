"""Time a script's training, as a whole with the timer of a model.py, and its stages.

The script's own loop takes the steps, so each stage is timed within whole steps. On an accelerator,
waiting for it before and after a step tells the stages apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.profiler import profile, schedule
from torch.utils.data import DataLoader, IterableDataset, Subset

from autotune.configuration.job import MeasurePlan
from autotune.knobs.base import spelled
from autotune.process.common.trial_folder import TrialFolder
from autotune.scripting.batch_stream import BatchStream
from autotune.scripting.interpose import Interposition
from autotune.training import disturbance, memory
from autotune.training.batches import (
    Batches,
    Clock,
    first_samples,
    has_long_epochs,
    length_of,
    probe_boundary,
)
from autotune.training.profiling import SCHEDULE, activities, busy_seconds, copy_seconds
from autotune.training.ranks.world import World
from autotune.training.timing import CompileClock, StepRequests, Timer, WarmUp, synchronize
from autotune.values.measurement import Block, Measurement, RankShare, seconds_per_sample
from autotune.values.outcome import (
    Diagnosed,
    Failure,
    Loading,
    Measured,
    NonFinite,
    NotApplied,
    TrialOutcome,
)

# Steps of each kind that are timed, fewer where these take longer than some seconds.
_STEPS, _FEWEST = 5, 2
_MOST_SECONDS = 3.0
# Batches that are loaded beside training; the first one may open files.
_BATCHES = 4


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


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one training step."""

    whole: float
    waited: float
    """Seconds for which it waited for batches."""
    launched: float
    """Seconds until the script went on, the device still at work."""
    updated: float
    """Seconds of the optimizer's step; without meaning unless that began on an idle device."""


class ScriptStages:
    """The stages of one script's training."""

    def __init__(self, stream: Batches, clock: Clock, device: torch.device) -> None:
        """Use the batches of the training, its clock in seconds, and its device."""
        self._stream, self._clock, self._device = stream, clock, device
        self._synchronize: Callable[[], None] = partial(synchronize, device)
        self._update_begun: float | None = None
        self._on_device = device.type != "cpu"

    def timing(
        self, loader: DataLoader[Any] | None, batch_size: int, batches_per_step: int
    ) -> StepRequests[Diagnosed | None]:
        """Ask for steps and time them; None if a stage cannot be told from the others.

        Args:
            loader: the loader that feeds training; None if the script gets its batches itself,
                which is part of its computing then.
            batch_size: samples of a batch.
            batches_per_step: batches of an optimizer step.
        """
        on_device = self._on_device
        steps = yield from self._steps()
        apart: Callable[..., Any] = torch.compiler.disable  # a script may compile its step
        hook = register_optimizer_step_pre_hook(apart(self._begin_update))
        updates = yield from self._steps()
        hook.remove()
        kernels = (yield from self._kernels()) if on_device else (0.0, None)
        if not steps or not updates or kernels is None:
            return None
        loading: tuple[Loading, ...] = ()
        if loader is not None:
            waited = median(step.waited for step in steps) / batches_per_step
            seconds = _seconds_to_load(loader) if loader.num_workers else waited
            if seconds is None:
                return None
            loading = (Loading(0, seconds),)
        copied, busy = kernels
        computed = median(step.whole - step.waited for step in steps) - copied
        launched = median(step.launched - step.waited for step in steps)
        return Diagnosed(
            batch_size=batch_size,
            compute_seconds=max(1e-9, computed / batches_per_step),
            double_compute_seconds=None,
            transfer_seconds=copied / batches_per_step,
            loading=loading,
            optimizer_seconds=median(step.updated for step in updates) / batches_per_step,
            launch_seconds=launched / batches_per_step if on_device else None,
            busy_seconds=None if busy is None else busy / batches_per_step,
        )

    def _begin_update(self, *_: object) -> None:
        if self._on_device:
            self._synchronize()
        self._update_begun = self._clock()

    def _steps(self) -> StepRequests[list[Step]]:
        """Ask for some steps, one at a time; those that begin an epoch do not count."""
        found: list[Step] = []
        begun = self._clock()
        for _ in range(2 * _STEPS):
            if len(found) >= _STEPS:
                break
            if len(found) >= _FEWEST and self._clock() - begun > _MOST_SECONDS:
                break
            waited, boundaries = self._stream.wait_seconds, len(self._stream.boundary_seconds)
            self._synchronize()
            start, self._update_begun = self._clock(), None
            yield 1
            launched = self._clock() - start
            self._synchronize()
            end = self._clock()
            updated = 0.0 if self._update_begun is None else end - self._update_begun
            waited = self._stream.wait_seconds - waited
            if len(self._stream.boundary_seconds) == boundaries:
                found.append(Step(end - start, waited, launched, updated))
        return found

    def _kernels(self) -> StepRequests[tuple[float, float | None] | None]:
        """Return the seconds of a step's copies and of its kernels; None if no profiler tells."""
        if self._device.type != "cuda":
            return None
        try:
            with profile(
                activities=activities(self._device), schedule=schedule(**SCHEDULE)
            ) as profiler:
                for _ in range(sum(SCHEDULE.values())):
                    yield 1
                    self._synchronize()
                    profiler.step()
        except RuntimeError:  # a container may lack the rights or the library
            return None
        events, steps = list(profiler.events()), SCHEDULE["active"]
        busy = busy_seconds(events, steps)
        return None if busy is None else (copy_seconds(events, steps), busy)


def _seconds_to_load(loader: DataLoader[Any]) -> float | None:
    """Return the seconds in which this process loads one of the batches that workers load.

    None if that is not known.
    """
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        return None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as a worker has
    seconds: list[float] = []
    try:
        by_itself = DataLoader(
            loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn
        )
        batches = iter(by_itself)
        while len(seconds) < _BATCHES and sum(seconds) <= _MOST_SECONDS:
            start = time.perf_counter()
            if next(batches, None) is None:
                break
            seconds.append(time.perf_counter() - start)
    except Exception:  # the user's dataset may not allow it here
        return None
    finally:
        torch.set_num_threads(threads)
    return median(seconds[1:] or seconds) if seconds else None
