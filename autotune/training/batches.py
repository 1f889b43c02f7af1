"""Endless batches from a DataLoader, with a count of the batches that lie ready in its queue.

A DataLoader's workers keep loading while training is stalled, by a compilation for example. The
batches that are ready then make any loader look fast until they are used up. So they are counted,
and batches that training takes from this stock are not credited to the loader.

A boundary is the time between two epochs. Without persistent workers each epoch starts new
processes; with them it still waits for the first batch. `boundaries` measures one for timings that
end before an epoch does.
"""

from __future__ import annotations

import itertools
import time
from collections import UserDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Subset

from autotune.knobs.torch_private import drop_iterator, has_iterator, map_leaves, ready_batches

Clock = Callable[[], float]
Synchronize = Callable[[], None]

# Seconds of an epoch from which on its boundary is negligible.
_LONG_SECONDS = 100.0
_NO_BATCH = "the DataLoader gives no full batch"
STREAM = "the dataset is an IterableDataset, and each worker might load all of it"
"""Reason why the number of workers stays: only the dataset can leave out what others give."""


class EmptyEpochError(Exception):
    """An epoch gave no full batch."""


class StreamSlice(IterableDataset[Any]):
    """The samples of a stream from `start` up to `stop`; each iteration reads the stream again.

    In DataLoader workers each of them gives that part of its own stream.
    """

    def __init__(self, stream: IterableDataset[Any], start: int, stop: int | None) -> None:
        self._stream = stream
        self._start = start
        self._stop = stop

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._stream), self._start, self._stop)


def endless(loader: Iterable[Any], if_empty: str = _NO_BATCH) -> Iterator[Any]:
    """Yield the batches of one epoch after the other, and keep none of them.

    Raises:
        EmptyEpochError: an epoch gives no batch, as the second one of a stream that can only be
            read once; the message is `if_empty`.
    """
    while True:
        epoch = iter(loader)
        try:
            yield next(epoch)
        except StopIteration:
            raise EmptyEpochError(if_empty) from None
        yield from epoch


class Batches:
    """Endless batches, one epoch after the other; records waits and the cost of each boundary."""

    def __init__(
        self,
        loader: Iterable[Any],
        clock: Clock,
        synchronize: Synchronize,
        per_step: int = 1,
    ) -> None:
        """Begin the first epoch; `loader` gives the batches of one each time that it is iterated.

        An optimizer step takes `per_step` of them.
        """
        self._per_step = per_step
        self.loader: Any = loader
        """The source of the batches."""
        self._clock = clock
        self.synchronize = synchronize
        """Function that waits until the device has done its work."""
        self._iterator: Iterator[Any] = iter(loader)
        self._batches_in_epoch = 0
        self.epoch_batches: int | None = None
        """Batches in the last epoch that ended; None before one did."""
        self.boundary_seconds: list[float] = []
        """Seconds of each boundary so far: ending an epoch and waiting for the next first batch."""
        self.wait_seconds = 0.0
        """Seconds spent waiting for batches so far, boundaries excluded."""

    def clock(self) -> float:
        """Return the time in seconds, on a clock that may stand still while nothing is trained."""
        return self._clock()

    @property
    def accumulation_steps(self) -> int:
        """Batches of an optimizer step."""
        return self._per_step

    @property
    def samples_per_batch(self) -> float:
        """Samples of a batch."""
        return float(self.loader.batch_size)

    @property
    def samples_per_step(self) -> float:
        """Samples of an optimizer step."""
        return self.accumulation_steps * self.samples_per_batch

    @property
    def epoch_samples(self) -> int | None:
        """Samples of one epoch, which may be broken off; None if its length is not known."""
        batches = self.epoch_batches
        if batches is None and hasattr(self.loader.dataset, "__len__"):
            batches = length_of(self.loader)
        return None if batches is None else round(batches * self.samples_per_batch)

    @property
    def workers(self) -> int:
        """Number of processes that load batches; 0 if the training process does it itself."""
        return int(getattr(self.loader, "num_workers", 0))

    @property
    def queued(self) -> int:
        """Upper bound of the batches that can be ready or in preparation."""
        return self.workers * ((getattr(self.loader, "prefetch_factor", 0) or 0) + 1)

    def ready(self) -> int | None:
        """Return the number of batches that are ready; None if unknown or without meaning.

        Without that number the warm-up is longer.
        """
        return ready_batches(self._iterator, self.workers) if self.workers else 0

    def close(self) -> None:
        """Stop the workers; no batches follow."""
        self._iterator = iter(())
        if has_iterator(self.loader):
            drop_iterator(self.loader)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        """Return the next batch; there is always one.

        Raises:
            EmptyEpochError: the loader gives no batch at all.
        """
        start = self.clock()
        try:
            batch = next(self._iterator)
        except StopIteration:
            # Ending an epoch stops the workers where they do not persist.
            return self._next_epoch(closing_seconds=self.clock() - start)
        self.wait_seconds += self.clock() - start
        self._batches_in_epoch += 1
        return batch

    def _next_epoch(self, closing_seconds: float) -> Any:
        self.epoch_batches, self._batches_in_epoch = self._batches_in_epoch, 1
        self.synchronize()
        start = self.clock()
        self._iterator = iter(self.loader)
        try:
            batch = next(self._iterator)
        except StopIteration:
            raise EmptyEpochError(_NO_BATCH) from None
        self.boundary_seconds.append(closing_seconds + self.clock() - start)
        return batch


