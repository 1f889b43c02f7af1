"""The first steps of training, one after the other from given weights: losses, and where they lead.

One batch and one update do not show what an optimizer keeps from step to step, nor what compiled
code does once the parameters have moved. A few whole steps do. The losses show gross errors only,
because the first steps change them little; the weights afterwards are what all steps add up to.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from autotune.training.apply import TrainingSetup, seed_everything
from autotune.training.batches import Batches
from autotune.training.quality import NonFiniteLossError

Tensors = Mapping[str, Tensor]

ENOUGH_SECONDS = 1.5
"""After which the reference takes no further step."""
LEAST_ROUNDING = 2.0**-10
"""TF32 and float16 tell numbers apart by so much; float32 adds up to a little less than that."""
_FEWEST_STEPS = 3
_MOST_STEPS = 10


@dataclass(frozen=True)
class Apart:
    """How far two ways are from each other, in lengths of the first one."""

    path: float
    """Between their ends."""
    reach: float
    """Between their lengths, wherever they lead: rounding turns a way, but hardly shortens it."""


@dataclass(frozen=True)
class Way:
    """The reference's first steps, which others are held against."""

    batches: tuple[Any, ...]
    losses: tuple[float, ...]
    other_losses: tuple[float, ...]
    """With the batches and random numbers of another seed."""
    end: Tensors
    """The parameters afterwards."""
    noise: float
    """How far apart rounding the first weights, and drawing other numbers, leads."""


def train(
    setup: TrainingSetup, batches: Iterable[Any], seed: int, seconds: float = math.inf
) -> tuple[float, ...]:
    """Losses of up to ten steps; after `seconds` none beyond the third.

    Changes model and optimizer.

    Raises:
        NonFiniteLossError: a loss is not finite, or gradients overflow at every scale.
    """
    start = time.perf_counter()
    losses: list[float] = []
    for batch in itertools.islice(batches, _MOST_STEPS):
        # Seeded anew each time, so that equal steps draw equal numbers whatever came before them.
        losses.append(_step(setup, batch, seed + len(losses)))
        if len(losses) >= _FEWEST_STEPS and time.perf_counter() - start >= seconds:
            break
    return tuple(losses)


def find_way(
    build: Callable[[], TrainingSetup], start: Tensors, batches: Iterator[Any], seed: int
) -> Way:
    """What the reference does on its first batches; `build` gives the same start each time.

    The batches of another seed are those that follow, because the order of a stream knows none.
    """
    used: list[Any] = []
    losses, end = _go(build(), _kept_in(used, batches), seed, ENOUGH_SECONDS)
    other_losses = train(build(), itertools.islice(batches, len(losses)), seed + 1)
    _, other_end = _go(nudge(build()), used, seed + 1)
    return Way(tuple(used), losses, other_losses, end, apart(start, end, other_end).path)


def _go(
    setup: TrainingSetup, batches: Iterable[Any], seed: int, seconds: float = math.inf
) -> tuple[tuple[float, ...], Tensors]:
    """Losses and end; model and optimizer are gone before the next ones are built."""
    return train(setup, batches, seed, seconds), ended(setup)


def _kept_in(used: list[Any], batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        used.append(batch)
        yield batch


def _step(setup: TrainingSetup, batch: Any, seed: int) -> float:
    """The loss of one step; taken again where the scaler, seeking its scale, skipped it."""
    while (scale := setup.scaler.get_scale()) >= 1:
        seed_everything(seed)
        loss = float(setup.step(batch).detach())
        if not math.isfinite(loss):
            raise NonFiniteLossError(f"the loss of the first steps becomes {loss}")
        if setup.scaler.get_scale() >= scale:
            return loss
    raise NonFiniteLossError("a gradient of the first steps is not finite")


def without_end(loader: DataLoader[Any]) -> Iterator[Any]:
    """Its batches, one epoch after the other.

    Raises:
        EmptyEpochError: there are none.
    """
    batches = Batches(loader, time.perf_counter, lambda: None)
    while True:
        yield batches.next()


def deviation(
    losses: Sequence[float],
    reference: Sequence[float],
    other_seed: Sequence[float],
    rounding: float,
) -> float:
    """How far losses are from the reference's, relative to what another seed changes in those.

    Where that is next to nothing, as with one batch for an epoch, rounding is still no error: so
    small a share of the losses.
    """
    least = rounding * fmean(map(abs, reference))
    distance, spread = _distance(losses, reference), max(least, _distance(other_seed, reference))
    return distance / spread if spread else float(distance > 0)


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    return fmean(abs(a - b) for a, b in zip(one, other, strict=True))


def ended(setup: TrainingSetup) -> Tensors:
    """The parameters after the steps.

    Raises:
        NonFiniteLossError: they are not finite, which no loss has shown yet.
    """
    end = parameters(setup)
    if not math.isfinite(norm(end)):
        raise NonFiniteLossError("a weight after the first steps is not finite")
    return end


def apart(start: Tensors, end: Tensors, other: Tensors) -> Apart:
    """How far it is from one end to another."""
    length, other_length = (norm(difference(far, start)) for far in (end, other))
    between = norm(difference(other, end))
    return Apart(share(between, length), share(abs(other_length - length), length))


def nudge(setup: TrainingSetup) -> TrainingSetup:
    """Change the parameters by as little as rounding might."""
    unit = _unit(setup)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in filter(torch.is_floating_point, setup.model.parameters()):
            least = max(unit, torch.finfo(parameter.dtype).eps)
            noise = torch.rand(parameter.shape, generator=generator, dtype=torch.float64) * 2 - 1
            parameter.mul_((1 + least * noise).to(parameter))
    return setup


def _unit(setup: TrainingSetup) -> float:
    """By how much the numbers that it computes with differ from each other."""
    if setup.config["amp_dtype"]:
        return torch.finfo(getattr(torch, str(setup.config["amp_dtype"]))).eps
    # Accelerators shorten the numbers of convolutions unasked.
    shortens = setup.device.type != "cpu" or setup.config["float32_matmul_precision"] != "highest"
    return LEAST_ROUNDING if shortens else 0.0


def parameters(setup: TrainingSetup) -> Tensors:
    """Copies of the model's, on the CPU."""
    return {name: kept(parameter) for name, parameter in setup.model.named_parameters()}


def kept(tensor: Tensor) -> Tensor:
    """A copy on the CPU that later steps do not change."""
    dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    return dense.to("cpu", copy=True)


def difference(one: Tensors, other: Tensors) -> Tensors:
    """What is missing on one side counts as zero there."""
    names = {**one, **other}
    zero = torch.zeros(())
    return {n: one.get(n, zero).double() - other.get(n, zero).double() for n in names}


def norm(tensors: Tensors) -> float:
    """Of all of them at once, in float64."""
    return math.hypot(*(float(tensor.double().norm()) for tensor in tensors.values()))


def share(part: float, whole: float) -> float:
    """`part` of `whole`; where there is no whole, any part is all of it."""
    return part / whole if whole else float(part > 0)
