"""Time the phases of a script's steps, and find what makes a timing worthless.

The script's own loop takes the steps, so each stage is timed within whole steps. On an accelerator,
waiting for it before and after a step separates the phases.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, IterableDataset

from autotune.knobs.base import spelled
from autotune.scripting.batch_stream import BatchStream
from autotune.scripting.interpose import Interposition
from autotune.training.batches import Batches, Clock
from autotune.training.profiling import kernel_seconds
from autotune.training.timing import StepRequests, synchronize
from autotune.values.outcome import Diagnosed, Failure, Loading, NonFinite, NotApplied

# Steps of each kind that are timed, fewer where these take longer than some seconds.
_STEPS, _FEWEST = 5, 2
_MOST_SECONDS = 3.0
# Batches that are loaded beside training; the first one may open files.
_BATCHES = 4


def fault_in(interposition: Interposition, stream: BatchStream) -> Failure | None:
    """Return a setting without effect or a parameter that is not finite; None if fine."""
    interposition.observed.batches_per_step = stream.accumulation_steps
    if not stream.is_fed:
        interposition.observed.batch_size = stream.calls.size
    overridden = interposition.overridden()
    for name, reason in interposition.failed.items():
        return NotApplied(name, spelled(interposition.config[name]), reason)
    for name, (wanted, found) in overridden.items():
        return NotApplied(name, spelled(wanted), spelled(found))
    if not all(bool(torch.isfinite(p).all()) for p in interposition.observed.parameters):
        return NonFinite("a parameter of the model became NaN or infinite")
    return None


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
        """Ask for steps and time them; None if a phase cannot be separated from the others.

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
        kernels: tuple[float, float | None] | None = (0.0, None)
        if on_device:
            kernels = yield from kernel_seconds(self._device)
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
