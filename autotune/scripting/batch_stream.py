"""The batch stream of a script's own training loop, told apart from what else the script does.

The training loader is the one that the last batch before an optimizer step came from. Between two
epochs, or while another loader is read, the script evaluates, saves or logs. Settings cannot speed
that up, so the training clock stops meanwhile.

The training loader may also be read to evaluate. An iteration is an evaluation if it begins without
gradients, or if no backward pass and no step follow before the next iteration.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from autotune.scripting.loaders import TrainingLoaders
from autotune.scripting.observed_training import ModelCalls
from autotune.training.batches import Batches, Synchronize, bytes_in, length_of
from autotune.values.outcome import SETTLED_STEP

# Steps without a batch after which the loader that was read before is known not to feed them.
_UNFED = 10
# Counts that an iteration changes, and that are as before where it turns out to be an evaluation.
_COUNTS = (
    *("_since_step", "_last", "wait_seconds", "_batches_in_epoch", "epoch_batches"),
    *("_taken_ahead", "_has_ended", "_epoch_backwards"),
)


class _Use:
    """Batches and samples of the steps, as one source counts them."""

    def __init__(self) -> None:
        self.batches = self.samples = self._steps = 0
        self.of_steps: Counter[int] = Counter()
        """Number of steps by the batches that they accumulate."""
        self._first = (0, 0, 0)

    def add(self, batches: int, samples: int) -> None:
        """Add a step."""
        self._steps += 1
        self.batches += batches
        self.samples += samples
        self.of_steps[batches] += 1
        if self._steps == SETTLED_STEP:
            self._first = (self.batches, self.samples, self._steps)

    def settled(self) -> tuple[int, int, int]:
        """Return batches, samples and steps, less those of the first steps if there are more."""
        batches, samples, steps = self._first if self._steps > SETTLED_STEP else (0, 0, 0)
        return self.batches - batches, self.samples - samples, self._steps - steps


class BatchStream(Batches):
    """The batches that a script takes from its loaders, or gives to its model where none feeds it.

    Call `stepped` after every step that counts.
    """

    def __init__(self, synchronize: Synchronize, calls: ModelCalls, reads: TrainingLoaders) -> None:
        """Listen to `reads` from now on."""
        self.calls = calls
        self._sizes = reads.sizes
        reads.readers.append(self)
        super().__init__((), self.clock, synchronize)
        self.loader: DataLoader[Any] | None = None
        """The training loader; None until the first step with one of its batches."""
        self.steps = 0
        """Optimizer steps so far."""
        self.is_fed = False
        """True if a torch DataLoader feeds the steps."""
        self._given_out, self._called = _Use(), _Use()
        self._use = self._called
        self._without = 0
        self._sample_bytes = 0
        self._standing = 0.0
        self._last = 0.0
        self._elsewhere = False
        self._closing = 0.0
        self._opening: float | None = None
        self._last_size = 0
        self._since_step: tuple[DataLoader[Any] | None, int, int] = (None, 0, 0)
        self._loaders: weakref.WeakKeyDictionary[Any, DataLoader[Any]] = weakref.WeakKeyDictionary()
        self._read: Iterator[Any] = iter(())
        self._reads: DataLoader[Any] | None = None
        """The loader of `_read`."""
        # The last iteration, with steps and backward passes, boundaries, and counts as it began.
        self._begun_last: tuple[Any, int, int, dict[str, Any]] | None = None
        self._taken_ahead = (0, 0)
        """A batch that the loop has taken before it trains on it, as accelerate's do, and its
        samples. It counts with the step that trains on it."""
        self._has_ended = False
        """True once the loader has given all batches of the epoch."""
        self._backwards = self._epoch_backwards = 0
        """Backward passes until the last step, and before the epoch."""
        self._thread = threading.get_ident()
        self.is_read_apart = False
        """True if a thread of the script's own reads the loader, so that no wait is known."""

    def clock(self) -> float:
        """Return the time of a clock, in seconds, that stops while the script does not train."""
        return time.perf_counter() - self._standing - self.calls.aside_seconds

    def stepped(self) -> None:
        """Record an optimizer step: the last batch's loader is the training loader."""
        loader, batches, samples = self._since_step
        if loader is not None and loader is not self.loader:
            self.loader = loader
            self._iterator, self._elsewhere, self._opening = self._read, False, None
            self._batches_in_epoch, self._epoch_backwards = batches, self._backwards
            self._taken_ahead, self._has_ended = (0, 0), False
        self._backwards = self.calls.backwards
        batches, samples = batches + self._taken_ahead[0], samples + self._taken_ahead[1]
        passed = self._backwards - self._epoch_backwards
        is_ahead = 0 < passed == self._batches_in_epoch - 1 and not self._has_ended and batches > 0
        self._taken_ahead = (1, self._last_size) if is_ahead else (0, 0)
        batches, samples = batches - self._taken_ahead[0], samples - self._taken_ahead[1]
        self.steps, self._thread = self.steps + 1, threading.get_ident()
        self._given_out.add(batches, samples)
        self._called.add(*self.calls.stepped())
        self._without = 0 if batches else self._without + 1
        self.is_fed = self.loader is not None and self._without < _UNFED
        self._use = self._given_out if self.is_fed else self._called
        self._since_step = (loader, 0, 0)
        self._last = time.perf_counter()

    def pass_over(self) -> None:
        """Leave out the time and batches since the last recorded step, except the last batch.

        Called before `stepped` when another optimizer has become the one that counts.
        """
        loader, batches, _ = self._since_step
        self._since_step = (loader, min(1, batches), self._last_size)
        self._stand_still_until(time.perf_counter())

    @property
    def counts_samples(self) -> bool:
        """True if the samples of a step are known; else each step counts as one."""
        return self.is_fed or self._called.samples > 0

    @property
    def batches(self) -> int:
        """Batches used by these steps; backward passes where no loader feeds them."""
        return self._use.batches

    @property
    def samples(self) -> int:
        """Samples used by these steps; steps where samples are unknown."""
        return self._use.samples or (0 if self.counts_samples else self.steps)

    @property
    def sample_bytes(self) -> int:
        """Bytes of the tensors of one sample, from the very first batch."""
        return self._sample_bytes if self.is_fed else self.calls.sample_bytes

    @property
    def accumulation_steps(self) -> int:
        """Batches of most optimizer steps; a scaler skips some steps, and an epoch may end one."""
        return max(1, self._use.of_steps.most_common(1)[0][0]) if self.steps else 1

    @property
    def samples_per_batch(self) -> float:
        """Mean samples per batch: of an epoch if known, else of the observed batches."""
        observed = self._use.samples / max(1, self.batches)
        if not self.is_fed:
            return observed or 1.0
        if self.loader is None or self.loader.batch_size is None:
            return observed
        if self.loader.drop_last or isinstance(self.loader.dataset, IterableDataset):
            return self.loader.batch_size
        samples, batches = length_of(self.loader.sampler), length_of(self.loader)
        return samples / batches if samples and batches else self.loader.batch_size

    @property
    def samples_per_step(self) -> float:
        """Mean samples per optimizer step; several batches if gradients are accumulated.

        The first steps are left out. A gradient scaler skips some while it looks for its scale. An
        optimizer that is not fused does not report them, so the next step is credited with their
        batches.
        """
        batches, samples, steps = self._use.settled()
        if self.is_fed:
            return self.samples_per_batch * batches / max(1, steps)
        return samples / max(1, steps) if self.counts_samples else 1.0

    @property
    def epoch_samples(self) -> int | None:
        """Samples of one epoch, which may be broken off; None if its length is not known."""
        return super().epoch_samples if self.is_fed else None

    def begun(self, loader: DataLoader[Any], iterator: Any, start: float) -> None:
        """Record that an iteration of a loader began."""
        self._loaders[iterator] = loader
        if not torch.is_grad_enabled():  # an evaluation
            self._elsewhere = True
            if iterator is self._iterator:  # that of persistent workers
                self._iterator = iter(())
            return
        self._undo_evaluation()
        if loader is self.loader:
            self._stand_still_until(start)
        counts = {name: vars(self)[name] for name in _COUNTS}
        self._begun_last = (iterator, self._progress, len(self.boundary_seconds), counts)
        if loader is not self.loader:
            self._elsewhere = True
            return
        self._opening = self._closing + time.perf_counter() - start
        self._closing = 0.0
        self._iterator = iterator
        if self._batches_in_epoch and not self._has_ended:
            self.epoch_batches = self._batches_in_epoch
        if self.calls.backwards - self._epoch_backwards < self._batches_in_epoch:
            self._taken_ahead = (0, 0)  # never trained on
        self._batches_in_epoch, self._epoch_backwards = 0, self.calls.backwards
        self._has_ended = False

    def given(self, iterator: Any, start: float, batch: Any) -> None:
        """Record a batch."""
        loader = self._reads if iterator is self._read else self._loaders.get(iterator)
        # An iterator that began with gradients may be read without them.
        may_train = iterator is self._iterator or torch.is_grad_enabled()
        if loader is None or not may_train:
            return
        if self._begun_last is not None and self._begun_last[0] is not iterator:
            self._undo_evaluation()
        seconds, size = time.perf_counter() - start, self._sizes.of(batch, loader) or 1
        if not self._sample_bytes:
            self._sample_bytes = bytes_in(batch) // size
        last, batches, samples = self._since_step
        if last is not loader:
            batches = samples = 0
        self._since_step = (loader, batches + 1, samples + size)
        self._last_size = size
        self._read, self._reads = iterator, loader
        if loader is not self.loader:
            return
        self._iterator = iterator
        if self._elsewhere:
            self._stand_still_until(start)
        self._batches_in_epoch += 1
        opening, self._opening = self._opening, None
        if threading.get_ident() != self._thread:
            self.is_read_apart = True
            return
        if opening is None:
            self.wait_seconds += seconds
        else:
            self.boundary_seconds.append(opening + seconds)

    def ended(self, iterator: Any, start: float) -> None:
        """Record that an iteration gave its last batch."""
        may_train = iterator is self._iterator or torch.is_grad_enabled()
        if may_train and self._loaders.get(iterator) is self.loader is not None:
            self._last = time.perf_counter()
            self._closing, self._has_ended = self._last - start, True
            self.epoch_batches = self._batches_in_epoch

    @property
    def _progress(self) -> int:
        return self.steps + self.calls.backwards

    def _undo_evaluation(self) -> None:
        """Leave out the last iteration, with its time, if nothing was trained since it began."""
        begun, self._begun_last = self._begun_last, None
        if begun is None or begun[1] != self._progress:
            return
        del self.boundary_seconds[begun[2] :]
        vars(self).update(begun[3])
        self._elsewhere = True

    def _stand_still_until(self, moment: float) -> None:
        self._standing += max(0.0, moment - self._last)
        self._last = moment
        self._elsewhere = False
