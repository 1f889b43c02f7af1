"""Batches without end, with what the DataLoader holds ready.

A DataLoader's workers go on working while training is held up: by a compilation, say. The batches
that then lie ready make any loader look fast until they are used up, so how many there are is
counted, and what training takes from them is not credited to the loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

Clock = Callable[[], float]
Synchronize = Callable[[], None]


class EmptyEpochError(Exception):
    """An epoch without a single full batch."""


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """One epoch after the other, without telling where one ends.

    Raises:
        EmptyEpochError: an epoch gives no batch, as the second one of a stream that is read once.
    """
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise EmptyEpochError("the DataLoader gives no full batch")


class Batches:
    """Batches without end: one epoch after the other, with the cost of each boundary noted."""

    def __init__(self, loader: Iterable[Any], clock: Clock, synchronize: Synchronize) -> None:
        self._loader = loader
        self._clock = clock
        self._synchronize = synchronize
        self._iterator: Iterator[Any] = iter(loader)
        self._batches_in_epoch = 0
        self.epoch_batches: int | None = None
        """Batches in the last epoch that ended; None before one did."""
        self.boundary_seconds: list[float] = []
        self.wait_seconds = 0.0
        """Time spent waiting for batches so far, boundaries excluded."""

    @property
    def workers(self) -> int:
        """Processes that load batches; 0 where training does it itself."""
        return int(getattr(self._loader, "num_workers", 0))

    @property
    def queued(self) -> int:
        """The most batches that can lie ready or be under way."""
        return self.workers * ((getattr(self._loader, "prefetch_factor", 0) or 0) + 1)

    def ready(self) -> int | None:
        """Batches that lie ready; None where that cannot be told or does not matter.

        Near the end of an epoch nothing is asked of the workers any more, so what lies ready is
        used up in every epoch and belongs to its pace.
        """
        if not self.workers:
            return 0
        iterator: Any = self._iterator
        try:
            # Not public; where torch changes them, the longer warm-up of an unknown stock holds.
            if iterator._tasks_outstanding < self.workers * iterator._prefetch_factor:
                return None
            ready = sum(len(task) > 1 for task in iterator._task_info.values())
            queues = {id(q): q for q in (iterator._data_queue, iterator._worker_result_queue)}
            return int(ready + sum(queue.qsize() for queue in queues.values()))
        except (AttributeError, NotImplementedError, OSError):
            return None

    def close(self) -> None:
        """End the workers; there are no further batches."""
        self._iterator = iter(())
        if getattr(self._loader, "_iterator", None) is not None:
            self._loader._iterator = None  # type: ignore[attr-defined]  # the persistent ones

    def next(self) -> Any:
        """The next batch.

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
