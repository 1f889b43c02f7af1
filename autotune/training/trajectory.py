"""The losses of the first steps of training, one after the other from given weights.

One batch and one update do not show what an optimizer keeps from step to step, nor what compiled
code does once the parameters have moved. A few whole steps do.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from torch.utils.data import DataLoader

from autotune.training.apply import TrainingSetup, seed_everything
from autotune.training.batches import Batches
from autotune.training.quality import NonFiniteLossError

ENOUGH_SECONDS = 1.5
"""After which the reference takes no further step."""
_FEWEST_STEPS = 3
_MOST_STEPS = 10


@dataclass(frozen=True)
class Trajectory:
    """What a few steps were taken on, and the loss of each."""

    batches: tuple[Any, ...]
    losses: tuple[float, ...]


def train(
    setup: TrainingSetup, batches: Iterable[Any], seed: int, seconds: float = math.inf
) -> Trajectory:
    """Up to ten steps; after `seconds` none beyond the third. Changes model and optimizer.

    Raises:
        NonFiniteLossError: a loss is not finite, or gradients overflow at every scale.
    """
    start = time.perf_counter()
    used: list[Any] = []
    losses: list[float] = []
    for batch in itertools.islice(batches, _MOST_STEPS):
        # Seeded anew each time, so that equal steps draw equal numbers whatever came before them.
        losses.append(_step(setup, batch, seed + len(used)))
        used.append(batch)
        if len(used) >= _FEWEST_STEPS and time.perf_counter() - start >= seconds:
            break
    return Trajectory(tuple(used), tuple(losses))


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
