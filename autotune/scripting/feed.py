"""The batches of a loop that is not ours, told apart from what else the script does.

The loader of training is the one that the last batch before an optimizer's step came from. What
passes between an epoch's end and the next one's beginning, or while another loader is read, is an
evaluation, a checkpoint, a log: not a part of training that settings could speed up, so the clock
of training stands still meanwhile.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from autotune.scripting.seen import batch_size_of, samples_in
from autotune.training.batches import Batches, Synchronize
from autotune.training.inspection import tensor_bytes


class Feed(Batches):
    """What a script takes from its loaders; to be told of every step."""

    def __init__(self, synchronize: Synchronize) -> None:
        super().__init__((), self.clock, synchronize)
        self.loader: DataLoader[Any] | None = None
        """That of training, once a step was made with a batch of it."""
        self.steps = 0
        self.batches = 0
        """Those that steps were made with."""
        self.samples = 0
        self.sample_bytes = 0
        """Of the tensors of one sample in the first batch of all."""
        self._standing = 0.0
        self._last = 0.0
        self._elsewhere = False
        self._closing = 0.0
        self._opening: float | None = None
        self._last_size = 0
        self._since_step: tuple[DataLoader[Any] | None, int, int] = (None, 0, 0)
        self._loaders: weakref.WeakKeyDictionary[Any, DataLoader[Any]] = weakref.WeakKeyDictionary()
        self._read: Iterator[Any] = iter(())

    def clock(self) -> float:
        """Seconds of training."""
        return time.perf_counter() - self._standing

    def watch(self) -> None:
        """See every batch that any loader gives from now on."""
        begin, give = DataLoader.__iter__, _BaseDataLoaderIter.__next__

        def __iter__(loader: DataLoader[Any]) -> Any:  # noqa: N807
            start = time.perf_counter()
            iterator = begin(loader)
            self._begun(loader, iterator, start)
            return iterator

        def __next__(iterator: Any) -> Any:  # noqa: N807
            start = time.perf_counter()
            try:
                batch = give(iterator)
            except StopIteration:
                self._ended(iterator, start)
                raise
            self._given(iterator, start, batch)
            return batch

        DataLoader.__iter__ = __iter__  # type: ignore[method-assign]
        _BaseDataLoaderIter.__next__ = __next__  # type: ignore[method-assign, assignment]

    def stepped(self) -> None:
        """An optimizer has stepped."""
        loader, batches, samples = self._since_step
        if loader is not None and loader is not self.loader:
            self.loader = self._loader = loader
            self._iterator, self._elsewhere, self._opening = self._read, False, None
        self.steps += 1
        self.batches += batches
        self.samples += samples
        self._since_step = (loader, 0, 0)
        self._last = time.perf_counter()

    def pass_over(self) -> None:
        """All but this step since the last one that counted did not count."""
        loader, batches, _ = self._since_step
        self._since_step = (loader, min(1, batches), self._last_size)
        self._stand_still_until(time.perf_counter())

    @property
    def samples_per_batch(self) -> float:
        """Of an epoch's mean batch, where the loader knows; else of those that were seen."""
        seen = self.samples / max(1, self.batches)
        if self.loader is None or self.loader.batch_size is None:
            return seen
        if self.loader.drop_last or isinstance(self.loader.dataset, IterableDataset):
            return self.loader.batch_size
        return len(self.loader.sampler) / len(self.loader)  # type: ignore[arg-type]

    @property
    def samples_per_step(self) -> float:
        """More than a batch where gradients of several are added up."""
        return self.samples_per_batch * self.batches / max(1, self.steps)

    @property
    def epoch_samples(self) -> int | None:
        """Samples of one epoch; None where none has ended and the loader does not know."""
        batches = self.epoch_batches
        if batches is None and self.loader is not None and hasattr(self.loader.dataset, "__len__"):
            batches = len(self.loader)
        return None if batches is None else round(batches * self.samples_per_batch)

    def ready(self) -> int | None:
        """Steps for which batches lie ready."""
        batches = super().ready()
        return None if batches is None else round(batches * self.steps / max(1, self.batches))

    def _begun(self, loader: DataLoader[Any], iterator: Any, start: float) -> None:
        self._loaders[iterator] = loader
        if loader is not self.loader:
            self._elsewhere = True
            return
        self._stand_still_until(start)
        self._opening = self._closing + time.perf_counter() - start
        self._closing = 0.0
        self._iterator = iterator
        self._batches_in_epoch = 0

    def _given(self, iterator: Any, start: float, batch: Any) -> None:
        loader = self._loaders.get(iterator)
        if loader is None:
            return
        seconds, size = time.perf_counter() - start, _size(batch, loader)
        if not self.sample_bytes:
            self.sample_bytes = _bytes(batch) // max(1, size)
        last, batches, samples = self._since_step
        if last is not loader:
            batches = samples = 0
        self._since_step = (loader, batches + 1, samples + size)
        self._last_size = size
        self._read = iterator
        if loader is not self.loader:
            return
        if self._elsewhere:
            self._stand_still_until(start)
        self._batches_in_epoch += 1
        if self._opening is None:
            self.wait_seconds += seconds
        else:
            self.boundary_seconds.append(self._opening + seconds)
            self._opening = None

    def _ended(self, iterator: Any, start: float) -> None:
        if self._loaders.get(iterator) is self.loader is not None:
            self._last = time.perf_counter()
            self._closing = self._last - start
            self.epoch_batches = self._batches_in_epoch

    def _stand_still_until(self, moment: float) -> None:
        self._standing += max(0.0, moment - self._last)
        self._last = moment
        self._elsewhere = False


def _size(batch: Any, loader: DataLoader[Any]) -> int:
    return samples_in(batch) or batch_size_of(loader) or 1


def _bytes(batch: Any) -> int:
    try:
        return tensor_bytes(batch)
    except Exception:  # a batch that does not say: the script is none the worse for it
        return 0
