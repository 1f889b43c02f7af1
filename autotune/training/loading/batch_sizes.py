"""Tell the samples of a batch: from the indices that its loader asked for, else from its tensors.

The leading dimension of a tensor may be that of channels or of time. So tensors are only looked at
where the loader does not tell.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader

from autotune.knobs.torch_private import loader_iterators, watch_indices

# Attribute of torch's iterators: looked up twice for each batch, where a dictionary costs more.
_ASKED = "_asked_by_autotune"


class BatchSizes:
    """The samples of each batch that torch's loaders give. Call `watch` once.

    A loader asks its sampler for the indices of a batch, long before workers have loaded it.
    A stream is asked for a full batch each time, also for its last one.
    """

    def __init__(self) -> None:
        self.last = 0
        """Samples of the last batch; 0 if its loader does not tell."""

    def watch(self) -> None:
        """Record what is asked for and given from now on; patches torch's iterators."""
        watch_indices(self._note)
        iterators = loader_iterators()
        give = iterators.__next__

        def __next__(iterator: Any) -> Any:  # noqa: N807
            batch = give(iterator)
            asked = getattr(iterator, _ASKED, None)
            self.last = asked.sizes.popleft() if asked is not None and asked.sizes else 0
            return batch

        iterators.__next__ = __next__

    def of(self, batch: Any, loader: DataLoader[Any] | None = None) -> int:
        """Return the samples of the batch that was given last, by `loader` if that is known."""
        if self.last:
            return self.last
        own = None if loader is None else batch_size_of(loader)
        return own or samples_in(batch)

    def _note(self, iterator: Any, epoch: object, index: Any, is_batch: bool) -> None:
        asked = getattr(iterator, _ASKED, None)
        if asked is None or asked.epoch is not epoch:
            asked = _Asked(epoch)
            setattr(iterator, _ASKED, asked)
        is_counted = (is_batch or isinstance(index, list)) and hasattr(index, "__len__")
        asked.sizes.append(len(index) if is_counted else 0)


class _Asked:
    """Samples of the batches of one epoch that were asked for and are not given yet."""

    def __init__(self, epoch: object) -> None:
        self.epoch = epoch
        self.sizes: deque[int] = deque()


def samples_in(batch: Any) -> int:
    """Return the length of a batch's first tensor; 0 if it has none or is of an unknown type."""
    first = batch[0] if type(batch) in (list, tuple) and batch else batch
    if type(first) is Tensor and first.dim():  # nearly always, and asked for in every step
        return first.size(0)
    try:
        return _first_length(batch)
    except Exception:  # an unknown type of batch must not harm the script
        return 0


def _first_length(batch: Any) -> int:
    match batch:
        case Tensor() if batch.dim():
            return batch.shape[0]
        case dict() if batch:
            return _first_length(next(iter(batch.values())))
        case tuple() | list() if batch:
            return _first_length(batch[0])
        case _ if hasattr(batch, "data") and isinstance(batch.data, dict):  # a tokenizer's batch
            return _first_length(batch.data)
        case _:
            return 0


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
