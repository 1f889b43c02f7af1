"""What lies between two epochs, for timings that end before an epoch does.

Without persistent workers each epoch starts its processes anew; with them it still waits for the
first batch. An epoch of one batch, of a stream one per worker, shows both, at the cost of loading.
What is seen of a stream without a length is not charged: nobody knows how long its epochs are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from torch.utils.data import Dataset, IterableDataset, Subset

from autotune.training.apply import TrainingSetup, build_loader
from autotune.training.batches import Batches, Clock, Synchronize

# In a longer epoch no boundary weighs anything.
_LONG_SECONDS = 100.0


class _Beginning(IterableDataset[Any]):
    """A stream that ends after its first samples, in each worker."""

    def __init__(self, stream: IterableDataset[Any], samples: int) -> None:
        self._stream = stream
        self._samples = samples

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._stream), self._samples)


def probe_boundary(
    setup: TrainingSetup, seconds_per_sample: float, clock: Clock, synchronize: Synchronize
) -> tuple[float, ...]:
    """Seconds from the end of one epoch to the first batch of the next, as a tuple of one.

    None where training itself loads: it then waits for a first batch as for any other.
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
