"""How good a model becomes: train on a fixed number of samples, then evaluate.

All configurations see equally many samples, never equally many steps or seconds, and are evaluated
the same way: without autocast, in eval mode, uncompiled. A short run bounds early training only; it
catches divergence, broken precision and too large a batch, it cannot certify a full run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Subset

from autotune.training.apply import TrainingSetup, build_dataset
from autotune.training.batches import EmptyEpochError
from autotune.training.workload import Workload

HELD_OUT_SHARE = 0.1
HELD_OUT_MOST = 2048
_EVALUATION_BATCH = 256


class NonFiniteLossError(Exception):
    """The loss became NaN or infinite."""


class _WithoutFirst(IterableDataset[Any]):
    """An iterable dataset without its first samples, which are held out."""

    def __init__(self, dataset: IterableDataset[Any], held_out: int) -> None:
        self._dataset = dataset
        self._held_out = held_out

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._dataset), self._held_out, None)


def metric_name(workload: Workload) -> str:
    """What the quality is called; `evaluate` is higher for better, a loss is lower."""
    return "evaluate" if workload.evaluate else "held_out_loss"


@dataclass(frozen=True)
class Exam:
    """The data of a probe: what to train on, and what was held out of it, if anything."""

    training: Dataset[Any]
    held_out: Dataset[Any] | None


def probe(setup: TrainingSetup, exam: Exam, samples: int) -> float:
    """Train on exactly `samples` samples, whatever the batch size, and return the quality.

    Raises:
        EmptyEpochError: the dataset does not fill a batch.
        NonFiniteLossError: the loss or the quality is not a finite number.
    """
    _train(setup, samples)
    quality = _evaluate(setup, exam.held_out)
    if not math.isfinite(quality):
        raise NonFiniteLossError(
            f"{metric_name(setup.workload)} is {quality} after {samples} samples"
        )
    return quality


def _train(setup: TrainingSetup, samples: int) -> None:
    setup.model.train()
    loss = None
    for batch in _batches(setup, samples):
        loss = setup.step(batch)
    if loss is not None and not torch.isfinite(loss).all():
        raise NonFiniteLossError(f"the loss is {loss.item()} after {samples} samples")


def _batches(setup: TrainingSetup, samples: int) -> Iterator[Any]:
    """Batches of `samples` samples in all: whole ones, then one of what is left."""
    size = setup.loader.batch_size or 1
    left = samples % size
    if left == 1 and samples > 1:
        left += size  # BatchNorm cannot train on a single sample
    yield from itertools.islice(_whole_batches(setup.loader), (samples - left) // size)
    if left:
        _stop_compiling(setup)
        yield _batch_of(left, setup.loader)


def _whole_batches(loader: DataLoader[Any]) -> Iterator[Any]:
    """One epoch after the other, without end."""
    while True:
        is_empty = True
        for batch in loader:
            is_empty = False
            yield batch
        if is_empty:
            raise _nothing_to_train_on()


def _batch_of(samples: int, loader: DataLoader[Any]) -> Any:
    """So many samples from the loader's dataset, drawn as the loader would draw them."""
    dataset, generator, sampler = loader.dataset, loader.generator, None
    if not isinstance(dataset, IterableDataset):
        sampler = RandomSampler(dataset, num_samples=samples, generator=generator)  # type: ignore[arg-type]
    single = DataLoader(
        dataset,
        batch_size=samples,
        sampler=sampler,
        drop_last=True,
        collate_fn=loader.collate_fn,
        generator=generator,
    )
    for batch in single:
        return batch
    raise _nothing_to_train_on()


def _nothing_to_train_on() -> EmptyEpochError:
    return EmptyEpochError(
        "the accuracy probe has no full batch to train on beside what it holds out; "
        "define evaluate(model, device), or choose a smaller batch_size"
    )


def _stop_compiling(setup: TrainingSetup) -> None:
    """The compiled call is for batches as in training; other shapes must not pay for their own."""
    setup.model._compiled_call_impl = None


@torch.no_grad()
def _evaluate(setup: TrainingSetup, held_out: Dataset[Any] | None) -> float:
    setup.model.eval()
    workload = setup.workload
    _stop_compiling(setup)
    if workload.evaluate is not None:
        return float(workload.evaluate(setup.model, setup.device))
    assert held_out is not None
    loader = DataLoader(held_out, batch_size=_EVALUATION_BATCH, collate_fn=workload.collate_fn)
    total, count = 0.0, 0
    for batch in loader:
        total += float(workload.compute_loss(setup.model, setup.transfer(batch)))
        count += 1
    return total / count if count else math.nan


def prepare_exam(workload: Workload) -> Exam:
    """The training set, less a slice of it where there is no `evaluate` to judge by."""
    dataset = build_dataset(workload)
    if workload.evaluate is not None:
        return Exam(dataset, None)
    if isinstance(dataset, IterableDataset):
        first = list(itertools.islice(iter(dataset), _EVALUATION_BATCH))
        return Exam(_WithoutFirst(dataset, len(first)), _Listed(first))
    count = len(dataset)  # type: ignore[arg-type]
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
    held_out = max(1, min(HELD_OUT_MOST, int(HELD_OUT_SHARE * count)))
    return Exam(Subset(dataset, order[held_out:]), Subset(dataset, order[:held_out]))


class _Listed(Dataset[Any]):
    """Samples that are already in memory."""

    def __init__(self, samples: list[Any]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Any:
        return self._samples[index]
