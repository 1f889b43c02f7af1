"""The tasks that read a script's loss: whether it can judge, its first steps, its quality.

Each is a generator that yields numbers of steps for the script to take.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, variance

import torch
from torch import Tensor

from autotune.configuration.job import Observe, Probe, TakeFirstSteps
from autotune.numerics.trajectory import nudge
from autotune.scripting.batch_stream import BatchStream
from autotune.scripting.losses import LossRecorder, Moves, StepLoss, mean_of_last
from autotune.scripting.steps import has_environments
from autotune.training.ranks.world import ALONE, World
from autotune.training.timing import StepRequests
from autotune.values import outcome as outcomes

_LAST = 0.1
"""Share of a probe's samples over which the loss is its quality."""
# Share of the steps that seem to be missing which are asked for at once.
_SURE = 0.9
# As in an accuracy probe: slow steps get longer, up to this many seconds.
_ENOUGH_STEPS = 30
_MOST_SECONDS = 60.0
# Fewest steps that show whether a loss falls: the last of so many parts of its steps lies below the
# first one, by so many standard errors.
_FIRST, _PARTS, _BEYOND = 20, 4, 3.0
_OPPONENTS = "it trains several models on losses of their own, as a GAN does"
_AGENT = "it seems to collect its samples with the model, as reinforcement learning does"


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses of a training so far."""

    steps: list[StepLoss]
    fault: str
    """Reason why a loss could not be read; empty if all could."""
    misfit: str
    """Reason why this kind of training has no loss that judges it; empty if it may have one."""

    @property
    def doubt(self) -> str:
        """Reason why these losses cannot judge a training, fall or not; empty if they can."""
        return self.fault or fault_of(self.steps) or self.misfit

    @property
    def values(self) -> list[float]:
        """The loss of each step."""
        return [step.value() for step in self.steps]


@dataclass
class LossTasks:
    """The loss of one script's training, as several tasks read it."""

    progress: BatchStream
    recorder: LossRecorder
    world: World = ALONE
    """The processes that train the script together; each carries out the task."""
    _gathered: Losses | None = field(default=None, init=False)

    def gather(self) -> None:
        """Read the losses of all processes a last time, before they let go of each other."""
        self._gathered = self._so_far()

    def _so_far(self) -> Losses:
        """Return the losses in all processes together; every one of them has to call it.

        A step has the samples of all and the mean of their losses.
        """
        if self._gathered is not None:
            return self._gathered
        steps = self.recorder.steps()
        is_of_opponents = self.recorder.is_of_opponents
        misfit = _OPPONENTS if is_of_opponents else _AGENT if has_environments() else ""
        own = Losses(steps, self.recorder.fault, misfit)
        return own if self.world.is_alone else _together(self.world.shares(own))

    def observing(
        self, task: Observe, deadline: float, step_seconds: float
    ) -> StepRequests[outcomes.ObservedLoss]:
        """Watch the loss until it has fallen, for half of the time until `deadline` at most.

        `deadline` is on the monotonic clock. The half has room for a step, of `step_seconds` so
        far, and the other half for one that takes longer.
        """
        start, look = time.monotonic(), _FIRST
        until = (deadline - start) / 2 - step_seconds

        def is_worth_watching() -> bool:
            past = time.monotonic() - start
            most = min(_MOST_SECONDS, 10 * task.loss_seconds)
            is_slow = self.progress.steps < _ENOUGH_STEPS and past < most
            return past <= until and (past < task.loss_seconds or is_slow)

        while self.world.told(is_worth_watching()):
            if self.progress.steps >= look:
                so_far = self._so_far()
                if so_far.doubt or falls(so_far.values):
                    break
                look *= 2
            yield 1
        return self.observed(task, time.monotonic() - start)

    def observed(self, task: Observe, seconds: float | None = None) -> outcomes.ObservedLoss:
        """Return the loss of the training so far, and whether it can judge.

        `seconds` is for how long it was watched; None if the script ended by itself.
        """
        so_far = self._so_far()
        values, doubt = so_far.values, so_far.doubt
        if not doubt and not falls(values):
            doubt = outcomes.no_fall(len(values), seconds)
        first = values[: outcomes.FIRST_STEPS]
        return outcomes.ObservedLoss(
            task.source,
            tuple(first) if all(map(math.isfinite, first)) else (),
            self._backwards_per_step,
            doubt,
            self.recorder.moves.lengths,
            outcomes.FirstSums() if so_far.doubt else self.recorder.sums,
            None if doubt else so_far.steps[-1].samples,
        )

    def first_steps(
        self, task: TakeFirstSteps, parameters: Iterable[Tensor]
    ) -> StepRequests[outcomes.TrialOutcome]:
        """Take the first steps, from nudged weights and with other random numbers if asked for.

        A script without a loader may draw its batches from the same numbers, so it keeps them.
        """
        weights = [one for one in parameters if one.requires_grad]
        device = weights[0].device if weights else torch.device("cpu")
        if task.nudge:
            nudge(weights, task.nudge)
        self.recorder.moves = Moves(weights)
        while self.progress.steps < task.steps:
            if task.nudge and self.progress.is_fed:
                torch.rand(1, device=device)
            yield 1
        so_far = self._so_far()
        if doubt := so_far.doubt:
            is_finite = all(map(math.isfinite, so_far.values))
            return outcomes.UserError(doubt, "") if is_finite else outcomes.NonFinite(doubt)
        losses, moves = tuple(so_far.values[: task.steps]), self.recorder.moves.lengths
        return outcomes.FirstLosses(losses, self._backwards_per_step, moves, self.recorder.sums)

    def probing(self, task: Probe, started: float) -> StepRequests[outcomes.TrialOutcome]:
        """Train on the task's samples and return the loss over the last tenth of them."""
        while (left := task.samples - (taken := sum(self.world.shares(self.progress.samples)))) > 0:
            # Nearly all that are missing at once; what is beyond the last sample does not count.
            size = max(1, taken) / max(1, self.progress.steps)
            yield max(1, math.floor(_SURE * left / size))
        return self.probed(task, started)

    def probed(self, task: Probe, started: float) -> outcomes.TrialOutcome:
        """Return the quality of the training so far; `started` is on the monotonic clock."""
        assert task.loss is not None
        so_far = self._so_far()
        if so_far.fault:
            return outcomes.UserError(so_far.fault, "")
        steps = so_far.steps
        samples = min(task.samples, steps[-1].samples if steps else 0)
        found = mean_of_last(steps, samples, task.loss, _LAST)
        if not math.isfinite(found):
            return outcomes.NonFinite(
                f"the training loss is {found} after {self.progress.steps} steps"
            )
        before = fmean(step.value(task.loss) for step in steps[: outcomes.FIRST_STEPS])
        is_told = task.untrained and math.isfinite(before)
        return outcomes.Probed((found,), time.monotonic() - started, before if is_told else None)

    @property
    def _backwards_per_step(self) -> float:
        return self.recorder.backwards / max(1, self.progress.steps)


