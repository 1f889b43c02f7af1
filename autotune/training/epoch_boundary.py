"""Time of the boundary between two epochs, for timings that end before an epoch does.

Without persistent workers each epoch starts its processes anew. With them it still waits for the
first batch. An epoch of one batch (one per worker for a stream) shows both, at the cost of loading.
The boundary of a stream without a length is measured but not charged, since its epochs have no
known length.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from torch.utils.data import Dataset, IterableDataset, Subset

from autotune.training.apply import TrainingSetup, build_loader
from autotune.training.batches import Batches, Clock, Synchronize

# Seconds of an epoch from which on its boundary is negligible.
_LONG_SECONDS = 100.0


class _Beginning(IterableDataset[Any]):
    """A stream that ends after its first `samples` samples in each worker."""

    def __init__(self, stream: IterableDataset[Any], samples: int) -> None:
        self._stream = stream
        self._samples = samples

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._stream), self._samples)


def probe_boundary(
    setup: TrainingSetup, seconds_per_sample: float, clock: Clock, synchronize: Synchronize
) -> tuple[float, ...]:
    """Measure the seconds from the end of one epoch to the first batch of the next.

    Return a tuple of one number. It is empty if epochs are so long that the boundary is negligible.
    It is also empty if the training process loads itself: a first batch is then as any other.
    """
    dataset = setup.loader.dataset
    if not setup.loader.num_workers:
        return ()
    if hasattr(dataset, "__len__") and len(dataset) * seconds_per_sample > _LONG_SECONDS:
        return ()
    short = _beginning(dataset, setup.loader.batch_size or 1)
    batches = Batches(build_loader(setup.config, setup.workload, short, seed=0), clock, synchronize)
    while not batches.boundary_seconds:
        batches.next()
    return tuple(batches.boundary_seconds)


def _beginning(dataset: Dataset[Any], samples: int) -> Dataset[Any]:
    if isinstance(dataset, IterableDataset):
        return _Beginning(dataset, samples)
    return Subset(dataset, range(samples))
