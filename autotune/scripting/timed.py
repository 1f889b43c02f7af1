"""Times the training of a script as that of a model.py is timed, but for whose loop it is."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Subset

from autotune.job import MeasurePlan
from autotune.knobs.base import spelled
from autotune.measurement import Block, Measurement
from autotune.outcome import Failure, Measured, NonFinite, NotApplied, TrialOutcome
from autotune.scripting.feed import Feed
from autotune.scripting.interpose import Interposition
from autotune.training import disturbance, memory
from autotune.training.batches import Batches
from autotune.training.tasks import CompileClock
from autotune.training.timing import Timer, WarmUp
from autotune.trial_folder import TrialFolder

Course = Generator[int, None, TrialOutcome]
"""Asks the script for numbers of steps, and ends with an outcome."""

# In a longer epoch no boundary weighs anything.
_LONG_SECONDS = 100.0


@dataclass(frozen=True)
class Stopwatch:
    """Times one script."""

    interposition: Interposition
    feed: Feed
    compiler: CompileClock
    folder: TrialFolder
    start_seconds: float
    """From process start until the script began."""
    begun: float
    """When it did, on the monotonic clock."""

    def course(self, plan: MeasurePlan) -> Course:
        """Warm up, then time blocks."""
        build_seconds = time.monotonic() - self.begun
        if plan.incumbent_seconds_per_sample is not None:
            in_steps = plan.incumbent_seconds_per_sample * self.feed.samples_per_step
            plan = replace(plan, incumbent_seconds_per_sample=in_steps)
        timer = self._timer()
        self.folder.enter_phase("warm-up")
        warm_up = yield from timer.warming_up(plan)
        blocks: tuple[Block, ...] = ()
        fault = self._fault()
        if fault is None:
            self.folder.enter_phase("measure")
            blocks = yield from timer.timing_blocks(plan, warm_up.calm_seconds, 1)
            fault = self._fault()
        return fault or Measured(self._measurement(timer, warm_up, blocks, build_seconds))

    def _measurement(
        self, timer: Timer, warm_up: WarmUp, blocks: tuple[Block, ...], build_seconds: float
    ) -> Measurement:
        device = self.interposition.seen.device
        peak = memory.peak_memory_bytes(device)
        return Measurement(
            blocks=tuple(map(self._in_samples, blocks)),
            boundary_seconds=self._boundaries(blocks),
            epoch_samples=self.feed.epoch_samples,
            warmup_step_seconds=warm_up.step_seconds,
            steady_step_seconds=warm_up.calm_seconds,
            compile_seconds=self.compiler.seconds,
            start_seconds=self.start_seconds,
            build_seconds=build_seconds,
            peak_memory_bytes=peak,
            allocator_retries=memory.allocator_retries(device),
            flags=tuple(sorted(timer.flags)),
        )

    def _timer(self) -> Timer:
        device = self.interposition.seen.device
        return Timer(
            step=lambda _: None,
            batches=self.feed,
            clock=self.feed.clock,
            synchronize=lambda: synchronize(device),
            noise=disturbance.watch(device, time.perf_counter),
            compilations=lambda: self.compiler.events,
        )

    def _in_samples(self, block: Block) -> Block:
        """A block that was timed in steps."""
        each = self.feed.samples_per_step
        samples = max(1, round(each * block.samples))
        stock = min(samples - 1, round(each * block.stock_samples))
        return replace(block, samples=samples, stock_samples=stock)

    def _boundaries(self, blocks: tuple[Block, ...]) -> tuple[float, ...]:
        """What was seen between epochs, or what is where none ended."""
        seen, loader = tuple(self.feed.boundary_seconds), self.feed.loader
        if seen or loader is None or not loader.num_workers:
            return seen
        epoch = self.feed.epoch_samples
        each = median(block.seconds_per_sample for block in blocks) / self.feed.samples_per_step
        if epoch is None or epoch * each > _LONG_SECONDS:
            return ()
        self.feed.close()
        return _probed_boundary(loader)

    def _fault(self) -> Failure | None:
        """A setting that is not in force, or a training that has gone astray."""
        overridden = self.interposition.overridden()
        for name, reason in self.interposition.failed.items():
            return NotApplied(name, spelled(self.interposition.config[name]), reason)
        for name, (wanted, found) in overridden.items():
            return NotApplied(name, spelled(wanted), spelled(found))
        parameters = self.interposition.seen.parameters
        if not all(bool(torch.isfinite(p).all()) for p in parameters):
            return NonFinite("a parameter of the model became NaN or infinite")
        return None


def synchronize(device: torch.device) -> None:
    """Wait for an accelerator."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _probed_boundary(loader: DataLoader[Any]) -> tuple[float, ...]:
    """From the end of an epoch of one batch to the beginning of the next."""
    if loader.batch_size is None or isinstance(loader.dataset, IterableDataset):
        return ()
    size = min(loader.batch_size, len(loader.dataset))  # type: ignore[arg-type]
    short = DataLoader(
        Subset(loader.dataset, range(size)),
        batch_size=size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )
    batches = Batches(short, time.perf_counter, lambda: None)
    while not batches.boundary_seconds:
        batches.next()
    return tuple(batches.boundary_seconds)
