"""Compare the first training steps from given weights: their losses and the weights after them.

One update does not show the state that an optimizer keeps between steps, nor how compiled code
behaves once the parameters have moved. A few whole steps do. The first steps change the losses
little, so losses reveal only gross errors. The weights add up all steps.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from autotune.numerics.disk_store import DiskStore, Load
from autotune.training.quality import NonFiniteLossError
from autotune.training.training_setup import TrainingSetup, seed_everything

Tensors = Mapping[str, Tensor]

ENOUGH_SECONDS = 1.5
"""Seconds after which the reference takes no further step."""
LEAST_ROUNDING = 2.0**-10
"""Relative rounding of TF32 and float16. Errors of float32 add up to a little less."""
_FEWEST_STEPS = 3
_MOST_STEPS = 10


@dataclass(frozen=True)
class Distances:
    """Distances of two trajectories of the weights, relative to the length of the first one.

    The length of a trajectory is the distance from its first to its last weights.
    """

    path: float
    """Distance between the last weights of both."""
    reach: float
    """Difference of the lengths: rounding turns a trajectory, but hardly shortens it."""


@dataclass(frozen=True)
class ReferenceSteps:
    """The reference's first steps, with which others are compared."""

    batches: tuple[Load, ...]
    losses: tuple[float, ...]
    """Loss of each step."""
    other_losses: tuple[float, ...]
    """Losses of the reference on other batches and with another seed."""
    end: Tensors
    """The parameters after the steps."""
    noise: float
    """`Distances.path` of the reference from itself with rounded first weights and another seed."""


def train(
    setup: TrainingSetup, batches: Iterable[Any], seed: int, seconds: float = math.inf
) -> tuple[float, ...]:
    """Take up to ten steps and return their losses; stop after `seconds`, but not before the third.

    Side effect: changes model and optimizer.

    Raises:
        NonFiniteLossError: a loss is not finite, or gradients overflow at every scale.
    """
    start = time.perf_counter()
    losses: list[float] = []
    # A seed for each step: equal steps draw equal numbers, whatever came before them. `map` keeps
    # no batch, so that one is freed before the next is made; a loop variable would keep it.
    seeds = range(seed, seed + _MOST_STEPS)
    for loss in map(partial(_step, setup), seeds, batches):
        losses.append(loss)
        if len(losses) >= _FEWEST_STEPS and time.perf_counter() - start >= seconds:
            break
    return tuple(losses)


def reference_steps(
    build: Callable[[], TrainingSetup],
    start: Tensors,
    batches: Iterator[Any],
    seed: int,
    store: DiskStore,
) -> ReferenceSteps:
    """Take the reference's first steps, and repeat them with another seed.

    `build` returns an equal training loop each time, with the weights `start`. The other losses use
    the batches that follow, because a stream has no order that a seed could change.

    Raises:
        NonFiniteLossError: a loss or a weight is not finite.
    """
    used: list[Load] = []
    losses, end = _go(build(), _kept_in(used, batches, store), seed, store, ENOUGH_SECONDS)
    other_losses = train(build(), itertools.islice(batches, len(losses)), seed + 1)
    _, other_end = _go(nudge(build()), loaded(used), seed + 1, store)
    return ReferenceSteps(
        tuple(used), losses, other_losses, end, distances(start, end, other_end).path
    )


def loaded(used: Iterable[Load]) -> Iterator[Any]:
    """Load stored batches, one at a time."""
    return (load() for load in used)


def _go(
    setup: TrainingSetup,
    batches: Iterable[Any],
    seed: int,
    store: DiskStore,
    seconds: float = math.inf,
) -> tuple[tuple[float, ...], Tensors]:
    """Return losses and last parameters; the training loop is freed when the function returns."""
    return train(setup, batches, seed, seconds), ended(setup, store)


def _kept_in(used: list[Load], batches: Iterator[Any], store: DiskStore) -> Iterator[Any]:
    for load in map(store.put_batch, batches):
        used.append(load)
        yield load()


