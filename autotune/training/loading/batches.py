"""Endless batches from a DataLoader, with a count of the batches that lie ready in its queue.

A DataLoader's workers keep loading while training is stalled, by a compilation for example. The
batches that are ready then make any loader look fast until they are used up. So they are counted,
and batches that training takes from this stock are not credited to the loader.

A boundary is the time between two epochs. Without persistent workers each epoch starts its
processes anew; with them it still waits for the first batch. `probe_boundary` measures it for
timings that end before an epoch does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from autotune.knobs.torch_private import drop_iterator, has_iterator, ready_batches

Clock = Callable[[], float]
Synchronize = Callable[[], None]

# Seconds of an epoch from which on its boundary is negligible.
_LONG_SECONDS = 100.0


class EmptyEpochError(Exception):
    """An epoch gave no full batch."""


class StreamSlice(IterableDataset[Any]):
    """The samples of a stream from `start` up to `stop`; each iteration reads the stream anew.

    In DataLoader workers each of them gives that part of its own stream.
    """

    def __init__(self, stream: IterableDataset[Any], start: int, stop: int | None) -> None:
        self._stream = stream
        self._start = start
        self._stop = stop

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._stream), self._start, self._stop)


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches of one epoch after the other, and keep none of them.

    Raises:
        EmptyEpochError: an epoch gives no batch, as the second one of a stream that can only be
            read once.
    """
    while True:
        epoch = iter(loader)
        try:
            yield next(epoch)
        except StopIteration:
            raise EmptyEpochError("the DataLoader gives no full batch") from None
        yield from epoch


class Batches:
    """Endless batches, one epoch after the other; records waits and the cost of each boundary."""

    def __init__(
        self,
        loader: Iterable[Any],
        clock: Clock,
        synchronize: Synchronize,
        ahead: Callable[[Iterator[Any]], Iterator[Any]] = iter,
    ) -> None:
        """Begin the first epoch; `ahead` may copy the batches of an epoch before they are given."""
        self._loader = loader
        self._clock = clock
        self._synchronize = synchronize
        self._iterator: Iterator[Any] = iter(loader)
        self._ahead = ahead
        self._fed = ahead(self._iterator)
        self._batches_in_epoch = 0
        self.epoch_batches: int | None = None
        """Batches in the last epoch that ended; None before one did."""
        self.boundary_seconds: list[float] = []
        """Seconds of each boundary so far: ending an epoch and waiting for the next first batch."""
        self.wait_seconds = 0.0
        """Seconds spent waiting for batches so far, boundaries excluded."""

    @property
    def workers(self) -> int:
        """Number of processes that load batches; 0 if the training process does it itself."""
        return int(getattr(self._loader, "num_workers", 0))

    @property
    def queued(self) -> int:
        """Upper bound of the batches that can be ready or in preparation."""
        return self.workers * ((getattr(self._loader, "prefetch_factor", 0) or 0) + 1)

    def ready(self) -> int | None:
        """Return the number of batches that are ready; None if unknown or without meaning.

        Without that number the warm-up is longer.
        """
        return ready_batches(self._iterator, self.workers) if self.workers else 0

    def close(self) -> None:
        """Stop the workers; no batches follow."""
        self._iterator = self._fed = iter(())
        if has_iterator(self._loader):
            drop_iterator(self._loader)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        """Return the next batch; there is always one.

        Raises:
            EmptyEpochError: the loader gives no batch at all.
        """
        start = self._clock()
        try:
            batch = next(self._fed)
        except StopIteration:
            # Ending an epoch stops the workers where they do not persist.
            return self._next_epoch(closing_seconds=self._clock() - start)
        self.wait_seconds += self._clock() - start
        self._batches_in_epoch += 1
        return batch

    def _next_epoch(self, closing_seconds: float) -> Any:
        self.epoch_batches, self._batches_in_epoch = self._batches_in_epoch, 1
        self._synchronize()
        start = self._clock()
        self._iterator = iter(self._loader)
        self._fed = self._ahead(self._iterator)
        try:
            batch = next(self._fed)
        except StopIteration:
            raise EmptyEpochError("the DataLoader gives no full batch") from None
        self.boundary_seconds.append(closing_seconds + self._clock() - start)
        return batch


def has_long_epochs(epoch_seconds: float) -> bool:
    """Return True if epochs are so long that the boundary between them is negligible."""
    return epoch_seconds > _LONG_SECONDS


def first_samples(dataset: Dataset[Any], batch_size: int, workers: int) -> range:
    """Return the indices of a short epoch: a full batch for each worker, one if there are fewer.

    All workers begin at once and compete, as in an epoch of the whole `dataset`.
    """
    samples = len(dataset)  # type: ignore[arg-type]
    batches = max(1, min(workers, samples // batch_size))
    return range(min(samples, batches * batch_size))


def probe_boundary(
    short: DataLoader[Any], clock: Clock, synchronize: Synchronize
) -> tuple[float, ...]:
    """Measure the seconds from the end of one epoch to the first batch of the next.

    Args:
        short: a loader with the workers of training, but epochs of one batch per worker, since an
            epoch costs its loading.
        clock: seconds.
        synchronize: waits until the device has done its work.

    Raises:
        EmptyEpochError: the loader gives no batch.
    """
    batches = Batches(short, clock, synchronize)
    while not batches.boundary_seconds:
        next(batches)
    return tuple(batches.boundary_seconds)