def boundaries(batches: Batches, seconds_per_sample: float) -> tuple[float, ...]:
    """Return the seconds of the boundaries that were timed, or of one that is made if none was.

    None is made if epochs are long or of unknown length, or if the training process loads itself: a
    first batch is then as any other. A short epoch has a full batch for each worker, or one if
    there are fewer: all begin at once and compete, as in a whole epoch.

    Side effect: no batches follow.

    Raises:
        EmptyEpochError: the loader gives no batch.
    """
    seen, loader, epoch = tuple(batches.boundary_seconds), batches.loader, batches.epoch_samples
    if seen or not (epoch and batches.workers and loader.batch_size):
        return seen
    dataset, size = loader.dataset, loader.batch_size
    is_stream = isinstance(dataset, IterableDataset)
    samples = size if is_stream else length_of(dataset)
    if not samples or epoch * seconds_per_sample > _LONG_SECONDS:
        return ()
    batches.close()
    first = min(samples, size * max(1, min(loader.num_workers, samples // size)))
    beginning: Any = StreamSlice(dataset, 0, first) if is_stream else Subset(dataset, range(first))
    short = DataLoader(
        beginning,
        batch_size=size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )
    epochs = Batches(short, time.perf_counter, lambda: None)
    while not epochs.boundary_seconds:
        next(epochs)
    return tuple(epochs.boundary_seconds)


# Attribute of torch's iterators: an epoch, and the samples of its batches that are not given yet.
# It is looked up twice for each batch, where a dictionary costs more.
_ASKED = "_asked_by_autotune"


class BatchSizes:
    """The samples of each batch that torch's loaders give.

    Call `note` with each index that one asks for, and `given` for each batch.

    A loader asks its sampler for the indices of a batch, long before workers have loaded it.
    A stream is asked for a full batch each time, also for its last one.
    """

    def __init__(self) -> None:
        self.last = 0
        """Samples of the last batch; 0 if its loader does not know."""

    def given(self, iterator: Any) -> None:
        """Record that an iterator gave a batch."""
        _, sizes = getattr(iterator, _ASKED, (None, None))
        self.last = sizes.popleft() if sizes else 0

    def of(self, batch: Any, loader: DataLoader[Any] | None = None) -> int:
        """Return the samples of the batch that was given last, by `loader` if that is known."""
        if self.last:
            return self.last
        own = None if loader is None else batch_size_of(loader)
        return own or samples_in(batch)

    def note(self, iterator: Any, epoch: object, index: Any, is_batch: bool) -> None:
        """Record the indices of a batch, or one index, that an iterator asked for."""
        known, sizes = getattr(iterator, _ASKED, (None, deque[int]()))
        if known is not epoch:
            sizes = deque[int]()
            setattr(iterator, _ASKED, (epoch, sizes))
        is_counted = (is_batch or isinstance(index, list)) and hasattr(index, "__len__")
        sizes.append(len(index) if is_counted else 0)


def samples_in(batch: Any) -> int:
    """Return the length of a batch's first tensor that has one; 0 without such a tensor."""
    first = batch[0] if type(batch) in (list, tuple) and batch else batch
    if type(first) is Tensor and first.dim():  # nearly always, and asked for in every step
        return first.size(0)
    return next((one.size(0) for one in tensors_in(batch) if one.dim()), 0)


def bytes_in(batch: Any) -> int:
    """Return the bytes of the tensors in a batch."""
    return sum(one.numel() * one.element_size() for one in tensors_in(batch))


def tensors_in(batch: Any) -> list[Tensor]:
    """Return the tensors in a nested batch; none in one of an unknown type."""
    found: list[Tensor] = []

    def look(leaf: Any) -> None:
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif isinstance(leaf, UserDict):  # a tokenizer's batch
            map_leaves(look, leaf.data)

    with suppress(Exception):  # which must not harm a script
        map_leaves(look, batch)
    return found


def batch_size_of(loader: DataLoader[Any]) -> int | None:
    """Return the samples of a full batch; None if a sampler of the script's own decides."""
    if loader.batch_size is not None:
        return loader.batch_size
    sampler = loader.batch_sampler
    size = sampler.batch_size if isinstance(sampler, BatchSampler) else None
    return size if isinstance(size, int) else None


def length_of(thing: Any) -> int | None:
    """Return the length of a loader or a sampler; None if it has none, as an endless one has."""
    try:
        return len(thing)
    except TypeError:
        return None
