"""Endless batches from a DataLoader, with a count of the batches that lie ready in its queue.

A DataLoader's workers keep loading while training is stalled, by a compilation for example. The
batches that are ready then make any loader look fast until they are used up. So they are counted,
and batches that training takes from this stock are not credited to the loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from autotune.knobs.torch_private import drop_iterator, has_iterator, ready_batches

Clock = Callable[[], float]
Synchronize = Callable[[], None]


class EmptyEpochError(Exception):
    """An epoch gave no full batch."""


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches of one epoch after the other.

    Raises:
        EmptyEpochError: an epoch gives no batch, as the second one of a stream that can only be
            read once.
    """
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise EmptyEpochError("the DataLoader gives no full batch")


class Batches:
    """Endless batches, one epoch after the other; records waits and the cost of each boundary."""

    def __init__(self, loader: Iterable[Any], clock: Clock, synchronize: Synchronize) -> None:
        self._loader = loader
        self._clock = clock
        self._synchronize = synchronize
        self._iterator: Iterator[Any] = iter(loader)
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
        self._iterator = iter(())
        if has_iterator(self._loader):
            drop_iterator(self._loader)

    def next(self) -> Any:
        """Return the next batch.

        Raises:
            EmptyEpochError: the loader gives no batch at all.
        """
        start = self._clock()
        try:
            batch = next(self._iterator)
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
        try:
            batch = next(self._iterator)
        except StopIteration:
            raise EmptyEpochError("the DataLoader gives no full batch") from None
        self.boundary_seconds.append(closing_seconds + self._clock() - start)
        return batch
