"""The tasks that read a script's loss: its course when observed, its first steps, its quality.

Each is a generator that yields numbers of steps for the script to take.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

import torch
from torch import Tensor

from autotune.configuration.job import Observe, Probe, TakeFirstSteps
from autotune.numerics.trajectory import nudge
from autotune.scripting.quality.loss_course import FIRST, falls, fault_of
from autotune.scripting.quality.losses import LossRecorder, mean_of_last
from autotune.training.timing import StepRequests
from autotune.values.outcome import (
    NonFinite,
    Probed,
    TrialOutcome,
    UserError,
)
from autotune.values.script_losses import FirstLosses, ObservedLoss

_LAST = 0.1
"""Share of a probe's samples over which the loss is its quality."""
# Share of the steps that seem to be missing which are asked for at once.
_SURE = 0.9
_SHOWN = 10
"""First losses that an observation reports, and whose mean is the loss before training."""
# As in an accuracy probe: slow steps get longer, up to this many seconds.
_ENOUGH_STEPS = 30
_MOST_SECONDS = 60.0
SEVERAL = "it trains with {count} optimizers, each on a loss of its own"
PLAYED = (
    "its steps call the model on single samples, in varying numbers, as reinforcement learning does"
)
_NO_FALL = "its training loss did not fall beyond its spread in {steps} steps"


class Progress(Protocol):
    """Counts of a training that goes on."""

    @property
    def steps(self) -> int:
        """Steps so far."""

    @property
    def batches(self) -> int:
        """Batches in them."""

    @property
    def samples(self) -> int:
        """Samples in them."""

    @property
    def is_played(self) -> bool:
        """True if the model plays episodes between the steps."""


@dataclass(frozen=True)
class LossTasks:
    """The loss of one script's training, as several tasks read it."""

    progress: Progress
    recorder: LossRecorder

    def observing(self, task: Observe, until: float) -> StepRequests[ObservedLoss]:
        """Watch the loss until it has fallen, no longer than `until` on the monotonic clock."""
        start, look = time.monotonic(), FIRST
        while self._is_worth_watching(time.monotonic() - start, task.loss_seconds):
            if time.monotonic() > until:
                break
            if self.progress.steps >= look:
                if self._fault() or self._has_fallen():
                    break
                look *= 2
            yield 1
        return self.observed(task.source)

    def _is_worth_watching(self, past: float, seconds: float) -> bool:
        is_slow = self.progress.steps < _ENOUGH_STEPS and past < min(_MOST_SECONDS, 10 * seconds)
        return past < seconds or is_slow

    def _has_fallen(self) -> bool:
        return falls([step.value() for step in self.recorder.steps()])

    def _fault(self) -> str:
        """Return why these losses cannot judge a training; empty if they can."""
        found = self.recorder.fault or fault_of(self.recorder.steps()) or self._several()
        return found or (PLAYED if self.progress.is_played else "")

    def _several(self) -> str:
        """Return the reason if optimizers have losses of their own.

        Then there are more backward passes than batches and steps. Optimizers that share the
        parameters of one loss step after the same backward.
        """
        most = max(self.progress.batches, self.progress.steps)
        is_one = len(self.recorder.optimizers) < 2 or self.recorder.backwards <= most  # noqa: PLR2004
        return "" if is_one else SEVERAL.format(count=len(self.recorder.optimizers))

    def observed(self, source: str) -> ObservedLoss:
        """Return the loss of the training so far, and whether it can judge."""
        steps = self.recorder.steps()
        losses = [step.value() for step in steps]
        doubt = self._fault()
        if not doubt and not falls(losses):
            doubt = _NO_FALL.format(steps=len(losses))
        first = losses[:_SHOWN]
        return ObservedLoss(
            source,
            tuple(first) if all(map(math.isfinite, first)) else (),
            self._backwards_per_step,
            doubt,
        )

    def first_steps(
        self, task: TakeFirstSteps, parameters: Iterable[Tensor]
    ) -> StepRequests[TrialOutcome]:
        """Take the first steps, from nudged weights and with other random numbers if asked for."""
        weights = list(parameters)
        device = weights[0].device if weights else torch.device("cpu")
        if task.nudge:
            nudge(weights, task.nudge)
        while self.progress.steps < task.steps:
            if task.nudge:
                torch.rand(1, device=device)
            yield 1
        if fault := self._fault():
            return NonFinite(fault) if self._is_non_finite() else UserError(fault, "")
        losses = tuple(step.value() for step in self.recorder.steps()[: task.steps])
        return FirstLosses(losses, self._backwards_per_step)

    def probing(self, task: Probe, started: float) -> StepRequests[TrialOutcome]:
        """Train on the task's samples and return the loss over the last tenth of them."""
        while (left := task.samples - self.progress.samples) > 0:
            # Nearly all that are missing at once; what is beyond the last sample does not count.
            size = max(1, self.progress.samples) / max(1, self.progress.steps)
            yield max(1, math.floor(_SURE * left / size))
        return self.probed(task, started)

    def probed(self, task: Probe, started: float) -> TrialOutcome:
        """Return the quality of the training so far; `started` is on the monotonic clock."""
        assert task.loss is not None
        steps = self.recorder.steps()
        if fault := self.recorder.fault:
            return UserError(fault, "")
        samples = min(task.samples, self.progress.samples)
        found = mean_of_last(steps, samples, task.loss, _LAST)
        if not math.isfinite(found):
            return NonFinite(f"the training loss is {found} after {self.progress.steps} steps")
        before = fmean(step.value(task.loss) for step in steps[:_SHOWN])
        is_told = task.untrained and math.isfinite(before)
        return Probed((found,), time.monotonic() - started, before if is_told else None)

    def _is_non_finite(self) -> bool:
        return not all(math.isfinite(step.value()) for step in self.recorder.steps())

    @property
    def _backwards_per_step(self) -> float:
        return self.recorder.backwards / max(1, self.progress.steps)
