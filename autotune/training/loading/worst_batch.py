"""The batch of a dataset that takes most memory: its longest samples together.

Where samples differ in length and a batch is padded, memory follows the longest sample of a batch.
The timed batches may hold none of the longest. Production meets them in every epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset

from autotune.knobs.torch_private import loader_iterators
from autotune.training.loading.batch_sizes import batch_size_of
from autotune.values.measurement import LengthCount

_MOST_SAMPLES = 100_000
# Seconds of reading: in all, and while all samples were equally long.
_MOST_SECONDS, _EQUAL_SECONDS = 0.5, 0.1


class WorstBatch(NamedTuple):
    """A batch of the longest samples, and the number of samples among which they are."""

    batch: Any
    among: LengthCount


def worst_batch(
    loader: DataLoader[Any], clock: Callable[[], float] = time.perf_counter
) -> WorstBatch | None:
    """Return a batch of the longest samples of a loader's dataset.

    None if they are equally long, if their lengths cannot be told, or for a stream. A dataset tells
    the lengths of all by an attribute `lengths`. Otherwise samples are read in random order, for
    half a second and 100,000 at most. The longest are repeated where fewer were read than a batch
    holds.
    """
    size = batch_size_of(loader)
    if size is None or isinstance(loader.dataset, IterableDataset):
        return None
    try:
        lengths = _told(loader.dataset) or _read(loader.dataset, clock)
        if len(set(lengths.values())) < 2:  # noqa: PLR2004 (they differ)
            return None
        chosen = sorted(lengths, key=lambda number: -lengths[number])[:size]
        samples = [loader.dataset[chosen[n % len(chosen)]] for n in range(size)]
        among = LengthCount(len(lengths), len(loader.dataset))  # type: ignore[arg-type]
        return WorstBatch(loader.collate_fn(samples), among)
    except Exception:  # the user's code; what is lost is one look at the memory
        return None


@contextmanager
def given_next(batch: Any, is_asked: Callable[[], bool]) -> Iterator[None]:
    """Let torch's loaders give `batch` in place of the next one of training, in this block.

    `is_asked` returns True if the loader that has just been read is that of training. Patches the
    iterators of `DataLoader` for the process.
    """
    iterators, waiting = loader_iterators(), [batch]
    give = iterators.__next__

    def __next__(iterator: Any) -> Any:  # noqa: N807
        own = give(iterator)
        return waiting.pop() if waiting and torch.is_grad_enabled() and is_asked() else own

    iterators.__next__ = __next__
    try:
        yield
    finally:
        iterators.__next__ = give


def _told(dataset: Any) -> dict[int, float]:
    """Return the length of each sample as the dataset tells it; empty if it does not."""
    if isinstance(dataset, Subset):
        known = _told(dataset.dataset)
        return {n: known[index] for n, index in enumerate(dataset.indices)} if known else {}
    lengths = getattr(dataset, "lengths", None)
    if lengths is None or callable(lengths) or len(lengths) != len(dataset):
        return {}
    return {n: float(length) for n, length in enumerate(lengths)}


def _read(dataset: Any, clock: Callable[[], float]) -> dict[int, int]:
    """Return the lengths of samples in random order; empty if that of one cannot be told."""
    start, lengths, differ = clock(), dict[int, int](), set[int]()
    for number in _random_numbers(len(dataset)):
        length = sample_length(dataset[number])
        if length is None:
            return {}
        lengths[number] = length
        differ.add(length)
        most = _EQUAL_SECONDS if len(differ) == 1 else _MOST_SECONDS
        if len(lengths) > 1 and clock() - start > most:
            break
    return lengths


def _random_numbers(count: int) -> Iterable[int]:
    """Return numbers below `count`; all of them, in random order, if they are not too many."""
    if count > _MOST_SAMPLES:
        random = Random(0)  # noqa: S311 - no secret
        return (random.randrange(count) for _ in range(_MOST_SAMPLES))
    return torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()


def sample_length(sample: Any) -> int | None:
    """Return the number of elements of a sample's first tensor, array or list of numbers.

    Of a dictionary all count together: the first may be a label.
    """
    match sample:
        case Tensor():
            return sample.numel()
        case dict() if sample:
            known = [size for value in sample.values() if (size := sample_length(value))]
            return sum(known) if known else None
        case [int() | float(), *_]:
            return len(sample)
        case tuple() | list() if sample:
            return sample_length(sample[0])
        case _:
            size = getattr(sample, "size", None)  # NumPy's
            return size if isinstance(size, int) else None
