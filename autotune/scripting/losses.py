"""A script's losses, the gradients of its first steps, and how far these move its weights.

A loss is the tensor on which the script's outermost `backward` is called. Tasks find out from
losses whether they can judge a training, and how good it is; they yield numbers of steps for the
script to take.

Nothing waits for a device. A loss on the CPU is read at once, because a tensor that is kept would
split the memory that the script's next tensors reuse. One on a device is copied there, because a
CUDA graph writes the next loss into the same place.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from statistics import fmean, variance
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from autotune.configuration.job import Observe, Probe, TakeFirstSteps
from autotune.numerics.trajectory import nudge
from autotune.process.common.imports import replace
from autotune.scripting.loaders import BatchStream
from autotune.scripting.observed_training import has_environments
from autotune.training.ranks import ALONE, World
from autotune.training.timing import StepRequests
from autotune.values import outcome as outcomes
from autotune.values.outcome import FIRST_STEPS, SETTLED_STEP, FirstSums
from autotune.values.statistics import LossCurve

LossOf = Literal["mean", "sum"]
"""Rule that makes a step's loss from the losses of its backward passes."""
_NO_SCALAR = "it calls backward on a tensor of {count} numbers instead of a scalar loss"
# Steps of an optimizer that are remembered to find whose losses it steps on.
_REMEMBERED = 100
_ENTRIES = 4096
"""Entries that are kept of a parameter, evenly spaced: a copy of a model may not fit."""
_SUMS = 32
"""Sums that identify the tensors of all parameters."""
# No script's own seed, whose random numbers its weights would share.
_SEED = 982_451_653
_CPU = torch.device("cpu")
_LAST = 0.1
"""Share of a probe's samples over which the loss is its quality."""
# Share of the samples so far after which to look again whether a loss was reached.
_LOOK = 1 / 20
# Share of the apparently missing steps that is asked for at once.
_SURE = 0.9
# As in an accuracy probe: slow steps get longer, up to this many seconds.
_ENOUGH_STEPS = 30
_MOST_SECONDS = 60.0
# Fewest steps that show whether a loss falls: the last of so many parts of its steps lies below the
# first one, by so many standard errors.
_FIRST, _PARTS, _BEYOND = 20, 4, 3.0
_OPPONENTS = "it trains several models with separate losses, as a GAN does"
_AGENT = "it seems to collect rollouts, as in reinforcement learning"


@dataclass(frozen=True, slots=True)
class StepLoss:
    """The losses of one optimizer step."""

    samples: int
    """Samples that training had used after the step."""
    losses: tuple[float, ...]
    """Loss of each backward pass since the step before."""

    def value(self, of: LossOf = "mean") -> float:
        """Return the loss of the step; NaN without a backward pass."""
        if not self.losses:
            return float("nan")
        return sum(self.losses) if of == "sum" else fmean(self.losses)