def _step(setup: TrainingSetup, seed: int, batch: Any) -> float:
    """Take a step and return its loss; repeat it while the scaler skips it to lower its scale."""
    while (scale := setup.scaler.get_scale()) >= 1:
        seed_everything(seed)
        loss = float(setup.step(batch).detach())
        if not math.isfinite(loss):
            raise NonFiniteLossError(f"the loss of the first steps becomes {loss}")
        if setup.scaler.get_scale() >= scale:
            return loss
    raise NonFiniteLossError("a gradient of the first steps is not finite")


def deviation(
    losses: Sequence[float],
    reference: Sequence[float],
    other_seed: Sequence[float],
    rounding: float,
) -> float:
    """Return the mean distance of losses from the reference's, in units of that of another seed.

    The unit is at least `rounding` times the mean loss: with one batch an epoch, another seed
    changes next to nothing, but rounding is still no error.
    """
    least = rounding * fmean(map(abs, reference))
    off, spread = _mean_gap(losses, reference), max(least, _mean_gap(other_seed, reference))
    return off / spread if spread else float(off > 0)


def _mean_gap(one: Sequence[float], other: Sequence[float]) -> float:
    return fmean(abs(a - b) for a, b in zip(one, other, strict=True))


def ended(setup: TrainingSetup, store: DiskStore) -> Tensors:
    """Return a copy of the parameters after the steps.

    Raises:
        NonFiniteLossError: they are not finite, which no loss has shown yet.
    """
    end = parameters(setup, store)
    if not math.isfinite(norm(end)):
        raise NonFiniteLossError("a weight after the first steps is not finite")
    return end


def distances(start: Tensors, end: Tensors, other: Tensors) -> Distances:
    """Return the distances of two trajectories from `start`, one to `end`, one to `other`."""
    length, other_length = (distance(far, start) for far in (end, other))
    between = distance(other, end)
    return Distances(share(between, length), share(abs(other_length - length), length))


def nudge(setup: TrainingSetup) -> TrainingSetup:
    """Change the parameters at random by as little as rounding might; return `setup`."""
    unit = _unit(setup)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in filter(torch.is_floating_point, setup.model.parameters()):
            least = max(unit, torch.finfo(parameter.dtype).eps)
            noise = torch.rand(parameter.shape, generator=generator, dtype=torch.float64) * 2 - 1
            parameter.mul_((1 + least * noise).to(parameter))
    return setup


def _unit(setup: TrainingSetup) -> float:
    """Return the relative rounding of the loop's number format; 0 means that of the parameters."""
    if setup.config["amp_dtype"]:
        return torch.finfo(getattr(torch, str(setup.config["amp_dtype"]))).eps
    # Accelerators shorten the numbers of convolutions by default.
    shortens = setup.device.type != "cpu" or setup.config["float32_matmul_precision"] != "highest"
    return LEAST_ROUNDING if shortens else 0.0


def parameters(setup: TrainingSetup, store: DiskStore) -> Tensors:
    """Store copies of the model's parameters."""
    return store.put_all(dict(setup.model.named_parameters()))


def distance(one: Tensors, other: Tensors) -> float:
    """Return the L2 norm of the difference, in float64; a tensor missing on one side is zero."""
    zero = torch.zeros(())
    names = (name for name in {**dict.fromkeys(one), **dict.fromkeys(other)})
    return math.hypot(
        *(float((one.get(n, zero).double() - other.get(n, zero)).norm()) for n in names)
    )


def norm(tensors: Tensors) -> float:
    """Return the L2 norm of all tensors at once, in float64."""
    return math.hypot(*(float(tensor.double().norm()) for tensor in tensors.values()))


def share(part: float, whole: float) -> float:
    """Return part / whole; if `whole` is 0, return 1 for a positive `part`, else 0."""
    return part / whole if whole else float(part > 0)
