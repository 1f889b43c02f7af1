"""The tasks that read a script's loss: its course when observed, its first steps, its quality.

Each is a generator that yields numbers of steps for the script to take.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

import torch
from torch import Tensor

from autotune.configuration.job import Observe, Probe, TakeFirstSteps
from autotune.numerics.trajectory import nudge
from autotune.scripting.quality.loss_course import FIRST, falls, fault_of
from autotune.scripting.quality.losses import LossRecorder, StepLoss, mean_of_last
from autotune.scripting.quality.reach import Reach
from autotune.training.ranks.world import ALONE, World
from autotune.training.timing import StepRequests
from autotune.values.outcome import (
    FIRST_STEPS,
    FirstLosses,
    FirstSums,
    NonFinite,
    ObservedLoss,
    Probed,
    TrialOutcome,
    UserError,
    no_fall,
)

_LAST = 0.1
"""Share of a probe's samples over which the loss is its quality."""
# Share of the steps that seem to be missing which are asked for at once.
_SURE = 0.9
# As in an accuracy probe: slow steps get longer, up to this many seconds.
_ENOUGH_STEPS = 30
_MOST_SECONDS = 60.0
SEVERAL = "it trains with {count} optimizers, each on a loss of its own"
PLAYED = (
    "it seems to play episodes, as reinforcement learning does, whose loss says little of the model"
)


class Progress(Protocol):
    """Counts of a training that goes on."""

    @property
    def steps(self) -> int:
        """Steps so far."""

    @property
    def samples(self) -> int:
        """Samples in them."""

    @property
    def is_fed(self) -> bool:
        """True if a torch DataLoader feeds the steps."""

    @property
    def is_played(self) -> bool:
        """True if the model plays episodes between the steps."""


@dataclass(frozen=True, slots=True)
class Course:
    """The loss of a training so far."""

    steps: list[StepLoss]
    fault: str
    """Reason why a loss could not be read; empty if all could."""
    misfit: str
    """Reason why this kind of training has no loss that judges it; empty if it may have one."""

    @property
    def doubt(self) -> str:
        """Reason why these losses cannot judge a training; empty if they can."""
        return self.fault or fault_of(self.steps) or self.misfit

    @property
    def losses(self) -> list[float]:
        """The loss of each step."""
        return [step.value() for step in self.steps]