class LossRecorder:
    """A recorder of the losses of a script's steps.

    Call `watch` once, `note` before every outermost backward pass, `before` every step of an
    optimizer and `stepped_by` after it, and `stepped` after every step that counts.
    """

    def __init__(self, parameters: Callable[[], Iterable[Tensor]] = tuple) -> None:
        """Prepare; `parameters` returns those that are trained."""
        self._parameters = parameters
        self.fault = ""
        """Reason why a loss could not be recorded; empty if all were."""
        self.backwards = 0
        """Outermost backward passes so far."""
        self.scales = False
        """True if the script scales its loss."""
        self.moves = Moves(())
        """Distances by which the first steps move the parameters."""
        self.sums = FirstSums()
        self._first_moves = Moves(())
        self._losses: list[float | Tensor] = []
        """Those on devices as tensors of one number."""
        self._steps: list[tuple[int, int]] = []
        """Samples used, and losses recorded, after each step."""
        self._scaled: tuple[weakref.ref[Tensor], Tensor, Tensor] | None = None
        # Numbers of the backward passes after which each optimizer stepped.
        self._steppers: weakref.WeakKeyDictionary[Optimizer, set[int]]
        self._steppers = weakref.WeakKeyDictionary()

    def watch(self) -> None:
        """Look at gradient scalers from now on; patches `GradScaler.scale` for the process."""
        replace(torch.amp.GradScaler, "scale", self._scale)

    def _scale(
        self, original: Callable[..., Any], scaler: torch.amp.GradScaler, outputs: Any
    ) -> Any:
        """Record a loss before and after a scaler; of several, all have the first one's factor."""
        found = scaled = original(scaler, outputs)
        self.scales = self.scales or scaler.is_enabled()
        if isinstance(outputs, list | tuple) and outputs:
            outputs, scaled = outputs[0], scaled[0]
        if isinstance(outputs, Tensor) and scaled is not outputs:
            self._scaled = weakref.ref(scaled), scaled.detach(), outputs.detach()
        return found

    def note(self, tensors: Any) -> None:
        """Record what an outermost backward pass is called on."""
        self.backwards += 1
        try:
            if isinstance(tensors, Tensor):
                self._losses.append(_number(self._own(tensors)))
            else:
                self._losses.append(_number(functools.reduce(torch.add, map(self._own, tensors))))
        except Exception as error:  # a loss of an unknown kind must not harm the script
            self.fault = self.fault or str(error)

    def _own(self, loss: Tensor) -> Tensor:
        """Return a loss without the factor of a gradient scaler; raise ValueError for no scalar."""
        if loss.numel() != 1:
            raise ValueError(_NO_SCALAR.format(count=loss.numel()))
        if self._scaled is None:
            return loss
        scaled, value, unscaled = self._scaled
        if scaled() is loss:
            return unscaled
        return loss.detach() * (unscaled / value)

    def stepped_by(self, optimizer: Optimizer) -> None:
        """Record a step of any optimizer."""
        passes = self._steppers.setdefault(optimizer, set())
        if len(passes) < _REMEMBERED:
            passes.add(self.backwards)

    @property
    def is_of_opponents(self) -> bool:
        """True if optimizers step on losses of their own while the others do, as in a GAN."""
        return any(
            one.isdisjoint(other) and min(one) < max(other) and min(other) < max(one)
            for one, other in combinations(self._steppers.values(), 2)
        )

    def stepped(self, samples: int) -> None:
        """Record an optimizer step, after which training has used so many samples."""
        self._steps.append((samples, len(self._losses)))
        step = len(self._steps)
        if step <= SETTLED_STEP:
            with suppress(Exception):  # a tensor of an unknown kind must not harm the script
                self._add_sums(step)
        elif step == FIRST_STEPS:
            self.moves.end()
        self._scaled = None

    def _add_sums(self, step: int) -> None:
        # Where the learning rate begins at zero, the first step moves nothing.
        moved, self._first_moves = self._first_moves, Moves(())
        sums = dataclasses.replace(self.sums, update=self.sums.update or moved.sums())
        if step == 1:
            sums = dataclasses.replace(sums, gradients=sums_of_gradients(self._parameters()))
        elif step == SETTLED_STEP:
            settled = sums_of_gradients(self._parameters())
            sums = dataclasses.replace(sums, settled_gradients=settled)
        self.sums = sums

    def before(self, optimizer: Optimizer) -> None:
        """Record that an optimizer is about to step."""
        if not self.sums.update:
            with suppress(Exception):
                groups = optimizer.param_groups
                self._first_moves = Moves(one for group in groups for one in group["params"])

    def steps(self) -> list[StepLoss]:
        """Return the recorded steps, none if a loss cannot be read; waits for the device."""
        try:
            losses = list(map(float, self._losses))
        except Exception as error:  # a device that has failed
            self.fault = self.fault or f"its loss cannot be read: {error}"
            return []
        pairs = pairwise(((0, 0), *self._steps))
        return [StepLoss(samples, tuple(losses[a:b])) for (_, a), (samples, b) in pairs]


def _number(loss: Tensor) -> float | Tensor:
    """Return the one number in a tensor; of a device's, a copy in float32 there."""
    if loss.is_cpu:
        return loss.item()
    return loss.detach().reshape(()).to(torch.float32, copy=True)


def mean_of_last(steps: Sequence[StepLoss], samples: int, of: LossOf, share: float) -> float:
    """Return the mean loss over the last `share` of the first `samples` samples.

    A step counts by the number of its samples that lie there.
    """
    start = (1 - share) * samples
    total = weight = 0.0
    before = 0
    for step in steps:
        inside = min(step.samples, samples) - max(before, start)
        if inside > 0:
            total += inside * step.value(of)
            weight += inside
        before = step.samples
    return total / weight if weight else float("nan")


class Moves:
    """Distances that parameters move from now on, until `end` is called."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        # Quantized weights, which are frozen, may be no plain tensors.
        self._parameters = [one for one in parameters if one.requires_grad]
        self._before = [_some(parameter) for parameter in self._parameters]
        self.lengths: tuple[float, ...] = ()
        """L2 norm of the change of each parameter's kept entries; empty before the end."""

    def end(self) -> None:
        """Measure the distances, and free what was kept."""
        self.lengths = tuple(float(moved.norm()) for moved in self._moves())
        self._parameters, self._before = [], []

    def sums(self) -> tuple[float, ...]:
        """Return sums that identify the moves so far; see `sums_of_gradients`."""
        return _sums(self._moves())

    def _moves(self) -> list[Tensor]:
        pairs = zip(self._parameters, self._before, strict=True)
        return [_some(now) - before for now, before in pairs]


