"""Lengths of a dataset's samples: the batch of the longest ones, and tokens.

Where samples differ in length and a batch is padded, memory follows the longest sample of a batch.
The timed batches may hold none of the longest. Production meets them in every epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from heapq import nlargest
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset

from autotune.values.measurement import LengthCount, TokenCount

_MOST_SAMPLES = 100_000
# Seconds of reading: in all, and while all samples were equally long.
_MOST_SECONDS, _EQUAL_SECONDS = 0.5, 0.1
# Samples whose tokens are counted, and seconds for that; at least one batch is counted.
_MOST_COUNTED, _COUNT_SECONDS = 1000, 0.25


class WorstBatch(NamedTuple):
    """A batch of the longest samples, and the number of samples among which they are."""

    batch: Any
    among: LengthCount


def worst_batch(
    loader: DataLoader[Any], clock: Callable[[], float] = time.perf_counter
) -> WorstBatch | None:
    """Return a batch of the longest samples of a loader's dataset.

    None if they are equally long, if their lengths are unknown, or for a stream. A dataset gives
    the lengths of all by an attribute `lengths`. Otherwise samples are read in random order, for
    half a second and 100,000 at most. The longest are repeated where fewer were read than a batch
    holds.
    """
    size = loader.batch_size
    if size is None or isinstance(loader.dataset, IterableDataset):
        return None
    try:
        lengths = _told(loader.dataset) or _read(loader.dataset, clock)
        # A list of all is not copied: it may be large, and memory is about to be measured.
        numbers = lengths if isinstance(lengths, dict) else range(len(lengths))
        chosen = nlargest(size, numbers, key=lengths.__getitem__)
        if not chosen or lengths[chosen[0]] == min(lengths[number] for number in numbers):
            return None
        read = [loader.dataset[number] for number in chosen]
        # A collate_fn may change what it is given.
        samples = [copy(read[n % len(read)]) for n in range(size)]
        among = LengthCount(len(lengths), len(loader.dataset))  # type: ignore[arg-type]
        return WorstBatch(loader.collate_fn(samples), among)
    except Exception:  # the user's code; what is lost is one look at the memory
        return None


def _told(dataset: Any) -> Sequence[float]:
    """Return the length of each sample as the dataset gives it; empty if it does not."""
    if isinstance(dataset, Subset):
        known = _told(dataset.dataset)
        return [known[index] for index in dataset.indices] if known else ()
    lengths = getattr(dataset, "lengths", None)
    if lengths is None or callable(lengths) or len(lengths) != len(dataset):
        return ()
    told: Sequence[float] = lengths.tolist() if hasattr(lengths, "tolist") else lengths
    return told


def _read(dataset: Any, clock: Callable[[], float]) -> dict[int, int]:
    """Return the lengths of samples in random order; empty if one is unknown."""
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
        case Mapping():
            known = [length for it in sample.values() if (length := sample_length(it)) is not None]
            return sum(known) if known else None
        case list() if not sample:
            return 0
        case [int() | float(), *_]:
            return len(sample)
        case tuple() | list() if sample:
            return sample_length(sample[0])
        case _:
            size = getattr(sample, "size", None)  # NumPy's
            return size if isinstance(size, int) else None


def count_tokens(
    loader: DataLoader[Any],
    tokens_in: Callable[[Any], int],
    clock: Callable[[], float] = time.perf_counter,
) -> TokenCount | None:
    """Count the tokens of batches as `loader` makes them; None for a stream that gives no batch.

    The batches are of a random part of the dataset, the same part in each process, or of a stream's
    beginning. It has 1000 samples, or fewer if that takes a quarter of a second.
    """
    is_stream, start = isinstance(loader.dataset, IterableDataset), clock()
    size, tokens, samples = loader.batch_size or 1, 0, 0
    batches = DataLoader(
        loader.dataset,
        batch_size=size,
        shuffle=None if is_stream else True,
        drop_last=True,
        collate_fn=loader.collate_fn,
        generator=torch.Generator().manual_seed(0),
    )
    for batch in batches:
        tokens += tokens_in(batch)
        samples += size
        if samples >= _MOST_COUNTED or clock() - start > _COUNT_SECONDS:
            break
    return TokenCount(tokens, samples) if samples else None