@dataclass
class LossTasks:
    """The loss of one script's training, as several tasks read it."""

    progress: Progress
    recorder: LossRecorder
    world: World = ALONE
    """The processes that train the script together; each carries out the task."""
    _gathered: Course | None = field(default=None, init=False)

    def gather(self) -> None:
        """Read the losses of all processes a last time, before they let go of each other."""
        self._gathered = self._course()

    def _course(self) -> Course:
        """Return the loss in all processes together; every one of them has to call it.

        A step has the samples of all and the mean of their losses.
        """
        if self._gathered is not None:
            return self._gathered
        steps = self.recorder.steps()
        misfit = self._several() or (PLAYED if self.progress.is_played else "")
        own = Course(steps, self.recorder.fault, misfit)
        return own if self.world.is_alone else _together(self.world.shares(own))

    def observing(
        self, task: Observe, deadline: float, step_seconds: float
    ) -> StepRequests[ObservedLoss]:
        """Watch the loss until it has fallen, for half of the time until `deadline` at most.

        `deadline` is on the monotonic clock. The half has room for a step, of `step_seconds` so
        far, and the other half for one that takes longer.
        """
        start, look = time.monotonic(), FIRST
        until = start + (deadline - start) / 2 - step_seconds
        while self.world.told(self._is_worth_watching(start, until, task.loss_seconds)):
            if self.progress.steps >= look:
                course = self._course()
                if course.doubt or falls(course.losses):
                    break
                look *= 2
            yield 1
        return self.observed(task, time.monotonic() - start)

    def _is_worth_watching(self, start: float, until: float, seconds: float) -> bool:
        now = time.monotonic()
        past = now - start
        is_slow = self.progress.steps < _ENOUGH_STEPS and past < min(_MOST_SECONDS, 10 * seconds)
        return now <= until and (past < seconds or is_slow)

    def _several(self) -> str:
        """Return the reason if optimizers take turns, each with a loss of its own."""
        turns = self.recorder.turns
        return SEVERAL.format(count=len(turns.optimizers)) if turns.are_taken else ""

    def observed(self, task: Observe, seconds: float | None = None) -> ObservedLoss:
        """Return the loss of the training so far, and whether it can judge.

        `seconds` is for how long it was watched; None if the script ended by itself.
        """
        course = self._course()
        losses, doubt = course.losses, course.doubt
        if not doubt and not falls(losses):
            doubt = no_fall(len(losses), seconds)
        first = losses[:FIRST_STEPS]
        return ObservedLoss(
            task.source,
            tuple(first) if all(map(math.isfinite, first)) else (),
            self._backwards_per_step,
            doubt,
            self.recorder.reach.lengths,
            FirstSums() if course.doubt else self.recorder.sums,
            None if doubt else course.steps[-1].samples,
        )

    def first_steps(
        self, task: TakeFirstSteps, parameters: Iterable[Tensor]
    ) -> StepRequests[TrialOutcome]:
        """Take the first steps, from nudged weights and with other random numbers if asked for.

        A script without a loader may draw its batches from the same numbers, so it keeps them.
        """
        weights = [one for one in parameters if one.requires_grad]
        device = weights[0].device if weights else torch.device("cpu")
        if task.nudge:
            nudge(weights, task.nudge)
        self.recorder.reach = Reach(weights)
        while self.progress.steps < task.steps:
            if task.nudge and self.progress.is_fed:
                torch.rand(1, device=device)
            yield 1
        course = self._course()
        if doubt := course.doubt:
            is_finite = all(map(math.isfinite, course.losses))
            return UserError(doubt, "") if is_finite else NonFinite(doubt)
        losses, reach = tuple(course.losses[: task.steps]), self.recorder.reach.lengths
        return FirstLosses(losses, self._backwards_per_step, reach, self.recorder.sums)

    def probing(self, task: Probe, started: float) -> StepRequests[TrialOutcome]:
        """Train on the task's samples and return the loss over the last tenth of them."""
        while (left := task.samples - (taken := self._samples())) > 0:
            # Nearly all that are missing at once; what is beyond the last sample does not count.
            size = max(1, taken) / max(1, self.progress.steps)
            yield max(1, math.floor(_SURE * left / size))
        return self.probed(task, started)

    def _samples(self) -> int:
        """Return the samples that all processes have used."""
        return sum(self.world.shares(self.progress.samples))

    def probed(self, task: Probe, started: float) -> TrialOutcome:
        """Return the quality of the training so far; `started` is on the monotonic clock."""
        assert task.loss is not None
        course = self._course()
        if course.fault:
            return UserError(course.fault, "")
        steps = course.steps
        samples = min(task.samples, steps[-1].samples if steps else 0)
        found = mean_of_last(steps, samples, task.loss, _LAST)
        if not math.isfinite(found):
            return NonFinite(f"the training loss is {found} after {self.progress.steps} steps")
        before = fmean(step.value(task.loss) for step in steps[:FIRST_STEPS])
        is_told = task.untrained and math.isfinite(before)
        return Probed((found,), time.monotonic() - started, before if is_told else None)

    @property
    def _backwards_per_step(self) -> float:
        return self.recorder.backwards / max(1, self.progress.steps)


def _together(courses: Sequence[Course]) -> Course:
    """Return the course of several processes together, with the first reason that one has."""
    steps = zip(*(course.steps for course in courses), strict=False)
    faults = (course.fault for course in courses)
    misfits = (course.misfit for course in courses)
    return Course(
        [_mean(parts) for parts in steps],
        next(filter(None, faults), ""),
        next(filter(None, misfits), ""),
    )


def _mean(parts: Sequence[StepLoss]) -> StepLoss:
    """Return a step of several processes: the samples of all, the mean loss of each backward."""
    losses = zip(*(part.losses for part in parts), strict=False)
    return StepLoss(sum(part.samples for part in parts), tuple(map(fmean, losses)))
