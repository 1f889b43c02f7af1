"""The batch of a dataset that takes most memory: its longest samples together.

Where samples differ in length and a batch is padded, memory follows the longest sample of a batch.
The timed batches may hold none of the longest. Production meets them in every epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

_MOST_SAMPLES = 1000
# Seconds of reading: in all, and while all samples were equally long.
_MOST_SECONDS, _EQUAL_SECONDS = 0.5, 0.1


def worst_batch(
    loader: DataLoader[Any], clock: Callable[[], float] = time.perf_counter
) -> Any | None:
    """Return a batch of the longest samples in a random part of a loader's dataset.

    None if they are equally long, if their lengths cannot be told, or for a stream. The part has
    1000 samples, or fewer if reading takes half a second. The longest are repeated where fewer were
    read than a batch holds.
    """
    size = loader.batch_size
    if size is None or isinstance(loader.dataset, IterableDataset):
        return None
    try:
        chosen = _longest(loader.dataset, clock)
        if not chosen:
            return None
        samples = [loader.dataset[chosen[n % len(chosen)]] for n in range(size)]
        return loader.collate_fn(samples)
    except Exception:  # the user's code; what is lost is one look at the memory
        return None


def _longest(dataset: Any, clock: Callable[[], float]) -> list[int]:
    """Return numbers of samples, the longest first; none if all are equally long."""
    start, lengths = clock(), dict[int, int]()
    generator = torch.Generator().manual_seed(0)
    for number in torch.randperm(len(dataset), generator=generator)[:_MOST_SAMPLES].tolist():
        length = sample_length(dataset[number])
        if length is None:
            return []
        lengths[number] = length
        most = _EQUAL_SECONDS if len(set(lengths.values())) == 1 else _MOST_SECONDS
        if len(lengths) > 1 and clock() - start > most:
            break
    if len(set(lengths.values())) < 2:  # noqa: PLR2004 (they differ)
        return []
    return sorted(lengths, key=lambda number: -lengths[number])


def sample_length(sample: Any) -> int | None:
    """Return the number of elements of a sample's first tensor, array or list of numbers."""
    match sample:
        case Tensor():
            return sample.numel()
        case dict() if sample:
            return sample_length(next(iter(sample.values())))
        case [int() | float(), *_]:
            return len(sample)
        case tuple() | list() if sample:
            return sample_length(sample[0])
        case _:
            size = getattr(sample, "size", None)  # NumPy's
            return size if isinstance(size, int) else None