def _together(parts: Sequence[Losses]) -> Losses:
    """Return the losses of several processes together, with the first reason that one has.

    A step has the samples of all, and the mean loss of each backward pass.
    """
    return Losses(
        [
            StepLoss(
                sum(step.samples for step in steps),
                tuple(map(fmean, zip(*(step.losses for step in steps), strict=False))),
            )
            for steps in zip(*(part.steps for part in parts), strict=False)
        ],
        next((part.fault for part in parts if part.fault), ""),
        next((part.misfit for part in parts if part.misfit), ""),
    )


def falls(losses: Sequence[float]) -> bool:
    """Return True if the last quarter of the losses is below the first one, beyond their spread.

    A loss that falls at once spreads in its first quarter because it falls; then no loss of the
    last one reaches any of the first.
    """
    size = len(losses) // _PARTS
    if len(losses) < _FIRST:
        return False
    first, last = losses[:size], losses[-size:]
    error = math.sqrt((variance(first) + variance(last)) / size)
    return max(last) < min(first) or fmean(first) - fmean(last) > _BEYOND * error


def fault_of(steps: Sequence[StepLoss]) -> str:
    """Return why these losses cannot judge a training; empty if they can."""
    if not any(step.losses for step in steps):
        return "it calls no backward whose loss could be seen"
    if any(not step.losses for step in steps):
        return "some of its optimizer steps come without a backward of their own"
    if not all(math.isfinite(step.value()) for step in steps):
        return "its training loss becomes NaN or infinite"
    return ""