def sums_of_gradients(parameters: Iterable[Tensor]) -> tuple[float, ...]:
    """Return sums of the kept entries of all gradients, with random weights of variance 1.

    The weights are always the same. The distance of the sums of two gradients, relative to their
    size, estimates the relative difference of the gradients (Johnson and Lindenstrauss, 1984).
    Empty where a gradient is sparse or not finite, or where more than half of them are zero, as
    behind a last layer that begins with zeros.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if any(one.layout != torch.strided for one in gradients):
        return ()
    return _sums([_some(one) for one in gradients])


def _sums(kept: Sequence[Tensor]) -> tuple[float, ...]:
    if not kept or 2 * sum(not one.any() for one in kept) > len(kept):
        return ()
    # A script may set other defaults, and step under autocast, which shortens matrix products.
    drawn = torch.Generator(_CPU).manual_seed(_SEED)
    shape = (_SUMS, 2 * _ENTRIES)
    weights = torch.randn(shape, generator=drawn, device=_CPU, dtype=torch.float32)
    on = {one.device: weights.to(one.device) for one in kept}
    sums = [(on[one.device][:, : len(one)] * one).sum(dim=1).to(_CPU) for one in kept]
    # Each tensor has signs of its own, so that two tensors do not hide each other.
    signs = torch.randint(0, 2, (len(sums), _SUMS), generator=drawn, device=_CPU) * 2 - 1
    found = tuple((torch.stack(sums) * signs).sum(dim=0).tolist())
    return found if all(map(math.isfinite, found)) else ()


def _some(parameter: Tensor) -> Tensor:
    """Return a float32 copy of evenly spaced entries, of this process's shard if sharded."""
    local = parameter.detach()
    if hasattr(local, "to_local"):
        local = local.to_local()
    step = max(1, local.numel() // _ENTRIES)
    # Else they would be one column of a matrix, or one place of all kernels.
    while math.gcd(step, local.numel()) > 1:
        step += 1
    return local.reshape(-1)[::step].to(torch.float32, copy=True)


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
        first = values[:FIRST_STEPS]
        return outcomes.ObservedLoss(
            task.source,
            tuple(first) if all(map(math.isfinite, first)) else (),
            self._backwards_per_step,
            doubt,
            self.recorder.moves.lengths,
            FirstSums() if so_far.doubt else self.recorder.sums,
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

    def training_on(self, task: Probe) -> StepRequests[None]:
        """Ask for steps until all processes have used the task's samples, or reached its loss."""
        until = task.samples if task.reach is None else task.most
        while (left := until - (taken := sum(self.world.shares(self.progress.samples)))) > 0:
            if task.reach is not None:
                if self._curve(task, self._so_far().steps).has_reached:
                    break
                left = min(left, max(1, round(_LOOK * taken)))
            # Nearly all that are missing at once; what is beyond the last sample does not count.
            size = max(1, taken) / max(1, self.progress.steps)
            yield max(1, math.floor(_SURE * left / size))

    def _curve(self, task: Probe, steps: Sequence[StepLoss]) -> LossCurve:
        assert task.loss is not None
        curve, before = LossCurve(task.samples, task.most, task.reach), 0
        for step in steps:
            curve.add(step.samples - before, step.value(task.loss))
            before = step.samples
        return curve

    def probed(self, task: Probe, started: float) -> outcomes.TrialOutcome:
        """Return the loss over the last tenth of the task's samples, so far as they are used.

        `started` is on the monotonic clock.
        """
        assert task.loss is not None
        so_far = self._so_far()
        if so_far.fault:
            return outcomes.UserError(so_far.fault, "")
        steps = so_far.steps
        curve = self._curve(task, steps if task.most else ())
        samples = min(curve.samples, steps[-1].samples if steps else 0)
        found = mean_of_last(steps, samples, task.loss, _LAST)
        _, last, _ = curve.reached or (0, found, True)
        if not math.isfinite(found + last):
            return outcomes.NonFinite(
                f"the training loss is {found + last} after {self.progress.steps} steps"
            )
        before = fmean(step.value(task.loss) for step in steps[:FIRST_STEPS])
        is_told = task.untrained and math.isfinite(before)
        seconds, told = time.monotonic() - started, before if is_told else None
        reached = () if curve.reached is None else (curve.reached,)
        return outcomes.Probed((found,), seconds, told, reached)

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
        return "it calls backward on no loss that autotune can see"
    if any(not step.losses for step in steps):
        return "some of its optimizer steps have no backward pass of their own"
    if not all(math.isfinite(step.value()) for step in steps):
        return "its training loss becomes NaN or infinite"
    return ""
